// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader's view of a pool: chunks, slots and payloads, checked before use.
//!
//! Invariants
//! - Counts, offsets and lengths in the region are checked against the chunk's size before use.
//! - A payload is only readable for a slot that was published, and only as long as the reader
//!   holds its lease on the chunk: the writer does not touch published payloads, and reuses a
//!   chunk only after every lease on it ended.

use std::ops::Range;

use crate::format::{self, CHUNK_HEADER_SIZE, Geometry, HeaderError, SLOT_SIZE, Slot};
use crate::gap::CaptureGap;
use crate::ids::{ChunkId, LaneId};
use crate::memory::{Piece, Region, SLOTS_AHEAD};
use crate::number::{to_u32, to_u64, to_usize};
use crate::publish::{self, ChunkState};
use crate::sync::{AtomicU64, Ordering::*};

/// A region that contains a pool.
#[derive(Clone)]
pub struct Pool {
    region: Region,
    geometry: Geometry,
    epoch: u64,
}

/// Why a region is not usable as a pool.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum PoolError {
    /// The mapping is smaller than its header requires.
    #[error("the region has {have_bytes} bytes, its sizes need {need_bytes}")]
    TooSmall { have_bytes: usize, need_bytes: u64 },
    /// The region header is invalid.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Another region has replaced the one that the reader expects.
    #[error("the region has epoch {have}, the reader wants {want}: subscribe again")]
    Epoch { have: u64, want: u64 },
}

impl Pool {
    /// The pool in a region of known sizes.
    pub fn new(region: Region, geometry: Geometry) -> Result<Self, PoolError> {
        let need_bytes = geometry.region_bytes();
        if u64::try_from(region.bytes()).is_ok_and(|have| have >= need_bytes) {
            return Ok(Pool {
                region,
                geometry,
                epoch: format::FIRST_EPOCH,
            });
        }
        Err(PoolError::TooSmall {
            have_bytes: region.bytes(),
            need_bytes,
        })
    }

    /// The pool in a region that another process formatted, with this epoch.
    pub fn open(region: Region, epoch: u64) -> Result<Self, PoolError> {
        let need = format::REGION_HEADER_SIZE;
        let Some(piece) = region.piece(0, need) else {
            let need_bytes = to_u64(need);
            return Err(PoolError::TooSmall {
                have_bytes: region.bytes(),
                need_bytes,
            });
        };
        let mut header = [0; format::REGION_HEADER_SIZE];
        for (bytes, at) in header.chunks_exact_mut(8).zip((0..).step_by(8)) {
            bytes.copy_from_slice(&piece.word64(at).load(Relaxed).to_ne_bytes());
        }
        let geometry = Geometry::from_header(&header)?;
        let (have, want) = (format::epoch(&header), epoch);
        if have != want {
            return Err(PoolError::Epoch { have, want });
        }
        Ok(Pool {
            epoch,
            ..Self::new(region, geometry)?
        })
    }

    /// A pool on the heap, for user-space sources and for tests.
    pub fn on_heap(geometry: Geometry) -> Self {
        let bytes = to_usize(geometry.region_bytes());
        let pool = Pool {
            region: Region::on_heap(bytes),
            geometry,
            epoch: format::FIRST_EPOCH,
        };
        // SAFETY: just allocated, writable, and unknown to other code.
        unsafe { pool.write_header() };
        pool
    }

    /// Writes the region header.
    ///
    /// # Safety
    ///
    /// The region must be writable, and no other code may read or write it yet.
    pub unsafe fn write_header(&self) {
        let header = self.geometry.header(self.epoch);
        if let Some(piece) = self.region.piece(0, header.len()) {
            // SAFETY: writable and unshared, by the caller's promise.
            unsafe { piece.write(0, &header) };
        }
    }

    /// This pool with another epoch, which its header does not have yet.
    #[must_use]
    pub fn with_epoch(self, epoch: u64) -> Self {
        Pool { epoch, ..self }
    }

    /// Whether the memory has no other pool now, nor none.
    pub fn is_current(&self) -> bool {
        let word = self.region.piece(to_u64(format::region::EPOCH), 8);
        word.is_some_and(|word| u64::from_le(word.word64(0).load(Relaxed)) == self.epoch)
    }

