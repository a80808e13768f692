// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of a reader.

use crate::ids::{ChunkId, LaneId};
use crate::queue::PeerCorrupt;

/// Why a reader cannot receive any more packets.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// The distributor's index is impossible.
    #[error("the capture side is corrupt: {0}")]
    PeerCorrupt(#[from] PeerCorrupt),
    /// A delivered chunk lies outside the pool, or its content is impossible.
    #[error("the capture side is corrupt: it delivered {0}, which cannot be read")]
    BadChunk(ChunkId),
    /// The distributor reported a loss for a lane that does not exist.
    #[error("the capture side is corrupt: it reported a loss for {0}, which does not exist")]
    BadLane(LaneId),
    /// The reader did not map the pool's next memory in time.
    #[error(
        "the memory of the packets was taken away: this reader did not take the next one in time"
    )]
    MemoryLost,
}
