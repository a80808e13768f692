// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a bridge in user space: cells that packets are received into and sent from,
//! without a copy in between.
//!
//! It is one UMEM: the two mirrors' pools, if readers may look on, and behind them cells that
//! nobody but the bridge sees.
//!
//! Invariants
//! - Each cell belongs to one port, to which it goes back when its packet was sent or dropped.
//! - Each port has cells of its own, whatever readers hold.

use std::io;
use std::ops::Range;

use ringtap_pool::format::{Geometry, GeometryError, MAX_CHUNK_SIZE};
use ringtap_pool::ids::{ChunkId, LaneId};
use ringtap_pool::memory::Region;
use ringtap_pool::source;
use ringtap_pool::writer::CellLayout;
use ringtap_shared::memfd::SealedPool;

use crate::xdp::cells::Share;
use crate::xdp::ring::Piece;

/// Bytes of a cell, and own cells of each port.
pub(super) const CELL_SIZE: u32 = 4096;
pub(super) const CELLS: u32 = 4096;
/// A lane has so many chunks at least, if they can be small enough.
const CHUNKS_A_LANE: u64 = 16;
const LEAST_CHUNK: u32 = 64 << 10;

/// Sizes of a mirror's pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct MirrorPlan {
    pub(super) geometry: Geometry,
    pub(super) layout: CellLayout,
}

impl MirrorPlan {
    /// A pool of about so many bytes; frames of several cells are copied there.
    pub(super) fn new(bytes: u64, lanes: u32, needs_several: bool) -> Result<Self, GeometryError> {
        let chunks = |chunk: u32| bytes / u64::from(chunk) / u64::from(lanes.max(1));
        let mut chunk = MAX_CHUNK_SIZE;
        while chunk > LEAST_CHUNK && chunks(chunk) < CHUNKS_A_LANE {
            chunk /= 2;
        }
        let layout = match needs_several {
            true => CellLayout::new(chunk, CELL_SIZE, CELL_SIZE, 0),
            false => CellLayout::new(chunk, CELL_SIZE, 0, CELL_SIZE),
        };
        let layout = layout.ok_or(GeometryError::ChunkSize(chunk))?;
        let count = u64::from(lanes) * chunks(chunk).max(2) + 1;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        // A frame that is copied has to fit beside the slots.
        let most = match needs_several {
            true => layout.first.saturating_sub(64 + 32),
            false => CELL_SIZE,
        };
        Ok(MirrorPlan {
            geometry: Geometry::contiguous(chunk, count, lanes, most)?,
            layout,
        })
    }
}

/// Whose a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// A port's own, which begins there.
    Own { port: usize, cell: u64 },
    /// Of a chunk of a port's lane.
    Chunk { port: usize },
}

/// The cells of all ports.
pub(super) struct Umem {
    region: Region,
    /// Where each port's chunks lie, if there are any.
    lanes: Vec<Range<u64>>,
    /// Where the ports' own cells begin.
    own: u64,
}

