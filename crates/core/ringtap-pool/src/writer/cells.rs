// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chunks with cells: packet buffers of one fixed size that the kernel fills for AF_XDP.
//!
//! The layout is `header | slots → … ← copies | cell | cell | …`. The kernel fills the cells. A slot
//! whose payload offset points into a cell makes the packet readable in place. Packets outside the
//! cells of the open chunk are copied between slots and cells. Readers see no difference.
//!
//! Invariants
//! - The writer writes only below [`CellLayout::first`] and in cells that the kernel returned and
//!   that are not yet published.

use super::{LaneWriter, PacketMeta};
use crate::format::{CHUNK_HEADER_SIZE, SLOT_SIZE};
use crate::ids::ChunkId;
use crate::number::to_usize;
use crate::wake::Level;

/// Size of a cache line in bytes.
const LINE: u32 = 64;

/// Size of a cell, and the distance between cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Bytes that the kernel may fill: a power of two.
    pub size: u32,
    /// Bytes from the start of a cell to the start of the next.
    pub pitch: u32,
}

impl Cell {
    /// Cells at multiples of their size, as zero-copy drivers require.
    pub const fn aligned(size: u32) -> Self {
        Cell { size, pitch: size }
    }

    /// Cells one cache line further apart than their size. Packets then begin at different offsets of
    /// each page. At multiples of 2 KiB all packets share a few cache sets, a sixteenth of the cache.
    pub const fn staggered(size: u32) -> Self {
        let pitch = size + LINE;
        Cell { size, pitch }
    }

    /// Whether each cell begins at a multiple of its size.
    pub const fn is_aligned(self) -> bool {
        self.pitch == self.size
    }

    /// Required alignment of the first cell.
    const fn alignment(self) -> u32 {
        if self.is_aligned() { self.size } else { LINE }
    }
}

/// Division of a chunk into cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellLayout {
    /// Size and pitch of the cells.
    pub cell: Cell,
    /// Offset of the first cell in its chunk: a multiple of its size, or of a cache line if cells are
    /// staggered.
    pub first: u32,
    /// Cells of a chunk, at least one.
    pub count: u32,
}

impl CellLayout {
    /// As many cells as fit into a chunk with a slot for each and room for copied packets: `copies`
    /// bytes for each cell and `odd` bytes in addition. `None` if not even one cell fits.
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

    /// Offset of each cell in a chunk.
    pub fn offsets(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |cell| self.first + cell * self.cell.pitch)
    }
}

impl LaneWriter {
    /// Divides the chunks that are opened from now on.
    pub fn divide(&mut self, layout: CellLayout) {
        self.end = to_usize(layout.first);
    }

    /// Takes a free chunk, whose cells the caller gives to the kernel; `None` if all are in use.
    ///
    /// The caller opens it with [`LaneWriter::open`] before the first packet gets a slot.
    pub fn take_free(&mut self) -> Option<ChunkId> {
        self.free.take()
    }

    /// Seals the open chunk, and opens a chunk from [`LaneWriter::take_free`].
    pub fn open(&mut self, id: ChunkId) -> bool {
        self.seal();
        let opened = self.open_chunk(id);
        if self.wake.take(Level::Chunk) {
            self.signal.signal();
        }
        opened
    }

    /// Sequence number of the next packet.
    pub fn next_sequence(&self) -> u64 {
        let staged = self.open.as_ref().map_or(0, super::Open::staged);
        self.sequence + u64::from(staged)
    }

    /// Bytes on the wire of the packets before that one.
    pub fn wire_bytes(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, super::Open::wire_bytes);
        self.bytes + open
    }

    /// Writes a slot for a packet at offset `at` of the open chunk; returns `false` without a free slot.
    ///
    /// Cuts the packet to the snap length. The slot is not published yet.
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

    /// Copies a packet into the open chunk; returns `false` without room between slots and cells.
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

    /// Counts packets that the caller lost because no chunk was free.
    pub fn count_lost(&mut self, packets: u64) {
        self.lost += packets;
        self.counters.pool_full.store(self.lost, super::Relaxed);
    }

    /// Borrows `bytes` bytes at `at` of a chunk; `None` if they lie outside.
    ///
    /// # Safety
    ///
    /// They must lie in a cell that the kernel returned, of a chunk of this lane, and must not be
    /// published.
    #[inline]
    pub unsafe fn cell(&mut self, id: ChunkId, at: usize, bytes: usize) -> Option<&mut [u8]> {
        let chunk = self.pool.chunk(id)?;
        // SAFETY: by the caller's promise no other code uses these bytes; `self` is borrowed as long as
        // they are.
        unsafe { chunk.0.slice_mut(at, bytes) }
    }

    /// Prefetches a line of a cell for reading.
    #[inline]
    pub fn prefetch(&self, id: ChunkId, at: usize) {
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
