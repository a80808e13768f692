// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose the cells of one lane are: the kernel's, a packet's on its way, or the readers'.
//!
//! A chunk goes round: *free*, *fresh* (its cells are with the kernel), *open* (packets in them
//! are noted), *spent* (sealed; readers have it, and the kernel perhaps a cell or two).
//!
//! Invariants
//! - A cell is given to the kernel only when no reader can hold its chunk, and all of a chunk's
//!   cells at once.
//! - A chunk that comes back while the kernel still has a cell of it, or one is kept to be
//!   forwarded, waits for that cell. One of which nothing was noted goes round without the readers.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use ringtap_pool::format::Geometry;
use ringtap_pool::ids::{ChunkId, LaneId};
use ringtap_pool::source;
use ringtap_pool::writer::CellLayout;

/// Where a chunk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Free,
    Fresh,
    Open,
    Spent,
    /// Back from the readers, but not from the kernel.
    Parked,
}

/// A chunk, and its cells that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    stage: Stage,
    /// With the kernel, to be filled.
    filled: u32,
    /// Filled, and needed until their packets are forwarded.
    kept: u32,
}

impl Entry {
    fn is_in_use(&self) -> bool {
        self.filled > 0 || self.kept > 0
    }
}

/// Where a piece of a packet lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellPlace {
    pub chunk: ChunkId,
    /// In the chunk.
    pub at: usize,
}

/// What has to be done before a packet can be noted in its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing: it is open.
    Open,
    /// It has to be opened.
    Fresh,
    /// It cannot be: the chunk was sealed when packets of a later one came. Such packets are
    /// copied.
    Spent,
}

/// Where a lane's chunks lie.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Where the pool begins in the UMEM.
    pub base: u64,
    pub chunk_size: u32,
    pub first: ChunkId,
    pub count: usize,
}

impl Share {
    /// The chunks of a lane in a pool that begins at `base`.
    pub fn of(geometry: &Geometry, lane: LaneId, base: u64) -> Self {
        let chunks = source::share(geometry, lane);
        Share {
            base,
            chunk_size: geometry.chunk_size,
            first: chunks.last().copied().unwrap_or(ChunkId(0)),
            count: chunks.len(),
        }
    }
}

/// The cells of one lane.
pub struct Cells {
    layout: CellLayout,
    base: u64,
    chunk_shift: u32,
    first: u32,
    chunks: Vec<Entry>,
    /// Those whose cells the kernel has, oldest first.
    fresh: VecDeque<ChunkId>,
    open: Option<ChunkId>,
    /// Cells that the kernel has to fill.
    held: u32,
    /// Chunks that are free and that no reader has to give back.
    back: Vec<ChunkId>,
}

impl Cells {
    /// The cells of these chunks.
    pub fn new(layout: CellLayout, share: Share) -> Self {
        Cells {
            layout,
            base: share.base,
            chunk_shift: share.chunk_size.trailing_zeros(),
            first: share.first.0,
            chunks: vec![Entry::default(); share.count],
            fresh: VecDeque::new(),
            open: None,
            held: 0,
            back: Vec::new(),
        }
    }

    /// Cells that the kernel has to fill.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Cells of a chunk.
    pub fn per_chunk(&self) -> u32 {
        self.layout.count
    }

    fn entry(&mut self, id: ChunkId) -> Option<&mut Entry> {
        let index = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        self.chunks.get_mut(index)
    }

    /// A chunk came back from the readers (or was never used). Tells whether its cells can be
    /// given to the kernel; else that is told by [`Cells::take_back`] later.
    pub fn returned(&mut self, id: ChunkId) -> bool {
        let Some(entry) = self.entry(id) else {
            return false;
        };
        let waits = entry.is_in_use();
        entry.stage = if waits { Stage::Parked } else { Stage::Free };
        !waits
    }

    /// A chunk that is free and was not told of by [`Cells::returned`].
    pub fn take_back(&mut self) -> Option<ChunkId> {
        self.back.pop()
    }

    /// Gives the addresses of a free chunk's cells, which are the kernel's from now on.
    pub fn hand_over(&mut self, id: ChunkId) -> impl Iterator<Item = u64> + use<> {
        let count = self.layout.count;
        if let Some(entry) = self.entry(id) {
            entry.stage = Stage::Fresh;
            entry.filled = count;
        }
        self.held += count;
        self.fresh.push_back(id);
        let base = self.base + (u64::from(id.0) << self.chunk_shift);
        self.layout
            .offsets()
            .map(move |offset| base + u64::from(offset))
    }

    /// Where an address of the kernel's lies; `None` if it is in no cell of this lane.
    #[inline]
    pub fn locate(&self, address: u64) -> Option<CellPlace> {
        let address = address.checked_sub(self.base)?;
        let chunk = u32::try_from(address >> self.chunk_shift).ok()?;
        let index = usize::try_from(chunk.checked_sub(self.first)?).ok()?;
        let at = address & ((1 << self.chunk_shift) - 1);
        let is_ours = index < self.chunks.len() && at >= u64::from(self.layout.first);
        is_ours.then_some(CellPlace {
            chunk: ChunkId(chunk),
            at: usize::try_from(at).ok()?,
        })
    }

