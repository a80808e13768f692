// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the bytes of a capture come from; gzip and zstd files are decompressed while they are read.
//!
//! Invariants
//! - Memory does not depend on what a file claims: a frame's window is at most 128 MiB.
//! - A silent pipe holds up nothing beyond [`POLL`].

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::unix::fs::FileExt as _,
};

use flate2::read::MultiGzDecoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// First bytes of a gzip file.
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];
/// First bytes of a zstd file.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// First bytes of a frame that zstd skips, but for the lowest four bits of the first one (RFC 8878).
const ZSTD_SKIPPABLE: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];

/// Whether a zstd stream may begin with these bytes.
pub(super) fn is_zstd(start: [u8; 4]) -> bool {
    let [first, rest @ ..] = start;
    start == ZSTD || [first & 0xf0, rest[0], rest[1], rest[2]] == ZSTD_SKIPPABLE
}

/// Longest wait for a pipe between two looks at the stop flag.
const POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Origin of the bytes.
pub(super) enum Input {
    /// Bytes that come without waiting: those of a file on disk, unpacked.
    Ready(Box<dyn Read + Send>),
    /// A pipe, a terminal or a socket, which may stay silent for ever.
    Pipe(File),
}

impl Input {
    pub(super) fn from_file(file: File) -> io::Result<Self> {
        if file.metadata()?.is_file() {
            Ok(Self::Ready(unpack(file)?))
        } else {
            Ok(Self::Pipe(file))
        }
    }

    /// Reads once; repeats after a signal. `stopped` means the end of input.
    pub(super) fn read(
        &mut self,
        into: &mut [u8],
        stopped: impl Fn() -> bool,
    ) -> io::Result<usize> {
        loop {
            if stopped() {
                return Ok(0);
            }
            let read = match self {
                Self::Ready(stream) => stream.read(into),
                Self::Pipe(pipe) if is_readable(pipe)? => pipe.read(into),
                Self::Pipe(_) => continue,
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

/// Waits a moment; returns whether a read would return bytes or the end at once.
fn is_readable(pipe: &File) -> io::Result<bool> {
    match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&POLL)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// By gzip.
    Gzip,
    /// By zstd.
    Zstd,
}

impl Packing {
    /// The packing of a file that starts with these bytes; four are enough.
    #[must_use]
    pub fn from_start(start: &[u8]) -> Self {
        match *start {
            [first, second, ..] if [first, second] == GZIP => Packing::Gzip,
            [a, b, c, d, ..] if is_zstd([a, b, c, d]) => Packing::Zstd,
            _ => Packing::Plain,
        }
    }

    /// The content of a stream with this packing.
    ///
    /// # Errors
    ///
    /// Memory is short.
    pub fn unpack(self, stream: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(stream)),
            Packing::Zstd => Box::new(zstd::Decoder::new(stream)?),
            Packing::Plain => Box::new(stream),
        })
    }
}

/// A file's content as a stream.
fn unpack(mut file: File) -> io::Result<Box<dyn Read + Send>> {
    let mut start = [0; 4];
    let at = file.stream_position()?;
    let count = file.read_at(&mut start, at)?;
    Packing::from_start(&start[..count]).unpack(file)
}