    /// Distinguishes the pool from those that it replaced.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The mapping that contains the pool.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The pool's sizes.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A chunk that can hold packets; `None` for a number outside the pool.
    #[inline]
    pub fn chunk(&self, id: ChunkId) -> Option<Chunk<'_>> {
        if !self.geometry.holds(id) {
            return None;
        }
        let offset = self.geometry.chunk_offset(id);
        Some(Chunk(
            self.region.piece(offset.0, self.geometry.chunk_bytes())?,
        ))
    }
}

/// One chunk of a pool.
#[derive(Clone, Copy)]
pub struct Chunk<'a>(pub(crate) Piece<'a>);

impl<'a> Chunk<'a> {
    /// A 64-bit word of the header.
    #[inline]
    fn word(self, at: usize) -> u64 {
        u64::from_le(self.0.word64(at).load(Relaxed))
    }

    /// The words of a slot; `None` outside the chunk.
    #[inline]
    fn slot(self, index: u32) -> Option<&'a [AtomicU64; 4]> {
        self.0.words(slot_offset(index))
    }

    /// The chunk's state; an impossible count is cut to the chunk's capacity.
    #[inline]
    pub fn state(self) -> ChunkState {
        let mut state = publish::observe(self.0.word32(format::chunk::STATE));
        let most = (self.0.bytes() - CHUNK_HEADER_SIZE) / SLOT_SIZE;
        state.published = state.published.min(to_u32(most));
        state
    }

    /// The lane that filled this chunk.
    #[inline]
    pub fn lane(self) -> LaneId {
        LaneId(u32::from_le(
            self.0.word32(format::chunk::LANE).load(Relaxed),
        ))
    }

    /// Sequence of the packet in slot 0.
    #[inline]
    pub fn first_sequence(self) -> u64 {
        self.word(format::chunk::FIRST_SEQUENCE)
    }

    /// Number of this chunk in its lane.
    pub fn chunk_sequence(self) -> u64 {
        self.word(format::chunk::CHUNK_SEQUENCE)
    }

    /// Packets that the lane lost before this chunk because none was free.
    pub fn lost_before(self) -> u64 {
        self.word(format::chunk::LOST_BEFORE)
    }

    /// The last capture gap of the lane before this chunk.
    #[inline]
    pub fn capture_gap(self) -> Option<CaptureGap> {
        let duration_ns = self.word(format::chunk::GAP_NS);
        (duration_ns > 0).then(|| CaptureGap {
            sequence: self.word(format::chunk::GAP_SEQUENCE),
            duration_ns,
            after: self.word(format::chunk::GAP_AFTER),
        })
    }

    /// The combined masks of the packets that [`Chunk::state`] returned before.
    #[inline]
    pub fn wanted(self) -> u64 {
        self.word(format::chunk::WANTED)
    }

    /// Time of the packet in slot 0, in nanoseconds since 1970; `None` without a published packet.
    pub fn first_time_ns(self) -> Option<u64> {
        if self.state().published == 0 {
            return None;
        }
        self.time_ns(0)
    }

    /// Time of the packet in a published slot, in nanoseconds since 1970.
    #[inline]
    pub(crate) fn time_ns(self, index: u32) -> Option<u64> {
        Some(publish::get_slot(self.slot(index)?).time_ns)
    }

    /// Mask of the packet in a published slot.
    #[inline]
    pub(crate) fn mask(self, index: u32) -> u64 {
        self.slot(index)
            .map_or(0, |words| publish::get_slot(words).mask)
    }

    /// Bytes on the wire of the packets in these published slots.
    pub(crate) fn wire_bytes(self, slots: Range<u32>) -> u64 {
        let of_slot = |words| u64::from(publish::get_slot(words).wire_length);
        slots
            .filter_map(|index| self.slot(index))
            .map(of_slot)
            .sum()
    }

    /// The bytes of the chunk, for a copy of a chunk that no code writes.
    pub fn copy_to(self, to: &mut [u8]) {
        for (bytes, at) in to.chunks_exact_mut(8).zip((0..self.0.bytes()).step_by(8)) {
            bytes.copy_from_slice(&self.0.word64(at).load(Relaxed).to_ne_bytes());
        }
    }

    /// Counts the slots whose mask has a bit of `mask`, and those with a bit of `group` but none of `mask`.
    pub(crate) fn count_masks(self, slots: Range<u32>, mask: u64, group: u64) -> (u64, u64) {
        let mut counts = (0, 0);
        if self.wanted() & (mask | group) == 0 {
            return counts;
        }
        for bits in slots.map(|index| self.mask(index)) {
            counts.0 += u64::from(bits & mask != 0);
            counts.1 += u64::from(bits & mask == 0 && bits & group != 0);
        }
        counts
    }

    /// Flow hash of the packet in a published slot; all packets without a hash are one flow.
    pub fn flow(self, index: u32) -> Option<u32> {
        Some(publish::get_slot(self.slot(index)?).hash().unwrap_or(0))
    }

    /// Prefetches the published packet at `index`.
    #[inline]
    pub(crate) fn will_read(self, index: u32) {
        self.0.will_read(slot_offset(index) + SLOTS_AHEAD);
        if let Some(words) = self.slot(index) {
            self.0
                .will_read(to_usize(u32::from(publish::get_slot(words).payload)) * 8);
        }
    }

    /// The bytes of these slots, as in the pool; `None` outside the chunk.
    ///
    /// # Safety
    ///
    /// As for [`Chunk::packet`], for each of the slots.
    #[inline]
    pub unsafe fn slots(self, slots: Range<u32>) -> Option<&'a [u8]> {
        let count = to_usize(slots.end.checked_sub(slots.start)?);
        // SAFETY: published (the caller's promise), so complete, and not written again while the caller holds its
        // lease, which lasts for `'a`.
        unsafe { self.0.slice(slot_offset(slots.start), count * SLOT_SIZE) }
    }

    /// Words of the slot at `index`, and its payload.
    ///
    /// `None` if the slot or its payload lies outside the chunk.
    ///
    /// # Safety
    ///
    /// `index` must be below a count that [`Chunk::state`] returned while the caller held a
    /// lease on this chunk, and the lease must last for `'a`.
    #[inline]
    pub unsafe fn packet(self, index: u32) -> Option<([u64; 4], &'a [u8])> {
        let words = publish::get_words(self.slot(index)?);
        let slot = Slot::from_words(words);
        let start = to_usize(u32::from(slot.payload)) * 8;
        if start < CHUNK_HEADER_SIZE {
            return None;
        }
        // SAFETY: published (the caller's promise), so complete, and not overwritten while the caller
        // holds its lease, which lasts for `'a`.
        let data = unsafe { self.0.slice(start, to_usize(slot.captured_length)) };
        Some((words, data?))
    }
}

