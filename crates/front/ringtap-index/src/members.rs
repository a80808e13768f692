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

/// Frames in order, as far as they have been read and not been asked for; no two begin at the same content.
type FrameLog = Arc<Mutex<VecDeque<CompressedFrame>>>;

/// Where the frames of a file begin.
#[derive(Default)]
pub(crate) struct FrameStarts {
    /// `None`: the file is not compressed.
    log: Option<FrameLog>,
    current: CompressedFrame,
}

impl FrameStarts {
    /// The frame of a place in the content, not before the last one; of a file that is not compressed, the place.
    pub(crate) fn frame_at(&mut self, content: u64) -> CompressedFrame {
        let Some(log) = &self.log else {
            return CompressedFrame {
                content,
                offset: content,
            };
        };
        let mut log = lock(log);
        while log.front().is_some_and(|frame| frame.content <= content) {
            self.current = log.pop_front().unwrap_or_default();
        }
        self.current
    }
}

/// The content of a file from its stream, and the frames that were found in it.
pub(crate) fn unpack(
    stream: Box<dyn Read + Send>,
    packing: Packing,
) -> (Box<dyn Read + Send>, FrameStarts) {
    match packing {
        Packing::Plain => (stream, FrameStarts::default()),
        packing => {
            let (content, frames) = FrameReader::new(stream, packing);
            (Box::new(content), frames)
        }
    }
}

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
struct FrameReader {
    decoder: FrameDecoder,
    packing: Packing,
    content: u64,
    frames: FrameLog,
}

impl FrameReader {
    fn new(stream: Box<dyn Read + Send>, packing: Packing) -> (Self, FrameStarts) {
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
        let starts = FrameStarts {
            log: Some(frames),
            current: CompressedFrame::default(),
        };
        (reader, starts)
    }

    /// Begins the next frame, if there is one.
    fn begin(&mut self, mut rest: CountedReader) -> io::Result<bool> {
        if rest.fill_buf()?.is_empty() {
            self.decoder = FrameDecoder::Between(rest);
            return Ok(false);
        }
        let mut frames = lock(&self.frames);
        // The frame before had no content, so no place is in it.
        if frames
            .back()
            .is_some_and(|last| last.content == self.content)
        {
            frames.pop_back();
        }
        frames.push_back(CompressedFrame {
            content: self.content,
            offset: rest.taken,
        });
        drop(frames);
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
mod tests {
    use super::*;

    #[test]
    fn frames_without_content_are_not_kept() {
        let frame = |content: &[u8]| zstd::encode_all(content, 1).unwrap();
        let empty = frame(b"").repeat(10_000);
        let file = [frame(b"first"), empty, frame(b"second")].concat();
        let last = to_u64(file.len() - frame(b"second").len());
        let stream = Box::new(io::Cursor::new(file));
        let (mut content, mut frames) = FrameReader::new(stream, Packing::Zstd);
        let mut all = Vec::new();
        content.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"firstsecond");
        assert_eq!(lock(&content.frames).len(), 2);
        let found = frames.frame_at(5);
        assert_eq!((found.content, found.offset), (5, last));
    }
}
