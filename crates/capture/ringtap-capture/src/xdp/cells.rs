// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ownership of the cells of one lane: kernel, packet in transit, or readers.
//!
//! A chunk is in turn *free*, *fresh* (the kernel fills its cells), *open* (packets get slots) and
//! *spent* (sealed; readers hold it, and the kernel may still hold some cells).
//!
//! Invariants
//! - The kernel gets all cells of a chunk at once, and only while no reader can hold the chunk.
//! - A returned chunk waits while the kernel or a forwarder holds a cell of it.
//! - A chunk without a captured packet becomes free without passing through the readers.

use std::collections::VecDeque;

use ringtap_pool::format::Geometry;
use ringtap_pool::ids::{ChunkId, LaneId};
use ringtap_pool::source;
use ringtap_pool::writer::CellLayout;

/// State of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChunkStage {
    #[default]
    Free,
    /// Must be opened before packets get slots.
    Fresh,
    /// Ready for slots.
    Open,
    /// Sealed, because packets of a later chunk came first; further packets are copied.
    Spent,
    /// Returned by the readers; the kernel still holds cells.
    Parked,
}

/// A chunk and the number of its cells in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CellEntry {
    stage: ChunkStage,
    /// Cells that the kernel holds.
    filled: u32,
}

impl CellEntry {
    fn is_in_use(&self) -> bool {
        self.filled > 0
    }
}

/// Position of a piece of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellPosition {
    pub(crate) chunk: ChunkId,
    /// Offset in the chunk.
    pub(crate) at: usize,
}

/// The chunks of one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellShare {
    /// Offset of the pool in the UMEM.
    pub(crate) base: u64,
    pub(crate) chunk_size: u32,
    pub(crate) first: ChunkId,
    pub(crate) count: usize,
}

impl CellShare {
    /// The chunks of `lane` in a pool at offset `base`.
    pub(crate) fn for_lane(geometry: &Geometry, lane: LaneId, base: u64) -> Self {
        let chunks = source::share(geometry, lane);
        CellShare {
            base,
            chunk_size: geometry.chunk_size,
            first: chunks.last().copied().unwrap_or(ChunkId(0)),
            count: chunks.len(),
        }
    }
}

/// The cells of one lane.
pub(crate) struct Cells {
    layout: CellLayout,
    base: u64,
    chunk_shift: u32,
    first: u32,
    chunks: Vec<CellEntry>,
    /// Chunks whose cells the kernel fills, oldest first.
    fresh: VecDeque<ChunkId>,
    open: Option<ChunkId>,
    /// Cells that the kernel holds.
    held: u32,
    /// Free chunks that did not come from the readers.
    back: Vec<ChunkId>,
}

impl Cells {
    /// Tracks the cells of these chunks; all are free.
    pub(crate) fn new(layout: CellLayout, share: CellShare) -> Self {
        Cells {
            layout,
            base: share.base,
            chunk_shift: share.chunk_size.trailing_zeros(),
            first: share.first.0,
            chunks: vec![CellEntry::default(); share.count],
            fresh: VecDeque::new(),
            open: None,
            held: 0,
            back: Vec::new(),
        }
    }

    /// Number of cells that the kernel holds.
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    /// Number of cells in a chunk.
    pub(crate) fn per_chunk(&self) -> u32 {
        self.layout.count
    }

    fn entry(&mut self, id: ChunkId) -> Option<&mut CellEntry> {
        let index = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        self.chunks.get_mut(index)
    }

    /// Marks a chunk as returned by the readers (or never used). Returns whether the kernel can have
    /// its cells now; otherwise [`Cells::take_back`] returns the chunk later.
    pub(crate) fn returned(&mut self, id: ChunkId) -> bool {
        let Some(entry) = self.entry(id) else {
            return false;
        };
        let waits = entry.is_in_use();
        entry.stage = if waits {
            ChunkStage::Parked
        } else {
            ChunkStage::Free
        };
        !waits
    }

    /// Takes a free chunk for which [`Cells::returned`] returned `false` or was not called.
    pub(crate) fn take_back(&mut self) -> Option<ChunkId> {
        self.back.pop()
    }

