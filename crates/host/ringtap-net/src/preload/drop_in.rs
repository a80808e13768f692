// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds Ringtap's libpcap, and gives it to a program that starts.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringtap_ipc::environment;

/// Names of the library in cargo's folder and as installed.
const LIBRARY: [&str; 3] = [
    "libringtap_pcap.so",
    "deps/libringtap_pcap.so",
    "../lib/ringtap/libpcap.so.1",
];

/// Ringtap's libpcap, in place of the system's.
#[derive(Clone, Debug)]
pub struct DropIn {
    library: PathBuf,
    /// The folder in which the library has libpcap's names.
    names: Option<PathBuf>,
}

/// Why there is no library for a program.
#[expect(missing_docs, reason = "messages show what each field means")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DropInError {
    /// The variable names no file.
    #[error("RINGTAP_PCAP={}: there is no such file", .0.display())]
    Named(PathBuf),
    /// The library is not installed.
    #[error(
        "Ringtap's libpcap is not there: `make build` or `make install` puts it beside {}, or name it in RINGTAP_PCAP",
        .program.display()
    )]
    Missing { program: PathBuf },
    /// The library has no absolute path.
    #[error("{}: {cause}", .library.display())]
    Path { library: PathBuf, cause: io::Error },
}

impl DropIn {
    /// The library that the user named in `RINGTAP_PCAP`, or that belongs to this program.
    ///
    /// # Errors
    ///
    /// Each [`DropInError`].
    pub fn beside(program: &Path) -> Result<Self, DropInError> {
        let (found, path) = match environment::variable("RINGTAP_PCAP").map(PathBuf::from) {
            Some(named) if !named.is_file() => return Err(DropInError::Named(named)),
            Some(named) => (named.canonicalize(), named),
            None => {
                let folder = program.parent().unwrap_or(Path::new("/"));
                let mut places = LIBRARY.iter().map(|name| folder.join(name));
                let place = places.find(|place| place.is_file());
                let missing = || DropInError::Missing {
                    program: program.to_owned(),
                };
                let place = place.ok_or_else(missing)?;
                // Does not resolve a symbolic link: libpcap's names are beside the link.
                (std::path::absolute(&place), place)
            }
        };
        let library = found.map_err(|cause| DropInError::Path {
            library: path,
            cause,
        })?;
        let names = folder_of_names(&library);
        Ok(DropIn { library, names })
    }

    /// Makes the loader of a program take this library first.
    pub fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", first(self.library.as_os_str(), "LD_PRELOAD"));
        // For programs that load libpcap by name at run time.
        if let Some(folder) = &self.names {
            command.env(
                "LD_LIBRARY_PATH",
                first(folder.as_os_str(), "LD_LIBRARY_PATH"),
            );
        }
    }
}

fn folder_of_names(library: &Path) -> Option<PathBuf> {
    let folder = library.parent()?;
    let places = [folder.to_owned(), folder.join("library/pcap")];
    let has_both = |folder: &PathBuf| {
        ["libpcap.so.1", "libpcap.so.0.8"]
            .iter()
            .all(|name| folder.join(name).is_file())
    };
    places.into_iter().find(has_both)
}

/// A variable's list of paths with `path` in front.
fn first(path: &OsStr, variable: &str) -> OsString {
    let mut list = path.to_owned();
    if let Some(more) = environment::variable(variable).filter(|more| !more.is_empty()) {
        list.push(":");
        list.push(more);
    }
    list
}
