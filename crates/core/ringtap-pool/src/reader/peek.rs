// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peeks at the first waiting packet of each lane, for readers that merge lanes by time.

use super::lane::NextSlots;
use super::{ChunkBatch, Reader, RecvError};
use crate::ids::{ChunkId, LaneId};
use crate::number::to_usize;
use crate::sync::Ordering::*;

/// Waiting packets of a reader's lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peek {
    /// Time in nanoseconds since 1970, and lane, of the earliest waiting packet.
    pub first: Option<(u64, LaneId)>,
    /// Time of the earliest waiting packet of the other lanes.
    pub second_ns: Option<u64>,
    /// Whether a lane has no waiting packet: its next packet may be the earliest.
    pub is_partial: bool,
    /// Lanes without waiting packets get no packet of this time or an earlier one; in nanoseconds
    /// since 1970, 0 if unknown.
    pub horizon_ns: u64,
    /// Whether the number of waiting chunks requires that the reader takes packets now.
    pub is_crowded: bool,
    /// Whether no packet waits and none will come.
    pub ended: bool,
}

/// A merging reader should take packets when more than this part of the pool's chunks waits.
const CROWD: usize = 16;
/// Number of waiting chunks that are never too many.
const FEW: usize = 2;

impl Reader {
    /// Asks the distributor for a horizon, because the reader merges lanes by time.
    pub fn merge_by_time(&self) {
        self.home.control.reader().merges.store(1, Relaxed);
    }

    /// Time up to which the reader finds every packet when it looks at its lanes after this call; 0
    /// if unknown.
    pub fn horizon_ns(&self) -> u64 {
        // Pairs with the store in `Distributor::set_horizon`.
        self.home.control.hub().horizon_ns.load(Acquire)
    }

    /// Looks at the first waiting packet of each lane without taking it.
    pub fn peek(&mut self) -> Result<Peek, RecvError> {
        // Before the deliveries and the lanes, so that they have everything up to this time.
        let horizon_ns = self.horizon_ns();
        let ended = self.accept()?;
        let mut peek = Peek {
            horizon_ns,
            ..Peek::default()
        };
        let mut waiting = 0;
        for lane in 0..self.lanes.len() {
            waiting += self.lanes[lane].len().saturating_sub(1);
            let Some(NextSlots { chunk, from, .. }) = self.find(lane)? else {
                peek.is_partial |= !ended;
                continue;
            };
            let time = self.time_ns(chunk, from)?;
            let id = LaneId::at(lane);
            match peek.first {
                Some((first, _)) if time >= first => {
                    peek.second_ns = Some(peek.second_ns.map_or(time, |second| second.min(time)));
                }
                before => {
                    peek.second_ns = before.map(|(first, _)| first).or(peek.second_ns);
                    peek.first = Some((time, id));
                }
            }
        }
        let chunks = to_usize(self.pool().geometry().chunk_count);
        peek.is_crowded = waiting > (chunks / CROWD).max(FEW);
        peek.ended = ended && peek.first.is_none();
        Ok(peek)
    }

    /// Takes the waiting packets of one lane up to this time, but at least one if any waits.
    pub fn try_next_of(
        &mut self,
        lane: LaneId,
        until_ns: u64,
    ) -> Result<Option<ChunkBatch>, RecvError> {
        if lane.index() >= self.lanes.len() {
            return Ok(None);
        }
        let Some(mut range) = self.find(lane.index())? else {
            return Ok(None);
        };
        let mut to = range.from + 1;
        while to < range.to && self.time_ns(range.chunk, to)? <= until_ns {
            to += 1;
        }
        range.to = to;
        self.batch(lane.index(), range)
    }

    fn time_ns(&self, id: ChunkId, index: u32) -> Result<u64, RecvError> {
        let chunk = self.pool().chunk(id);
        let time = chunk.and_then(|chunk| chunk.time_ns(index));
        time.ok_or(RecvError::BadChunk(id))
    }
}
