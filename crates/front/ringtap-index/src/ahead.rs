// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens captures and their indexes before a search comes to them, so that the disk reads many at a time.
//!
//! Invariants
//! - At most [`FILES_AHEAD`] captures are open with their indexes. Of each index, at most [`MAX_BYTES_AHEAD`] are read
//!   before the search knows what it needs.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::Path;

use ringtap_pool::number::to_u64;
use rustix::fs::{Advice, fadvise};

use crate::beside::index_path;
use crate::data::open;
use crate::layout::MAX_SAMPLE;
use crate::walk::CapturePath;

/// Captures that are open before they are needed.
const FILES_AHEAD: usize = 16;
/// The part of an index that is read ahead. A larger index has more pages than a search needs.
const MAX_BYTES_AHEAD: u64 = 1 << 20;

/// A capture and its index, opened.
pub(crate) struct OpenedPair {
    pub(crate) capture: io::Result<File>,
    pub(crate) index: Option<File>,
}

/// Captures in their order, the next ones open.
#[derive(Default)]
pub(crate) struct FilesAhead {
    opened: VecDeque<OpenedPair>,
    /// Number of the first capture that is not open.
    next: usize,
}

impl OpenedPair {
    /// Opens both, and lets the system read what a search needs of them first.
    pub(crate) fn new(path: &Path) -> Self {
        let capture = open(path);
        let index = open(&index_path(path)).ok();
        for (file, bytes) in [
            (capture.as_ref().ok(), to_u64(MAX_SAMPLE)),
            (index.as_ref(), MAX_BYTES_AHEAD),
        ] {
            if let Some(file) = file {
                // It is only advice.
                let _slower = fadvise(file, 0, NonZeroU64::new(bytes), Advice::WillNeed);
            }
        }
        OpenedPair { capture, index }
    }
}

impl FilesAhead {
    /// The next capture of these and its number; `None` behind the last one.
    pub(crate) fn next(&mut self, files: &[CapturePath]) -> Option<(usize, OpenedPair)> {
        while self.opened.len() < FILES_AHEAD
            && let Some(file) = files.get(self.next)
        {
            self.opened.push_back(OpenedPair::new(&file.path));
            self.next += 1;
        }
        let first = self.next - self.opened.len();
        Some((first, self.opened.pop_front()?))
    }
}
