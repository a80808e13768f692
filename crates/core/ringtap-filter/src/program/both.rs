// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins two programs to one that matches what both match.

use super::code::{self, CLASS, JA, LD_IMM, LD_MEM, LDX_IMM, LDX_MEM, ST};
use super::{Instruction, MAX_INSTRUCTIONS, Program};
use crate::ebpf::facts;

const RETURN_CLASS: u16 = 0x06;

impl Program {
    /// The program that matches what this one and `other` match; `None` if it is too long, or if this
    /// program returns a computed value.
    #[must_use]
    pub fn and(&self, other: &Program) -> Option<Program> {
        if self.takes_everything() {
            return Some(other.clone());
        }
        if other.takes_everything() {
            return Some(self.clone());
        }
        let first = self.instructions();
        let clears = other.clears();
        let length = first.len() + clears.len() + other.instructions().len();
        if length > MAX_INSTRUCTIONS {
            return None;
        }
        let mut both = Vec::with_capacity(length);
        for (at, instruction) in first.iter().enumerate() {
            both.push(match *instruction {
                taken if taken.code == code::RETURN_CONSTANT && taken.k != 0 => {
                    Instruction::new(JA, 0, 0, u32::try_from(first.len() - at - 1).ok()?)
                }
                other
                    if other.code & CLASS == RETURN_CLASS
                        && other.code != code::RETURN_CONSTANT =>
                {
                    return None;
                }
                same => same,
            });
        }
        both.extend(clears);
        both.extend_from_slice(other.instructions());
        Program::new(&both).ok()
    }

    /// Instructions that clear the registers and scratch words that this program reads before it
    /// writes them: alone it finds 0 there.
    pub(super) fn clears(&self) -> Vec<Instruction> {
        let (a, x, words) = self.reads_first();
        let instruction = |code, k| Instruction::new(code, 0, 0, k);
        let mut clears = Vec::new();
        if a || !words.is_empty() {
            clears.push(instruction(LD_IMM, 0));
        }
        clears.extend(words.into_iter().map(|word| instruction(ST, word)));
        if x {
            clears.push(instruction(LDX_IMM, 0));
        }
        clears
    }

    /// Whether A and X, and which scratch words, may be read before they are written.
    fn reads_first(&self) -> (bool, bool, Vec<u32>) {
        if !self.loops() {
            let needed = facts::needed(self, |_| false);
            let first = needed.first().copied().unwrap_or_default();
            return (first.a(), first.x(), first.words().collect());
        }
        // A loop may read what its last round wrote: clear all.
        let loads = self
            .instructions()
            .iter()
            .filter(|one| matches!(one.code, LD_MEM | LDX_MEM));
        let mut words: Vec<_> = loads.map(|one| one.k).collect();
        words.sort_unstable();
        words.dedup();
        (true, true, words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longer_than(bytes: u32) -> Program {
        let instruction = |code, jump_false, k| Instruction::new(code, 0, jump_false, k);
        let length = [
            instruction(0x80, 0, 0),
            instruction(0x25, 1, bytes),
            instruction(0x06, 0, 262_144),
            instruction(0x06, 0, 0),
        ];
        Program::new(&length).unwrap()
    }

    #[test]
    fn both_must_take_a_packet() {
        let both = longer_than(10).and(&longer_than(20)).unwrap();
        for length in [5, 15, 25] {
            assert_eq!(both.matches(&[], length), length > 20, "{length}");
        }
        let other_way = longer_than(20).and(&longer_than(10)).unwrap();
        assert!(other_way.matches(&[], 25) && !other_way.matches(&[], 15));
    }

    #[test]
    fn the_second_program_finds_registers_and_scratch_words_cleared() {
        let instruction = |code, jump_true, k| Instruction::new(code, jump_true, 0, k);
        let leaves = Program::new(&[
            instruction(0x00, 0, 7),
            instruction(0x02, 0, 3),
            instruction(0x01, 0, 9),
            instruction(0x06, 0, 1),
        ])
        .unwrap();
        // Accepts if A is 0 after this load.
        let take_zero = |load: u16| {
            Program::new(&[
                instruction(load, 0, 3),
                instruction(0x15, 1, 0),
                instruction(0x06, 0, 0),
                instruction(0x06, 0, 1),
            ])
            .unwrap()
        };
        let a = Program::new(&take_zero(0x60).instructions()[1..]).unwrap();
        for second in [a, take_zero(0x60), take_zero(0x87)] {
            assert!(second.matches(&[], 0));
            let both = leaves.and(&second).unwrap();
            assert!(both.matches(&[], 0), "{:?}", both.instructions());
        }
    }

    #[test]
    fn a_computed_result_and_too_many_instructions_cannot_be_joined() {
        let instruction = |code, k| Instruction::new(code, 0, 0, k);
        let length = Program::new(&[instruction(0x80, 0), instruction(0x16, 0)]).unwrap();
        assert_eq!(length.and(&longer_than(9)), None);
        assert!(longer_than(9).and(&length).is_some());
        for (own, fits) in [(MAX_INSTRUCTIONS - 4, true), (MAX_INSTRUCTIONS - 3, false)] {
            let mut long = vec![instruction(0x80, 0); own - 1];
            long.push(instruction(0x06, 1));
            let joined = Program::new(&long).unwrap().and(&longer_than(9));
            assert_eq!(joined.is_some(), fits, "{own}");
        }
    }

    #[test]
    fn a_program_that_takes_everything_adds_nothing() {
        let everything = Program::everything();
        assert_eq!(everything.and(&longer_than(9)).unwrap(), longer_than(9));
        assert_eq!(longer_than(9).and(&everything).unwrap(), longer_than(9));
    }
}
