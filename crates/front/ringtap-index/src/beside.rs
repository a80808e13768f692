// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index beside a capture file: its name, and writing it under a temporary name first.
//!
//! Invariants
//! - One process at a time writes the index of a file.
//! - No symbolic link is followed, and the index has no rights for others that the capture does not have.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

/// End of the name of an index.
const INDEX_ENDING: &str = ".rtindex";
/// End of the name of an index that is not complete.
const NEW: &str = ".new";
/// Rights that an index may have from its capture.
const READ_RIGHTS: u32 = 0o644;

/// Name of the index of a capture file.
#[must_use]
pub fn index_path(capture: &Path) -> PathBuf {
    with_ending(capture, INDEX_ENDING)
}

/// Whether this is the name of an index, complete or not.
pub(crate) fn is_index(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let name = name.strip_suffix(NEW.as_bytes()).unwrap_or(name);
    name.ends_with(INDEX_ENDING.as_bytes())
}

/// Deletes the index of a capture file, if there is one.
///
/// # Errors
///
/// The system refused.
pub fn remove_index(capture: &Path) -> io::Result<()> {
    let complete = remove(&index_path(capture));
    remove(&new_path(capture)).and(complete)
}

fn new_path(capture: &Path) -> PathBuf {
    with_ending(&index_path(capture), NEW)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// An index under its temporary name, deleted unless it is published.
pub(crate) struct NewIndex {
    file: File,
    capture: PathBuf,
    is_published: bool,
    is_complete: bool,
}

impl NewIndex {
    /// Creates the index of a capture file with this mode; `None` if another process writes it.
    pub(crate) fn create(capture: &Path, mode: u32) -> io::Result<Option<Self>> {
        let path = new_path(capture);
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options
                .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
                .open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // The process before may have renamed it meanwhile.
            let (own, named) = (file.metadata()?, fs::symlink_metadata(&path));
            if named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())) {
                file.set_len(0)?;
                file.set_permissions(Permissions::from_mode(mode & READ_RIGHTS | 0o600))?;
                return Ok(Some(NewIndex {
                    file,
                    capture: capture.to_owned(),
                    is_published: false,
                    is_complete: false,
                }));
            }
        }
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the index its name; more can be appended.
    pub(crate) fn publish(&mut self) -> io::Result<()> {
        if !self.is_published {
            fs::rename(new_path(&self.capture), index_path(&self.capture))?;
            self.is_published = true;
        }
        Ok(())
    }

    /// Keeps the index when this value is dropped.
    pub(crate) fn complete(mut self) -> io::Result<()> {
        self.publish()?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for NewIndex {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        let path = if self.is_published {
            index_path(&self.capture)
        } else {
            new_path(&self.capture)
        };
        // A file that cannot be deleted is torn, which its checksums show.
        let _left = remove(&path);
    }
}
