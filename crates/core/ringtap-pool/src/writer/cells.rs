// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chunks with cells: AF_XDP has the kernel put packets into buffers of one fixed size.
//!
//! Such a chunk is `header | slots → … ← copies | cell | cell | …`. The kernel fills the cells; a
//! packet becomes readable, where it lies, by a slot whose payload offset points into its cell.
//! What does not lie in one cell of the open chunk is copied between slots and cells, as ever.
//! For readers there is no difference: a payload has a place in its chunk.
//!
//! Invariants
//! - The writer itself writes below [`CellLayout::first`] only, and in cells that the kernel gave
//!   back and that are not yet published.

use super::{LaneWriter, PacketMeta};
use crate::format::{CHUNK_HEADER_SIZE, SLOT_SIZE};
use crate::ids::{ChunkId, widen};
use crate::wake::Level;

/// Bytes of a line of the processor's caches.
const LINE: u32 = 64;

/// A cell's size, and how far it is from one cell to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Bytes that the kernel may fill: a power of two.
    pub size: u32,
    /// Bytes from the beginning of a cell to that of the next.
    pub pitch: u32,
}

impl Cell {
    /// Cells at multiples of their size, which zero-copy drivers want.
    pub const fn aligned(size: u32) -> Self {
        Cell { size, pitch: size }
    }

    /// Cells a line further apart than their size. The packets in them begin at other places of
    /// each page; at multiples of 2 KiB they would all share a few sets of the caches, which then
    /// hold a sixteenth of what they can.
    pub const fn staggered(size: u32) -> Self {
        let pitch = size + LINE;
        Cell { size, pitch }
    }

    /// Whether each cell begins at a multiple of its size.
    pub const fn is_aligned(self) -> bool {
        self.pitch == self.size
    }

    /// What the offset of the first cell has to be a multiple of.
    const fn alignment(self) -> u32 {
        if self.is_aligned() { self.size } else { LINE }
    }
}

/// How a chunk is divided into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellLayout {
    /// What they are like.
    pub cell: Cell,
    /// Offset of the first cell in its chunk: a multiple of its size, or of a line if cells are
    /// staggered.
    pub first: u32,
    /// Cells of a chunk, at least one.
    pub count: u32,
}

impl CellLayout {
    /// As many cells as go into a chunk with a slot for each, and room for packets that are copied:
    /// `copies` bytes for each cell and `odd` bytes besides. `None` if not even one cell does.
    pub fn new(chunk_size: u32, cell: Cell, copies: u32, odd: u32) -> Option<Self> {
        let slot = u32::try_from(SLOT_SIZE).ok()?;
        let header = u32::try_from(CHUNK_HEADER_SIZE).ok()?;
        if !cell.size.is_power_of_two() || !chunk_size.is_multiple_of(cell.size) {
            return None;
        }
        let fits = |count: &u32| {
            let front = header + odd + count * (slot + copies);
            front.next_multiple_of(cell.alignment()) + count * cell.pitch <= chunk_size
        };
        let count = (1..chunk_size / cell.size).rev().find(fits)?;
        Some(CellLayout {
            cell,
            first: chunk_size - count * cell.pitch,
            count,
        })
    }

    /// Where each cell of a chunk begins, in the chunk.
    pub fn offsets(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |cell| self.first + cell * self.cell.pitch)
    }
}

impl LaneWriter {
    /// From now on chunks that are opened have cells from `layout.first` on.
    pub fn divide(&mut self, layout: CellLayout) {
        self.end = widen(layout.first);
    }

    /// Takes a free chunk, to hand its cells to the kernel; `None` when all are in use.
    ///
    /// It has to be opened with [`LaneWriter::open`] before a packet can be noted there.
    pub fn take_free(&mut self) -> Option<ChunkId> {
        // A corrupt recycling side cannot give chunks back: as if none were free.
        self.free.take().ok().flatten()
    }

    /// Seals what is open, and opens a chunk that came from [`LaneWriter::take_free`].
    pub fn open(&mut self, id: ChunkId) -> bool {
        self.seal();
        let opened = self.open_chunk(id);
        if self.wake.take(Level::Chunk) {
            self.signal.signal();
        }
        opened
    }

