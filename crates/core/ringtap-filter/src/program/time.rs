// SPDX-License-Identifier: MIT OR Apache-2.0
//! Estimated time of a program in the kernel, by instruction.
//!
//! The weights were measured on translated programs at both hooks, for packets with and without a
//! restored VLAN tag: each is the longest, rounded up. Packets were in the processor's cache. The limits
//! are the same where the interpreter runs filters, for which all instructions take about as long.
//!
//! Invariants
//! - Every instruction takes time; a longer path takes more.

use std::fmt;

use super::Instruction;
use super::code::*;

/// Part of the time that a tap takes to capture a packet of 64 bytes.
///
/// Displayed as percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterTime {
    thousandths: u32,
}

/// Nanoseconds that a tap takes to capture a packet of 64 bytes, on the machine of the weights.
pub const PACKET_NS: u32 = 120;
/// Bytes at the beginning of a packet that the translated program reads without a check of their place.
const NEAR: u32 = 60;

/// The rule of a filter: its bit, and the members for the bucket.
const RULE: u32 = 50;
/// Registers, scratch memory, comparisons.
const PLAIN: u32 = 6;
/// A multiplication, or a shift by X.
const MULTIPLY: u32 = 12;
/// A division, or its remainder.
const DIVIDE: u32 = 42;
/// A load at the beginning of the packet, by aligned pieces.
const LOAD_NEAR: u32 = 14;
/// A load that is compared with the packet's end.
const LOAD_FAR: u32 = 42;

impl FilterTime {
    /// A percentage of a packet's time.
    #[must_use]
    pub const fn from_percent(percent: u32) -> Self {
        Self::from_thousandths(percent.saturating_mul(10))
    }

    /// Thousandths of a packet's time.
    #[must_use]
    pub const fn from_thousandths(thousandths: u32) -> Self {
        FilterTime { thousandths }
    }

    /// The sum of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self::from_thousandths(self.thousandths.saturating_add(other.thousandths))
    }

    /// Subtracts the other time; zero if the other is longer.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self::from_thousandths(self.thousandths.saturating_sub(other.thousandths))
    }

    /// So many halves of this.
    #[must_use]
    pub const fn halves(self, count: u32) -> Self {
        Self::from_thousandths(self.thousandths.saturating_mul(count) / 2)
    }

    /// The time of a program, with its rule, whose longest path has these instructions together.
    pub(super) const fn with_rule(self) -> Self {
        self.and(Self::from_thousandths(RULE))
    }
}

impl fmt::Display for FilterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percent, tenth) = (self.thousandths / 10, self.thousandths % 10);
        write!(f, "{percent}.{tenth} %")
    }
}

/// The time of one instruction.
pub(super) fn of(instruction: &Instruction) -> FilterTime {
    let weight = match instruction.code {
        code if packet_load(code).is_some() => load(instruction),
        code if code & CLASS == CLASS_ALU => match code & OPERATION {
            DIV | MOD => DIVIDE,
            MUL => MULTIPLY,
            LSH | RSH if code & SOURCE_X != 0 => MULTIPLY,
            _ => PLAIN,
        },
        _ => PLAIN,
    };
    FilterTime::from_thousandths(weight)
}

fn load(instruction: &Instruction) -> u32 {
    let load = packet_load(instruction.code);
    let end = load.map(|load| instruction.k.saturating_add(load.bytes.into()));
    let is_indexed = load.is_some_and(|load| load.is_indexed);
    match end {
        Some(end) if !is_indexed && end <= NEAR => LOAD_NEAR,
        _ => LOAD_FAR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;

    const REJECT: Instruction = Instruction::new(RETURN_CONSTANT, 0, 0, 0);

    /// Every instruction that a program may have, each with both operands where it has two.
    fn all_valid() -> Vec<Instruction> {
        let codes = (0..=u16::from(u8::MAX)).map(|code| Instruction::new(code, 0, 0, 1));
        let valid = |one: &Instruction| Program::new(&[*one, REJECT]).is_ok();
        let jump = Instruction::new(JA, 0, 0, 0);
        codes.filter(valid).chain([jump]).collect()
    }

    fn time(program: &[Instruction]) -> FilterTime {
        Program::new(program).unwrap().longest_time().unwrap()
    }

    #[test]
    fn every_instruction_takes_time_and_a_longer_path_takes_more() {
        let all = all_valid();
        // 9 loads of A, 4 of X, 2 stores, 21 calculations, 9 jumps, 2 returns, 2 moves.
        assert_eq!(all.len(), 49, "{all:?}");
        for one in all {
            assert!(of(&one) >= FilterTime::from_thousandths(PLAIN), "{one:?}");
            let (alone, longer) = (time(&[one, REJECT]), time(&[one, one, REJECT]));
            let returns = matches!(one.code, RETURN_CONSTANT | RETURN_A);
            assert!(returns || longer > alone, "{one:?}");
        }
    }

    #[test]
    fn a_load_that_must_be_checked_takes_longer_than_one_at_the_beginning_and_than_a_calculation() {
        let near = of(&Instruction::new(LD_W_ABS, 0, 0, NEAR - 4));
        let far = of(&Instruction::new(LD_W_ABS, 0, 0, NEAR - 3));
        let indexed = of(&Instruction::new(LD_B_IND, 0, 0, 0));
        let add = of(&Instruction::new(CLASS_ALU | ADD, 0, 0, 1));
        assert!(add < near && near < far);
        assert_eq!(far, indexed);
        assert_eq!(of(&Instruction::new(LD_B_IND, 0, 0, u32::MAX)), far);
    }

    #[test]
    fn the_longest_path_counts_and_is_told_in_percent() {
        // jeq #0, +1: one way has a division more.
        let divide = Instruction::new(CLASS_ALU | DIV, 0, 0, 3);
        let branch = Instruction::new(CLASS_JMP | JEQ, 1, 0, 0);
        let path = [branch, divide, REJECT];
        let expected = RULE + PLAIN + DIVIDE + PLAIN;
        assert_eq!(time(&path), FilterTime::from_thousandths(expected));
        assert_eq!(FilterTime::from_percent(12).to_string(), "12.0 %");
        assert_eq!(FilterTime::from_thousandths(1234).to_string(), "123.4 %");
    }
}
