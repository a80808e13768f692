// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens captures and their indexes before a search comes to them, so that the disk reads many at a time.
//!
//! Invariants
//! - At most [`FILES_AHEAD`] captures and their indexes are open, and not more than [`MAX_BYTES_AHEAD`] of each is
//!   asked for that the search may not need.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use ringtap_pool::number::to_u64;
use rustix::fs::{Advice, OFlags, fadvise};

use crate::beside::index_path;
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
    /// The next capture of these; `None` behind the last one.
    pub(crate) fn next(&mut self, files: &[CapturePath]) -> Option<OpenedPair> {
        while self.opened.len() < FILES_AHEAD
            && let Some(file) = files.get(self.next)
        {
            self.opened.push_back(OpenedPair::new(&file.path));
            self.next += 1;
        }
        self.opened.pop_front()
    }
}

/// Opens a file for reading; never waits for the other end of a pipe.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    options.open(path)
}