    /// Gives a free chunk to the kernel and returns the addresses of its cells.
    pub(crate) fn hand_over(&mut self, id: ChunkId) -> impl Iterator<Item = u64> + use<> {
        let count = self.layout.count;
        if let Some(entry) = self.entry(id) {
            entry.stage = ChunkStage::Fresh;
            entry.filled = count;
        }
        self.held += count;
        self.fresh.push_back(id);
        let base = self.base + (u64::from(id.0) << self.chunk_shift);
        self.layout
            .offsets()
            .map(move |offset| base + u64::from(offset))
    }

    /// Finds the cell of a UMEM address; `None` if no cell of this lane contains it.
    #[inline]
    pub(crate) fn locate(&self, address: u64) -> Option<CellPosition> {
        let address = address.checked_sub(self.base)?;
        let chunk = u32::try_from(address >> self.chunk_shift).ok()?;
        let index = usize::try_from(chunk.checked_sub(self.first)?).ok()?;
        let at = address & ((1 << self.chunk_shift) - 1);
        let is_ours = index < self.chunks.len() && at >= u64::from(self.layout.first);
        is_ours.then_some(CellPosition {
            chunk: ChunkId(chunk),
            at: usize::try_from(at).ok()?,
        })
    }

    /// Marks a cell as received. Returns whether the kernel holds no other cell of the chunk: the
    /// caller then calls [`Cells::let_go`] after the packet has its slot.
    #[inline]
    pub(crate) fn came_back(&mut self, id: ChunkId) -> bool {
        self.held = self.held.saturating_sub(1);
        let Some(entry) = self.entry(id) else {
            return false;
        };
        entry.filled = entry.filled.saturating_sub(1);
        entry.filled == 0
    }

    /// Frees the chunk if no cell is in use and no reader holds it.
    pub(crate) fn let_go(&mut self, id: ChunkId) {
        let Some(entry) = self.entry(id).filter(|entry| !entry.is_in_use()) else {
            return;
        };
        match entry.stage {
            ChunkStage::Parked => {}
            // No packet was captured: no reader will return the chunk.
            ChunkStage::Fresh => self.fresh.retain(|fresh| *fresh != id),
            ChunkStage::Free | ChunkStage::Open | ChunkStage::Spent => return,
        }
        if let Some(entry) = self.entry(id) {
            entry.stage = ChunkStage::Free;
        }
        self.back.push(id);
    }

    /// The state of a chunk; that of another lane's counts as spent.
    #[inline]
    pub(crate) fn stage(&self, id: ChunkId) -> ChunkStage {
        if self.open == Some(id) {
            return ChunkStage::Open;
        }
        let index = id.0.checked_sub(self.first).map(usize::try_from);
        let entry = index.and_then(|index| self.chunks.get(index.ok()?));
        entry.map_or(ChunkStage::Spent, |entry| entry.stage)
    }

    /// The fresh chunk that the kernel got first.
    pub(crate) fn oldest_fresh(&self) -> Option<ChunkId> {
        self.fresh.front().copied()
    }

    /// Opens a fresh chunk; the chunk that was open is spent.
    pub(crate) fn opened(&mut self, id: ChunkId) {
        self.spent();
        if let Some(at) = self.fresh.iter().position(|fresh| *fresh == id) {
            self.fresh.remove(at);
        }
        if let Some(entry) = self.entry(id) {
            entry.stage = ChunkStage::Open;
        }
        self.open = Some(id);
    }

    /// Marks the open chunk, if any, as sealed.
    pub(crate) fn spent(&mut self) {
        if let Some(entry) = self.open.take().and_then(|id| self.entry(id)) {
            entry.stage = ChunkStage::Spent;
        }
    }

    /// Whether the kernel holds no cell of the open chunk.
    pub(crate) fn open_is_used_up(&mut self) -> bool {
        let open = self.open;
        open.and_then(|id| self.entry(id))
            .is_some_and(|entry| entry.filled == 0)
    }
}

#[cfg(test)]
mod tests {
    use ringtap_pool::writer::Cell;

