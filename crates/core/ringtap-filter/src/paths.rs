// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conditions on the bytes of a packet that a program requires, found by following its paths.
//!
//! An index of recorded packets uses them to skip blocks without reading them.
//!
//! Invariants
//! - Each packet that the program matches meets all conditions of at least one entry.
//! - The number of entries, and of states at one instruction, is bounded: beyond it, states are merged and
//!   conditions get weaker, never stronger.

use std::collections::{BTreeMap, BTreeSet};

use crate::program::code::*;
use crate::program::{Instruction, Program, SCRATCH_WORDS, is_outside, jump};

#[cfg(test)]
mod tests;

/// Most states that are followed at one instruction.
const MAX_STATES: usize = 256;
/// Most entries of a result.
const MAX_ENTRIES: usize = 8192;

/// Where a field's offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldBase {
    /// The first byte of the packet.
    Packet,
    /// Four times the lower half of the byte at this offset: the length of an IPv4 header that begins there.
    HeaderLength(u32),
}

/// A big-endian number in the packet, of which the bits of a mask count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteField {
    /// Where `at` counts from.
    pub base: FieldBase,
    /// Offset in bytes.
    pub at: u32,
    /// Size in bytes: 1, 2 or 4.
    pub bytes: u8,
    /// The bits that count.
    pub mask: u32,
}

/// The smallest and the largest value that a field may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueRange {
    /// The smallest value.
    pub min: u32,
    /// The largest value.
    pub max: u32,
}

/// Conditions that all hold for a packet.
pub type FieldConditions = BTreeMap<ByteField, ValueRange>;

/// What is known of a register or scratch word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    #[default]
    Nothing,
    Constant(u32),
    Field(ByteField),
    /// Length of the IPv4 header at this offset.
    HeaderLength(u32),
}

/// What is known on a path before an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct PathState {
    a: Known,
    x: Known,
    memory: [Known; SCRATCH_WORDS],
    conditions: FieldConditions,
}

impl Program {
    /// Conditions of all ways in which a packet can match: it meets all conditions of at least one entry.
    ///
    /// No entry: the program matches no packet. An entry without conditions says nothing of the packet.
    #[must_use]
    pub fn required_fields(&self) -> Vec<FieldConditions> {
        let everything = || vec![FieldConditions::new()];
        if self.loops() {
            return everything();
        }
        let instructions = self.instructions();
        let mut states = vec![BTreeSet::new(); instructions.len()];
        if let Some(first) = states.first_mut() {
            first.insert(PathState::default());
        }
        let mut entries = BTreeSet::new();
        for (at, instruction) in instructions.iter().enumerate() {
            for state in merged(std::mem::take(&mut states[at])) {
                match instruction.code {
                    RETURN_CONSTANT if instruction.k == 0 => {}
                    RETURN_A if state.a == Known::Constant(0) => {}
                    RETURN_CONSTANT | RETURN_A => {
                        entries.insert(state.conditions);
                    }
                    _ => state.step(at, instruction, |to, state| {
                        if let Some(there) = states.get_mut(to) {
                            there.insert(state);
                        }
                    }),
                }
            }
            if entries.len() > MAX_ENTRIES {
                return everything();
            }
        }
        entries.into_iter().collect()
    }
}

/// The states, or one that holds for all of them if they are too many.
fn merged(states: BTreeSet<PathState>) -> BTreeSet<PathState> {
    if states.len() <= MAX_STATES {
        return states;
    }
    let merged = states.into_iter().reduce(|one, other| {
        let same = |a: Known, b: Known| if a == b { a } else { Known::Nothing };
        let mut memory = one.memory;
        for (word, other) in memory.iter_mut().zip(other.memory) {
            *word = same(*word, other);
        }
        let both = one.conditions.iter().filter_map(|(field, range)| {
            let other = other.conditions.get(field)?;
            let hull = ValueRange {
                min: range.min.min(other.min),
                max: range.max.max(other.max),
            };
            Some((*field, hull))
        });
        PathState {
            a: same(one.a, other.a),
            x: same(one.x, other.x),
            memory,
            conditions: both.collect(),
        }
    });
    merged.into_iter().collect()
}

