// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--direct-io`: files written past the kernel's page cache, by a thread, so that the recorder fills the next
//! buffer while the disk works.
//!
//! Invariants
//! - Every byte of the file is one of the recording: nothing is padded.
//! - After an error the thread writes nothing more.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::sync::Arc;

use ringtap_pool::number::to_u64;
use rustix::fs::{OFlags, fcntl_setfl};

use crate::medium::{Medium, make_private, write_all};
use crate::totals::FileContent;
use crate::workers::Workers;

/// Direct I/O needs addresses, offsets and lengths that are multiples of the disk's block size, at most this
/// many bytes.
pub(crate) const ALIGNMENT: usize = 4096;

/// Size of a buffer in bytes. Parts of a quarter reach two thirds of the disk's rate; larger ones, and several
/// threads, are not faster.
pub(crate) const PART_BYTES: usize = 1024 * 1024;

/// Most parts that the thread writes or that wait for it.
const PARTS: usize = 4;

/// A file that is written past the page cache where address, offset and length allow it.
pub(crate) struct DirectFile(File);

impl DirectFile {
    /// Opens a file with these options and flags.
    ///
    /// # Errors
    ///
    /// It is no regular file, or its file system has no direct I/O.
    pub(crate) fn open(options: &mut OpenOptions, name: &str, flags: i32) -> io::Result<Self> {
        let flags = flags | OFlags::DIRECT.bits().cast_signed();
        let file = options.custom_flags(flags).open(name).map_err(explained)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("`direct_io` needs a regular file"));
        }
        make_private(&file)?;
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

/// Adds the likely cause to EINVAL.
fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidInput => {
            io::Error::other("the file system has no direct I/O: leave out `direct_io`")
        }
        _ => error,
    }
}

/// The largest multiple of [`ALIGNMENT`] in this number of bytes.
pub(crate) fn aligned(bytes: usize) -> usize {
    bytes - bytes % ALIGNMENT
}

/// A buffer with only the bytes that align the following ones for direct I/O.
pub(crate) fn aligned_buffer(thread: &mut WriteThread) -> Vec<u8> {
    let mut buffer = thread.buffer(PART_BYTES + ALIGNMENT);
    buffer.resize(buffer.as_ptr().align_offset(ALIGNMENT), 0);
    buffer
}

/// Bytes to be written to a file.
pub(crate) struct WriteRequest {
    pub(crate) medium: Arc<dyn Medium>,
    /// The bytes in their buffer.
    pub(crate) range: Range<usize>,
    /// Their offset in the file.
    pub(crate) offset: u64,
    /// Whole blocks that are in the file for certain once they are written.
    pub(crate) holds: FileContent,
}

/// The thread that writes.
pub(crate) type WriteThread = Workers<WriteRequest, ()>;

/// Starts the thread.
pub(crate) fn start() -> io::Result<WriteThread> {
    let mut has_failed = false;
    let write = move |buffer: &[u8], request: &WriteRequest| {
        if has_failed {
            return Err(io::Error::other("an earlier part could not be written"));
        }
        let written = write_all(
            &*request.medium,
            &buffer[request.range.clone()],
            request.offset,
        );
        has_failed = written.is_err();
        written.map_err(|(_, cause)| cause)
    };
    Workers::start("write", PARTS, vec![write])
}

#[cfg(test)]
mod tests {
    use std::thread;
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
        let mode = WriteMode::Direct(start().unwrap());
        let mut output = Output::new("disk", Arc::new(full), Format::Pcapng, mode);
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
        let mode = WriteMode::Direct(start().unwrap());
        let mut output = Output::new("disk", Arc::new(slow), Format::Pcapng, mode);
        for _ in 0..20 * 1024 {
            let buffer = output.buffer(1024).unwrap();
            buffer.extend_from_slice(&[0; 1024]);
        }
        output.flush().unwrap();
        let WriteMode::Direct(thread) = &output.mode else {
            panic!("another mode");
        };
        assert!(thread.spare.len() <= PARTS, "{}", thread.spare.len());
    }
}
