// SPDX-License-Identifier: MIT OR Apache-2.0
//! A buffer that moves over a file or pipe and tracks the byte offset.
//!
//! Invariants
//! - `start <= end <= buffer.len()`; `buffer[start..end]` is read and not yet taken.
//! - `offset` is the position in the file of `buffer[start]`.
//! - The buffer grows only with arriving bytes, so that a false length cannot exhaust memory.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use ringtap_pool::number::to_u64;

use super::{
    damage::{Damage, ReadError},
    input::Input,
};

/// Large enough that the cost of system calls disappears, small enough for the second-level cache.
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

    /// Ends the input once `stop` is set.
    pub(super) fn stop_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Some(stop);
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Relaxed))
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.input, Input::Pipe(_))
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Position in the file of the next byte to take.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes in the buffer.
    #[inline]
    pub(super) fn ready(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The bytes of a range from [`take`](Self::take), valid until the next `fill`.
    #[inline]
    pub(super) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Reverses the order of the first four bytes of a range.
    pub(super) fn swap(&mut self, range: &Range<usize>) {
        if let Some(word) = self.buffer[range.clone()].first_chunk_mut::<4>() {
            word.reverse();
        }
    }

    /// Reads until `wanted` bytes are ready; returns the number of ready bytes, fewer only at the end.
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
                        offset: self.offset + to_u64(self.end),
                        cause,
                    });
                }
            }
        }
        Ok(self.end)
    }

    /// Consumes `count` ready bytes and returns their range.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> Range<usize> {
        let first = self.start;
        self.start = (first + count).min(self.end);
        self.offset += to_u64(self.start - first);
        first..self.start
    }

    #[cold]
    pub(super) fn truncated(&self, what: &'static str, needed: usize, found: usize) -> ReadError {
        ReadError::Truncated {
            file: self.file.clone(),
            offset: self.offset,
            what,
            needed: to_u64(needed),
            found: to_u64(found),
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

    /// The error for a variant of a format.
    #[cold]
    pub(super) fn unsupported(&self, variant: String) -> ReadError {
        ReadError::Unsupported {
            file: self.file.clone(),
            offset: self.offset,
            variant,
        }
    }
}
