// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture files in folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::beside::is_index;
use crate::note::SearchNote;

/// The files of these paths in order; of a folder, all files in it and in its folders, in the order of their names.
///
/// Links to files are followed, links to folders are not. Indexes are left out. What cannot be read is noted.
pub fn capture_files(paths: &[PathBuf], notes: &mut Vec<SearchNote>) -> Vec<CapturePath> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            below(path, &mut files, notes);
        } else {
            files.push(CapturePath {
                path: path.clone(),
                is_named: true,
            });
        }
    }
    files
}

/// A file to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturePath {
    /// Where it is.
    pub path: PathBuf,
    /// The user named the file, not its folder: it has to be a capture.
    pub is_named: bool,
}

fn below(folder: &Path, files: &mut Vec<CapturePath>, notes: &mut Vec<SearchNote>) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(cause) => return notes.push(unread(folder, &cause)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => paths.push(entry.path()),
            // The system lists no more of the folder.
            Err(cause) => {
                notes.push(unread(folder, &cause));
                break;
            }
        }
    }
    paths.sort();
    for path in paths {
        match kind(&path) {
            Ok(EntryKind::Folder) => below(&path, files, notes),
            Ok(EntryKind::File) if !is_index(&path) => files.push(CapturePath {
                path,
                is_named: false,
            }),
            Ok(_) => {}
            // It has vanished, or is a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => notes.push(unread(&path, &cause)),
        }
    }
}

/// Kind of an entry of a folder.
enum EntryKind {
    Folder,
    /// A file, or a link to one.
    File,
    Other,
}

fn kind(path: &Path) -> io::Result<EntryKind> {
    let entry = path.symlink_metadata()?;
    if entry.is_dir() {
        return Ok(EntryKind::Folder);
    }
    let found = if entry.is_symlink() {
        path.metadata()?
    } else {
        entry
    };
    Ok(if found.is_file() {
        EntryKind::File
    } else {
        EntryKind::Other
    })
}

fn unread(path: &Path, cause: &io::Error) -> SearchNote {
    SearchNote::Unreadable {
        path: path.to_owned(),
        cause: cause.to_string(),
    }
}
