// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts that hold before each instruction of a classic program, on every path to it.

use crate::Program;
use crate::program::{Instruction, SCRATCH_WORDS, code::*, targets};

/// Facts before an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadFacts {
    /// At least this many bytes were captured.
    pub(crate) captured: u32,
    /// X is the length of the IPv4 header that begins at this offset.
    pub(crate) header: Option<u32>,
}

/// The registers A, X and scratch words that were written, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written(u32);

const A: u32 = 1 << SCRATCH_WORDS;
const X: u32 = A << 1;

/// Facts before each instruction of a program without loops; `None` for unreachable ones.
pub(crate) fn facts(program: &Program) -> Vec<Option<LoadFacts>> {
    let instructions = program.instructions();
    let mut facts = vec![None; instructions.len()];
    let start = LoadFacts {
        captured: 0,
        header: None,
    };
    if let Some(first) = facts.first_mut() {
        *first = Some(start);
    }
    for (at, instruction) in instructions.iter().enumerate() {
        let Some(before) = facts[at] else { continue };
        let after = after(before, instruction);
        for to in targets(at, instruction) {
            if let Some(place) = facts.get_mut(to) {
                *place = Some(place.map_or(after, |known: LoadFacts| known.meet(after)));
            }
        }
    }
    facts
}

/// The registers A, X and scratch words that may be read before they are written, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Needed(u32);

/// Registers needed before each instruction of a program without loops; a load for which `is_kept` holds does not need X.
pub(crate) fn needed(program: &Program, is_kept: impl Fn(usize) -> bool) -> Vec<Needed> {
    let instructions = program.instructions();
    let mut needed = vec![Needed::default(); instructions.len()];
    for (at, instruction) in instructions.iter().enumerate().rev() {
        let following = targets(at, instruction).filter_map(|to| needed.get(to));
        let behind = following.fold(0, |all, one| all | one.0);
        let reads = match reads(instruction) {
            reads if is_kept(at) => reads & !X,
            reads => reads,
        };
        needed[at] = Needed(reads | behind & !writes(instruction));
    }
    needed
}

impl Needed {
    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn a(self) -> bool {
        self.0 & A != 0
    }

    pub(crate) fn x(self) -> bool {
        self.0 & X != 0
    }

    pub(crate) fn words(self) -> impl Iterator<Item = u32> {
        (0..16).filter(move |word| self.0 & 1 << word != 0)
    }

    pub(super) fn or(self, other: Needed) -> Needed {
        Needed(self.0 | other.0)
    }

    /// The needed registers that have been written.
    pub(super) fn written(self, written: Written) -> Needed {
        Needed(self.0 & written.0)
    }

    /// The needed registers that have not been written.
    pub(super) fn unwritten(self, written: Written) -> Needed {
        Needed(self.0 & !written.0)
    }
}

impl Written {
    /// No register.
    pub(super) const NOTHING: Written = Written(0);

    /// Adds the registers that an instruction writes.
    pub(super) fn and(self, instruction: &Instruction) -> Written {
        Written(self.0 | writes(instruction))
    }
}

impl LoadFacts {
    fn meet(self, other: LoadFacts) -> LoadFacts {
        LoadFacts {
            captured: self.captured.min(other.captured),
            header: self.header.filter(|_| self.header == other.header),
        }
    }
}

fn after(before: LoadFacts, instruction: &Instruction) -> LoadFacts {
    let captured = match packet_load(instruction.code) {
        Some(load) => instruction.k.saturating_add(load.bytes.into()),
        None => 0,
    };
    let header = match instruction.code {
        LDX_MSH => Some(instruction.k),
        _ => before.header.filter(|_| !writes_x(instruction)),
    };
    LoadFacts {
        captured: before.captured.max(captured),
        header,
    }
}

/// Whether an instruction changes X.
pub(crate) fn writes_x(instruction: &Instruction) -> bool {
    writes(instruction) & X != 0
}

fn word(instruction: &Instruction) -> u32 {
    1_u32.checked_shl(instruction.k).unwrap_or(0) & (A - 1)
}

fn writes(instruction: &Instruction) -> u32 {
    match instruction.code {
        LDX_IMM | LDX_LEN | LDX_MEM | LDX_MSH | TAX => X,
        ST | STX => word(instruction),
        RETURN_CONSTANT | RETURN_A => 0,
        code if code & CLASS == CLASS_JMP => 0,
        _ => A,
    }
}

fn reads(instruction: &Instruction) -> u32 {
    match instruction.code {
        LD_W_IND | LD_H_IND | LD_B_IND | STX | TXA => X,
        LD_MEM | LDX_MEM => word(instruction),
        ST | TAX | RETURN_A => A,
        JA => 0,
        code if matches!(code & CLASS, CLASS_JMP | CLASS_ALU) => match code & SOURCE_X {
            0 => A,
            _ => A | X,
        },
        _ => 0,
    }
}
