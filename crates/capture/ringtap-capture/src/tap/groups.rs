// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who the members of groups are, in the map that the programs read: `rt_groups`.
//!
//! Invariants
//! - A set that a packet may be divided by is never written: the programs in force have one half
//!   of the sets, of it one set is in force, and it is changed only when nobody uses the other.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ringtap_filter::{BUCKETS, Balance, Headers, MAX_RULES, Rule};
use ringtap_pool::memory::Words;
use ringtap_pool::number::to_u32;

/// Sets in the map: `RT_GROUP_SETS`.
pub(super) const SETS: usize = 4;
/// A group in words: its balance and program, then its buckets' members.
const GROUP_WORDS: usize = 1 + BUCKETS;
pub(super) const ALL_WORDS: usize = SETS * MAX_RULES * GROUP_WORDS;

/// `RT_BY_*`.
pub(super) fn way(balance: &Balance) -> u32 {
    match balance {
        Balance::Everyone => 0,
        Balance::Flow(Headers::Outer) => 0x01,
        Balance::Flow(Headers::Inner) => 0x02,
        Balance::Address(Headers::Outer) => 0x04,
        Balance::Address(Headers::Inner) => 0x08,
        Balance::Vlan => 0x10,
        Balance::RoundRobin => 0x20,
        Balance::Program(_) => 0x40,
    }
}
/// `RT_SECOND_HALF`.
pub(super) const SECOND_HALF: u32 = 0x80;

/// Where the number of rules begins: `RT_COUNT_SHIFT`.
pub(super) fn count_bits(rules: usize) -> u32 {
    to_u32(rules) << 8
}

/// Which sets are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// The half of the programs in force.
    half: usize,
    /// Of each half, which of its sets.
    sets: [usize; 2],
}

impl Selection {
    /// What programs that follow those in force must use.
    pub(super) fn for_next_programs(self) -> Self {
        let half = 1 - self.half;
        Selection { half, ..self }
    }

    /// What the programs in force may be told to use instead.
    pub(super) fn for_same_programs(mut self) -> Self {
        self.sets[self.half] = 1 - self.sets[self.half];
        self
    }

    /// The half as the programs have it.
    pub(super) fn half_bit(self) -> u32 {
        if self.half == 0 { 0 } else { SECOND_HALF }
    }

    /// The sets as the control words have them.
    pub(super) fn set_bits(self) -> u32 {
        u32::from(self.sets[0] == 1) | u32::from(self.sets[1] == 1) << 1
    }

    fn first_word(self) -> usize {
        (self.half * 2 + self.sets[self.half]) * MAX_RULES * GROUP_WORDS
    }
}

/// Writes the selected set; `program` numbers the users' programs.
pub(super) fn write<'a>(
    words: &Words<AtomicU64>,
    selection: Selection,
    rules: impl Iterator<Item = (&'a Rule, u32)>,
) {
    let set = words.get(selection.first_word()..).unwrap_or_default();
    for (group, (rule, program)) in set.chunks_exact(GROUP_WORDS).zip(rules) {
        let [a, b, c, d] = way(&rule.balance).to_ne_bytes();
        let [e, f, g, h] = program.to_ne_bytes();
        let head = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let values = [head].into_iter().chain(rule.members.iter().copied());
        for (word, value) in group.iter().zip(values) {
            word.store(value, Relaxed);
        }
    }
}
