// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which readers receive a chunk and on which terms, and counts what the others miss.

use super::Distributor;
use super::missed::{Missed, Why};
use super::shares::{Choice, is_elsewhere};
use crate::ids::ChunkId;
use crate::number::to_u32;
use crate::policy::Policy;

impl Distributor {
    /// Counts what a reader misses without the slots of a lane's chunk up to `end`. Call
    /// [`SlotMasks::forget`](super::slot_masks::SlotMasks::forget) first for another chunk or end.
    pub(super) fn count_missed(&mut self, lane: usize, id: ChunkId, missed: Missed, end: u32) {
        let Some(entry) = self.readers[missed.reader].as_mut() else {
            return;
        };
        let slots = missed.from.min(end)..end;
        let seen = self
            .slots
            .see(&self.pool, id, slots, (entry.mask, entry.group));
        entry.miss(lane, seen.missing(missed.why));
    }

    /// Leases the chunk that is being filled to a new reader, from `starts` on.
    pub(super) fn deliver_open_chunk(&mut self, lane: usize, reader: usize, starts: &[u64]) {
        let Some(id) = self.lanes[lane].open else {
            return;
        };
        let Some(chunk) = self.pool.chunk(id) else {
            return;
        };
        let from = starts[lane].saturating_sub(chunk.first_sequence());
        let from = to_u32(from);
        if self.is_with_another(id, reader) {
            let missed = Missed::elsewhere(reader, from);
            self.lanes[lane].missed.push(missed);
        } else {
            let threshold = self.lanes[lane].budget.threshold();
            self.lease(lane, reader, id, from, threshold);
        }
    }

    /// Whether every reader that must not miss anything can take the next chunk, of which these
    /// readers of the shares were chosen.
    pub(super) fn may_deliver(&self, lane: usize, choices: &[Choice]) -> bool {
        let waits = |reader: usize| {
            let entry = self.readers[reader].as_ref();
            entry.filter(|entry| !entry.corrupt).is_some_and(|entry| {
                let is_left_out = entry.is_in_share && is_elsewhere(reader, choices);
                !is_left_out && entry.lease_kind(lane, true).is_none()
            })
        };
        !self.blocking.iter().any(waits)
    }

    /// Leases the open chunk of a lane to a reader, or notes that the reader misses it from there
    /// on. `threshold` is the lane's before any reader takes the chunk.
    pub(super) fn lease(
        &mut self,
        lane: usize,
        reader: usize,
        chunk: ChunkId,
        from: u32,
        threshold: u32,
    ) {
        let begins = self.pool.chunk(chunk).map(|view| view.first_sequence());
        let room = match &self.readers[reader] {
            Some(entry) if !entry.corrupt => self.room(lane, entry, chunk, threshold),
            _ => {
                self.lanes[lane].attentive.remove(reader);
                return;
            }
        };
        let Some(entry) = self.readers[reader].as_mut() else {
            return;
        };
        #[cfg(test)]
        {
            self.lease_tries += 1;
        }
        let burst = self.bursts;
        if let Some((kind, cut)) = entry.terms(lane, room)
            && entry.deliver(lane, chunk, from, cut, kind)
        {
            entry.lanes[lane].note_burst(burst);
            entry.lanes[lane].begins(begins.unwrap_or(0) + u64::from(from));
            self.lanes[lane].filling.add(reader);
            self.signs.unsure.add(reader);
            let peers = &self.owners.get(entry.owner).readers;
            let takes = self.chunks.lease(chunk, reader, kind, peers);
            self.lanes[lane].budget.take_shared(takes);
            self.owners.takes(entry.owner, lane, takes);
        } else {
            // A sample leaves chunks out though there is credit.
            let why = if entry.lease_kind(lane, room.may_share).is_some() {
                Why::Credit
            } else {
                entry.lanes[lane].why_past_credit(burst)
            };
            self.lanes[lane].missed.push(Missed { reader, from, why });
        }
    }

    /// Readers with credit again get the rest of a chunk that is still being filled.
    pub(super) fn deliver_missed(&mut self, lane: usize) {
        let Some(id) = self.lanes[lane].open else {
            return;
        };
        let threshold = self.lanes[lane].budget.threshold();
        for reader in self.take_waiting(lane, id, threshold) {
            self.attend_open(lane, reader);
        }
        let Some(chunk) = self.pool.chunk(id) else {
            return;
        };
        let now = chunk.state().published;
        self.slots.forget();
        for missed in std::mem::take(&mut self.lanes[lane].missed) {
            if missed.why == Why::Elsewhere {
                self.lanes[lane].missed.push(missed);
                continue;
            }
            let entry = self.readers[missed.reader].as_ref();
            // A sample is of whole chunks.
            let may = entry.is_some_and(|entry| {
                let room = self.room(lane, entry, id, threshold);
                let may_lease = entry.lease_kind(lane, room.may_share).is_some();
                may_lease && !matches!(entry.policy, Policy::Sample { .. })
            });
            if !may {
                self.lanes[lane].missed.push(missed);
                continue;
            }
            self.count_missed(lane, id, missed, now);
            self.lease(lane, missed.reader, id, now, threshold);
        }
    }
}
