// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds flows by the hash of their keys: slots of eight bytes, eight in a cache line.
//!
//! A slot has the hash itself, so that a search touches no entry of another flow.
//!
//! Invariants
//! - At least half of the slots are empty: searches end soon.
//! - Between the place that a hash stands for and the slot with that hash, none is empty.

use ringtap_pool::memory::prefetch;

/// The hash, and the number of the flow plus one; 0 if empty, so that untouched slots take no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct HashSlot {
    hash: u32,
    flow: u32,
}

const EMPTY: HashSlot = HashSlot { hash: 0, flow: 0 };

/// Slots of the flows of a table.
pub(super) struct HashSlots {
    slots: Vec<HashSlot>,
    mask: usize,
}

impl HashSlots {
    /// Slots for at most `most` flows.
    pub(super) fn new(most: u32) -> Self {
        let count = 2 * (most as usize).next_power_of_two();
        HashSlots {
            slots: vec![EMPTY; count],
            mask: count - 1,
        }
    }

    /// Brings the first slot for a hash into the cache.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) {
        prefetch(&raw const self.slots[self.home(hash)]);
    }

    /// The first flow with this hash that `is_wanted`.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_wanted: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut place = self.home(hash);
        loop {
            let slot = self.slots[place];
            let flow = slot.flow.checked_sub(1)?;
            if slot.hash == hash && is_wanted(flow) {
                return Some(flow);
            }
            place = self.behind(place);
        }
    }

    /// Adds a flow; fewer than `most` are there.
    pub(super) fn add(&mut self, hash: u32, flow: u32) {
        let mut place = self.home(hash);
        while self.slots[place] != EMPTY {
            place = self.behind(place);
        }
        self.slots[place] = HashSlot {
            hash,
            flow: flow + 1,
        };
    }

    /// Removes a flow that is there, and moves others into the gap.
    pub(super) fn remove(&mut self, hash: u32, flow: u32) {
        let mut gap = self.home(hash);
        while self.slots[gap].flow != flow + 1 {
            gap = self.behind(gap);
        }
        let mut place = self.behind(gap);
        while self.slots[place] != EMPTY {
            let home = self.home(self.slots[place].hash);
            if self.distance(home, place) >= self.distance(gap, place) {
                self.slots[gap] = self.slots[place];
                gap = place;
            }
            place = self.behind(place);
        }
        self.slots[gap] = EMPTY;
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & self.mask
    }

    fn behind(&self, place: usize) -> usize {
        (place + 1) & self.mask
    }

    /// Slots from one place on to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.mask
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn flows_are_found_until_they_are_removed_whatever_their_hashes() {
        let mut slots = HashSlots::new(64);
        let mut flows = HashMap::new();
        let mut random = 1_u64;
        for step in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let flow = (random >> 33) as u32 % 64;
            // Few different hashes, also at the end of the slots: long runs that go around.
            let hash = [3, 3 + 128, 126, 127, 127 + 256, (random >> 40) as u32][step % 6];
            match flows.remove(&flow) {
                Some(hash) => slots.remove(hash, flow),
                None => {
                    slots.add(hash, flow);
                    flows.insert(flow, hash);
                }
            }
            for (flow, hash) in &flows {
                assert_eq!(slots.find(*hash, |it| it == *flow), Some(*flow));
            }
            assert_eq!(slots.find(3, |it| flows.get(&it) != Some(&3)), None);
        }
    }
}
