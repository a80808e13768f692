// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the system's own libpcap by its path, whatever this library's name is.
//!
//! Invariants
//! - The real library calls its own functions (`RTLD_DEEPBIND`), although this library's have the
//!   same names and come first in the process.
//! - The real library is never unloaded, so its addresses stay valid.

use std::ffi::{CStr, CString, NulError, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringtap_ipc::environment;

use crate::abi::{ERRBUF_SIZE, Pcap};
use crate::error::LibpcapError;
use crate::list::Functions;
use crate::text;

/// Only this library exports this name.
const MARK: &CStr = c"ringtap_pcap_version";
/// Folders of libraries, in addition to the multiarch folder, which comes first.
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
/// AddressSanitizer's runtime refuses libraries with `RTLD_DEEPBIND`.
const DEEPBIND: c_int = if cfg!(fuzzing) {
    libc::RTLD_LOCAL
} else {
    libc::RTLD_LOCAL | libc::RTLD_DEEPBIND
};

static REAL: OnceLock<Result<(Library, Functions), NoLibpcap>> = OnceLock::new();

/// Reason why the real library is missing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoLibpcap {
    #[error("RINGTAP_LIBPCAP={}: {why}", .path.display())]
    Named { path: PathBuf, why: NotLibpcap },
    #[error(
        "the system's own libpcap is needed for this: install it (libpcap0.8, libpcap), or name it in \
         RINGTAP_LIBPCAP: {}", tried(.0)
    )]
    NotFound(Vec<(PathBuf, NotLibpcap)>),
    #[error("the system's libpcap lacks a function of libpcap 1.10")]
    NoFunction,
}

/// Reason why a file is not the real library.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotLibpcap {
    #[error(transparent)]
    Path(#[from] NulError),
    /// In the loader's words.
    #[error("{0}")]
    Loader(String),
    #[error("is Ringtap's own, not the system's")]
    Ours,
    #[error("has no {0}: libpcap 1.10 is needed")]
    Lacks(&'static str),
}

impl From<&NoLibpcap> for LibpcapError {
    fn from(error: &NoLibpcap) -> Self {
        LibpcapError::general(error.to_string())
    }
}

fn tried(files: &[(PathBuf, NotLibpcap)]) -> String {
    if files.is_empty() {
        return "there is no libpcap.so.* in the usual folders".to_owned();
    }
    let reason = |(path, why): &(PathBuf, NotLibpcap)| format!("{}: {why}", path.display());
    files.iter().map(reason).collect::<Vec<_>>().join("; ")
}

/// The real library's functions.
pub(crate) fn functions() -> Result<&'static Functions, &'static NoLibpcap> {
    REAL.get_or_init(load)
        .as_ref()
        .map(|(_, functions)| functions)
}

/// The real library's functions if the library is loaded already; for signal handlers.
pub(crate) fn found() -> Option<&'static Functions> {
    Some(&REAL.get()?.as_ref().ok()?.1)
}

/// Address of the real library's function with this name.
///
/// # Safety
///
/// `name` is a text.
pub(crate) unsafe fn address(name: *const c_char) -> Result<*mut c_void, &'static NoLibpcap> {
    let (library, _) = REAL.get_or_init(load).as_ref()?;
    // SAFETY: an open library; the caller guarantees the text.
    let found = unsafe { libc::dlsym(library.0, name) };
    if found.is_null() {
        Err(&NoLibpcap::NoFunction)
    } else {
        Ok(found)
    }
}

/// A library that is never closed.
struct Library(*mut c_void);

// SAFETY: any thread may look for names in a library.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// A handle of the real library. Dropping this closes the handle.
pub(crate) struct RealHandle {
    pub(crate) functions: &'static Functions,
    pub(crate) p: *mut Pcap,
}

