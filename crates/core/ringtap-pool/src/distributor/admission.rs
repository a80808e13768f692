// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission of leases: guarantees of readers, and their room in the shared half of a lane.
//!
//! A guarantee alone would leave most of a pool unused while few readers are slow; room for all alone would let one reader
//! take the chunks that the others need. So half of a lane is guaranteed in equal shares; the readers that need more share the other half.

use super::Distributor;
use super::budget::{LEAST, LaneBudget, Room};
use super::entry::Entry;
use crate::ids::{ChunkId, LaneId, ReaderId};
use crate::policy::Policy;

impl Distributor {
    /// Guarantees each of the first `readers` readers an equal share of each lane, and leaves a
    /// share for later readers. Without this, or for one reader, only credits limit readers: a
    /// reader that stops may hold every chunk but the writer's reserve.
    ///
    /// Call it before the first reader is added.
    #[must_use]
    pub fn with_guaranteed_readers(mut self, readers: u32) -> Self {
        self.guaranteed_readers = readers;
        for lane in &mut self.lanes {
            lane.budget = LaneBudget::new(lane.ends.chunks, readers);
        }
        self
    }

    /// Chunks of a lane that a reader can always hold; 0 if only credits limit readers.
    pub fn guarantee(&self, id: ReaderId, lane: LaneId) -> u32 {
        self.account(id, lane)
            .map_or(0, |account| account.guarantee)
    }

    /// Guarantee of each of the first readers on a lane; 0 if only credits limit readers.
    pub fn full_guarantee(&self, lane: LaneId) -> u32 {
        self.lanes
            .get(lane.index())
            .map_or(0, |lane| lane.budget.full)
    }

    /// What a reader may take of a lane's shared half, if that had `threshold` before any reader took
    /// the chunk: readers that take one chunk of the shared half take it once.
    pub(super) fn room(&self, lane: usize, entry: &Entry, chunk: ChunkId, threshold: u32) -> Room {
        let peers = &self.owners.get(entry.owner).readers;
        let may_share =
            self.has_room(lane, entry, threshold) || self.chunks.is_shared_by(chunk, peers);
        Room {
            threshold,
            may_share,
        }
    }

    /// Whether a reader's owner may take a further chunk of a lane's shared half.
    pub(super) fn has_room(&self, lane: usize, entry: &Entry, threshold: u32) -> bool {
        self.owners.get(entry.owner).shared_held(lane) < threshold
    }

    /// Gives guarantees to new readers, and to readers that found too little left before. Of the full
    /// ones a user has at most as many as it leaves to others.
    pub(super) fn assign_guarantees(&mut self) {
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let full = lane.budget.full;
            let mut places = self.guaranteed_readers;
            let mut of_owner = vec![0_u32; self.owners.len()];
            let (with_full, others): (Vec<_>, Vec<_>) = self
                .readers
                .iter_mut()
                .flatten()
                .filter(|entry| entry.policy != Policy::Block)
                .map(|entry| (entry.owner, &mut entry.lanes[at].guarantee))
                .partition(|(_, guarantee)| **guarantee >= full);
            for (owner, _) in &with_full {
                of_owner[*owner] += 1;
                places = places.saturating_sub(1);
            }
            for (owner, guarantee) in others {
                let is_limited = self.owners.get(owner).user.is_some();
                let spared = if is_limited { of_owner[owner] } else { 0 };
                let wanted = if places > spared { full } else { LEAST };
                if wanted == full {
                    of_owner[owner] += 1;
                    places = places.saturating_sub(1);
                }
                lane.budget.raise(guarantee, wanted);
            }
        }
        self.attend_permitted();
    }

    /// Makes the guarantees of a reader that left available to others.
    pub(super) fn free_guarantees(&mut self, entry: &Entry) {
        for (lane, account) in self.lanes.iter_mut().zip(&entry.lanes) {
            lane.budget.guaranteed -= account.guarantee;
        }
        self.assign_guarantees();
    }
}
