// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of lanes and readers, for status and decisions of the driver.

use super::Distributor;
use super::entry::{Account, Entry};
use super::missed::Missing;
use crate::control::Progress;
use crate::ids::{ChunkId, LaneId, ReaderId};

impl Distributor {
    /// Chunks of a lane that a reader may hold.
    pub fn credit(&self, id: ReaderId, lane: LaneId) -> u32 {
        self.account(id, lane).map_or(0, |account| account.credit)
    }

    /// The oldest chunk of a lane that a reader holds.
    pub fn oldest_held(&self, id: ReaderId, lane: LaneId) -> Option<ChunkId> {
        self.chunks.leased_to(id.index(), lane.index()).next()
    }

    /// Whether a reader holds a chunk that gets no more packets.
    pub fn holds_sealed(&self, id: ReaderId) -> bool {
        let mut oldest =
            (0..self.lanes.len()).filter_map(|lane| self.chunks.leased_to(id.index(), lane).next());
        oldest.any(|id| {
            self.pool
                .chunk(id)
                .is_some_and(|chunk| chunk.state().sealed)
        })
    }

    /// Packets that this reader missed on this lane because it was past its credit.
    ///
    /// Excludes those in the chunk that is being filled.
    pub fn missed(&self, id: ReaderId, lane: LaneId) -> Missing {
        let Some(account) = self.account(id, lane) else {
            return Missing::default();
        };
        let mut missed = account.missed;
        if let Some(rest) = &account.rest {
            missed += self.resting.missing(lane.index(), rest);
        }
        missed
    }

    /// Number of chunks of this lane that this reader holds.
    pub fn held(&self, id: ReaderId, lane: LaneId) -> u32 {
        self.account(id, lane).map_or(0, |account| account.held)
    }

    /// Counters that a reader publishes, for display.
    pub fn progress(&self, id: ReaderId) -> Option<&Progress> {
        Some(&self.entry(id)?.control.reader().progress)
    }

    pub(super) fn account(&self, id: ReaderId, lane: LaneId) -> Option<&Account> {
        self.entry(id)?.lanes.get(lane.index())
    }

    fn entry(&self, id: ReaderId) -> Option<&Entry> {
        self.readers.get(id.index())?.as_ref()
    }

    /// Whether this reader broke the protocol and gets no more chunks.
    pub fn is_corrupt(&self, id: ReaderId) -> bool {
        self.entry(id).is_some_and(|entry| entry.corrupt)
    }

    /// Number of chunks of this lane that are not free.
    pub fn chunks_in_use(&self, lane: LaneId) -> u32 {
        self.lanes.get(lane.index()).map_or(0, |lane| lane.in_use)
    }

    /// Number of chunks of this lane.
    pub fn chunks_of(&self, lane: LaneId) -> u32 {
        self.lanes
            .get(lane.index())
            .map_or(0, |lane| lane.ends.chunks)
    }

    /// Chunks of a lane that wait for readers: the most that one reader of the policy "block" holds; without
    /// such readers all that are in use.
    pub fn backlog(&self, lane: LaneId) -> u32 {
        let blocking = self.blocking.iter();
        let waiting = blocking.filter_map(|reader| self.readers[reader].as_ref());
        let held = waiting.filter_map(|entry| Some(entry.lanes.get(lane.index())?.held));
        held.max().unwrap_or_else(|| self.chunks_in_use(lane))
    }

    /// Whether a reader has credit for another chunk of this lane; `true` without sound readers.
    pub fn anyone_has_credit(&self, id: LaneId) -> bool {
        let Some(lane) = self.lanes.get(id.index()) else {
            return false;
        };
        let threshold = lane.budget.threshold();
        let may_take = |reader: usize| {
            let entry = self.readers[reader].as_ref();
            entry.is_some_and(|entry| {
                let may_share = self.has_room(id.index(), entry, threshold);
                entry.lease_kind(id.index(), may_share).is_some()
            })
        };
        let has_room = |owner| self.owners.get(owner).shared_held(id.index()) < threshold;
        // Of the readers that rest, only those that wait for the shared half have credit.
        self.readers.iter().flatten().all(|entry| entry.corrupt)
            || lane.attentive.iter().any(may_take)
            || lane.waiting_owners.iter().any(has_room)
    }

    /// Sequence of the next packet of a lane.
    pub fn position(&self, lane: LaneId) -> u64 {
        self.lanes
            .get(lane.index())
            .map_or(0, |lane| lane.now(&self.pool))
    }
}
