// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hash table of flows with bounded memory, which orders them by state and last packet.
//!
//! Invariants
//! - Every entry in use has one slot, and is in one list of its state.
//! - Memory is taken as flows come, and never more than for the highest number of flows.
//! - A search looks at no more than [`MAX_ALIKE`] flows with the same key.

use ringtap_pool::memory::prefetch;

use super::ages::{FlowAges, FlowLinks, LinkedFlows, NOBODY};
use super::entry::{FlowEntry, FlowState};
use super::index::HashSlots;
use crate::application::FlowTexts;
use crate::outside::PacketOutside;
use crate::packet::PacketKey;

/// Packets whose flows are brought into the cache together.
pub(crate) const PACKETS_TOGETHER: usize = 32;
/// Flows that an eviction looks at. If all had further packets, it takes the next one.
const LOOKS_OF_VICTIM: usize = 64;
/// Flows with the same key that are told apart, in tunnels whose identifiers the receivers chose. Packets of further
/// ones count in the last of these: a sender who tries all identifiers cannot make searches long.
const MAX_ALIKE: usize = 32;
/// Part of the table that tentative flows may always fill: 1 / 8.
const TENTATIVE_PART: u32 = 8;

/// Index of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowIndex(u32);

/// The table.
pub(super) struct FlowTable {
    slots: HashSlots,
    entries: Vec<FlowEntry>,
    free: u32,
    most: u32,
    /// By state.
    ages: [FlowAges; 3],
}

impl FlowIndex {
    /// The place of the entry.
    pub(super) fn number(self) -> usize {
        self.0 as usize
    }
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
        FlowTable {
            slots: HashSlots::new(most),
            entries: Vec::with_capacity(most as usize),
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
        let mut alike = 0;
        let found = self.slots.find(hash, |at| {
            let entry = &self.entries[at as usize];
            let is_same = |direction| {
                let own = || entry.outside.as_ref();
                key.outside == 0 || own().is_none_or(|own| own.fits(direction, outside))
            };
            let (is_forward, is_backward) = (entry.key == *key, entry.key == reversed);
            alike += usize::from(is_forward || is_backward);
            (is_forward && is_same(0))
                || (is_backward && is_same(1))
                || (alike == MAX_ALIKE && (is_forward || is_backward))
        });
        found.map(|at| (FlowIndex(at), self.entries[at as usize].direction_of(key)))
    }

    /// Brings into the cache what the packets with these keys and hashes will need of the table: first the slots,
    /// then the first lines of the entries, then those of the directions. The memory of all packets is on its way at
    /// the same time.
    pub(super) fn warm<'a>(&self, packets: impl Iterator<Item = (&'a PacketKey, u32)> + Clone) {
        for (_, hash) in packets.clone() {
            self.slots.prefetch(hash);
        }
        let mut flows = [NOBODY; PACKETS_TOGETHER];
        for (flow, (_, hash)) in flows.iter_mut().zip(packets.clone()) {
            *flow = self.slots.find(hash, |_| true).unwrap_or(NOBODY);
            if let Some(entry) = self.entries.get(*flow as usize) {
                prefetch(&raw const entry.key);
            }
        }
        for (flow, (key, _)) in flows.into_iter().zip(packets) {
            if let Some(entry) = self.entries.get(flow as usize) {
                let direction = usize::from(entry.key.source != key.source);
                prefetch(&raw const entry.directions[direction]);
            }
        }
    }

    /// Adds a flow; the table must not be full.
    pub(super) fn add(&mut self, key: &PacketKey, flags: u8, hash: u32, now_ns: u64) -> FlowIndex {
        let entry = FlowEntry::new(key, flags);
        let at = match self.free {
            NOBODY => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).unwrap_or(NOBODY)
            }
            free => {
                self.free = self.entries[free as usize].next_free;
                self.entries[free as usize] = entry;
                free
            }
        };
        self.slots.add(hash, at);
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
        self.slots.remove(hash, at);
        let entry = &mut self.entries[at as usize];
        entry.texts = FlowTexts::default();
        entry.outside = None;
        entry.next_free = self.free;
        self.free = at;
    }
}
