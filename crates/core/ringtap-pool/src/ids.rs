// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distinct types for the numbers of chunks, lanes and readers, and for region offsets.

use std::fmt;

use crate::number::{to_u32, to_usize};

/// Number of a chunk in its pool. Chunk 0 holds the region header, so packets never live there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u32);

/// Number of a lane in its source: one writer's ordered stream of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// Number of a reader at its distributor; reused after the reader left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReaderId(pub u32);

/// Bytes from the start of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionOffset(pub u64);

impl ChunkId {
    /// This number as an index into a table with one entry a chunk.
    pub fn index(self) -> usize {
        to_usize(self.0)
    }
}

impl LaneId {
    /// The lane of an entry in a table with one entry a lane.
    pub fn at(index: usize) -> Self {
        LaneId(to_u32(index))
    }

    /// This number as an index into a table with one entry a lane.
    pub fn index(self) -> usize {
        to_usize(self.0)
    }
}

impl ReaderId {
    /// The reader of an entry in a table with one entry a reader.
    pub fn at(index: usize) -> Self {
        ReaderId(to_u32(index))
    }

    /// This number as an index into a table with one entry a reader.
    pub fn index(self) -> usize {
        to_usize(self.0)
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk {}", self.0)
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {}", self.0)
    }
}

impl fmt::Display for ReaderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reader {}", self.0)
    }
}
