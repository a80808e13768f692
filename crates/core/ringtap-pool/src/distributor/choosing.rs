// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the reader of each share that gets a chunk, with the scheduler.

use super::Distributor;
use super::scheduler::{Candidate, NextChunk, Returned};
use super::shares::{Choice, Sharers};
use crate::ids::{ChunkId, LaneId, ReaderId};
use crate::number::to_u32;

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

    /// Asks the scheduler which reader of a share gets a lane's next chunk. Returns `None` if all
    /// readers of the share are corrupt.
    fn choose(&self, share: &Sharers, lane: usize) -> Option<Choice> {
        let candidates = self.candidates(share);
        let first = candidates.first()?.reader;
        let named = self
            .scheduler
            .choose(&self.next_chunk(share.number, lane, &candidates));
        let is_candidate = candidates.iter().any(|one| one.reader == named);
        Some(Choice {
            share: share.number,
            chosen: if is_candidate { named } else { first },
            candidates,
        })
    }

    fn next_chunk<'a>(
        &self,
        share: u32,
        lane: usize,
        candidates: &'a [Candidate],
    ) -> NextChunk<'a> {
        NextChunk {
            share,
            lane: LaneId::at(lane),
            lane_chunks: self.lanes[lane].ends.chunks,
            candidates,
        }
    }

    /// For each share, the reader that gets the next chunk of a lane.
    pub(super) fn choose_readers(&self, lane: usize) -> Vec<Choice> {
        let shares = self.shares.0.iter();
        shares
            .filter_map(|share| self.choose(share, lane))
            .collect()
    }

    /// Tells the scheduler that a lane opened a chunk, for which these readers were chosen.
    pub(super) fn report_opened(&self, lane: usize, id: ChunkId, choices: &[Choice]) {
        for choice in choices {
            let next = self.next_chunk(choice.share, lane, &choice.candidates);
            self.scheduler.opened(id, &next, choice.chosen);
        }
    }

    /// Whether another reader of this reader's share has a chunk already.
    pub(super) fn is_with_another(&self, id: ChunkId, reader: usize) -> bool {
        let share = self.shares.share_of(reader);
        let mut readers = share.into_iter().flat_map(|share| &share.readers);
        readers.any(|one| *one != reader && self.chunks.is_leased_to(id, *one))
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
                if let Some(heir) = self.choose(share, lane) {
                    self.adopt(lane, id, heir.reader());
                }
            }
        }
    }

    fn adopt(&mut self, lane: usize, id: ChunkId, heir: usize) {
        self.attend_open(lane, heir);
        let missed = std::mem::take(&mut self.lanes[lane].missed);
        let (own, others): (Vec<_>, Vec<_>) =
            missed.into_iter().partition(|missed| missed.reader == heir);
        self.lanes[lane].missed = others;
        let now = self
            .pool
            .chunk(id)
            .map_or(0, |chunk| chunk.state().published);
        self.slots.forget();
        for missed in own {
            // Packets that the reader missed before it took over stay counted as missed.
            self.count_missed(lane, id, missed, now);
        }
        let threshold = self.lanes[lane].budget.threshold();
        self.lease(lane, heir, id, now, threshold);
    }

    /// Tells the scheduler that a reader of a share gives back a chunk that it leases.
    pub(super) fn report_return(&self, id: ChunkId, reader: usize) {
        let Some(share) = self.shares.share_of(reader) else {
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
