// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policy that divides chunks between the readers of a share, a set of readers of which one gets
//! each chunk.
//!
//! The distributor calls the scheduler per chunk, never per packet. The distributor itself ensures
//! that one reader of a share gets each chunk, whatever the scheduler answers.

use super::chunks::Chunks;
use crate::ids::{ChunkId, LaneId, ReaderId};
use crate::view::Pool;

/// A reader that may get the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The reader.
    pub reader: ReaderId,
    /// Chunks that it holds, of all lanes.
    pub held: u32,
}

/// The next chunk of a lane, and the readers of a share that may get it.
#[derive(Clone, Copy, Debug)]
pub struct NextChunk<'a> {
    /// Number of the share.
    pub share: u32,
    /// The lane.
    pub lane: LaneId,
    /// Chunks of the lane in all.
    pub lane_chunks: u32,
    /// Readers of the share that are not corrupt, in the order in which they came; at least one.
    pub candidates: &'a [Candidate],
}

impl NextChunk<'_> {
    /// The candidate that gets the lane's chunks when the lanes are divided evenly.
    pub fn owner(&self) -> Candidate {
        self.candidates[self.lane.index() % self.candidates.len()]
    }
}

/// A chunk that a reader of a share returns. The reader's lease ends after the report.
pub struct Returned<'a> {
    /// Number of the share.
    pub share: u32,
    /// The chunk.
    pub chunk: ChunkId,
    /// The reader.
    pub reader: ReaderId,
    /// The other readers of the share.
    pub others: Vec<ReaderId>,
    /// The pool.
    pub pool: &'a Pool,
    pub(super) chunks: &'a Chunks,
}

impl Returned<'_> {
    /// Chunks of the same lane that another reader holds, oldest first.
    pub fn held_by(&self, other: ReaderId) -> impl Iterator<Item = ChunkId> + '_ {
        let lane = self.chunks.lane(self.chunk);
        self.chunks.leased_to(other.index(), lane)
    }
}

/// Divides the chunks of each lane between the readers of a share.
///
/// The provided methods divide the lanes evenly.
pub trait Scheduler: Send + Sync {
    /// The candidate that is to get the next chunk.
    fn choose(&self, next: &NextChunk<'_>) -> ReaderId {
        next.owner().reader
    }

    /// A lane opened a chunk, and `reader` of the share is the one that may get it.
    fn opened(&self, _chunk: ChunkId, _next: &NextChunk<'_>, _reader: ReaderId) {}

    /// A chunk is sealed with this number of packets.
    fn sealed(&self, _chunk: ChunkId, _packets: u32) {}

    /// A reader of a share gave a chunk back.
    fn returned(&self, _returned: &Returned<'_>) {}

    /// A reader left; another reader may get its number.
    fn removed(&self, _reader: ReaderId) {}
}

/// The scheduler that divides the lanes evenly.
pub struct EvenLanes;

impl Scheduler for EvenLanes {}