/// Offset of a slot in its chunk.
#[inline]
fn slot_offset(index: u32) -> usize {
    CHUNK_HEADER_SIZE + to_usize(index) * SLOT_SIZE
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::source;
    use crate::wake::NoSignal;
    use crate::writer::PacketMeta;

    #[test]
    fn a_chunk_has_its_first_time_and_is_sealed_when_its_writer_ends() {
        let geometry = Geometry::contiguous(4096, 3, 1, 1500).unwrap();
        let pool = Pool::on_heap(geometry);
        let chunks = source::share(&geometry, LaneId(0));
        // SAFETY: on the heap, and the only lane.
        let (mut writer, mut ends) =
            unsafe { source::lane(&pool, LaneId(0), chunks, Arc::new(NoSignal)) };
        let meta = PacketMeta {
            time_ns: 12_345,
            ..PacketMeta::default()
        };
        writer.write(&meta, [b"packet"]).unwrap();
        let id = ChunkId(u32::try_from(ends.opened.pop().unwrap().unwrap()).unwrap());
        let chunk = pool.chunk(id).unwrap();
        assert_eq!(chunk.first_time_ns(), Some(12_345));
        assert!(!chunk.state().sealed);
        drop(writer);
        assert!(chunk.state().sealed && chunk.state().published == 1);
    }

    #[test]
    fn an_impossible_count_is_cut_to_the_capacity_of_the_chunk() {
        let geometry = Geometry::contiguous(4096, 3, 1, 1500).unwrap();
        let pool = Pool::on_heap(geometry);
        let chunk = pool.chunk(ChunkId(1)).unwrap();
        assert_eq!(chunk.first_time_ns(), None);
        let most = to_u32((4096 - CHUNK_HEADER_SIZE) / SLOT_SIZE);
        chunk
            .0
            .word32(format::chunk::STATE)
            .store(most + 1, Relaxed);
        assert_eq!(chunk.state().published, most);
    }
}
