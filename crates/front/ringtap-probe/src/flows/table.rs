// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hash table of flows with bounded memory, which orders them by state and last packet.
//!
//! Invariants
//! - Every entry in use is in one bucket's chain and in one list of its state.
//! - Memory is taken as flows come, and never more than for the highest number of flows.

use ringtap_ipc::huge_pages::advise_huge_pages;
use ringtap_pool::memory::prefetch;

use super::ages::{FlowAges, FlowLinks, LinkedFlows, NOBODY};
use super::entry::{FlowEntry, FlowState};
use crate::application::FlowTexts;
use crate::outside::PacketOutside;
use crate::packet::PacketKey;

/// Packets whose flows are brought into the cache together.
pub(crate) const PACKETS_TOGETHER: usize = 32;
/// Flows that an eviction looks at. If all had further packets, it takes the next one.
const LOOKS_OF_VICTIM: usize = 64;
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
    /// By state.
    ages: [FlowAges; 3],
}

impl LinkedFlows for Vec<FlowEntry> {
    fn links(&mut self, at: u32) -> &mut FlowLinks {
        &mut self[at as usize].links
    }
}

impl FlowTable {
    /// A table for at most `most` flows.
    pub(super) fn new(most: u32) -> Self {
        let most = most.clamp(1, 1 << 30);
        let count = most.next_power_of_two() as usize;
        let mut buckets = Vec::with_capacity(count);
        let entries = Vec::with_capacity(most as usize);
        // Without huge pages, the table is slower: `ringtap doctor` says so.
        let _slower = advise_huge_pages(&buckets).and_then(|()| advise_huge_pages(&entries));
        buckets.resize(count, NOBODY);
        FlowTable {
            buckets,
            entries,
            free: NOBODY,
            most,
            ages: [(); 3].map(|()| FlowAges::new()),
        }
    }

    /// Number of flows.
    pub(super) fn len(&self) -> u32 {
        self.ages.iter().map(FlowAges::len).sum()
    }

    /// Whether a further flow needs the place of another one.
    pub(super) fn is_full(&self) -> bool {
        self.free == NOBODY && self.entries.len() >= self.most as usize
    }

    /// The flow with this key, and the direction of the key: 0 as its originator, 1 as its responder.
    #[inline]
    pub(super) fn find(
        &self,
        key: &PacketKey,
        hash: u32,
        outside: &PacketOutside<'_>,
    ) -> Option<(FlowIndex, usize)> {
        let reversed = key.reversed();
        let mut at = self.buckets[self.bucket(hash)];
        while at != NOBODY {
            let entry = &self.entries[at as usize];
            let is_same = |direction| {
                let own = || entry.outside.as_ref();
                key.outside == 0 || own().is_none_or(|own| own.fits(direction, outside))
            };
            if (entry.key == *key && is_same(0)) || (entry.key == reversed && is_same(1)) {
                return Some((FlowIndex(at), entry.direction_of(key)));
            }
            at = entry.next;
        }
        None
    }

    /// Brings into the cache what the packets with these keys and hashes will need of the table: first the buckets,
    /// then the first lines of the entries, then those of the directions. The memory of all packets is on its way at
    /// the same time.
    pub(super) fn warm<'a>(&self, packets: impl Iterator<Item = (&'a PacketKey, u32)> + Clone) {
        for (_, hash) in packets.clone() {
            prefetch(&raw const self.buckets[self.bucket(hash)]);
        }
        let first = |hash| self.entries.get(self.buckets[self.bucket(hash)] as usize);
        for (_, hash) in packets.clone() {
            if let Some(entry) = first(hash) {
                prefetch(&raw const entry.key);
            }
        }
        for (key, hash) in packets {
            if let Some(entry) = first(hash) {
                let direction = usize::from(entry.key.source != key.source);
                prefetch(&raw const entry.directions[direction]);
            }
        }
    }

    /// Adds a flow; the table must not be full.
    pub(super) fn add(&mut self, key: &PacketKey, flags: u8, hash: u32, now_ns: u64) -> FlowIndex {
        let mut entry = FlowEntry::new(key, flags);
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
        self.ages[FlowState::Tentative as usize].push(at, now_ns, &mut self.entries);
        FlowIndex(at)
    }

    /// One flow.
    #[inline]
    pub(super) fn at(&mut self, FlowIndex(at): FlowIndex) -> &mut FlowEntry {
        &mut self.entries[at as usize]
    }

    /// Changes the state of a flow whose last packet came at `now_ns`.
    #[inline]
    pub(super) fn set_state(&mut self, FlowIndex(at): FlowIndex, state: FlowState, now_ns: u64) {
        let before = std::mem::replace(&mut self.entries[at as usize].state, state);
        if before != state {
            self.ages[before as usize].remove(at, &mut self.entries);
            self.ages[state as usize].push(at, now_ns, &mut self.entries);
        }
    }

    /// A flow of this state.
    pub(super) fn any(&mut self, state: FlowState) -> Option<FlowIndex> {
        self.ages[state as usize].first(u64::MAX).map(FlowIndex)
    }

    /// A flow of this state without packets after `until_ns`; the first one by the tick of its last packet.
    ///
    /// Each flow that had further packets takes one of `looks`. `None` if these are not enough.
    #[inline]
    pub(super) fn oldest(
        &mut self,
        state: FlowState,
        until_ns: u64,
        looks: &mut usize,
    ) -> Option<FlowIndex> {
        let ages = &mut self.ages[state as usize];
        while let Some(at) = ages.first(until_ns) {
            let last_ns = self.entries[at as usize].last_ns();
            if !ages.is_later(last_ns) {
                return (last_ns <= until_ns).then_some(FlowIndex(at));
            }
            *looks = looks.checked_sub(1)?;
            ages.remove(at, &mut self.entries);
            ages.push(at, last_ns, &mut self.entries);
        }
        None
    }

    /// The flow whose place is taken first: a closed one, then a tentative one if those have more than
    /// their part, then an established one.
    pub(super) fn victim(&mut self) -> Option<FlowIndex> {
        let tentative = self.ages[FlowState::Tentative as usize].len();
        let first = if tentative > self.most / TENTATIVE_PART {
            FlowState::Tentative
        } else {
            FlowState::Established
        };
        let order = [FlowState::Closed, first, FlowState::Tentative];
        order.into_iter().find_map(|state| {
            let oldest = self.oldest(state, u64::MAX, &mut { LOOKS_OF_VICTIM });
            oldest.or_else(|| self.any(state))
        })
    }

    /// Removes a flow, whose key has this hash.
    pub(super) fn remove(&mut self, FlowIndex(at): FlowIndex, hash: u32) {
        let state = self.entries[at as usize].state;
        self.ages[state as usize].remove(at, &mut self.entries);
        let next = self.entries[at as usize].next;
        let bucket = self.bucket(hash);
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
}
