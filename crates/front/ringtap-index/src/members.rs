// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decompresses a file frame by frame, and says where each frame begins.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex};

use flate2::bufread::GzDecoder;
use ringtap_file::Packing;
use ringtap_ipc::mutex::lock;
use ringtap_pool::number::to_u64;

/// A frame of zstd, or a member of a gzip file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompressedFrame {
    /// Offset in the content of the file.
    pub(crate) content: u64,
    /// Offset in the file.
    pub(crate) offset: u64,
}

/// Frames in order, as far as they have been read.
pub(crate) type FrameLog = Arc<Mutex<VecDeque<CompressedFrame>>>;

/// Counts the bytes that its user takes.
struct CountedReader {
    inner: BufReader<Box<dyn Read + Send>>,
    taken: u64,
}

impl Read for CountedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.taken += to_u64(count);
        Ok(count)
    }
}

impl BufRead for CountedReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.taken += to_u64(count);
        self.inner.consume(count);
    }
}

enum FrameDecoder {
    Between(CountedReader),
    Gzip(Box<GzDecoder<CountedReader>>),
    Zstd(zstd::Decoder<'static, CountedReader>),
    Failed,
}

/// The content of a compressed file.
pub(crate) struct FrameReader {
    decoder: FrameDecoder,
    packing: Packing,
    content: u64,
    frames: FrameLog,
}

impl FrameReader {
    /// Reads the stream of a file; the frames appear in the log.
    pub(crate) fn new(stream: Box<dyn Read + Send>, packing: Packing) -> (Self, FrameLog) {
        let frames = FrameLog::default();
        let reader = FrameReader {
            decoder: FrameDecoder::Between(CountedReader {
                inner: BufReader::with_capacity(128 * 1024, stream),
                taken: 0,
            }),
            packing,
            content: 0,
            frames: Arc::clone(&frames),
        };
        (reader, frames)
    }

    /// Begins the next frame, if there is one.
    fn begin(&mut self, mut rest: CountedReader) -> io::Result<bool> {
        if rest.fill_buf()?.is_empty() {
            self.decoder = FrameDecoder::Between(rest);
            return Ok(false);
        }
        lock(&self.frames).push_back(CompressedFrame {
            content: self.content,
            offset: rest.taken,
        });
        self.decoder = match self.packing {
            Packing::Zstd => FrameDecoder::Zstd(zstd::Decoder::with_buffer(rest)?.single_frame()),
            _ => FrameDecoder::Gzip(Box::new(GzDecoder::new(rest))),
        };
        Ok(true)
    }
}

impl Read for FrameReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = match &mut self.decoder {
                FrameDecoder::Gzip(decoder) => decoder.read(into)?,
                FrameDecoder::Zstd(decoder) => decoder.read(into)?,
                FrameDecoder::Between(_) => 0,
                FrameDecoder::Failed => return Err(io::Error::other("an earlier read failed")),
            };
            if count > 0 || into.is_empty() {
                self.content += to_u64(count);
                return Ok(count);
            }
            let rest = match std::mem::replace(&mut self.decoder, FrameDecoder::Failed) {
                FrameDecoder::Between(rest) => rest,
                FrameDecoder::Gzip(decoder) => decoder.into_inner(),
                FrameDecoder::Zstd(decoder) => decoder.finish(),
                FrameDecoder::Failed => continue,
            };
            if !self.begin(rest)? {
                return Ok(0);
            }
        }
    }
}