impl Umem {
    /// Own cells for each of `ports` ports, and these pools.
    pub(super) fn new(plans: &[MirrorPlan], ports: usize) -> io::Result<(Self, Vec<SealedPool>)> {
        let own = u64::from(CELL_SIZE) * u64::from(CELLS);
        let own = usize::try_from(own)
            .ok()
            .and_then(|own| own.checked_mul(ports));
        let geometries: Vec<_> = plans.iter().map(|plan| plan.geometry).collect();
        let own = own.ok_or(io::ErrorKind::OutOfMemory)?;
        let (pools, region) = SealedPool::side_by_side(&geometries, own)?;
        let umem = Umem {
            region,
            lanes: Vec::new(),
            own: geometries.iter().map(Geometry::region_bytes).sum(),
        };
        Ok((umem, pools))
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Gives the next port a lane's chunks of the pool that begins at `base`.
    pub(super) fn add_lane(&mut self, base: u64, geometry: &Geometry, lane: LaneId) -> Share {
        let chunks = source::share(geometry, lane);
        let first = chunks.last().copied().unwrap_or(ChunkId(0));
        let size = u64::from(geometry.chunk_size);
        let begin = base + u64::from(first.0) * size;
        let bytes = size * u64::try_from(chunks.len()).unwrap_or(0);
        self.lanes.push(begin..begin + bytes);
        Share {
            base,
            chunk_size: geometry.chunk_size,
            first,
            count: chunks.len(),
        }
    }

    /// Whose the cell at this address is; `None` if nobody's.
    pub(super) fn home(&self, address: u64) -> Option<Home> {
        if let Some(at) = address.checked_sub(self.own) {
            let port = usize::try_from(at / u64::from(CELL_SIZE) / u64::from(CELLS)).ok()?;
            let cell = address - at % u64::from(CELL_SIZE);
            return Some(Home::Own { port, cell });
        }
        let port = self.lanes.iter().position(|lane| lane.contains(&address))?;
        Some(Home::Chunk { port })
    }

    /// The addresses of a port's own cells.
    pub(super) fn of_port(&self, port: usize) -> impl Iterator<Item = u64> + use<> {
        let (size, count) = (u64::from(CELL_SIZE), u64::from(CELLS));
        let first = self.own + u64::try_from(port).unwrap_or(0) * count * size;
        (0..count).map(move |cell| first + cell * size)
    }

    /// The bytes of a piece, with `front` bytes before it; `None` if they lie outside its cell.
    ///
    /// # Safety
    ///
    /// The kernel has given the piece and not got its cell back, and it is not noted in a pool.
    pub(super) unsafe fn bytes(&mut self, piece: Piece, front: usize) -> Option<&mut [u8]> {
        let length = usize::try_from(piece.length).ok()?;
        let at = usize::try_from(piece.address).ok()?;
        let size = usize::try_from(CELL_SIZE).ok()?;
        let cell = at - at % size;
        let begin = at.checked_sub(front)?;
        let end = at.checked_add(length)?;
        if begin < cell || end > cell + size || end > self.region.bytes() {
            return None;
        }
        // SAFETY: just checked to lie in the mapping.
        let first = unsafe { self.region.address().add(begin) };
        // SAFETY: mapped writable as long as `self`, which is borrowed; by the caller's promise
        // neither the kernel nor readers have the cell.
        Some(unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), end - begin) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_home() {
        let plan = MirrorPlan::new(4 << 20, 1, false).unwrap();
        let (mut umem, pools) = Umem::new(&[plan, plan], 2).unwrap();
        let begin = |pool: &SealedPool| {
            let address = pool.writable.region().address().addr().get();
            let base = umem.region.address().addr().get();
            u64::try_from(address - base).unwrap()
        };
        let bases: Vec<_> = pools.iter().map(begin).collect();
        for base in &bases {
            let share = umem.add_lane(*base, &plan.geometry, LaneId(0));
            assert_eq!(share.first, ChunkId(1), "after the header's chunk");
        }
        let chunk = u64::from(plan.geometry.chunk_size);
        assert_eq!(umem.home(0), None, "the header");
        assert_eq!(umem.home(chunk), Some(Home::Chunk { port: 0 }));
        assert_eq!(umem.home(bases[1] + chunk), Some(Home::Chunk { port: 1 }));
        for port in [0, 1] {
            let cells: Vec<_> = umem.of_port(port).collect();
            for cell in [cells[0], cells[4095]] {
                let expected = Some(Home::Own { port, cell });
                assert_eq!(umem.home(cell + 280), expected);
            }
        }
    }

    #[test]
    fn a_small_mirror_has_chunks_for_every_lane() {
        for (bytes, lanes, several) in [
            (1 << 20, 1, false),
            (1 << 20, 4, true),
            (128 << 20, 2, true),
        ] {
            let plan = MirrorPlan::new(bytes, lanes, several).unwrap();
            let each = (plan.geometry.chunk_count - 1) / lanes;
            assert!(each >= 2, "{plan:?}");
            assert!(
                plan.geometry.snap_length >= if several { 9018 } else { 1518 },
                "{plan:?}"
            );
        }
    }
}
