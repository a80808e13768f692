// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system's own libpcap: found by its path, whatever name this library goes by.
//!
//! Invariants
//! - What it calls of itself is its own (`RTLD_DEEPBIND`), though our functions have the same
//!   names and come first in this process.
//! - Once found it stays, so that no address of it becomes invalid.

use std::ffi::{CStr, CString, OsString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::list::Functions;

/// Exported by this library and by no other libpcap.
const MARK: &CStr = c"ringtap_pcap_version";
/// Where libraries are.
const FOLDERS: [&str; 8] = [
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
    "/opt/lib",
    "/usr/lib/libpcap",
];

static REAL: OnceLock<Result<Functions, String>> = OnceLock::new();

/// The real library's functions, or why there are none.
pub(crate) fn functions() -> Result<&'static Functions, &'static str> {
    match REAL.get_or_init(load) {
        Ok(functions) => Ok(functions),
        Err(why) => Err(why),
    }
}

/// The same if it was found before: for signal handlers.
pub(crate) fn found() -> Option<&'static Functions> {
    REAL.get()?.as_ref().ok()
}

/// A setting of the environment that others than the program's own user may not choose for it.
pub(crate) fn trusted_variable(name: &str) -> Option<OsString> {
    // SAFETY: reads one number that the kernel gave the process.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    match secure {
        true => None,
        false => std::env::var_os(name),
    }
}

/// Whether such a setting is there, and is not 0.
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| value != "0")
}

fn load() -> Result<Functions, String> {
    if let Some(path) = trusted_variable("RINGTAP_LIBPCAP") {
        let path = PathBuf::from(path);
        return open(&path).map_err(|why| format!("RINGTAP_LIBPCAP={}: {why}", path.display()));
    }
    let mut reasons = Vec::new();
    for path in candidates() {
        match open(&path) {
            Ok(functions) => return Ok(functions),
            Err(why) => reasons.push(format!("{}: {why}", path.display())),
        }
    }
    let why = match reasons.is_empty() {
        true => "there is no libpcap.so.* in the usual folders".to_owned(),
        false => reasons.join("; "),
    };
    Err(format!(
        "the system's own libpcap is needed for this: install it (libpcap0.8, libpcap), \
         or name it in RINGTAP_LIBPCAP: {why}"
    ))
}

/// Files that may be libpcap, those of the multiarch folder first.
fn candidates() -> Vec<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = FOLDERS.iter().map(PathBuf::from);
    let mut paths = Vec::new();
    for folder in std::iter::once(PathBuf::from(multiarch)).chain(folders) {
        let mut here = libraries_in(&folder);
        // The names that programs are linked to come before those with whole versions.
        here.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        paths.extend(here);
    }
    paths
}

fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_libpcap = |path: &PathBuf| {
        let name = path.file_name().map(OsStrExt::as_bytes);
        name.is_some_and(|name| name.starts_with(b"libpcap.so."))
    };
    paths.filter(is_libpcap).collect()
}

fn open(path: &Path) -> Result<Functions, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a text; the library's own beginnings run, as when a program links it.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | DEEPBIND) };
    if library.is_null() {
        return Err(last_error());
    }
    // SAFETY: an open library and a text.
    let find = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
    if !find(MARK).is_null() {
        close(library);
        return Err("is Ringtap's own, not the system's".to_owned());
    }
    // SAFETY: a library of this name gives libpcap's functions under libpcap's names.
    match unsafe { Functions::find(find) } {
        Ok(functions) => Ok(functions),
        Err(missing) => {
            close(library);
            Err(format!("has no {missing}: libpcap 1.10 is needed"))
        }
    }
}

/// AddressSanitizer's runtime refuses libraries that look into themselves first.
const DEEPBIND: libc::c_int = match cfg!(fuzzing) {
    true => libc::RTLD_LOCAL,
    false => libc::RTLD_LOCAL | libc::RTLD_DEEPBIND,
};

fn close(library: *mut c_void) {
    // SAFETY: opened just before, and nothing of it is kept.
    let _closed = unsafe { libc::dlclose(library) };
}

fn last_error() -> String {
    // SAFETY: gives NULL or a text of this thread that lasts until the next call.
    let text = unsafe { libc::dlerror() };
    // SAFETY: as above.
    unsafe { crate::text::take(text) }.unwrap_or_else(|| "cannot be loaded".to_owned())
}
