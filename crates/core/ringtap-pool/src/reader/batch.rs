// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that a reader reads in place, under a lease that the batch owns.

use std::ops::Range;
use std::sync::Arc;

use super::error::RecvError;
use super::lease::Lease;
use crate::format::Slot;
use crate::gap::{CaptureGap, Gap};
use crate::ids::{ChunkId, LaneId};
use crate::number::{to_u32, to_usize};
use crate::view::Chunk;

/// Prefetch distance for payloads, in packets.
const AHEAD: u32 = 12;

/// Consecutive packets of one lane.
///
/// A batch may be kept, sent to another thread, and outlive its reader; its packets do not change.
/// Dropping it releases them. The chunk of a kept batch counts against the reader's credit.
pub struct ChunkBatch {
    pub(super) lease: Arc<Lease>,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) max_bytes: usize,
    /// The lane that captured these packets.
    pub lane: LaneId,
    /// Sequence of the first packet.
    pub first_sequence: u64,
    /// Whether the chunk was still being filled.
    pub is_open: bool,
    /// Missing packets just before this batch.
    pub gap: Option<Gap>,
    /// A time just before this batch in which the lane captured nothing. A reader that subscribed
    /// after it, but before the first packet after it, gets it as well.
    pub capture_gap: Option<CaptureGap>,
}

/// One packet in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Words of its slot as in the pool. (Writing a decoded slot to memory and reading it back in
    /// pieces of other sizes would stall the processor.)
    words: [u64; 4],
    /// Number of the packet in its lane, counted from 0 over all captured packets.
    pub sequence: u64,
    /// Captured bytes.
    pub data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// A packet that was copied from a pool, with its slot as words in memory.
    pub fn copied(words: [u64; 4], sequence: u64, data: &'a [u8]) -> Self {
        Packet {
            words,
            sequence,
            data,
        }
    }

    /// The packet with these flags, too, if its mask has one of these bits.
    #[inline(always)]
    #[must_use]
    pub fn marked(mut self, bits: u64, flags: u8) -> Self {
        if self.slot().mask & bits != 0 {
            self.words = Slot {
                flags: self.slot().flags | flags,
                ..self.slot()
            }
            .to_words();
        }
        self
    }

    /// The packet's descriptor.
    #[inline(always)]
    pub fn slot(&self) -> Slot {
        Slot::from_words(self.words)
    }
}

impl ChunkBatch {
    /// The chunk that the packets lie in.
    pub fn chunk(&self) -> ChunkId {
        self.lease.id()
    }

    /// Number of this chunk in its lane.
    pub fn chunk_sequence(&self) -> u64 {
        self.lease.chunk().map_or(0, Chunk::chunk_sequence)
    }

    /// Number of packets, at least 1.
    pub fn len(&self) -> usize {
        to_usize(self.to - self.from)
    }

    /// Never true: without packets there is no batch.
    pub fn is_empty(&self) -> bool {
        self.to == self.from
    }

    /// Bits of all readers that want one of these packets, or one before them in their chunk.
    #[inline]
    pub fn wanted(&self) -> u64 {
        self.lease.chunk().map_or(0, Chunk::wanted)
    }

    /// Counts the packets among these sequences whose mask has a bit of `mask`, and those with a
    /// bit of `group` but none of `mask`.
    pub fn count_masks(&self, sequences: Range<u64>, mask: u64, group: u64) -> (u64, u64) {
        let slot = |sequence: u64| {
            let slot = u64::from(self.from) + sequence.saturating_sub(self.first_sequence);
            to_u32(slot).clamp(self.from, self.to)
        };
        let slots = slot(sequences.start)..slot(sequences.end);
        let chunk = self.lease.chunk();
        chunk.map_or((0, 0), |chunk| chunk.count_masks(slots, mask, group))
    }

    /// The packets, in the order of capture.
    ///
    /// An impossible slot (payload outside the chunk) ends the iteration with an error.
    pub fn packets(&self) -> ChunkPackets<'_> {
        self.packets_from(self.from)
    }

    /// The packet at this index; `None` past the last one, and for an impossible slot.
    #[inline]
    pub fn packet(&self, index: usize) -> Option<Packet<'_>> {
        let index = to_u32(index);
        let at = self.from.checked_add(index).filter(|at| *at < self.to)?;
        // SAFETY: `at` is below the count that `Reader::find` observed; the batch, borrowed for the packet's
        // lifetime, holds the lease.
        let (words, data) = unsafe { self.lease.chunk()?.packet(at) }?;
        Some(Packet {
            words,
            sequence: self.first_sequence.wrapping_add(index.into()),
            data: &data[..data.len().min(self.max_bytes)],
        })
    }

    /// The slots of the packets as in the pool, [`SLOT_SIZE`] bytes each.
    ///
    /// [`SLOT_SIZE`]: crate::format::SLOT_SIZE
    pub fn slots(&self) -> &[u8] {
        let chunk = self.lease.chunk();
        // SAFETY: as for `packet`, for each of the slots.
        let slots = chunk.and_then(|chunk| unsafe { chunk.slots(self.from..self.to) });
        slots.unwrap_or_default()
    }

    /// An iterator without packets.
    pub fn no_packets(&self) -> ChunkPackets<'_> {
        self.packets_from(self.to)
    }

    fn packets_from(&self, at: u32) -> ChunkPackets<'_> {
        ChunkPackets {
            chunk: self.lease.chunk(),
            id: self.lease.id(),
            at,
            to: self.to,
            sequence: self.first_sequence,
            max_bytes: self.max_bytes,
        }
    }
}

/// Iterator over the packets of a [`ChunkBatch`].
pub struct ChunkPackets<'a> {
    chunk: Option<Chunk<'a>>,
    id: ChunkId,
    at: u32,
    to: u32,
    sequence: u64,
    max_bytes: usize,
}

impl<'a> Iterator for ChunkPackets<'a> {
    /// The error is boxed: its fields beside those of a packet would make the compiler move both
    /// in pieces of other sizes, which stalls the processor.
    type Item = Result<Packet<'a>, Box<RecvError>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.to {
            return None;
        }
        // SAFETY: `at` is below the count that `Reader::find` observed; the batch, borrowed for
        // `'a`, holds the lease.
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
            data: &data[..data.len().min(self.max_bytes)],
        };
        self.at += 1;
        self.sequence = self.sequence.wrapping_add(1);
        Some(Ok(packet))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = to_usize(self.to - self.at);
        (left, Some(left))
    }
}
