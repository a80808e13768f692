// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares: sets of readers of which one gets each chunk.
//!
//! Invariants
//! - Each chunk that is opened while a share has readers goes to one of them. The other readers of
//!   the share count its packets as packets for other members, not as lost.
#![forbid(unsafe_code)]

use super::Distributor;
use super::chunks::Missed;
use super::entry::Policy;
use super::scheduler::{Candidate, NextChunk, Returned};
use crate::ids::{ChunkId, LaneId, ReaderId};
use crate::number::to_u32;

struct Sharers {
    number: u32,
    /// Indices of the share's readers, oldest first; at least one.
    readers: Vec<usize>,
}

/// All shares that have readers.
#[derive(Default)]
pub(super) struct ChunkShares(Vec<Sharers>);

impl ChunkShares {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn join(&mut self, number: u32, reader: usize) {
        match self.0.iter_mut().find(|share| share.number == number) {
            Some(share) => share.readers.push(reader),
            None => self.0.push(Sharers {
                number,
                readers: vec![reader],
            }),
        }
    }

    pub(super) fn leave(&mut self, reader: usize) {
        for share in &mut self.0 {
            share.readers.retain(|one| *one != reader);
        }
        self.0.retain(|share| !share.readers.is_empty());
    }

    fn of(&self, reader: usize) -> Option<&Sharers> {
        self.0.iter().find(|share| share.readers.contains(&reader))
    }
}

impl Distributor {
    /// The readers of a share that may get a chunk.
    fn candidates(&self, share: &Sharers) -> Vec<Candidate> {
        let candidate = |index: &usize| {
            let entry = self.readers[*index].as_ref();
            let sound = entry.filter(|entry| !entry.corrupt)?;
            Some(Candidate {
                reader: ReaderId(to_u32(*index)),
                held: sound.load(),
            })
        };
        share.readers.iter().filter_map(candidate).collect()
    }

    /// Asks the scheduler which reader of a share gets a lane's next chunk, and reports to it the
    /// chunk in `opened`. Returns `None` if all readers of the share are corrupt.
    fn choose(&self, share: &Sharers, lane: usize, opened: Option<ChunkId>) -> Option<usize> {
        let candidates = self.candidates(share);
        let first = candidates.first()?.reader;
        let next = NextChunk {
            share: share.number,
            lane: LaneId::at(lane),
            lane_chunks: self.lanes[lane].ends.chunks,
            candidates: &candidates,
        };
        let named = self.scheduler.choose(&next);
        let is_candidate = candidates.iter().any(|one| one.reader == named);
        let chosen = if is_candidate { named } else { first };
        if let Some(chunk) = opened {
            self.scheduler.opened(chunk, &next, chosen);
        }
        Some(chosen.index())
    }

    /// For each share, the reader that gets a chunk that the lane just opened.
    pub(super) fn choose_readers(&self, lane: usize, id: ChunkId) -> Vec<usize> {
        let shares = self.shares.0.iter();
        let chosen = shares.filter_map(|share| self.choose(share, lane, Some(id)));
        chosen.collect()
    }

    /// Whether another reader of this reader's share was chosen.
    pub(super) fn is_elsewhere(&self, reader: usize, chosen: &[usize]) -> bool {
        let entry = self.readers[reader].as_ref();
        entry.is_some_and(|entry| entry.is_in_share) && !chosen.contains(&reader)
    }

    /// Whether another reader of this reader's share has a chunk already.
    pub(super) fn is_with_another(&self, id: ChunkId, reader: usize) -> bool {
        let share = self.shares.of(reader);
        let mut readers = share.into_iter().flat_map(|share| &share.readers);
        readers.any(|one| *one != reader && self.chunks.is_leased_to(id, *one))
    }

    /// Whether the lane may open its next chunk: in every share, the chosen reader has credit or a
    /// policy that does not make the source wait.
    pub(super) fn shares_may_take(&self, lane: usize) -> bool {
        let may = |share: &Sharers| {
            let chosen = self.choose(share, lane, None);
            let entry = chosen.and_then(|reader| self.readers[reader].as_ref());
            entry.is_none_or(|entry| {
                entry.policy != Policy::Block || entry.has_credit(lane, u32::MAX)
            })
        };
        self.shares.0.iter().all(may)
    }

    /// Gives each open chunk whose reader left to another reader of the share, from the next packet
    /// on.
    pub(super) fn adopt_open_chunks(&mut self) {
        for lane in 0..self.lanes.len() {
            let Some(id) = self.lanes[lane].open else {
                continue;
            };
            for at in 0..self.shares.0.len() {
                let share = &self.shares.0[at];
                let has = |reader: &usize| self.chunks.is_leased_to(id, *reader);
                if share.readers.iter().any(has) {
                    continue;
                }
                if let Some(heir) = self.choose(share, lane, None) {
                    self.adopt(lane, id, heir);
                }
            }
        }
    }

    fn adopt(&mut self, lane: usize, id: ChunkId, heir: usize) {
        let missed = std::mem::take(&mut self.lanes[lane].missed);
        let (own, others): (Vec<_>, Vec<_>) =
            missed.into_iter().partition(|missed| missed.reader == heir);
        self.lanes[lane].missed = others;
        let now = self
            .pool
            .chunk(id)
            .map_or(0, |chunk| chunk.state().published);
        for Missed { from, why, .. } in own {
            // Packets that the reader missed before it took over stay counted as missed.
            let missing = self.missing(id, heir, from..now, why);
            if let Some(entry) = self.readers[heir].as_mut() {
                entry.miss(lane, missing);
            }
        }
        self.lease(lane, heir, id, now, self.room(lane));
    }

    /// Tells the scheduler that a reader of a share gives back a chunk that it leases.
    pub(super) fn report_return(&self, id: ChunkId, reader: usize) {
        let Some(share) = self.shares.of(reader) else {
            return;
        };
        if !self.chunks.is_leased_to(id, reader) {
            return;
        }
        let others = share.readers.iter().filter(|one| **one != reader);
        let returned = Returned {
            share: share.number,
            chunk: id,
            reader: ReaderId(to_u32(reader)),
            others: others.map(|one| ReaderId(to_u32(*one))).collect(),
            pool: &self.pool,
            chunks: &self.chunks,
        };
        self.scheduler.returned(&returned);
    }
}

#[cfg(test)]
mod tests;
