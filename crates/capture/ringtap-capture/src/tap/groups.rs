// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members of groups, in the map that the programs read: `rt_groups`.
//!
//! Invariants
//! - A set in use is never written. The attached programs use one half of the sets, and one set of
//!   that half is in force; the selection changes only when no program uses the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ringtap_filter::{BUCKETS, Balance, MASKS, MAX_RULES, Rule};
use ringtap_pool::memory::Words;
use ringtap_pool::number::to_u32;

use super::rules::UserProgram;

/// Number of sets in the map: `RT_GROUP_SETS`.
pub(super) const SETS: usize = 4;
/// Words of a group, `rt_group`: balance and program, the masks, and for each bucket a byte, the index
/// of its mask.
pub(super) const GROUP_WORDS: usize = 1 + MASKS + BUCKETS / 8;
pub(super) const ALL_WORDS: usize = SETS * MAX_RULES * GROUP_WORDS;

/// `RT_SECOND_HALF`.
pub(super) const SECOND_HALF: u32 = 0x80;

/// The number of rules, shifted by `RT_COUNT_SHIFT`.
pub(super) fn count_bits(rules: usize) -> u32 {
    to_u32(rules) << 8
}

/// The sets in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// The half that the attached programs use.
    half: usize,
    /// Index of the set in force, for each half.
    sets: [usize; 2],
}

impl Selection {
    /// The selection for the next programs.
    pub(super) fn for_next_programs(self) -> Self {
        let half = 1 - self.half;
        Selection { half, ..self }
    }

    /// The other set of the same half, for the attached programs.
    pub(super) fn for_same_programs(mut self) -> Self {
        self.sets[self.half] = 1 - self.sets[self.half];
        self
    }

    /// The half, as encoded in the programs.
    pub(super) fn half_bit(self) -> u32 {
        if self.half == 0 { 0 } else { SECOND_HALF }
    }

    /// The sets, as encoded in the control words.
    pub(super) fn set_bits(self) -> u32 {
        u32::from(self.sets[0] == 1) | u32::from(self.sets[1] == 1) << 1
    }

    fn first_word(self) -> usize {
        (self.half * 2 + self.sets[self.half]) * MAX_RULES * GROUP_WORDS
    }
}

/// Writes the selected set; `users` are the users' programs in the order of their numbers.
pub(super) fn write(
    words: &Words<AtomicU64>,
    selection: Selection,
    rules: &[Rule],
    users: &[Arc<UserProgram>],
) {
    let number = |rule: &Rule| match &rule.balance {
        Balance::Program(path) => users.iter().position(|user| user.path == *path),
        _ => None,
    };
    let set = words.get(selection.first_word()..).unwrap_or_default();
    for (group, rule) in set.chunks_exact(GROUP_WORDS).zip(rules) {
        let [a, b, c, d] = rule.balance.bit().to_ne_bytes();
        let [e, f, g, h] = to_u32(number(rule).unwrap_or(0)).to_ne_bytes();
        let head = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let masks = rule.members.masks().iter().copied();
        let masks = masks.chain(std::iter::repeat(0)).take(MASKS);
        let owners = rule.members.owners().as_chunks().0.iter();
        let owners = owners.map(|eight| u64::from_ne_bytes(*eight));
        let values = [head].into_iter().chain(masks).chain(owners);
        for (word, value) in group.iter().zip(values) {
            word.store(value, Relaxed);
        }
    }
}
