// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture file on disk: what identifies it, and its content from a place on.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use ringtap_file::{FileReader, Packing, ReadError};
use ringtap_pool::number::{to_u32, to_u64, to_usize};
use rustix::fs::OFlags;

use crate::layout::{BlockEntry, FileState, MAX_SAMPLE, Sample};

/// An open capture file.
pub(crate) struct CaptureFile {
    pub(crate) file: Arc<File>,
    /// Name in messages.
    pub(crate) name: String,
    pub(crate) packing: Packing,
    /// The first bytes of the file, as they were when it was opened.
    pub(crate) head: Sample,
    pub(crate) state: FileState,
    /// Device and inode.
    pub(crate) identity: (u64, u64),
    pub(crate) mode: u32,
}

impl CaptureFile {
    /// Opens a regular file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        CaptureFile::new(open(path)?, path)
    }

    /// A file that was opened with this path.
    pub(crate) fn new(file: File, path: &Path) -> io::Result<Self> {
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("is not a file on disk"));
        }
        let mut start = [0; 4096];
        let count = read_up_to(&file, &mut start, 0)?;
        let start = &start[..count];
        Ok(CaptureFile {
            name: path.to_string_lossy().into_owned(),
            packing: Packing::from_start(start),
            head: sample_of(start),
            state: state(&found),
            identity: (found.dev(), found.ino()),
            mode: found.mode(),
            file: Arc::new(file),
        })
    }

    /// The state of the file now.
    pub(crate) fn state_now(&self) -> io::Result<FileState> {
        Ok(state(&self.file.metadata()?))
    }

    /// Whether the file begins with the bytes of this sample.
    pub(crate) fn begins_with(&self, head: Sample) -> bool {
        self.sample(0, head.length).is_ok_and(|found| found == head)
    }

    /// The first bytes of the file, as they are now.
    pub(crate) fn head_now(&self) -> io::Result<Sample> {
        self.sample(0, MAX_SAMPLE)
    }

    /// A sample of the bytes before `end`.
    pub(crate) fn tail(&self, end: u64) -> io::Result<Sample> {
        let length = to_u64(MAX_SAMPLE).min(end);
        self.sample(end - length, to_u32(length))
    }

    /// Whether the bytes before `end` are those of a sample.
    pub(crate) fn has_tail(&self, end: u64, tail: Sample) -> bool {
        let start = end.checked_sub(u64::from(tail.length));
        start.is_some_and(|start| {
            let found = self.sample(start, tail.length);
            found.is_ok_and(|found| found == tail)
        })
    }

    fn sample(&self, at: u64, length: u32) -> io::Result<Sample> {
        let mut bytes = vec![0; to_usize(length.min(MAX_SAMPLE))];
        let count = read_up_to(&self.file, &mut bytes, at)?;
        Ok(sample_of(&bytes[..count]))
    }

    /// A reader of a block, behind the description of its interfaces.
    pub(crate) fn block(
        &self,
        block: &BlockEntry,
        description: &[u8],
    ) -> Result<FileReader, ReadError> {
        let named = |cause| ReadError::Open {
            file: self.name.clone(),
            cause,
        };
        let mut content = self.content(block.offset).map_err(named)?;
        if block.skip > 0 {
            let mut before = content.as_mut().take(block.skip);
            io::copy(&mut before, &mut io::sink()).map_err(named)?;
        }
        let description = io::Cursor::new(description.to_vec());
        let stream = description.chain(content.take(block.length));
        FileReader::from_stream(&self.name, stream)
    }

    /// The content from an offset of the file on; of a compressed file, from a frame on.
    pub(crate) fn content(&self, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let file = Arc::clone(&self.file);
        self.packing.unpack(FileFrom { file, at: offset })
    }
}

/// Opens a file for reading; never waits for the other end of a pipe.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    options.open(path)
}

/// The bytes of a file from an offset on.
pub(crate) struct FileFrom {
    pub(crate) file: Arc<File>,
    pub(crate) at: u64,
}

impl Read for FileFrom {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(into, self.at)?;
        self.at += to_u64(count);
        Ok(count)
    }
}

fn state(found: &Metadata) -> FileState {
    let seconds = found.mtime().saturating_mul(1_000_000_000);
    FileState {
        bytes: found.size(),
        modified_ns: seconds.saturating_add(found.mtime_nsec()),
    }
}

fn sample_of(bytes: &[u8]) -> Sample {
    Sample {
        length: to_u32(bytes.len()),
        checksum: crc32fast::hash(bytes),
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_up_to(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], at + to_u64(done)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
