// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture files in folders.

use std::fs;
use std::path::{Path, PathBuf};

use crate::beside::is_index;
use crate::note::SearchNote;

/// The files of these paths in order; of a folder, all files in it and in its folders, in the order of their names.
///
/// Links to files are followed, links to folders are not. Indexes are left out.
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
        Err(cause) => {
            notes.push(SearchNote::Folder {
                folder: folder.to_owned(),
                cause: cause.to_string(),
            });
            return;
        }
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Ok(found) = path.symlink_metadata() else {
            continue;
        };
        if found.is_dir() {
            below(&path, files, notes);
        } else if path.is_file() && !is_index(&path) {
            files.push(CapturePath {
                path,
                is_named: false,
            });
        }
    }
}
