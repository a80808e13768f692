// SPDX-License-Identifier: MIT OR Apache-2.0
//! The closed files of a series on disk: deletes the oldest to keep their number and their space.

use std::{fs, io, path::Path};

use ringtap_index::remove_index;

use crate::{
    budget::{AtLimit, Budget},
    error::WriteError,
    names::{FileRing, Names},
    options::RecordOptions,
};

/// Keeps the limits of `-W`, `--max-total` and `--min-free`.
pub(crate) struct FilesOnDisk {
    /// `None`: files are never deleted.
    files: Option<FileRing>,
    count: u32,
    budget: Budget,
    at_limit: AtLimit,
    /// A file that is created replaces the index of one before it, too.
    replaces_indexes: bool,
}

impl FilesOnDisk {
    /// The limits of these options, and the files of earlier runs.
    pub(crate) fn new(options: &RecordOptions, names: &Names) -> Self {
        let (folder, _) = folder_and_name(&options.file);
        let earlier = || FileRing::with(earlier_files(&options.file, names));
        FilesOnDisk {
            files: options.is_ring().then(earlier),
            count: options.file_count.unwrap_or(u32::MAX),
            budget: Budget {
                max_bytes: options.max_total,
                free: options.min_free,
                folder: Path::new(folder).to_owned(),
            },
            at_limit: options.at_limit,
            replaces_indexes: options.index,
        }
    }

    /// Deletes the files beyond the number to keep, before a file of this name is created.
    pub(crate) fn begin(&mut self, name: &str) -> Result<(), WriteError> {
        if self.replaces_indexes {
            remove_index(Path::new(name)).map_err(|cause| WriteError::Delete {
                file: name.to_owned(),
                cause,
            })?;
        }
        let files = self.files.iter_mut();
        let gone = files.flat_map(|files| files.make_room(name, self.count));
        gone.collect::<Vec<_>>()
            .iter()
            .try_for_each(|old| delete(old))
    }

    /// The file that began last is closed, with this size.
    pub(crate) fn close(&mut self, size_bytes: u64) {
        self.files
            .iter_mut()
            .for_each(|files| files.close(size_bytes));
    }

    /// Whether an open file of `size` bytes has room, and so have `next_bytes` of a file after it; deletes the
    /// oldest files for that, if it may.
    pub(crate) fn has_room(&mut self, size: u64, next_bytes: u64) -> Result<bool, WriteError> {
        let closed = self.files.as_ref().map_or(0, FileRing::closed_bytes);
        let excess = self.budget.excess(closed + size, next_bytes);
        let mut excess = excess.map_err(|cause| WriteError::Space {
            folder: self.budget.folder.display().to_string(),
            cause,
        })?;
        while excess > 0 {
            let oldest = match (self.at_limit, &mut self.files) {
                (AtLimit::Delete, Some(files)) => files.oldest_closed(),
                _ => None,
            };
            let Some((name, size_bytes)) = oldest else {
                return Ok(false);
            };
            delete(&name)?;
            excess = excess.saturating_sub(size_bytes);
        }
        Ok(true)
    }
}

/// Folder and name of a path.
fn folder_and_name(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => (".", path),
    }
}

/// The files that earlier runs of this series left, with their sizes, oldest first.
fn earlier_files(pattern: &str, names: &Names) -> Vec<(String, u64)> {
    let (folder, _) = folder_and_name(pattern);
    let mut found = Vec::new();
    // If the folder cannot be read, creating the file fails with the reason.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (Ok(name), Ok(facts)) = (entry.file_name().into_string(), entry.metadata()) else {
            continue;
        };
        if facts.is_file() && names.is_of_series(&name) {
            let name = match pattern.rsplit_once('/') {
                Some((folder, _)) => format!("{folder}/{name}"),
                None => name,
            };
            found.push((facts.modified().ok(), name, facts.len()));
        }
    }
    found.sort();
    let each = found.into_iter();
    each.map(|(_, name, size_bytes)| (name, size_bytes))
        .collect()
}

/// Deletes a file and its index, unless another process did so already.
fn delete(file: &str) -> Result<(), WriteError> {
    match remove_index(Path::new(file)).and(fs::remove_file(file)) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(WriteError::Delete {
            file: file.to_owned(),
            cause,
        }),
        _ => Ok(()),
    }
}
