// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of a user-space bridge: cells in which packets are received and sent without a copy.
//!
//! One UMEM holds the pools of the two mirrors, if there are readers, and then cells that only the
//! bridge uses.
//!
//! Invariants
//! - Each cell belongs to one port and returns to it when its packet is sent or dropped.
//! - Each port has cells of its own, which readers cannot hold.

use std::io;
use std::ops::Range;

use ringtap_ipc::memfd::SealedPool;
use ringtap_pool::format::{Geometry, GeometryError, MAX_CHUNK_SIZE};
use ringtap_pool::memory::Region;
use ringtap_pool::number::{to_u32, to_u64};
use ringtap_pool::writer::{Cell, CellLayout};

use ringtap_capture::xdp::cells::CellShare;
use ringtap_capture::xdp::options::cell_for;
use ringtap_capture::xdp::ring::RingPiece;

/// Number of each port's own cells.
pub(super) const CELLS: u32 = 4096;
/// Minimum number of cells that the kernel holds.
pub(super) const LEAST: u32 = 1024;
/// Minimum number of a lane's cells. Slow readers leave an eighth free: the kernel's minimum.
const CELLS_A_LANE: u32 = 8 * LEAST;
/// Minimum number of a lane's chunks.
const CHUNKS_A_LANE: u64 = 64;
/// Maximum number of a lane's chunks that slow readers leave free.
const CHUNKS_LEFT: u32 = 64;

/// Sizes of a mirror's pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct MirrorPlan {
    pub(super) geometry: Geometry,
    pub(super) layout: CellLayout,
}

impl MirrorPlan {
    /// Plans a pool of about `bytes` bytes, or more if the lanes need more. Frames that span several
    /// cells are copied there.
    pub(super) fn new(bytes: u64, lanes: u32, frame_bytes: u32) -> Result<Self, GeometryError> {
        let (cell, needs_several) = cell_for(frame_bytes);
        let chunks = |chunk: u32| bytes / u64::from(chunk) / u64::from(lanes.max(1));
        let layout = |chunk| {
            if needs_several {
                CellLayout::new(chunk, Cell::aligned(cell), cell, 0)
            } else {
                CellLayout::new(chunk, Cell::aligned(cell), 0, cell)
            }
        };
        let is_enough = |layout: CellLayout| layout.count * CHUNKS_LEFT >= LEAST;
        let mut chunk = MAX_CHUNK_SIZE;
        while chunks(chunk) < CHUNKS_A_LANE && layout(chunk / 2).is_some_and(is_enough) {
            chunk /= 2;
        }
        let layout = layout(chunk).ok_or(GeometryError::ChunkSize(chunk))?;
        let least = u64::from(CELLS_A_LANE.div_ceil(layout.count));
        let count = u64::from(lanes) * chunks(chunk).max(least) + 1;
        let count = to_u32(count);
        // A copied frame must fit beside the slots.
        let most = if needs_several {
            layout.first.saturating_sub(64 + 32)
        } else {
            cell
        };
        Ok(MirrorPlan {
            geometry: Geometry::contiguous(chunk, count, lanes, most)?,
            layout,
        })
    }
}

/// Owner of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellOwner {
    /// A port's own cell, at this address.
    Own { port: usize, cell: u64 },
    /// A cell in a chunk of a port's lane.
    Chunk { port: usize },
}

/// Cells of all ports.
pub(super) struct BridgeMemory {
    region: Region,
    cell_size: u32,
    /// Address range of each port's chunks.
    lanes: Vec<Range<u64>>,
    /// Address of the ports' own cells.
    own: u64,
}

impl BridgeMemory {
    /// Creates the memory: these pools, and own cells of one size for each of `ports` ports.
    pub(super) fn new(
        cell_size: u32,
        plans: &[MirrorPlan],
        ports: usize,
    ) -> io::Result<(Self, Vec<SealedPool>)> {
        let own = u64::from(cell_size) * u64::from(CELLS);
        let own = usize::try_from(own)
            .ok()
            .and_then(|own| own.checked_mul(ports));
        let geometries: Vec<_> = plans.iter().map(|plan| plan.geometry).collect();
        let own = own.ok_or(io::ErrorKind::OutOfMemory)?;
        let (pools, region) = SealedPool::side_by_side(&geometries, own)?;
        let memory = BridgeMemory {
            region,
            cell_size,
            lanes: Vec::new(),
            own: geometries.iter().map(Geometry::region_bytes).sum(),
        };
        Ok((memory, pools))
    }