impl RealHandle {
    /// A handle for a device, not activated yet.
    pub(crate) fn create(device: &str) -> Result<Self, LibpcapError> {
        let functions = functions()?;
        let device = CString::new(device);
        let device = device.map_err(|error| LibpcapError::general(error.to_string()))?;
        let mut errbuf: [c_char; ERRBUF_SIZE] = [0; ERRBUF_SIZE];
        // SAFETY: a text and an error buffer.
        let p = unsafe { (functions.pcap_create)(device.as_ptr(), errbuf.as_mut_ptr()) };
        if p.is_null() {
            // SAFETY: libpcap filled it.
            let why = unsafe { text::take(errbuf.as_ptr()) };
            return Err(LibpcapError::general(why.unwrap_or_default()));
        }
        Ok(RealHandle { functions, p })
    }

    /// A handle without a device, optionally with nanoseconds.
    pub(crate) fn dead(dlt: c_int, snap: c_int, nanoseconds: bool) -> Result<Self, LibpcapError> {
        let functions = functions()?;
        let open = functions.pcap_open_dead_with_tstamp_precision;
        // SAFETY: takes three numbers.
        let p = unsafe { open(dlt, snap, nanoseconds.into()) };
        if p.is_null() {
            Err(LibpcapError::general("out of memory"))
        } else {
            Ok(RealHandle { functions, p })
        }
    }

    pub(crate) fn error(&self) -> String {
        // SAFETY: an open handle.
        let why = unsafe { (self.functions.pcap_geterr)(self.p) };
        // SAFETY: a text that is valid while the handle is open.
        unsafe { text::take(why) }.unwrap_or_default()
    }

    /// Returns the handle without closing it.
    pub(crate) fn into_raw(self) -> *mut Pcap {
        std::mem::ManuallyDrop::new(self).p
    }
}

impl Drop for RealHandle {
    fn drop(&mut self) {
        // SAFETY: an open handle that is not shared.
        unsafe { (self.functions.pcap_close)(self.p) };
    }
}

/// Names under which programs load libpcap.
const NAMES: [&CStr; 3] = [c"libpcap.so.1", c"libpcap.so.0.8", c"libpcap.so"];

/// Makes the loader know this library by all of libpcap's names that its paths give it. Otherwise, once the
/// real library is loaded, a program that loads one of that library's names gets it.
fn keep_names() {
    for name in NAMES {
        // SAFETY: a text; loads nothing.
        let _known = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    }
}

fn load() -> Result<(Library, Functions), NoLibpcap> {
    keep_names();
    if let Some(path) = environment::variable("RINGTAP_LIBPCAP") {
        let path = PathBuf::from(path);
        return open(&path).map_err(|why| NoLibpcap::Named { path, why });
    }
    let mut tried = Vec::new();
    for path in candidates() {
        match open(&path) {
            Ok(found) => return Ok(found),
            Err(why) => tried.push((path, why)),
        }
    }
    Err(NoLibpcap::NotFound(tried))
}

/// Paths that may be libpcap, those of the multiarch folder first.
fn candidates() -> Vec<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = FOLDERS.iter().map(PathBuf::from);
    let mut paths = Vec::new();
    for folder in std::iter::once(PathBuf::from(multiarch)).chain(folders) {
        let mut here = libraries_in(&folder);
        // Short names, to which programs are linked, come before those with full versions.
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

fn open(path: &Path) -> Result<(Library, Functions), NotLibpcap> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a text; the library's initialisers run as if a program linked it.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | DEEPBIND) };
    if library.is_null() {
        return Err(NotLibpcap::Loader(last_error()));
    }
    // SAFETY: an open library and a text.
    let find = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
    if !find(MARK).is_null() {
        close(library);
        return Err(NotLibpcap::Ours);
    }
    // SAFETY: a library of this name has libpcap's functions under libpcap's names.
    match unsafe { Functions::find(find) } {
        Ok(functions) => Ok((Library(library), functions)),
        Err(missing) => {
            close(library);
            Err(NotLibpcap::Lacks(missing))
        }
    }
}

fn close(library: *mut c_void) {
    // SAFETY: opened just before; no address in it is kept.
    let _closed = unsafe { libc::dlclose(library) };
}

fn last_error() -> String {
    // SAFETY: returns NULL or a text of this thread that is valid until the next call.
    let why = unsafe { libc::dlerror() };
    // SAFETY: as above.
    unsafe { text::take(why) }.unwrap_or_else(|| "cannot be loaded".to_owned())
}
