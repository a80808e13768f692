// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which readers receive a chunk and on which terms, and counts what the others miss.
#![forbid(unsafe_code)]

use std::ops::Range;

use super::Distributor;
use super::chunks::{Missed, Why};
use super::entry::{self, Entry, Missing, Policy, Terms};
use crate::ids::ChunkId;
use crate::number::to_u32;

impl Distributor {
    /// Chunks that one reader may hold, going by what is free.
    pub(super) fn room(&self, lane: usize) -> u32 {
        let lane = &self.lanes[lane];
        entry::room(lane.ends.chunks, lane.free(), self.holders())
    }

    /// How many may hold a chunk at a time.
    fn holders(&self) -> u32 {
        // Of a share one reader at a time holds a chunk.
        let alone = self
            .readers
            .iter()
            .flatten()
            .filter(|entry| !entry.is_in_share);
        let readers = alone.count() + self.shares.count();
        to_u32(readers)
    }

    /// Fewest chunks of a lane with which slow ones of these readers together cannot starve a
    /// fast one.
    pub fn fewest_chunks(&self) -> u32 {
        entry::fewest_chunks(self.holders())
    }

    /// What a reader misses that does not get these slots of a chunk.
    pub(super) fn missing(
        &self,
        id: ChunkId,
        reader: usize,
        slots: Range<u32>,
        why: Why,
    ) -> Missing {
        let sequences = u64::from(slots.end.saturating_sub(slots.start));
        let entry = self.readers[reader].as_ref();
        let (mask, group) = entry.map_or((0, 0), |entry| (entry.mask, entry.group));
        let (wanted, other_members) = match self.pool.chunk(id) {
            Some(chunk) if mask != u64::MAX => chunk.count_masks(slots, mask, group),
            _ => (sequences, 0),
        };
        match why {
            Why::Credit => Missing {
                sequences,
                packets: wanted,
                other_members,
            },
            Why::Elsewhere => Missing {
                sequences,
                packets: 0,
                other_members: wanted + other_members,
            },
        }
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
            self.lease(lane, reader, id, from, self.room(lane));
        }
    }

    /// Whether every reader that must not miss anything can take another chunk.
    pub(super) fn may_deliver(&self, lane: usize) -> bool {
        let waits = |entry: &Entry| {
            entry.policy == Policy::Block && !entry.is_in_share && !entry.has_credit(lane, u32::MAX)
        };
        !self.readers.iter().flatten().any(waits) && self.shares_may_take(lane)
    }

    /// Leases the open chunk of a lane to a reader, or notes that the reader misses it from there
    /// on; `room` is what [`Distributor::room`] gives for the lane.
    pub(super) fn lease(
        &mut self,
        lane: usize,
        reader: usize,
        chunk: ChunkId,
        from: u32,
        room: u32,
    ) {
        let begins = self.pool.chunk(chunk).map(|view| view.first_sequence());
        let Some(entry) = self.readers[reader].as_mut().filter(|entry| !entry.corrupt) else {
            return;
        };
        let terms = entry.terms(lane, room);
        let cut = terms == Terms::Cut;
        let leased = terms != Terms::No && entry.deliver(lane, chunk, from, cut);
        if leased {
            entry.lanes[lane].begins(begins.unwrap_or(0) + u64::from(from));
            self.chunks.lease(chunk, reader);
        } else {
            let missed = Missed::past_credit(reader, from);
            self.lanes[lane].missed.push(missed);
        }
    }

    /// Readers with credit again get the rest of a chunk that is still being filled.
    pub(super) fn deliver_missed(&mut self, lane: usize) {
        let Some(id) = self.lanes[lane].open else {
            return;
        };
        let room = self.room(lane);
        for missed in std::mem::take(&mut self.lanes[lane].missed) {
            if missed.why == Why::Elsewhere {
                self.lanes[lane].missed.push(missed);
                continue;
            }
            let Missed { reader, from, why } = missed;
            let Some(chunk) = self.pool.chunk(id) else {
                return;
            };
            let now = chunk.state().published;
            let entry = self.readers[reader].as_ref();
            // A sample is of whole chunks.
            let may = entry.is_some_and(|entry| {
                !matches!(entry.policy, Policy::Sample { .. }) && entry.has_credit(lane, room)
            });
            if !may {
                self.lanes[lane].missed.push(missed);
                continue;
            }
            let missing = self.missing(id, reader, from..now, why);
            if let Some(entry) = self.readers[reader].as_mut() {
                entry.miss(lane, missing);
            }
            self.lease(lane, reader, id, now, room);
        }
    }
}
