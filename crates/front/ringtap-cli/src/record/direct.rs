// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--direct-io`: a file written past the kernel's page cache.
//!
//! Invariants
//! - Every byte of the file is one of the recording: nothing is padded.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};

use ringtap_pool::number::to_u64;
use rustix::fs::{OFlags, fcntl_setfl};

use super::output::Medium;

/// Direct I/O needs addresses, offsets and lengths that are multiples of the disk's block size, at most this
/// many bytes.
pub(super) const ALIGNMENT: usize = 4096;

/// A file that is written past the page cache where address, offset and length allow it.
pub(super) struct DirectFile {
    file: File,
    /// Writes go past the page cache now.
    is_direct: bool,
}

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
        Ok(DirectFile {
            file,
            is_direct: true,
        })
    }

    fn set_direct(&mut self, on: bool) -> io::Result<()> {
        if self.is_direct != on {
            let flags = match on {
                true => OFlags::DIRECT,
                false => OFlags::empty(),
            };
            fcntl_setfl(&self.file, flags)?;
            self.is_direct = on;
        }
        Ok(())
    }
}

impl Medium for DirectFile {
    /// Writes whole parts of [`ALIGNMENT`] bytes past the page cache; through it the rest, which the kernel
    /// keeps consistent with later direct writes.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let whole = &bytes[..bytes.len() - bytes.len() % ALIGNMENT];
        let is_aligned = bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
            && offset.is_multiple_of(to_u64(ALIGNMENT));
        if whole.is_empty() || !is_aligned {
            self.set_direct(false)?;
            return FileExt::write_at(&self.file, bytes, offset);
        }
        self.set_direct(true)?;
        FileExt::write_at(&self.file, whole, offset).map_err(explained)
    }

    fn cut(&mut self, size_bytes: u64) -> io::Result<()> {
        self.file.set_len(size_bytes)
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
