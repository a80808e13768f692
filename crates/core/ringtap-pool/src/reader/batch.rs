// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that a reader reads in place, lent out until it moves on.

use super::{Gap, RecvError};
use crate::format::Slot;
use crate::ids::{ChunkId, LaneId, widen};
use crate::view::Chunk;

/// How many packets ahead payloads are asked for.
const AHEAD: u32 = 12;

/// Packets of one lane that follow each other, lent out until the next call.
pub struct Batch<'a> {
    pub(super) chunk: Option<Chunk<'a>>,
    pub(super) id: ChunkId,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) lane: LaneId,
    pub(super) first_sequence: u64,
    pub(super) gap: Option<Gap>,
    pub(super) most_bytes: usize,
}

/// One packet in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its slot's words as they lie in the pool. (A slot with all its fields would be put together
    /// in memory and be read in other pieces at once, for which the processor waits.)
    words: [u64; 4],
    /// Its number in its lane, counted from 0 over all captured packets.
    pub sequence: u64,
    /// Its captured bytes.
    pub data: &'a [u8],
}

impl Packet<'_> {
    /// What was written of it.
    #[inline(always)]
    pub fn slot(&self) -> Slot {
        Slot::from_words(self.words)
    }
}

impl<'a> Batch<'a> {
    /// The lane that captured these packets.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// Sequence of the first packet.
    pub fn first_sequence(&self) -> u64 {
        self.first_sequence
    }

    /// What this reader misses just before this batch.
    pub fn gap(&self) -> Option<Gap> {
        self.gap
    }

    /// How many packets there are; never none.
    pub fn len(&self) -> usize {
        widen(self.to - self.from)
    }

    /// Whether there is no packet; never, see [`Next::Empty`](super::Next::Empty).
    pub fn is_empty(&self) -> bool {
        self.to == self.from
    }

    /// Bits of all readers that want one of these packets, or one before them in their chunk.
    #[inline]
    pub fn wanted(&self) -> u64 {
        self.chunk.map_or(0, Chunk::wanted)
    }

    /// The packets, in the order of capture.
    ///
    /// A slot that cannot be (its payload outside the chunk) ends the iteration with an error.
    pub fn packets(&self) -> Packets<'a> {
        self.packets_from(self.from)
    }

    /// None of the packets, for who wants none.
    pub fn no_packets(&self) -> Packets<'a> {
        self.packets_from(self.to)
    }

    fn packets_from(&self, at: u32) -> Packets<'a> {
        Packets {
            chunk: self.chunk,
            id: self.id,
            at,
            to: self.to,
            sequence: self.first_sequence,
            most_bytes: self.most_bytes,
        }
    }
}

/// Iterator over the packets of a [`Batch`].
pub struct Packets<'a> {
    chunk: Option<Chunk<'a>>,
    id: ChunkId,
    at: u32,
    to: u32,
    sequence: u64,
    most_bytes: usize,
}

impl<'a> Iterator for Packets<'a> {
    /// The error is in a box: side by side with a packet's fields, its own would make the compiler
    /// move these in odd pieces, for each of which the processor waits.
    type Item = Result<Packet<'a>, Box<RecvError>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.to {
            return None;
        }
        // SAFETY: `at` is below the count that `advance` observed; the lease is held until the
        // reader is borrowed mutably again, which ends `'a`.
        let found = self
            .chunk
            .and_then(|chunk| unsafe { chunk.packet(self.at) });
        let Some((words, data)) = found else {
            self.at = self.to;
            return Some(Err(Box::new(RecvError::BadChunk(self.id))));
        };
        if let Some(chunk) = self.chunk.filter(|_| self.at + AHEAD < self.to) {
            chunk.will_read(self.at + AHEAD);
        }
        let packet = Packet {
            words,
            sequence: self.sequence,
            data: &data[..data.len().min(self.most_bytes)],
        };
        self.at += 1;
        self.sequence = self.sequence.wrapping_add(1);
        Some(Ok(packet))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = widen(self.to - self.at);
        (left, Some(left))
    }
}
