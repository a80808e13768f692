// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hash table of flows with bounded memory, and three lists that order them by their last packet.
//!
//! Invariants
//! - Every entry in use is in one bucket's chain and in the list of its state.
//! - Memory is taken as flows come, and never more than for the highest number of flows.
//! - Each list is ordered by the tick of a flow's last packet; flows with the same tick have no order. So a
//!   packet moves its flow in the list at most once in a tick: moving changes two other flows as well, which
//!   are seldom in the caches.

use super::entry::{FlowEntry, FlowState};
use crate::application::FlowTexts;
use crate::outside::PacketOutside;
use crate::packet::PacketKey;

/// Packets whose flows are brought into the cache together.
pub(crate) const PACKETS_TOGETHER: usize = 16;
/// No entry.
const NOBODY: u32 = u32::MAX;
/// Part of the table that tentative flows may always fill: 1 / 8.
const TENTATIVE_PART: u32 = 8;

/// Index of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowIndex(u32);

/// The table.
pub(super) struct FlowTable {
    buckets: Vec<u32>,
    entries: Vec<FlowEntry>,
    free: u32,
    most: u32,
    lists: [AgeList; 3],
    /// The present tick.
    tick: u32,
}

/// Flows of one state by the tick of their last packet.
#[derive(Clone, Copy)]
struct AgeList {
    newest: u32,
    oldest: u32,
    length: u32,
}

impl FlowTable {
    /// A table for at most `most` flows.
    pub(super) fn new(most: u32) -> Self {
        let most = most.clamp(1, 1 << 30);
        let empty = AgeList {
            newest: NOBODY,
            oldest: NOBODY,
            length: 0,
        };
        FlowTable {
            buckets: vec![NOBODY; most.next_power_of_two() as usize],
            entries: Vec::with_capacity(most as usize),
            free: NOBODY,
            most,
            lists: [empty; 3],
            tick: 0,
        }
    }

    /// Starts another tick, or goes on with the present one.
    #[inline]
    pub(super) fn set_tick(&mut self, tick: u32) {
        self.tick = tick;
    }

    /// Number of flows.
    pub(super) fn len(&self) -> u32 {
        self.lists.iter().map(|list| list.length).sum()
    }

    /// Whether a further flow needs the place of another one.
    pub(super) fn is_full(&self) -> bool {
        self.free == NOBODY && self.entries.len() >= self.most as usize
    }

    /// The flow with this key in either direction.
    #[inline]
    pub(super) fn find(
        &self,
        key: &PacketKey,
        hash: u32,
        outside: &PacketOutside<'_>,
    ) -> Option<FlowIndex> {
        let reversed = key.reversed();
        let mut at = self.buckets[self.bucket(hash)];
        while at != NOBODY {
            let entry = &self.entries[at as usize];
            let is_same = |direction| {
                let own = entry.outside.as_ref();
                own.is_none_or(|own| own.fits(direction, outside))
            };
            let fits = (entry.key == *key && is_same(0)) || (entry.key == reversed && is_same(1));
            if entry.hash == hash && fits {
                return Some(FlowIndex(at));
            }
            at = entry.next;
        }
        None
    }

    /// Reads the entries that packets with these hashes will need. The reads do not depend on each other, so
    /// that the processor waits for the memory of all at once.
    pub(super) fn warm(&self, hashes: impl Iterator<Item = u32>) {
        let entry = |at: u32| self.entries.get(at as usize);
        let mut flows = [NOBODY; PACKETS_TOGETHER];
        for (flow, hash) in flows.iter_mut().zip(hashes) {
            *flow = self.buckets[self.bucket(hash)];
        }
        let mut read = 0;
        let beside = flows.map(|flow| {
            let Some(entry) = entry(flow) else {
                return [NOBODY; 2];
            };
            let directions = entry.directions[0].packets ^ entry.directions[1].packets;
            read ^= entry.key.source[1] ^ directions ^ entry.first_payload_ns;
            if entry.listed == self.tick {
                [NOBODY; 2]
            } else {
                [entry.newer, entry.older]
            }
        });
        for flow in beside.into_iter().flatten() {
            read ^= entry(flow).map_or(0, |entry| entry.older.into());
        }
        std::hint::black_box(read);
    }

    /// Adds a flow; the table must not be full.
    pub(super) fn add(&mut self, key: &PacketKey, flags: u8, hash: u32) -> FlowIndex {
        let mut entry = FlowEntry::new(key, flags, hash, NOBODY);
        let bucket = self.bucket(hash);
        entry.next = self.buckets[bucket];
        let at = match self.free {
            NOBODY => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).unwrap_or(NOBODY)
            }
            free => {
                self.free = self.entries[free as usize].next;
                self.entries[free as usize] = entry;
                free
            }
        };
        self.buckets[bucket] = at;
        self.push_newest(at);
        FlowIndex(at)
    }

    /// One flow.
    #[inline]
    pub(super) fn at(&mut self, FlowIndex(at): FlowIndex) -> &mut FlowEntry {
        &mut self.entries[at as usize]
    }

    /// Marks a flow as one of the newest of its state, which may have changed.
    #[inline]
    pub(super) fn touch(&mut self, FlowIndex(at): FlowIndex, state: FlowState) {
        let entry = &self.entries[at as usize];
        if entry.listed == self.tick && entry.state == state {
            return;
        }
        self.unlink(at);
        self.entries[at as usize].state = state;
        self.push_newest(at);
    }

    /// A flow of this state whose last packet is in the oldest tick.
    #[inline]
    pub(super) fn oldest(&self, state: FlowState) -> Option<FlowIndex> {
        let oldest = self.lists[state as usize].oldest;
        (oldest != NOBODY).then_some(FlowIndex(oldest))
    }

    /// The flow whose place is taken first: a closed one, then a tentative one if those have more than
    /// their part, then an established one.
    pub(super) fn victim(&self) -> Option<FlowIndex> {
        let tentative = self.lists[FlowState::Tentative as usize].length;
        let first = if tentative > self.most / TENTATIVE_PART {
            FlowState::Tentative
        } else {
            FlowState::Established
        };
        let order = [FlowState::Closed, first, FlowState::Tentative];
        order.into_iter().find_map(|state| self.oldest(state))
    }

    /// Removes a flow.
    pub(super) fn remove(&mut self, FlowIndex(at): FlowIndex) {
        self.unlink(at);
        let entry = &self.entries[at as usize];
        let (bucket, next) = (self.bucket(entry.hash), entry.next);
        let mut link = self.buckets[bucket];
        if link == at {
            self.buckets[bucket] = next;
        } else {
            while self.entries[link as usize].next != at {
                link = self.entries[link as usize].next;
            }
            self.entries[link as usize].next = next;
        }
        let entry = &mut self.entries[at as usize];
        entry.texts = FlowTexts::default();
        entry.outside = None;
        entry.next = self.free;
        self.free = at;
    }

    fn bucket(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn unlink(&mut self, at: u32) {
        let entry = &self.entries[at as usize];
        let (newer, older) = (entry.newer, entry.older);
        let list = &mut self.lists[entry.state as usize];
        list.length -= 1;
        match newer {
            NOBODY => list.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NOBODY => list.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn push_newest(&mut self, at: u32) {
        let list = &mut self.lists[self.entries[at as usize].state as usize];
        let before = std::mem::replace(&mut list.newest, at);
        list.length += 1;
        if before == NOBODY {
            list.oldest = at;
        } else {
            self.entries[before as usize].newer = at;
        }
        let entry = &mut self.entries[at as usize];
        (entry.newer, entry.older, entry.listed) = (NOBODY, before, self.tick);
    }
}
