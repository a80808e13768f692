// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--direct-io`: files written past the kernel's page cache, by a thread, so that the recorder fills the next
//! buffer while the disk works.
//!
//! Invariants
//! - Every byte of the file is one of the recording: nothing is padded.
//! - Parts are written in their order. After an error the thread writes nothing more.
//! - At most [`PARTS`] parts are on their way.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use ringtap_pool::number::to_u64;
use rustix::fs::{OFlags, fcntl_setfl};

use super::medium::{Medium, write_all};
use super::output::FileContent;

/// Direct I/O needs addresses, offsets and lengths that are multiples of the disk's block size, at most this
/// many bytes.
pub(super) const ALIGNMENT: usize = 4096;

/// Size of a buffer in bytes. Parts of a quarter reach two thirds of the disk's rate; larger ones, and several
/// threads, are not faster.
pub(super) const PART_BYTES: usize = 1024 * 1024;

/// Most parts that the thread writes or that wait for it.
const PARTS: usize = 4;

/// A file that is written past the page cache where address, offset and length allow it.
pub(super) struct DirectFile(File);

impl DirectFile {
    /// Opens a file with these options.
    ///
    /// # Errors
    ///
    /// It is no regular file, or its file system has no direct I/O.
    pub(super) fn open(options: &mut OpenOptions, name: &str) -> io::Result<Self> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
        let file = options.custom_flags(direct).open(name);
        let file = file.map_err(explained)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("--direct-io needs a regular file"));
        }
        Ok(DirectFile(file))
    }
}

impl Medium for DirectFile {
    /// Writes whole parts of [`ALIGNMENT`] bytes past the page cache; through it the rest, which the kernel
    /// keeps consistent with later direct writes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let whole = &bytes[..aligned(bytes.len())];
        let is_aligned = bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
            && offset.is_multiple_of(to_u64(ALIGNMENT));
        if is_aligned && !whole.is_empty() {
            return FileExt::write_at(&self.0, whole, offset).map_err(explained);
        }
        fcntl_setfl(&self.0, OFlags::empty())?;
        let written = FileExt::write_at(&self.0, bytes, offset);
        fcntl_setfl(&self.0, OFlags::DIRECT)?;
        written
    }

    fn cut(&self, size_bytes: u64) -> io::Result<()> {
        self.0.set_len(size_bytes)
    }
}

/// What EINVAL means.
fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidInput => {
            io::Error::other("the file system has no direct I/O: leave out --direct-io")
        }
        _ => error,
    }
}

/// The largest multiple of [`ALIGNMENT`] in this number of bytes.
pub(super) fn aligned(bytes: usize) -> usize {
    bytes - bytes % ALIGNMENT
}

/// Empties a buffer, up to bytes that align the following ones for direct I/O; returns their number.
pub(super) fn align(buffer: &mut Vec<u8>) -> usize {
    buffer.clear();
    buffer.resize(buffer.as_ptr().align_offset(ALIGNMENT), 0);
    buffer.len()
}

/// Part of a file.
pub(super) struct FilePart {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) buffer: Vec<u8>,
    /// The part in the buffer.
    pub(super) range: Range<usize>,
    /// Offset of the part in the file.
    pub(super) offset: u64,
    /// Whole blocks that are in the file for certain once the part is written.
    pub(super) holds: FileContent,
}

/// The thread that writes, with the ends of its two channels.
pub(super) struct WriteThread {
    parts: Sender<FilePart>,
    written: Receiver<(FilePart, io::Result<()>)>,
    /// Number of parts on their way.
    pending: usize,
    spare: Vec<Vec<u8>>,
}

impl WriteThread {
    pub(super) fn start() -> io::Result<Self> {
        let (parts, to_do) = channel::<FilePart>();
        let (done, written) = channel();
        let work = move || {
            let mut has_failed = false;
            for part in to_do {
                let bytes = &part.buffer[part.range.clone()];
                let result = match has_failed {
                    true => Err(ended()),
                    false => {
                        write_all(&*part.medium, bytes, part.offset).map_err(|(_, cause)| cause)
                    }
                };
                has_failed |= result.is_err();
                if done.send((part, result)).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new().name("write".into()).spawn(work)?;
        Ok(Self {
            parts,
            written,
            pending: 0,
            spare: Vec::new(),
        })
    }

    /// Whether a part has to be taken before the next one.
    pub(super) fn is_full(&self) -> bool {
        self.pending >= PARTS
    }

    /// Whether no part is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// A buffer for the next part.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let spare = self.spare.pop();
        spare.unwrap_or_else(|| Vec::with_capacity(PART_BYTES + ALIGNMENT))
    }

    /// Sends a part to the thread.
    pub(super) fn submit(&mut self, part: FilePart) -> io::Result<()> {
        self.pending += 1;
        self.parts.send(part).map_err(|_| ended())
    }

    /// Waits until the oldest part is written; `None` if no part is on its way.
    pub(super) fn take(&mut self) -> Option<io::Result<FileContent>> {
        self.pending = self.pending.checked_sub(1)?;
        Some(match self.written.recv() {
            Ok((part, result)) => {
                self.spare.push(part.buffer);
                result.map(|()| part.holds)
            }
            Err(_) => Err(ended()),
        })
    }
}

fn ended() -> io::Error {
    io::Error::other("the writing thread has ended")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringtap_file::Format;

    use super::super::output::{Output, WriteMode};
    use super::*;

    /// A disk that answers each write of this number of bytes so.
    struct FakeDisk(fn(usize) -> io::Result<usize>);

    impl Medium for FakeDisk {
        fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
            (self.0)(bytes.len())
        }

        fn cut(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_is_reported_whenever_the_recorder_learns_of_it() {
        let full = FakeDisk(|_| Err(io::ErrorKind::StorageFull.into()));
        let mut output = Output::new("disk", Arc::new(full));
        let thread = WriteThread::start().unwrap();
        output.begin(Format::Pcapng, WriteMode::Direct(thread));
        let error = loop {
            match output.buffer(PART_BYTES / 2) {
                Ok(buffer) => buffer.resize(buffer.len() + PART_BYTES / 2, 0),
                Err(error) => break error,
            }
            // The thread has failed before it gets the next part.
            thread::sleep(Duration::from_millis(20));
        };
        let text = error.to_string();
        assert!(text.contains("no storage space"), "{text}");
    }

    #[test]
    fn a_recorder_waits_for_a_slow_disk_and_needs_no_more_memory() {
        let slow = FakeDisk(|bytes| {
            thread::sleep(Duration::from_millis(10));
            Ok(bytes)
        });
        let mut output = Output::new("disk", Arc::new(slow));
        let thread = WriteThread::start().unwrap();
        output.begin(Format::Pcapng, WriteMode::Direct(thread));
        for _ in 0..20 * 1024 {
            let buffer = output.buffer(1024).unwrap();
            buffer.extend_from_slice(&[0; 1024]);
        }
        output.flush().unwrap();
        let WriteMode::Direct(thread) = output.take_mode() else {
            panic!("another mode");
        };
        assert!(thread.spare.len() <= PARTS, "{}", thread.spare.len());
    }
}
