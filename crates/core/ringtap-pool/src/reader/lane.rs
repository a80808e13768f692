// SPDX-License-Identifier: MIT OR Apache-2.0
//! One lane of a reader: the chunks that it holds, and the packets lost before each of them.
//!
//! Invariants
//! - The fields that every wake-up reads lie side by side for all lanes, because caches are cold
//!   then. The others lie elsewhere.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use super::lease::Lease;
use crate::ids::ChunkId;

/// A chunk that the reader has not moved past.
pub(super) struct Held {
    pub(super) lease: Arc<Lease>,
    /// The same as in the lease, which is seldom in the cache.
    pub(super) chunk: ChunkId,
    /// First slot that no batch has taken.
    pub(super) next: u32,
    /// Only the first bytes of each packet are for this reader.
    pub(super) cut: bool,
}

/// One lane of a reader.
pub(super) struct Lane {
    /// The chunk that is being read.
    pub(super) front: Option<Held>,
    /// `behind.lost` is not empty.
    has_lost: bool,
    /// Sequence after that of the last packet taken.
    pub(super) expected: u64,
    behind: Box<Behind>,
}

#[derive(Default)]
struct Behind {
    /// Chunks after the front one.
    held: VecDeque<Held>,
    /// Packets lost before each of these held chunks, in order.
    lost: VecDeque<(ChunkId, u64)>,
    /// Packets lost before a chunk that has not come yet.
    lost_since: u64,
}

impl Lane {
    pub(super) fn new(expected: u64) -> Self {
        Lane {
            front: None,
            has_lost: false,
            expected,
            behind: Box::default(),
        }
    }

    /// All chunks that are held, in order.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.front.iter().chain(&self.behind.held)
    }

    /// Number of held chunks.
    pub(super) fn len(&self) -> usize {
        self.behind.held.len() + usize::from(self.front.is_some())
    }

    /// Adds a delivered chunk.
    pub(super) fn hold(&mut self, held: Held) {
        let lost = std::mem::take(&mut self.behind.lost_since);
        if lost > 0 {
            self.behind.lost.push_back((held.chunk, lost));
            self.has_lost = true;
        }
        match self.front {
            None => self.front = Some(held),
            Some(_) => self.behind.held.push_back(held),
        }
    }

    /// Notes a loss that belongs before the next chunk.
    pub(super) fn lose(&mut self, packets: u64) {
        let lost = &mut self.behind.lost_since;
        *lost = lost.saturating_add(packets);
    }

    /// Moves past the front chunk. A loss before it that no batch reported moves to the next
    /// chunk.
    pub(super) fn pass(&mut self) {
        let Some(passed) = self.front.take() else {
            return;
        };
        self.front = self.behind.held.pop_front();
        let packets = self.loss_before(passed.chunk);
        if packets == 0 {
            return;
        }
        let behind = &mut *self.behind;
        match (&self.front, behind.lost.front_mut()) {
            (Some(next), Some((chunk, more))) if *chunk == next.chunk => {
                *more = more.saturating_add(packets);
            }
            (Some(next), _) => {
                behind.lost.push_front((next.chunk, packets));
                self.has_lost = true;
            }
            (None, _) => behind.lost_since = behind.lost_since.saturating_add(packets),
        }
    }

    /// Takes the number of packets lost before this chunk.
    #[inline]
    pub(super) fn loss_before(&mut self, chunk: ChunkId) -> u64 {
        match self.has_lost {
            true => self.noted_loss_before(chunk),
            false => 0,
        }
    }

    #[cold]
    fn noted_loss_before(&mut self, chunk: ChunkId) -> u64 {
        let lost = &mut self.behind.lost;
        let first = lost.front().copied();
        let Some((_, packets)) = first.filter(|(before, _)| *before == chunk) else {
            return 0;
        };
        lost.pop_front();
        self.has_lost = !lost.is_empty();
        packets
    }
}
