// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of several lanes in the order of their times.
#![forbid(unsafe_code)]

use super::{Batch, Found, Reader, RecvError};
use crate::ids::{ChunkId, LaneId};
use crate::sync::Ordering::Acquire;

/// What waits on a reader's lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heads {
    /// The earliest first packet of any lane: its time in nanoseconds since 1970, and the lane.
    pub first: Option<(u64, LaneId)>,
    /// Time of the earliest first packet of the other lanes.
    pub second_ns: Option<u64>,
    /// Whether nothing waits on some lane, so that what it gets next may be earlier.
    pub is_partial: bool,
    /// Nothing waits anywhere, and nothing will come any more.
    pub ended: bool,
}

impl Reader {
    /// Looks at the first packet that waits on each lane.
    ///
    /// # Errors
    ///
    /// As for [`Reader::next`].
    pub fn heads(&mut self) -> Result<Heads, RecvError> {
        let ended = self.control.hub().ended.load(Acquire) != 0;
        self.accept()?;
        let mut heads = Heads::default();
        for lane in 0..self.lanes.len() {
            let Some(Found { chunk, from, .. }) = self.find(lane)? else {
                heads.is_partial |= !ended;
                continue;
            };
            let time = self.time_ns(chunk, from)?;
            let id = LaneId::at(lane);
            match heads.first {
                Some((first, _)) if time >= first => {
                    heads.second_ns = Some(heads.second_ns.map_or(time, |second| second.min(time)));
                }
                before => {
                    heads.second_ns = before.map(|(first, _)| first).or(heads.second_ns);
                    heads.first = Some((time, id));
                }
            }
        }
        heads.ended = ended && heads.first.is_none();
        Ok(heads)
    }

    /// Takes the packets that follow each other on a lane up to this time; one at least, if any
    /// waits there.
    ///
    /// # Errors
    ///
    /// As for [`Reader::next`].
    pub fn next_of(&mut self, lane: LaneId, until_ns: u64) -> Result<Option<Batch<'_>>, RecvError> {
        if lane.index() >= self.lanes.len() {
            return Ok(None);
        }
        let Some(mut found) = self.find(lane.index())? else {
            return Ok(None);
        };
        let mut to = found.from + 1;
        while to < found.to && self.time_ns(found.chunk, to)? <= until_ns {
            to += 1;
        }
        found.to = to;
        Ok(Some(self.batch(lane.index(), found)))
    }

    fn time_ns(&self, id: ChunkId, index: u32) -> Result<u64, RecvError> {
        let chunk = self.pool.chunk(id);
        let time = chunk.and_then(|chunk| chunk.time_ns(index));
        time.ok_or(RecvError::BadChunk(id))
    }
}
