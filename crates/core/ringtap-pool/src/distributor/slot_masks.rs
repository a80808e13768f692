// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts a chunk's packets for many readers with one pass over its slots.
//!
//! The pass turns the masks of 64 slots into one word for each bit of the mask: the slots that have
//! the bit. A reader's packets are then a few operations for each block of 64 slots.
//!
//! Invariants
//! - The slots are read at most once between two calls of [`SlotMasks::forget`], however many readers
//!   ask.

use std::ops::Range;

use super::resting::Seen;
use crate::ids::ChunkId;
use crate::number::to_usize;
use crate::view::{Chunk, Pool};

/// Slots of a block.
const BLOCK: u32 = 64;

/// Masks of 64 slots.
#[allow(
    clippy::large_enum_variant,
    reason = "the blocks of a chunk are kept: no allocation for each chunk"
)]
enum MaskBlock {
    /// All slots have this mask.
    Uniform(u64),
    /// For each bit of the mask, the slots that have it.
    Mixed([u64; 64]),
}

/// Masks of a chunk's slots up to a slot, by their bits.
#[derive(Default)]
pub(super) struct SlotMasks {
    blocks: Vec<MaskBlock>,
    is_filled: bool,
    /// Number of slots that were read since the start.
    #[cfg(test)]
    pub(super) slots_read: u64,
}

impl SlotMasks {
    /// Forgets the chunk: the next count is of another one, or of more slots.
    pub(super) fn forget(&mut self) {
        self.blocks.clear();
        self.is_filled = false;
    }

    /// Counts of a reader with this mask and group; see [`SlotMasks::count`].
    pub(super) fn see(
        &mut self,
        pool: &Pool,
        id: ChunkId,
        slots: Range<u32>,
        (mask, group): (u64, u64),
    ) -> Seen {
        let sequences = u64::from(slots.end - slots.start);
        let (wanted, other_members) = match pool.chunk(id) {
            Some(chunk) if mask != u64::MAX => self.count(chunk, slots, mask, group),
            _ => (sequences, 0),
        };
        Seen {
            sequences,
            wanted,
            other_members,
        }
    }

    /// Counts the slots whose mask has a bit of `mask`, and those with a bit of `group` but none of
    /// `mask`. Until [`SlotMasks::forget`], the chunk and the end of the slots must be the same.
    fn count(&mut self, chunk: Chunk<'_>, slots: Range<u32>, mask: u64, group: u64) -> (u64, u64) {
        if slots.is_empty() || chunk.wanted() & (mask | group) == 0 {
            return (0, 0);
        }
        if !self.is_filled {
            self.fill(chunk, slots.end);
        }
        let mut counts = (0, 0);
        for (block, first) in self.blocks.iter().zip((0..).step_by(64)) {
            let before = slots.start.saturating_sub(first).min(BLOCK);
            let until = slots.end.saturating_sub(first).min(BLOCK);
            let valid = low_bits(until) & !low_bits(before);
            let wanted = block.slots_with(mask) & valid;
            counts.0 += u64::from(wanted.count_ones());
            counts.1 += u64::from((block.slots_with(group) & valid & !wanted).count_ones());
        }
        counts
    }

    fn fill(&mut self, chunk: Chunk<'_>, end: u32) {
        self.is_filled = true;
        let mut first = 0;
        while first < end {
            let until = end.min(first + BLOCK);
            let mut masks = [0; 64];
            let (mut any, mut all) = (0, u64::MAX);
            for (mask, slot) in masks.iter_mut().zip(first..until) {
                *mask = chunk.mask(slot);
                any |= *mask;
                all &= *mask;
            }
            self.blocks.push(if any == all {
                MaskBlock::Uniform(any)
            } else {
                transpose(&mut masks);
                MaskBlock::Mixed(masks)
            });
            first = until;
        }
        #[cfg(test)]
        {
            self.slots_read += u64::from(end);
        }
    }
}

impl MaskBlock {
    /// The slots whose mask has one of these bits.
    fn slots_with(&self, bits: u64) -> u64 {
        match self {
            MaskBlock::Uniform(mask) if mask & bits != 0 => u64::MAX,
            MaskBlock::Uniform(_) => 0,
            MaskBlock::Mixed(columns) => {
                let with =
                    |(bit, column): (u32, &u64)| if bits >> bit & 1 == 1 { *column } else { 0 };
                if bits.is_power_of_two() {
                    return columns[to_usize(bits.trailing_zeros())];
                }
                (0..).zip(columns).map(with).fold(0, |all, one| all | one)
            }
        }
    }
}

/// The lowest `count` bits, at most 64.
fn low_bits(count: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - count).unwrap_or(0)
}

/// Swaps rows and columns of a matrix of bits: bit `c` of word `r` becomes bit `r` of word `c`.
fn transpose(rows: &mut [u64; 64]) {
    let (mut width, mut low) = (32, u64::from(u32::MAX));
    while width > 0 {
        let mut row = 0;
        while row < 64 {
            let swapped = (rows[row] >> width ^ rows[row + width]) & low;
            rows[row] ^= swapped << width;
            rows[row + width] ^= swapped;
            row = (row + width + 1) & !width;
        }
        width /= 2;
        low ^= low << width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let before: [u64; 64] = std::array::from_fn(|row| word(u64::try_from(row).unwrap()));
        let mut after = before;
        transpose(&mut after);
        for (row, before) in before.iter().enumerate() {
            for (column, after) in after.iter().enumerate() {
                assert_eq!(before >> column & 1, after >> row & 1);
            }
        }
    }
}
