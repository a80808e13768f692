// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compresses buffers on threads of their own, so that the recorder only writes.
//!
//! Invariants
//! - Each buffer becomes one frame (zstd) or member (gzip); frames keep the order of the buffers, and a
//!   file of whole frames is valid.
//! - At most [`BUFFERS_PER_THREAD`] buffers per thread are on their way.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use flate2::write::GzEncoder;
use zstd::zstd_safe::CParameter;

use super::output::PacketTotals;

/// Buffers that a thread holds: one to compress, one that waits.
const BUFFERS_PER_THREAD: usize = 2;
/// Most threads; four compress more than most disks take.
const MOST_THREADS: usize = 4;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// gzip with this level.
    Gzip(u32),
    /// zstd with this level.
    Zstd(i32),
}

impl Compression {
    /// The fastest level: a recorder has to keep up.
    const GZIP: Self = Self::Gzip(1);
    const ZSTD: Self = Self::Zstd(1);

    /// What the ending of a file's name asks for.
    pub(crate) fn of_name(file: &str) -> Option<Self> {
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

impl FromStr for Compression {
    type Err = String;

    /// `zstd`, `zstd:9`, `gzip`, `gzip:6`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("\"{text}\" is not zstd, zstd:1 to zstd:19, gzip, or gzip:1 to gzip:9");
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

/// A compressed buffer, and the buffer to use again.
struct CompressedBuffer {
    bytes: Vec<u8>,
    buffer: Vec<u8>,
}

/// A thread, with the ends of its two channels.
struct CompressThread {
    buffers: Sender<Vec<u8>>,
    frames: Receiver<io::Result<CompressedBuffer>>,
}

/// The threads, and what is on its way through them.
pub(super) struct Compressor {
    workers: Vec<CompressThread>,
    /// Number of the next buffer; buffer n goes through worker n modulo their number.
    next: usize,
    /// For each buffer on its way, oldest first, the packets up to its end.
    pending: VecDeque<PacketTotals>,
    spare: Option<Vec<u8>>,
}

impl Compressor {
    /// Starts the threads.
    pub(super) fn start(method: Compression) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers = (0..cores.min(MOST_THREADS)).map(|_| start(method));
        Ok(Self {
            workers: workers.collect::<io::Result<_>>()?,
            next: 0,
            pending: VecDeque::new(),
            spare: None,
        })
    }

    /// Whether a frame has to be taken before the next buffer.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= self.workers.len() * BUFFERS_PER_THREAD
    }

    /// Whether no buffer is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Sends a buffer to its thread, with the packets up to its end; returns an empty one.
    pub(super) fn submit(&mut self, buffer: Vec<u8>, totals: PacketTotals) -> io::Result<Vec<u8>> {
        let worker = &self.workers[self.next % self.workers.len()];
        let capacity = buffer.capacity();
        worker.buffers.send(buffer).map_err(|_| ended())?;
        self.next += 1;
        self.pending.push_back(totals);
        let spare = self.spare.take();
        Ok(spare.unwrap_or_else(|| Vec::with_capacity(capacity)))
    }

    /// Waits for the oldest frame; `None` if no buffer is on its way.
    pub(super) fn take(&mut self) -> Option<io::Result<(Vec<u8>, PacketTotals)>> {
        let worker = self.next.wrapping_sub(self.pending.len()) % self.workers.len();
        let totals = self.pending.pop_front()?;
        let frame = self.workers[worker].frames.recv();
        Some(frame.unwrap_or_else(|_| Err(ended())).map(|frame| {
            self.spare = Some(frame.buffer);
            (frame.bytes, totals)
        }))
    }
}

fn ended() -> io::Error {
    io::Error::other("the compressing thread has ended")
}

fn start(method: Compression) -> io::Result<CompressThread> {
    let (buffers, to_do) = channel::<Vec<u8>>();
    let (done, frames) = channel();
    let mut compress = compressing(method)?;
    let work = move || {
        for mut buffer in to_do {
            let frame = compress(&buffer);
            buffer.clear();
            if done
                .send(frame.map(|bytes| CompressedBuffer { bytes, buffer }))
                .is_err()
            {
                break;
            }
        }
    };
    thread::Builder::new().name("compress".into()).spawn(work)?;
    Ok(CompressThread { buffers, frames })
}

/// A function that makes a frame of a buffer.
type MakeFrame = Box<dyn FnMut(&[u8]) -> io::Result<Vec<u8>> + Send>;

fn compressing(method: Compression) -> io::Result<MakeFrame> {
    Ok(match method {
        Compression::Gzip(level) => Box::new(move |buffer: &[u8]| {
            let level = flate2::Compression::new(level);
            let mut frame = GzEncoder::new(Vec::with_capacity(buffer.len()), level);
            frame.write_all(buffer)?;
            frame.finish()
        }),
        Compression::Zstd(level) => {
            let mut zstd = zstd::bulk::Compressor::new(level)?;
            zstd.set_parameter(CParameter::ChecksumFlag(true))?;
            Box::new(move |buffer: &[u8]| zstd.compress(buffer))
        }
    })
}