impl PathState {
    /// Passes on the states behind the instruction.
    fn step(
        mut self,
        at: usize,
        instruction: &Instruction,
        mut pass: impl FnMut(usize, PathState),
    ) {
        let Instruction { code, k, .. } = *instruction;
        if code == JA {
            if let Some(to) = jump(at, k) {
                pass(to, self);
            }
            return;
        }
        if code & CLASS == CLASS_JMP {
            let next = at + 1;
            for (skip, holds) in [
                (instruction.jump_true, true),
                (instruction.jump_false, false),
            ] {
                if let Some(state) = self.clone().assume(code, k, holds) {
                    pass(next + usize::from(skip), state);
                }
            }
            return;
        }
        if is_outside(instruction) {
            return;
        }
        self.load_or_calculate(code, k);
        pass(at + 1, self);
    }

    fn load_or_calculate(&mut self, code: u16, k: u32) {
        let word = |k: u32| usize::try_from(k).unwrap_or(usize::MAX);
        match code {
            LD_IMM => self.a = Known::Constant(k),
            LDX_IMM => self.x = Known::Constant(k),
            LDX_MSH => self.x = Known::HeaderLength(k),
            LD_MEM => self.a = self.memory.get(word(k)).copied().unwrap_or_default(),
            LDX_MEM => self.x = self.memory.get(word(k)).copied().unwrap_or_default(),
            LDX_LEN => self.x = Known::Nothing,
            ST | STX => {
                let stored = if code == ST { self.a } else { self.x };
                if let Some(word) = self.memory.get_mut(word(k)) {
                    *word = stored;
                }
            }
            TAX => self.x = self.a,
            TXA => self.a = self.x,
            _ if code == CLASS_ALU | AND => self.a = masked(self.a, k),
            _ => {
                self.a = match packet_load(code) {
                    Some(load) => field(load, self.x, k),
                    None => Known::Nothing,
                }
            }
        }
    }

    /// The state if the condition of a jump holds, or does not; `None` if that is impossible.
    fn assume(mut self, code: u16, k: u32, holds: bool) -> Option<PathState> {
        if code & SOURCE_X != 0 {
            return Some(self);
        }
        let operation = code & OPERATION;
        let field = match self.a {
            Known::Constant(value) => {
                let is_true = match operation {
                    JEQ => value == k,
                    JGT => value > k,
                    JGE => value >= k,
                    _ => value & k != 0,
                };
                return (is_true == holds).then_some(self);
            }
            Known::Field(field) => field,
            _ => return Some(self),
        };
        let (field, range) = match (operation, holds) {
            (JEQ, true) => (field, (k, k)),
            (JGT, true) => (field, (k.checked_add(1)?, u32::MAX)),
            (JGT, false) => (field, (0, k)),
            (JGE, true) => (field, (k, u32::MAX)),
            (JGE, false) => (field, (0, k.checked_sub(1)?)),
            (JSET, false) => {
                let mask = field.mask & k;
                (ByteField { mask, ..field }, (0, 0))
            }
            _ => return Some(self),
        };
        let known = self.conditions.entry(field).or_insert(ValueRange {
            min: 0,
            max: field.mask,
        });
        known.min = known.min.max(range.0);
        known.max = known.max.min(range.1);
        (known.min <= known.max).then_some(self)
    }
}

fn field(load: PacketLoad, x: Known, k: u32) -> Known {
    let mask = match load.bytes {
        1 => 0xff,
        2 => 0xffff,
        _ => u32::MAX,
    };
    let place = match (load.is_indexed, x) {
        (false, _) => Some((FieldBase::Packet, k)),
        (true, Known::Constant(x)) => x.checked_add(k).map(|at| (FieldBase::Packet, at)),
        (true, Known::HeaderLength(header)) => Some((FieldBase::HeaderLength(header), k)),
        _ => None,
    };
    place.map_or(Known::Nothing, |(base, at)| {
        Known::Field(ByteField {
            base,
            at,
            bytes: load.bytes,
            mask,
        })
    })
}

fn masked(value: Known, k: u32) -> Known {
    match value {
        Known::Constant(value) => Known::Constant(value & k),
        Known::Field(field) => Known::Field(ByteField {
            mask: field.mask & k,
            ..field
        }),
        _ => Known::Nothing,
    }
}
