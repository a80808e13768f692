// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lane's free chunks: a stack, so that the writer reuses chunks that are still in the caches.
//!
//! The stack belongs to the writer alone, so that a burst can take every chunk without another
//! thread's help; the recycle queue returns chunks.
//!
//! Invariants
//! - Only a chunk that this lane took and did not get back is accepted. No peer can make the lane
//!   write into another lane's chunk, into a free chunk, or into one chunk twice.

use crate::format::Geometry;
use crate::ids::ChunkId;
use crate::number::to_usize;
use crate::queue::Consumer;

/// Entries taken from the recycle queue at one time, to limit the time of a chunk change.
const BATCH: usize = 64;

/// The stack of free chunks of one lane.
pub(super) struct FreeChunks {
    stack: Vec<ChunkId>,
    recycled: Consumer,
    geometry: Geometry,
    /// Chunks that were taken and not returned, one bit each.
    out: Vec<u64>,
}

impl FreeChunks {
    /// Starts with these chunks; the last one is used first.
    pub(super) fn new(chunks: Vec<ChunkId>, recycled: Consumer, geometry: Geometry) -> Self {
        FreeChunks {
            stack: chunks,
            recycled,
            geometry,
            out: vec![0; to_usize(geometry.chunk_count).div_ceil(64)],
        }
    }

    /// Takes the chunk that was freed last; `None` when all are in use.
    ///
    /// A corrupt recycling side returns no chunk: the writer ignores numbers of chunks that are not in use,
    /// and a queue with an impossible index.
    pub(super) fn take(&mut self) -> Option<ChunkId> {
        for _ in 0..BATCH {
            let Ok(Some(entry)) = self.recycled.pop() else {
                break;
            };
            let id = u32::try_from(entry)
                .map(ChunkId)
                .ok()
                .filter(|id| self.geometry.holds(*id) && self.come_back(*id));
            self.stack.extend(id);
        }
        let id = self.stack.pop()?;
        let (word, bit) = Self::place(id);
        self.out[word] |= bit;
        Some(id)
    }

    /// Marks a chunk as returned; `false` if it was not in use.
    fn come_back(&mut self, id: ChunkId) -> bool {
        let (word, bit) = Self::place(id);
        let was_out = self.out[word] & bit != 0;
        self.out[word] &= !bit;
        was_out
    }

    fn place(id: ChunkId) -> (usize, u64) {
        (id.index() / 64, 1 << (id.index() % 64))
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
            FreeChunks::new([1, 2, 5, 7].map(ChunkId).to_vec(), recycled, geometry),
            recycle,
        )
    }

    fn all(free: &mut FreeChunks) -> Vec<ChunkId> {
        std::iter::from_fn(|| free.take()).collect()
    }

    #[test]
    fn the_chunk_freed_last_is_used_first() {
        let (mut free, mut recycle) = stack();
        assert_eq!(all(&mut free), [7, 5, 2, 1].map(ChunkId));
        for chunk in [2, 7, 5] {
            recycle.push(chunk).unwrap();
        }
        assert_eq!(all(&mut free), [5, 7, 2].map(ChunkId));
    }

    #[test]
    fn recycled_chunks_that_are_not_out_are_refused() {
        let (mut free, mut recycle) = stack();
        assert_eq!(free.take(), Some(ChunkId(7)));
        // Outside the pool, of another lane, still free, and returned before.
        for entry in [0, 10, u64::MAX, 3, 5, 7, 7] {
            recycle.push(entry).unwrap();
        }
        assert_eq!(all(&mut free), [7, 5, 2, 1].map(ChunkId));
    }
}
