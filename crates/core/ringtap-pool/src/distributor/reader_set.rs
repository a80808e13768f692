// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of readers, one bit each.

use crate::number::to_usize;

/// Maximum number of readers of one distributor.
pub const MAX_READERS: usize = 256;

/// Readers, or owners of readers, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReaderSet([u64; MAX_READERS / 64]);

impl ReaderSet {
    pub(super) fn add(&mut self, reader: usize) {
        self.0[reader / 64] |= 1 << (reader % 64);
    }

    /// Removes a reader; `false` if it was not there.
    pub(super) fn remove(&mut self, reader: usize) -> bool {
        let word = &mut self.0[reader / 64];
        let bit = 1 << (reader % 64);
        let held = *word & bit != 0;
        *word &= !bit;
        held
    }

    /// Adds or removes a reader.
    pub(super) fn set(&mut self, reader: usize, is_member: bool) {
        let word = &mut self.0[reader / 64];
        let bit = 1 << (reader % 64);
        *word = *word & !bit | if is_member { bit } else { 0 };
    }

    pub(super) fn has(&self, reader: usize) -> bool {
        self.0[reader / 64] & (1 << (reader % 64)) != 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn len(&self) -> usize {
        to_usize(self.0.iter().map(|word| word.count_ones()).sum::<u32>())
    }

    pub(super) fn has_any_of(&self, others: &ReaderSet) -> bool {
        self.0.iter().zip(&others.0).any(|(a, b)| a & b != 0)
    }

    /// Members of both sets.
    pub(super) fn and(self, others: ReaderSet) -> Self {
        ReaderSet(std::array::from_fn(|at| self.0[at] & others.0[at]))
    }

    /// Members of one of the sets.
    pub(super) fn or(self, others: ReaderSet) -> Self {
        ReaderSet(std::array::from_fn(|at| self.0[at] | others.0[at]))
    }

    /// Members of this set that the other one does not have.
    pub(super) fn without(self, others: ReaderSet) -> Self {
        ReaderSet(std::array::from_fn(|at| self.0[at] & !others.0[at]))
    }

    /// One of `count` (a divisor of 64) parts of all numbers.
    pub(super) fn every(count: u64, turn: u64) -> Self {
        let mut word = 0;
        let mut bit = turn % count;
        while bit < 64 {
            word |= 1 << bit;
            bit += count;
        }
        ReaderSet([word; MAX_READERS / 64])
    }

    /// The members, in ascending order.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(at, word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some(at * 64 + to_usize(bit))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_listed_in_ascending_order() {
        let mut set = ReaderSet::default();
        let members = [0, 5, 63, 64, 127, 200, 255];
        members.iter().rev().for_each(|reader| set.add(*reader));
        assert_eq!(set.iter().collect::<Vec<_>>(), members);
        assert!(set.remove(63) && !set.remove(63));
        set.set(5, false);
        set.set(6, true);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 6, 64, 127, 200, 255]);
        assert_eq!(set.len(), 6);
    }

    #[test]
    fn the_parts_of_all_numbers_have_each_once() {
        let parts: Vec<_> = (0..16).map(|turn| ReaderSet::every(16, turn)).collect();
        let all = parts
            .iter()
            .fold(ReaderSet::default(), |all, one| all.or(*one));
        assert_eq!(all.len(), MAX_READERS);
        assert!(parts.iter().all(|one| one.len() == MAX_READERS / 16));
    }
}
