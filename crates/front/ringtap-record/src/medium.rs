// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destinations of recorded bytes: files and standard output.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use ringtap_pool::number::to_u64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;

/// Destination of the bytes.
pub(crate) trait Medium: Send + Sync {
    /// Writes bytes that belong at `offset` of a file; returns their number. A pipe has no offset.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Truncates the file to `size_bytes`.
    fn cut(&self, size_bytes: u64) -> io::Result<()>;

    /// Whether a program reads the bytes, or may read them later.
    fn is_read(&self) -> bool {
        true
    }
}

impl Medium for File {
    fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn cut(&self, size_bytes: u64) -> io::Result<()> {
        if self.metadata()?.is_file() {
            self.set_len(size_bytes)
        } else {
            Err(io::Error::from(io::ErrorKind::InvalidInput))
        }
    }
}

/// Standard output: written bytes cannot be removed.
pub(crate) struct StdoutPipe(File);

impl StdoutPipe {
    pub(crate) fn open() -> io::Result<Self> {
        let owned = io::stdout().as_fd().try_clone_to_owned();
        Ok(StdoutPipe(File::from(owned?)))
    }
}

impl Medium for StdoutPipe {
    fn write_at(&self, bytes: &[u8], _: u64) -> io::Result<usize> {
        (&self.0).write(bytes)
    }

    fn cut(&self, _: u64) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn is_read(&self) -> bool {
        // For a pipe with a closed reading end, the kernel always reports that.
        let mut pipe = [PollFd::new(&self.0, PollFlags::empty())];
        let asked = poll(&mut pipe, Some(&Timespec::default()));
        asked.is_err() || !pipe[0].revents().contains(PollFlags::ERR)
    }
}

/// Writes all bytes from `offset` on; an error says how many were written before.
pub(crate) fn write_all(
    medium: &dyn Medium,
    bytes: &[u8],
    offset: u64,
) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while done < bytes.len() {
        match medium.write_at(&bytes[done..], offset + to_u64(done)) {
            Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

/// Takes the rights of others from a file that was there before; not from a file of another user.
pub(crate) fn make_private(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    let is_own = found.is_file() && found.uid() == geteuid().as_raw();
    if is_own && found.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}
