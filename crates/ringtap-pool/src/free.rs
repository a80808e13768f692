// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lane's free chunks: the one that was freed last is used first, so that it is still hot.
//!
//! The stack belongs to the writer alone, so that a burst can take every chunk without help
//! from anybody; the recycle queue brings chunks back.
#![forbid(unsafe_code)]

use crate::format::Geometry;
use crate::ids::ChunkId;
use crate::queue::{Consumer, PeerCorrupt};

/// Entries taken from the recycle queue at one time, so that a chunk change has a bound.
const BATCH: usize = 64;

/// The stack of free chunks of one lane.
pub struct FreeChunks {
    stack: Vec<ChunkId>,
    recycled: Consumer,
    geometry: Geometry,
}

impl FreeChunks {
    /// Begins with these chunks; the last is used first.
    pub fn new(chunks: Vec<ChunkId>, recycled: Consumer, geometry: Geometry) -> Self {
        FreeChunks {
            stack: chunks,
            recycled,
            geometry,
        }
    }

    /// Takes the chunk that was freed last; `None` when all are in use.
    ///
    /// Recycled numbers outside the pool are ignored.
    ///
    /// # Errors
    ///
    /// [`PeerCorrupt`]: the recycling side claims what cannot be.
    pub fn take(&mut self) -> Result<Option<ChunkId>, PeerCorrupt> {
        for _ in 0..BATCH {
            let Some(entry) = self.recycled.pop()? else {
                break;
            };
            let id = u32::try_from(entry).map(ChunkId);
            self.stack
                .extend(id.ok().filter(|id| self.geometry.holds(*id)));
        }
        Ok(self.stack.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue;

    fn stack() -> (FreeChunks, queue::Producer) {
        let geometry = Geometry::contiguous(4096, 10, 1, 100).unwrap();
        let (recycle, recycled) = queue::pair(16);
        (
            FreeChunks::new(vec![ChunkId(1), ChunkId(2)], recycled, geometry),
            recycle,
        )
    }

    #[test]
    fn the_chunk_freed_last_is_used_first() {
        let (mut free, mut recycle) = stack();
        recycle.push(7).unwrap();
        recycle.push(5).unwrap();
        let order: Vec<_> = std::iter::from_fn(|| free.take().unwrap()).collect();
        assert_eq!(order, [5, 7, 2, 1].map(ChunkId));
    }

    #[test]
    fn chunks_outside_the_pool_are_ignored() {
        let (mut free, mut recycle) = stack();
        for entry in [0, 10, u64::MAX] {
            recycle.push(entry).unwrap();
        }
        assert_eq!(free.take(), Ok(Some(ChunkId(2))));
    }
}
