// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins two programs to one that matches what both match.

use super::{Instruction, Program, code};

/// Maximum number of instructions of a program, as in the kernel.
const MOST_INSTRUCTIONS: usize = 4096;
const JUMP_ALWAYS: u16 = 0x05;
const RETURN_CLASS: u16 = 0x06;
const CLASS: u16 = 0x07;

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
        let length = first.len() + other.instructions().len();
        if length > MOST_INSTRUCTIONS {
            return None;
        }
        let mut both = Vec::with_capacity(length);
        for (at, instruction) in first.iter().enumerate() {
            both.push(match *instruction {
                taken if taken.code == code::RETURN_CONSTANT && taken.k != 0 => Instruction {
                    code: JUMP_ALWAYS,
                    jump_true: 0,
                    jump_false: 0,
                    k: u32::try_from(first.len() - at - 1).ok()?,
                },
                other
                    if other.code & CLASS == RETURN_CLASS
                        && other.code != code::RETURN_CONSTANT =>
                {
                    return None;
                }
                same => same,
            });
        }
        both.extend_from_slice(other.instructions());
        Program::new(&both).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longer_than(bytes: u32) -> Program {
        let instruction = |code, jump_false, k| Instruction {
            code,
            jump_true: 0,
            jump_false,
            k,
        };
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
    fn a_program_that_takes_everything_adds_nothing() {
        let everything = Program::everything();
        assert_eq!(everything.and(&longer_than(9)).unwrap(), longer_than(9));
        assert_eq!(longer_than(9).and(&everything).unwrap(), longer_than(9));
    }
}
