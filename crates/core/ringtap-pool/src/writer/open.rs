// SPDX-License-Identifier: MIT OR Apache-2.0
//! The chunk that a lane fills.
//!
//! Invariants
//! - Slots grow up from the header, payloads down from where cells begin (the chunk's end if it has
//!   none): `next_slot <= floor`.
//! - What lies between `next_slot` and `floor` is not published: nobody else reads or writes it.

use super::PacketMeta;
use crate::format::{self, CHUNK_HEADER_SIZE, SLOT_SIZE, Slot, flag};
use crate::ids::{LaneId, widen};
use crate::memory::{AHEAD, LINE, Piece};
use crate::number::{to_u16, to_u32};
use crate::publish;
use crate::sync::{AtomicU32, Ordering::*};

/// How far above a slot the lines of the next ones are asked for, in bytes.
const SLOTS_AHEAD: usize = 16 * SLOT_SIZE;

pub(super) struct Open {
    piece: Piece<'static>,
    /// Where the next slot goes.
    next_slot: usize,
    /// No slot begins here or above.
    slots_end: usize,
    /// Lowest byte that a payload occupies.
    floor: usize,
    published: u32,
    /// The masks of all that was staged, together.
    wanted: u64,
    /// Bytes on the wire of all that was staged.
    wire_bytes: u64,
}

/// Bytes that a payload takes: they begin at multiples of 8. The length is a packet's, so small.
#[inline]
fn padded(length: usize) -> usize {
    (length + 7) & !7
}

/// What a chunk's header tells of it.
pub(super) struct Header {
    pub(super) lane: LaneId,
    pub(super) first_sequence: u64,
    pub(super) chunk_sequence: u64,
    pub(super) lost_before: u64,
}

impl Open {
    /// Begins to fill a chunk, of which the bytes from `end` on are not ours, with at most
    /// so many packets.
    ///
    /// # Safety
    ///
    /// The chunk must be writable, and what lies below `end` the caller's alone, until the result
    /// is dropped.
    pub(super) unsafe fn new(
        piece: Piece<'static>,
        header: &Header,
        end: usize,
        most_packets: u32,
    ) -> Self {
        let word = |at, value: u64| piece.word64(at).store(value.to_le(), Relaxed);
        let lane = piece.word32(format::chunk::LANE);
        lane.store(header.lane.0.to_le(), Relaxed);
        word(format::chunk::FIRST_SEQUENCE, header.first_sequence);
        word(format::chunk::CHUNK_SEQUENCE, header.chunk_sequence);
        word(format::chunk::LOST_BEFORE, header.lost_before);
        word(format::chunk::WANTED, 0);
        let open = Open {
            piece,
            next_slot: CHUNK_HEADER_SIZE,
            slots_end: CHUNK_HEADER_SIZE + widen(most_packets).saturating_mul(SLOT_SIZE),
            floor: end.min(piece.bytes()),
            published: 0,
            wanted: 0,
            wire_bytes: 0,
        };
        publish::publish(open.state(), 0);
        open.ask_for_first_lines();
        open
    }

    /// Later lines are asked for packet by packet.
    fn ask_for_first_lines(&self) {
        let slots = (0..SLOTS_AHEAD).step_by(LINE);
        slots.for_each(|at| self.piece.will_write(self.next_slot + at));
        let most = AHEAD.min(self.floor);
        let payloads = (LINE..=most).step_by(LINE);
        payloads.for_each(|below| self.piece.will_write(self.floor - below));
    }

    fn state(&self) -> &AtomicU32 {
        self.piece.word32(format::chunk::STATE)
    }

    /// Before the slots are published that it speaks of.
    fn tell_wanted(&self) {
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

    /// Whether a packet of `length` bytes finds a place.
    #[inline]
    pub(super) fn fits(&self, length: usize) -> bool {
        self.next_slot < self.slots_end && self.floor - self.next_slot >= SLOT_SIZE + padded(length)
    }

    /// Copies the first `length` bytes of a packet that is known to fit.
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
            // SAFETY: `new` was promised that the chunk is writable and ours; what is below the
            // floor is not published, so nobody reads it.
            unsafe { self.piece.write(at, &part[..bytes]) };
            at += bytes;
            left -= bytes;
        }
        self.put_slot(meta, self.floor, length);
    }

    /// Notes a packet whose `length` bytes lie at `payload` already; a slot is known to fit.
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

    /// Lets readers see all that was staged; tells whether there was anything new.
    #[inline]
    pub(super) fn publish(&mut self) -> bool {
        let staged = self.staged();
        if staged == self.published {
            return false;
        }
        self.published = staged;
        self.tell_wanted();
        publish::publish(self.state(), staged);
        true
    }

    /// Lets readers see all that was staged, and that nothing follows.
    pub(super) fn seal(self) {
        self.tell_wanted();
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