    pub(super) fn cell(&self) -> Cell {
        Cell::aligned(self.cell_size)
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Assigns the chunks of a lane to the next port.
    pub(super) fn add_lane(&mut self, share: &CellShare) {
        let size = u64::from(share.chunk_size);
        let begin = share.base + u64::from(share.first.0) * size;
        self.lanes.push(begin..begin + size * to_u64(share.count));
    }

    /// Finds the owner of the cell at this address.
    pub(super) fn owner(&self, address: u64) -> Option<CellOwner> {
        if let Some(at) = address.checked_sub(self.own) {
            let port = usize::try_from(at / u64::from(self.cell_size) / u64::from(CELLS)).ok()?;
            let cell = address - at % u64::from(self.cell_size);
            return Some(CellOwner::Own { port, cell });
        }
        let port = self.lanes.iter().position(|lane| lane.contains(&address))?;
        Some(CellOwner::Chunk { port })
    }

    /// Addresses of a port's own cells.
    pub(super) fn of_port(&self, port: usize) -> impl Iterator<Item = u64> + use<> {
        let (size, count) = (u64::from(self.cell_size), u64::from(CELLS));
        let first = self.own + to_u64(port) * count * size;
        (0..count).map(move |cell| first + cell * size)
    }

    /// Bytes of a piece and of `front` bytes before it; `None` if they exceed its cell.
    ///
    /// # Safety
    ///
    /// The kernel has returned the piece and not got its cell back, and no slot refers to it.
    pub(super) unsafe fn bytes(&mut self, piece: RingPiece, front: usize) -> Option<&mut [u8]> {
        let length = usize::try_from(piece.length).ok()?;
        let at = usize::try_from(piece.address).ok()?;
        let size = usize::try_from(self.cell_size).ok()?;
        let cell = at - at % size;
        let begin = at.checked_sub(front)?;
        let end = at.checked_add(length)?;
        if begin < cell || end > cell + size || end > self.region.bytes() {
            return None;
        }
        // SAFETY: the check above places it inside the mapping.
        let first = unsafe { self.region.address().add(begin) };
        // SAFETY: mapped writable as long as `self`, which is borrowed; the caller promises that neither
        // the kernel nor readers use the cell.
        Some(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), end - begin) })
    }
}

#[cfg(test)]
mod tests {
    use ringtap_pool::ids::{ChunkId, LaneId};

    use super::*;

    #[test]
    fn every_cell_has_an_owner() {
        let plan = MirrorPlan::new(4 << 20, 1, 1518).unwrap();
        let (mut memory, pools) = BridgeMemory::new(2048, &[plan, plan], 2).unwrap();
        let begin = |pool: &SealedPool| {
            let address = pool.writable.region().address().addr().get();
            let base = memory.region.address().addr().get();
            u64::try_from(address - base).unwrap()
        };
        let bases: Vec<_> = pools.iter().map(begin).collect();
        for base in &bases {
            let share = CellShare::of(&plan.geometry, LaneId(0), *base);
            memory.add_lane(&share);
            assert_eq!(share.first, ChunkId(1), "after the header's chunk");
        }
        let chunk = u64::from(plan.geometry.chunk_size);
        assert_eq!(memory.owner(0), None, "the header");
        assert_eq!(memory.owner(chunk), Some(CellOwner::Chunk { port: 0 }));
        assert_eq!(
            memory.owner(bases[1] + chunk),
            Some(CellOwner::Chunk { port: 1 })
        );
        for port in [0, 1] {
            let cells: Vec<_> = memory.of_port(port).collect();
            for cell in [cells[0], cells[4095]] {
                let expected = Some(CellOwner::Own { port, cell });
                assert_eq!(memory.owner(cell + 280), expected);
            }
        }
    }

    #[test]
    fn a_mirror_leaves_enough_cells_whatever_its_readers_hold() {
        for (bytes, lanes, frame) in [(1, 1, 1518), (1 << 20, 4, 9018), (128 << 20, 2, 9018)] {
            let plan = MirrorPlan::new(bytes, lanes, frame).unwrap();
            let each = (plan.geometry.chunk_count - 1) / lanes;
            // The part that no reader's default credit takes.
            let left = (each / 8).clamp(2, CHUNKS_LEFT);
            assert!(left * plan.layout.count >= LEAST * 9 / 10, "{plan:?}");
            assert!(plan.geometry.snap_length >= frame, "{plan:?}");
        }
        assert_eq!(cell_for(1518), (2048, false));
        assert_eq!(cell_for(1769), (4096, false));
        assert_eq!(cell_for(9018), (4096, true));
    }
}
