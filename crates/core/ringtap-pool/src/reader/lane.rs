// SPDX-License-Identifier: MIT OR Apache-2.0
//! One lane of a reader: its chunks, and the packets missed before each of them.
//!
//! Invariants
//! - The fields that every wake-up reads are adjacent for all lanes, since caches are cold then.

use std::collections::VecDeque;
use std::sync::Arc;

use super::lease::Lease;
use crate::ids::ChunkId;

/// Missed packets before a chunk.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MissedCounts {
    /// Packets that the reader wanted.
    pub(super) lost: u64,
    /// Packets for other members of the reader's group.
    pub(super) other_members: u64,
}

impl MissedCounts {
    const NONE: Self = MissedCounts {
        lost: 0,
        other_members: 0,
    };

    fn add(&mut self, more: MissedCounts) {
        self.lost = self.lost.saturating_add(more.lost);
        self.other_members = self.other_members.saturating_add(more.other_members);
    }
}

/// A chunk that the reader has not moved past.
pub(super) struct Held {
    pub(super) lease: Arc<Lease>,
    /// Copy of the number in the lease, which is seldom in the cache.
    pub(super) chunk: ChunkId,
    /// First slot that no batch has taken.
    pub(super) next: u32,
    /// Whether the reader gets only the first bytes of each packet.
    pub(super) cut: bool,
}

/// Slots of one chunk that the next batch takes.
#[derive(Clone, Copy)]
pub(super) struct NextSlots {
    pub(super) chunk: ChunkId,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) is_open: bool,
}

/// One lane of a reader.
pub(super) struct ReaderLane {
    /// The chunk being read.
    pub(super) front: Option<Held>,
    /// Whether `behind.missed` has entries.
    has_missed: bool,
    /// Sequence number after the last packet taken.
    pub(super) expected: u64,
    behind: Box<Behind>,
}

#[derive(Default)]
struct Behind {
    /// Chunks after the front one.
    held: VecDeque<Held>,
    /// Packets missed before each of these held chunks, in order.
    missed: VecDeque<(ChunkId, MissedCounts)>,
    /// Packets missed before the next delivered chunk.
    missed_since: MissedCounts,
}

impl ReaderLane {
    pub(super) fn new(expected: u64) -> Self {
        ReaderLane {
            front: None,
            has_missed: false,
            expected,
            behind: Box::default(),
        }
    }

    /// All held chunks, in order.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held> {
        self.front.iter().chain(&self.behind.held)
    }

    /// Number of held chunks.
    pub(super) fn len(&self) -> usize {
        self.behind.held.len() + usize::from(self.front.is_some())
    }

    /// Adds a delivered chunk.
    pub(super) fn hold(&mut self, held: Held) {
        let missed = std::mem::take(&mut self.behind.missed_since);
        if missed != MissedCounts::NONE {
            self.behind.missed.push_back((held.chunk, missed));
            self.has_missed = true;
        }
        match self.front {
            None => self.front = Some(held),
            Some(_) => self.behind.held.push_back(held),
        }
    }

    /// Adds packets missed before the next chunk: lost ones, and those for other members.
    pub(super) fn miss(&mut self, lost: u64, other_members: u64) {
        let missed = MissedCounts {
            lost,
            other_members,
        };
        self.behind.missed_since.add(missed);
    }

    /// Moves past the front chunk. Unreported missed packets before it move to the next chunk.
    pub(super) fn pass(&mut self) {
        let Some(passed) = self.front.take() else {
            return;
        };
        self.front = self.behind.held.pop_front();
        let missed = self.missed_before(passed.chunk);
        if missed == MissedCounts::NONE {
            return;
        }
        let behind = &mut *self.behind;
        match (&self.front, behind.missed.front_mut()) {
            (Some(next), Some((chunk, more))) if *chunk == next.chunk => more.add(missed),
            (Some(next), _) => {
                behind.missed.push_front((next.chunk, missed));
                self.has_missed = true;
            }
            (None, _) => behind.missed_since.add(missed),
        }
    }

    /// Takes the packets missed before this chunk.
    #[inline]
    pub(super) fn missed_before(&mut self, chunk: ChunkId) -> MissedCounts {
        if self.has_missed {
            self.noted_before(chunk)
        } else {
            MissedCounts::NONE
        }
    }

    #[cold]
    fn noted_before(&mut self, chunk: ChunkId) -> MissedCounts {
        let missed = &mut self.behind.missed;
        let first = missed.front().copied();
        let Some((_, packets)) = first.filter(|(before, _)| *before == chunk) else {
            return MissedCounts::NONE;
        };
        missed.pop_front();
        self.has_missed = !missed.is_empty();
        packets
    }
}
