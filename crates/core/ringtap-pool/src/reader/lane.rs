// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader knows of one lane: the chunks that it holds, and what it lost before them.
//!
//! Invariants
//! - What is looked at after every sleep lies side by side with that of the other lanes: caches
//!   are cold then, and what is seldom needed is kept away.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use crate::ids::ChunkId;

/// A chunk that was delivered and did not go back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) chunk: ChunkId,
    pub(super) next: u32,
    pub(super) cut: bool,
}

/// One lane of a reader.
pub(super) struct Lane {
    /// The chunk that is being read.
    pub(super) front: Option<Held>,
    /// Some loss was told of that belongs before a chunk which is held.
    has_lost: bool,
    /// Sequence of the packet after the last one.
    pub(super) expected: u64,
    behind: Box<Behind>,
}

#[derive(Default)]
struct Behind {
    /// Chunks after the front one.
    held: VecDeque<Held>,
    /// Lost packets that were told of and belong before each held chunk, in order.
    lost: VecDeque<(ChunkId, u64)>,
    /// Lost packets whose next chunk has not come yet.
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

    /// How many they are.
    pub(super) fn len(&self) -> usize {
        self.behind.held.len() + usize::from(self.front.is_some())
    }

    /// Takes a chunk that was delivered.
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

    /// Moves past the front chunk. A loss that was told of before it and that no batch told
    /// belongs before the next one.
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

    /// Takes the loss that was told of before this chunk.
    #[inline]
    pub(super) fn loss_before(&mut self, chunk: ChunkId) -> u64 {
        match self.has_lost {
            true => self.told_loss_before(chunk),
            false => 0,
        }
    }

    #[cold]
    fn told_loss_before(&mut self, chunk: ChunkId) -> u64 {
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