    /// The kernel gave a filled cell of this chunk. Tells whether it was the chunk's last: then
    /// [`Cells::let_go`] once its packet is noted.
    #[inline]
    pub fn came_back(&mut self, id: ChunkId) -> bool {
        self.held = self.held.saturating_sub(1);
        let Some(entry) = self.entry(id) else {
            return false;
        };
        entry.filled = entry.filled.saturating_sub(1);
        entry.filled == 0
    }

    /// A cell that came back is still needed: its packet is to be forwarded.
    pub fn keep(&mut self, id: ChunkId) {
        if let Some(entry) = self.entry(id) {
            entry.kept += 1;
        }
    }

    /// A cell that was kept is not needed any more.
    pub fn release(&mut self, id: ChunkId) {
        if let Some(entry) = self.entry(id) {
            entry.kept = entry.kept.saturating_sub(1);
        }
        self.let_go(id);
    }

    /// What came back of this chunk is dealt with: it is free if nothing of it is in use, and no
    /// reader has it.
    pub fn let_go(&mut self, id: ChunkId) {
        let Some(entry) = self.entry(id).filter(|entry| !entry.is_in_use()) else {
            return;
        };
        match entry.stage {
            Stage::Parked => {}
            // Nobody wanted any of its packets, so no reader will give it back.
            Stage::Fresh => self.fresh.retain(|fresh| *fresh != id),
            Stage::Free | Stage::Open | Stage::Spent => return,
        }
        if let Some(entry) = self.entry(id) {
            entry.stage = Stage::Free;
        }
        self.back.push(id);
    }

    #[inline]
    pub fn standing(&self, id: ChunkId) -> Standing {
        if self.open == Some(id) {
            return Standing::Open;
        }
        let index = id.0.checked_sub(self.first).map(usize::try_from);
        let entry = index.and_then(|index| self.chunks.get(index.ok()?));
        match entry.map(|entry| entry.stage) {
            Some(Stage::Fresh) => Standing::Fresh,
            _ => Standing::Spent,
        }
    }

    /// The fresh chunk that was handed over first.
    pub fn oldest_fresh(&self) -> Option<ChunkId> {
        self.fresh.front().copied()
    }

    /// A fresh chunk is open from now on, and the one before is spent.
    pub fn opened(&mut self, id: ChunkId) {
        self.spent();
        if let Some(at) = self.fresh.iter().position(|fresh| *fresh == id) {
            self.fresh.remove(at);
        }
        if let Some(entry) = self.entry(id) {
            entry.stage = Stage::Open;
        }
        self.open = Some(id);
    }

    /// The open chunk, if there is one, is sealed.
    pub fn spent(&mut self) {
        if let Some(entry) = self.open.take().and_then(|id| self.entry(id)) {
            entry.stage = Stage::Spent;
        }
    }

    /// Whether the kernel has no cell of the open chunk to fill any more.
    pub fn open_is_used_up(&mut self) -> bool {
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
        let share = Share {
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
        let place = cells.locate(addresses[1] + 256).unwrap();
        assert_eq!((place.chunk, place.at), (ChunkId(6), 4096 + 256));
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
        assert_eq!(cells.standing(ChunkId(5)), Standing::Fresh);
        cells.opened(ChunkId(5));
        assert!(!cells.came_back(ChunkId(5)));
        assert!(!cells.came_back(ChunkId(5)));
        assert!(!cells.open_is_used_up());
        cells.spent();
        assert_eq!(cells.standing(ChunkId(5)), Standing::Spent);
        assert!(!cells.returned(ChunkId(5)), "the kernel has one cell yet");
        assert_eq!(cells.take_back(), None);
        assert!(cells.came_back(ChunkId(5)));
        cells.let_go(ChunkId(5));
        assert_eq!((cells.take_back(), cells.held()), (Some(ChunkId(5)), 0));
        cells.let_go(ChunkId(5));
        assert_eq!(cells.take_back(), None, "once");
    }

    #[test]
    fn a_chunk_waits_for_its_readers_and_for_what_is_being_sent() {
        let mut cells = cells();
        cells.returned(ChunkId(7));
        let _addresses = cells.hand_over(ChunkId(7));
        cells.opened(ChunkId(7));
        for _ in 0..3 {
            cells.came_back(ChunkId(7));
            cells.keep(ChunkId(7));
        }
        assert!(cells.open_is_used_up());
        cells.spent();
        cells.release(ChunkId(7));
        cells.release(ChunkId(7));
        assert!(!cells.returned(ChunkId(7)), "one is still being sent");
        cells.release(ChunkId(7));
        assert_eq!(cells.take_back(), Some(ChunkId(7)));
        let _addresses = cells.hand_over(ChunkId(7));
        cells.opened(ChunkId(7));
        for _ in 0..3 {
            cells.came_back(ChunkId(7));
        }
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
        assert_eq!(cells.standing(ChunkId(6)), Standing::Open);
        cells.opened(ChunkId(5));
        assert_eq!(cells.standing(ChunkId(6)), Standing::Spent);
        assert_eq!(cells.oldest_fresh(), Some(ChunkId(7)));
    }
}