    use super::*;

    const BASE: u64 = 4096;

    fn cells() -> Cells {
        let layout = CellLayout::new(8192, Cell::aligned(2048), 0, 0).unwrap();
        let share = CellShare {
            base: BASE,
            chunk_size: 8192,
            first: ChunkId(5),
            count: 3,
        };
        Cells::new(layout, share)
    }

    #[test]
    fn addresses_go_out_and_are_found_again() {
        let mut cells = cells();
        assert!(cells.returned(ChunkId(6)));
        let addresses: Vec<_> = cells.hand_over(ChunkId(6)).collect();
        assert_eq!(
            addresses,
            [6 * 8192 + 2048, 6 * 8192 + 4096, 6 * 8192 + 6144].map(|at| BASE + at)
        );
        assert_eq!(cells.held(), 3);
        let position = cells.locate(addresses[1] + 256).unwrap();
        assert_eq!((position.chunk, position.at), (ChunkId(6), 4096 + 256));
        for address in [
            0,
            BASE + 4 * 8192 + 4096,
            BASE + 5 * 8192 + 100,
            BASE + 8 * 8192 + 4096,
            u64::MAX,
        ] {
            assert_eq!(cells.locate(address), None, "{address}");
        }
    }

    #[test]
    fn a_chunk_that_comes_back_before_its_last_cell_waits_for_it() {
        let mut cells = cells();
        cells.returned(ChunkId(5));
        let _addresses = cells.hand_over(ChunkId(5));
        assert_eq!(cells.stage(ChunkId(5)), ChunkStage::Fresh);
        cells.opened(ChunkId(5));
        assert!(!cells.came_back(ChunkId(5)));
        assert!(!cells.came_back(ChunkId(5)));
        assert!(!cells.open_is_used_up());
        cells.spent();
        assert_eq!(cells.stage(ChunkId(5)), ChunkStage::Spent);
        assert!(!cells.returned(ChunkId(5)), "the kernel has one cell yet");
        assert_eq!(cells.take_back(), None);
        assert!(cells.came_back(ChunkId(5)));
        cells.let_go(ChunkId(5));
        assert_eq!((cells.take_back(), cells.held()), (Some(ChunkId(5)), 0));
        cells.let_go(ChunkId(5));
        assert_eq!(cells.take_back(), None, "once");
    }

    #[test]
    fn a_chunk_waits_for_its_readers() {
        let mut cells = cells();
        cells.returned(ChunkId(7));
        let _addresses = cells.hand_over(ChunkId(7));
        cells.opened(ChunkId(7));
        for _ in 0..3 {
            cells.came_back(ChunkId(7));
        }
        assert!(cells.open_is_used_up());
        cells.spent();
        cells.let_go(ChunkId(7));
        assert_eq!(cells.take_back(), None, "the readers have it");
        assert!(cells.returned(ChunkId(7)));
    }

    #[test]
    fn a_chunk_of_which_nothing_was_noted_goes_round_by_itself() {
        let mut cells = cells();
        cells.returned(ChunkId(6));
        let _addresses = cells.hand_over(ChunkId(6));
        for last in [false, false, true] {
            assert_eq!(cells.came_back(ChunkId(6)), last);
        }
        cells.let_go(ChunkId(6));
        assert_eq!(cells.oldest_fresh(), None);
        assert_eq!(cells.take_back(), Some(ChunkId(6)));
    }

    #[test]
    fn chunks_are_opened_in_the_order_of_their_packets() {
        let mut cells = cells();
        for id in [5, 6, 7].map(ChunkId) {
            cells.returned(id);
            let _addresses = cells.hand_over(id);
        }
        cells.opened(ChunkId(6));
        assert_eq!(cells.oldest_fresh(), Some(ChunkId(5)));
        assert_eq!(cells.stage(ChunkId(6)), ChunkStage::Open);
        cells.opened(ChunkId(5));
        assert_eq!(cells.stage(ChunkId(6)), ChunkStage::Spent);
        assert_eq!(cells.oldest_fresh(), Some(ChunkId(7)));
    }
}
