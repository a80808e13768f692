// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compresses buffers on threads of their own, so that the recorder only writes.
//!
//! Invariants
//! - Each buffer becomes one frame (zstd) or member (gzip), and a file of whole frames is valid.

use std::io::{self, Write as _};
use std::str::FromStr;
use std::thread;

use flate2::write::GzEncoder;
use zstd::zstd_safe::CParameter;

use crate::totals::PacketTotals;
use crate::workers::Workers;

/// Buffers that a thread holds: one to compress, one that waits.
const BUFFERS_PER_THREAD: usize = 2;
/// Most threads; four compress more than most disks take.
const MAX_THREADS: usize = 4;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip with this level.
    Gzip(u32),
    /// zstd with this level.
    Zstd(i32),
}

impl Compression {
    /// gzip with the fastest level: a recorder has to keep up.
    pub const GZIP: Self = Self::Gzip(1);
    /// zstd with the fastest level.
    pub const ZSTD: Self = Self::Zstd(1);

    /// The compression that the ending of a file's name asks for.
    pub(crate) fn from_file_name(file: &str) -> Option<Self> {
        [Self::GZIP, Self::ZSTD]
            .into_iter()
            .find(|method| file.ends_with(method.ending()))
    }

    /// Ending of names of files that are compressed so.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Self::Gzip(_) => ".gz",
            Self::Zstd(_) => ".zst",
        }
    }
}

/// A text is no method of compression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not zstd, zstd:1 to zstd:19, gzip, or gzip:1 to gzip:9")]
pub struct CompressionError(String);

impl FromStr for Compression {
    type Err = CompressionError;

    /// `zstd`, `zstd:9`, `gzip`, `gzip:6`.
    fn from_str(text: &str) -> Result<Self, CompressionError> {
        let wrong = || CompressionError(text.to_owned());
        let (method, level) = match text.split_once(':') {
            Some((method, level)) => (method, Some(level.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        match (method, level.unwrap_or(1)) {
            ("gzip", level @ 1..=9) => Ok(Self::Gzip(level.into())),
            ("zstd", level @ 1..=19) => Ok(Self::Zstd(level.into())),
            _ => Err(wrong()),
        }
    }
}

/// The threads; each buffer has the packets up to its end with it, and becomes a frame.
pub(crate) type Compressor = Workers<PacketTotals, Vec<u8>>;

/// Starts the threads.
pub(crate) fn start(method: Compression) -> io::Result<Compressor> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let works = (0..cores.min(MAX_THREADS)).map(|_| compressing(method));
    let works = works.collect::<io::Result<_>>()?;
    Workers::start("compress", BUFFERS_PER_THREAD, works)
}

/// A function that makes a frame of a buffer.
type MakeFrame = Box<dyn FnMut(&[u8], &PacketTotals) -> io::Result<Vec<u8>> + Send>;

fn compressing(method: Compression) -> io::Result<MakeFrame> {
    Ok(match method {
        Compression::Gzip(level) => Box::new(move |buffer, _| {
            let level = flate2::Compression::new(level);
            let mut frame = GzEncoder::new(Vec::with_capacity(buffer.len()), level);
            frame.write_all(buffer)?;
            frame.finish()
        }),
        Compression::Zstd(level) => {
            let mut zstd = zstd::bulk::Compressor::new(level)?;
            zstd.set_parameter(CParameter::ChecksumFlag(true))?;
            Box::new(move |buffer, _| zstd.compress(buffer))
        }
    })
}