    /// Sequence of the next packet.
    pub fn next_sequence(&self) -> u64 {
        let staged = self.open.as_ref().map_or(0, super::Open::staged);
        self.sequence + u64::from(staged)
    }

    /// Notes a packet that lies at `at` in the open chunk; `false` if there is no slot left.
    ///
    /// It is cut to the snap length. Invisible to readers until it is published.
    #[inline]
    pub fn stage_in_place(&mut self, meta: &PacketMeta, at: usize, length: usize) -> bool {
        let length = self.captured_length(length);
        match self.open.as_mut().filter(|open| open.fits(0)) {
            Some(open) => {
                open.put_slot(meta, at, length);
                true
            }
            None => false,
        }
    }

    /// Copies a packet into the open chunk; `false` if it finds no room between slots and cells.
    pub fn stage_copy<const N: usize>(&mut self, meta: &PacketMeta, parts: [&[u8]; N]) -> bool {
        let length = self.captured_length(parts.iter().map(|part| part.len()).sum());
        match self.open.as_mut().filter(|open| open.fits(length)) {
            Some(open) => {
                open.put(meta, length, parts);
                true
            }
            None => false,
        }
    }

    /// Counts packets of which the caller knows that they were lost for want of a chunk.
    pub fn count_lost(&mut self, packets: u64) {
        self.lost += packets;
        self.counters.pool_full.store(self.lost, super::Relaxed);
    }

    /// `bytes` bytes at `at` of a chunk of this pool; `None` if they lie outside.
    ///
    /// # Safety
    ///
    /// They must lie in a cell that the kernel has given back, of a chunk of this lane, and not
    /// be published.
    #[inline]
    pub unsafe fn cell(&mut self, id: ChunkId, at: usize, bytes: usize) -> Option<&mut [u8]> {
        let chunk = self.pool.chunk(id)?;
        // SAFETY: the caller's promise: nobody else knows of these bytes; `self` is borrowed for as
        // long as they are.
        unsafe { chunk.0.slice_mut(at, bytes) }
    }

    /// Says that a line of a cell will be read soon.
    #[inline]
    pub fn will_look_at(&self, id: ChunkId, at: usize) {
        if let Some(chunk) = self.pool.chunk(id) {
            chunk.0.will_read(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_holds_its_slots_and_its_cells() {
        for (chunk, size, copies, odd) in [
            (4096, 2048, 0, 0),
            (65_536, 2048, 0, 2048),
            (524_288, 2048, 0, 0),
            (524_288, 4096, 0, 4096),
            (524_288, 4096, 4096, 0),
        ] {
            for cell in [Cell::aligned(size), Cell::staggered(size)] {
                let layout = CellLayout::new(chunk, cell, copies, odd).unwrap();
                let front = 64 + odd + layout.count * (32 + copies);
                assert!(front <= layout.first, "{layout:?}");
                assert_eq!(layout.first + layout.count * cell.pitch, chunk);
                assert!(layout.offsets().all(|at| at % cell.alignment() == 0));
            }
        }
        let full = |cell| CellLayout::new(524_288, cell, 0, 0).unwrap();
        let aligned = full(Cell::aligned(2048));
        assert_eq!((aligned.first, aligned.count), (8192, 252));
        assert_eq!(full(Cell::staggered(2048)).count, 244);
    }

    #[test]
    fn staggered_cells_begin_everywhere_in_a_page() {
        let layout = CellLayout::new(524_288, Cell::staggered(2048), 0, 0).unwrap();
        let mut places: Vec<_> = layout.offsets().map(|at| at % 4096 / LINE).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 64);
    }

    #[test]
    fn a_chunk_without_room_for_a_cell_is_refused() {
        assert_eq!(CellLayout::new(4096, Cell::aligned(4096), 0, 0), None);
        assert_eq!(CellLayout::new(8192, Cell::staggered(4096), 8192, 0), None);
    }
}
