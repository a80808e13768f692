// SPDX-License-Identifier: MIT OR Apache-2.0
//! A moving window over a file or a pipe that knows its byte offset.
//!
//! Invariants
//! - `start <= end <= buffer.len()`; `buffer[start..end]` is read and not yet taken.
//! - `offset` is the position in the file of `buffer[start]`.
//! - The buffer grows only as bytes really arrive, so a false length cannot exhaust memory.
#![forbid(unsafe_code)]

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{
    damage::{Damage, ReadError},
    reader::Input,
};

/// Large enough that system calls do not show, small enough to stay in the second-level cache.
const WINDOW_BYTES: usize = 256 * 1024;

pub(super) struct Window {
    file: String,
    input: Input,
    stop: Option<Arc<AtomicBool>>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl Window {
    pub(super) fn new(file: String, input: Input) -> Self {
        Self {
            file,
            input,
            stop: None,
            buffer: vec![0; WINDOW_BYTES],
            start: 0,
            end: 0,
            offset: 0,
        }
    }

    /// From now on the input counts as ended once `stop` is set.
    pub(super) fn stop_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Some(stop);
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Relaxed))
    }

    pub(super) fn is_stream(&self) -> bool {
        !matches!(self.input, Input::File(_))
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Position in the file of the next byte to take.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes that are there already.
    #[inline]
    pub(super) fn ready(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The bytes of a range that [`take`](Self::take) gave, valid until the next `fill`.
    #[inline]
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Makes at least `wanted` bytes ready; gives how many are, fewer only at the end of input.
    #[inline]
    pub(super) fn fill(&mut self, wanted: usize) -> Result<usize, ReadError> {
        let ready = self.end - self.start;
        if ready >= wanted {
            return Ok(ready);
        }
        self.refill(wanted)
    }

    #[cold]
    fn refill(&mut self, wanted: usize) -> Result<usize, ReadError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted {
            if self.end == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.input.read(&mut self.buffer[self.end..], || {
                self.stop.as_ref().is_some_and(|stop| stop.load(Relaxed))
            }) {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(cause) => {
                    return Err(ReadError::Read {
                        file: self.file.clone(),
                        offset: self.offset + widen(self.end),
                        cause,
                    });
                }
            }
        }
        Ok(self.end)
    }

    /// Moves past `count` ready bytes and gives their range.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Range<usize> {
        let first = self.start;
        self.start = (first + count).min(self.end);
        self.offset += widen(self.start - first);
        first..self.start
    }

    /// Moves past `count` bytes without keeping them; gives how many there were.
    pub(super) fn skip(&mut self, count: u64) -> Result<u64, ReadError> {
        let mut left = count;
        while left > 0 {
            let ready = self.fill(1)?;
            if ready == 0 {
                break;
            }
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(ready);
            self.take(step);
            left -= widen(step);
        }
        Ok(count - left)
    }

    #[cold]
    pub(super) fn truncated(&self, what: &'static str, needed: usize, found: usize) -> ReadError {
        ReadError::Truncated {
            file: self.file.clone(),
            offset: self.offset,
            what,
            needed: widen(needed),
            found: widen(found),
        }
    }

    #[cold]
    pub(super) fn corrupt(&self, damage: Damage) -> ReadError {
        ReadError::Corrupt {
            file: self.file.clone(),
            offset: self.offset,
            damage,
        }
    }
}

pub(super) fn widen(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl Input {
    /// Reads once; a signal does not count as an error, `stopped` as the end of input.
    fn read(&mut self, into: &mut [u8], stopped: impl Fn() -> bool) -> io::Result<usize> {
        loop {
            if stopped() {
                return Ok(0);
            }
            if !self.wait_readable()? {
                continue;
            }
            match self.stream().read(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}
