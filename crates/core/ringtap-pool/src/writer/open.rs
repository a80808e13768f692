// SPDX-License-Identifier: MIT OR Apache-2.0
//! The open chunk of a lane.
//!
//! Invariants
//! - Slots grow up from the header, payloads down from the first cell (or the chunk's end):
//!   `next_slot <= floor`.
//! - Bytes between `next_slot` and `floor` are not published: no other code reads or writes them.

use super::PacketMeta;
use crate::format::{self, CHUNK_HEADER_SIZE, SLOT_SIZE, Slot, flag};
use crate::gap::CaptureGap;
use crate::ids::LaneId;
use crate::memory::{AHEAD, LINE, Piece, SLOTS_AHEAD};
use crate::number::{to_u16, to_u32, to_usize};
use crate::publish;
use crate::sync::{AtomicU32, Ordering::*};

pub(super) struct Open {
    piece: Piece<'static>,
    /// Offset of the next slot.
    next_slot: usize,
    /// End of the room for slots.
    slots_end: usize,
    /// Lowest byte of the payloads.
    floor: usize,
    published: u32,
    /// The masks of all staged packets combined.
    wanted: u64,
    /// Bytes on the wire of all staged packets.
    wire_bytes: u64,
}

/// Bytes that a payload occupies, a multiple of 8. The length is a packet's and therefore small.
///
/// An empty payload occupies 8 bytes, too: the end of the largest chunk is no place that a slot can
/// store.
#[inline]
fn padded(length: usize) -> usize {
    (length.max(1) + 7) & !7
}

/// Header fields of a chunk.
pub(super) struct ChunkHeader {
    pub(super) lane: LaneId,
    pub(super) first_sequence: u64,
    pub(super) chunk_sequence: u64,
    pub(super) lost_before: u64,
    pub(super) gap: Option<CaptureGap>,
}

impl Open {
    /// Starts to fill a chunk with at most `max_packets` packets; bytes from `end` on stay untouched.
    ///
    /// # Safety
    ///
    /// The chunk must be writable. Until the result is dropped, no other code may use the bytes below
    /// `end`.
    pub(super) unsafe fn new(
        piece: Piece<'static>,
        header: &ChunkHeader,
        end: usize,
        max_packets: u32,
    ) -> Self {
        let word = |at, value: u64| piece.word64(at).store(value.to_le(), Relaxed);
        let lane = piece.word32(format::chunk::LANE);
        lane.store(header.lane.0.to_le(), Relaxed);
        word(format::chunk::FIRST_SEQUENCE, header.first_sequence);
        word(format::chunk::CHUNK_SEQUENCE, header.chunk_sequence);
        word(format::chunk::LOST_BEFORE, header.lost_before);
        word(format::chunk::WANTED, 0);
        if let Some(gap) = header.gap {
            word(format::chunk::GAP_SEQUENCE, gap.sequence);
            word(format::chunk::GAP_AFTER, gap.after);
        }
        word(
            format::chunk::GAP_NS,
            header.gap.map_or(0, |gap| gap.duration_ns),
        );
        let open = Open {
            piece,
            next_slot: CHUNK_HEADER_SIZE,
            slots_end: CHUNK_HEADER_SIZE + to_usize(max_packets).saturating_mul(SLOT_SIZE),
            floor: end.min(piece.bytes()),
            published: 0,
            wanted: 0,
            wire_bytes: 0,
        };
        publish::publish(open.state(), 0);
        open.prefetch_first_lines();
        open
    }

    /// Prefetches the first lines; the writer prefetches later lines packet by packet.
    fn prefetch_first_lines(&self) {
        let slots = (0..SLOTS_AHEAD).step_by(LINE);
        slots.for_each(|at| self.piece.will_write(self.next_slot + at));
        let most = AHEAD.min(self.floor);
        let payloads = (LINE..=most).step_by(LINE);
        payloads.for_each(|below| self.piece.will_write(self.floor - below));
    }

    fn state(&self) -> &AtomicU32 {
        self.piece.word32(format::chunk::STATE)
    }

    /// Stores the combined masks before the slots are published.
    fn store_wanted(&self) {
        let word = self.piece.word64(format::chunk::WANTED);
        word.store(self.wanted.to_le(), Relaxed);
    }

    /// Bytes on the wire of the packets in this chunk, published or not.
    #[inline]
    pub(super) fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }

    /// Packets in this chunk, published or not.
    #[inline]
    pub(super) fn staged(&self) -> u32 {
        let slots = (self.next_slot - CHUNK_HEADER_SIZE) / SLOT_SIZE;
        // A chunk has at most 2^19 bytes.
        to_u32(slots)
    }

    /// Whether a packet of `length` bytes fits.
    #[inline]
    pub(super) fn fits(&self, length: usize) -> bool {
        self.next_slot < self.slots_end && self.floor - self.next_slot >= SLOT_SIZE + padded(length)
    }

    /// Copies the first `length` bytes of a packet; the caller has checked that they fit.
    #[inline]
    pub(super) fn put<const N: usize>(
        &mut self,
        meta: &PacketMeta,
        length: usize,
        parts: [&[u8]; N],
    ) {
        self.floor -= padded(length);
        let mut at = self.floor;
        let mut left = length;
        for part in parts {
            let bytes = part.len().min(left);
            // SAFETY: `new`'s caller promised that the chunk is writable and unshared; bytes below the
            // floor are not published, so no reader reads them.
            unsafe { self.piece.write(at, &part[..bytes]) };
            at += bytes;
            left -= bytes;
        }
        self.put_slot(meta, self.floor, length);
    }

    /// Writes a slot for `length` bytes already at `payload`; the caller has checked that it fits.
    #[inline]
    pub(super) fn put_slot(&mut self, meta: &PacketMeta, payload: usize, length: usize) {
        self.piece.will_write(self.next_slot + SLOTS_AHEAD);
        if let Some(words) = self.piece.words(self.next_slot) {
            publish::put_slot(words, slot(meta, payload, length));
        }
        self.next_slot += SLOT_SIZE;
        self.wanted |= meta.mask;
        self.wire_bytes += u64::from(meta.wire_length);
    }

    /// Publishes the staged packets; returns whether there were any.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let staged = self.staged();
        if staged == self.published {
            return false;
        }
        self.published = staged;
        self.store_wanted();
        publish::publish(self.state(), staged);
        true
    }

    /// Publishes the staged packets and seals the chunk.
    pub(super) fn seal(self) {
        self.store_wanted();
        publish::seal(self.state(), self.staged());
    }
}

#[inline]
fn slot(meta: &PacketMeta, payload: usize, length: usize) -> Slot {
    Slot {
        time_ns: meta.time_ns,
        mask: meta.mask,
        hash: meta.hash.unwrap_or(0),
        wire_length: meta.wire_length,
        // A chunk has at most 2^19 bytes.
        captured_length: to_u32(length),
        flags: meta.flags | if meta.hash.is_some() { flag::HASHED } else { 0 },
        payload: to_u16(payload / 8),
        queue: meta.queue,
    }
}
