// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few captures that a search keeps open.
//!
//! Invariant: of a file compressed in one piece, successive blocks are decompressed once.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ringtap_file::{FileReader, ReadError};
use ringtap_pool::number::to_u64;

use crate::blocks::FoundBlock;
use crate::data::CaptureFile;
use crate::layout::MAX_BLOCK_BYTES;

/// Most open captures.
const MAX_OPENED: usize = 16;
/// Most streams that wait for the next block of their file.
const MAX_STREAMS: usize = 4;
/// Content before a block, in bytes, from which on a stream is kept.
const FAR_BYTES: u64 = 1 << 20;

/// Open captures, the last used ones last.
pub(crate) struct OpenedFiles {
    files: VecDeque<(usize, CaptureFile)>,
    streams: VecDeque<ContentStream>,
    /// Ends the reading of what comes before a block.
    stop: Arc<AtomicBool>,
}

/// Content of a file from an offset on.
struct ContentStream {
    file: usize,
    at: u64,
    content: Box<dyn Read + Send>,
}

impl OpenedFiles {
    /// None yet.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        OpenedFiles {
            files: VecDeque::new(),
            streams: VecDeque::new(),
            stop,
        }
    }

    /// The capture with this number, opened if it is not.
    pub(crate) fn get(&mut self, file: usize, path: &Path) -> io::Result<&CaptureFile> {
        let known = self.files.iter().position(|(number, _)| *number == file);
        let known = known.and_then(|place| self.files.remove(place));
        let opened = match known {
            Some(known) => known,
            None => (file, CaptureFile::open(path)?),
        };
        if self.files.len() >= MAX_OPENED {
            self.files.pop_front();
        }
        self.files.push_back(opened);
        match self.files.back() {
            Some((_, data)) => Ok(data),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A reader of a block of the capture that was opened last.
    pub(crate) fn block(&mut self, block: &FoundBlock) -> Result<FileReader, ReadError> {
        let missing = || ReadError::Open {
            file: String::new(),
            cause: io::ErrorKind::NotFound.into(),
        };
        let (file, data) = self.files.back().ok_or_else(missing)?;
        let entry = &block.entry;
        let is_far = block.is_scanned && entry.skip >= FAR_BYTES;
        if !is_far || entry.length > MAX_BLOCK_BYTES {
            return data.block(entry, block.description());
        }
        let failed = |cause| ReadError::Open {
            file: data.name.clone(),
            cause,
        };
        let is_before = |stream: &ContentStream| stream.file == *file && stream.at <= block.content;
        let known = self.streams.iter().position(is_before);
        let known = known.and_then(|place| self.streams.remove(place));
        let mut stream = match known {
            Some(known) => known,
            None => ContentStream {
                file: *file,
                at: block.content - entry.skip,
                content: data.content(entry.offset).map_err(failed)?,
            },
        };
        let mut before = stream.content.as_mut().take(block.content - stream.at);
        while !self.stop.load(Relaxed) {
            let mut part = before.by_ref().take(FAR_BYTES);
            if io::copy(&mut part, &mut io::sink()).map_err(failed)? == 0 {
                break;
            }
        }
        let mut bytes = block.description().to_vec();
        let mut content = stream.content.as_mut().take(entry.length);
        let read = content.read_to_end(&mut bytes).map_err(failed)?;
        stream.at = block.content + to_u64(read);
        let name = data.name.clone();
        if self.streams.len() >= MAX_STREAMS {
            self.streams.pop_front();
        }
        self.streams.push_back(stream);
        FileReader::from_stream(&name, io::Cursor::new(bytes))
    }
}
