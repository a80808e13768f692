// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few captures that a search keeps open.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use crate::data::CaptureFile;

/// Most open captures.
const MAX_OPENED: usize = 16;

/// Open captures, the last used ones last.
#[derive(Default)]
pub(crate) struct OpenedFiles(VecDeque<(usize, CaptureFile)>);

impl OpenedFiles {
    /// The capture with this number, opened if it is not.
    pub(crate) fn get(&mut self, file: usize, path: &Path) -> io::Result<&CaptureFile> {
        let known = self.0.iter().position(|(number, _)| *number == file);
        let known = known.and_then(|place| self.0.remove(place));
        let opened = match known {
            Some(known) => known,
            None => (file, CaptureFile::open(path)?),
        };
        if self.0.len() >= MAX_OPENED {
            self.0.pop_front();
        }
        self.0.push_back(opened);
        match self.0.back() {
            Some((_, data)) => Ok(data),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
