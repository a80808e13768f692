// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields behind an IPv4 header that several filters read: loaded once, then kept on the stack.
//!
//! Invariants
//! - A kept field is a number of at most 32 bits, or -1 if the packet is too short for it.
//! - Its stack slot is opaque to the verifier, like the captured length.

use std::collections::BTreeMap;

use super::assembler::Assembler;
use super::facts::LoadFacts;
use super::frame::{A, Frame, X};
use super::insn::*;
use super::load::{self, Field, Offset};
use crate::program::Instruction;
use crate::program::code::packet_load;

/// Minimum number of reads for which a field is kept.
const READS: usize = 3;
/// Maximum number of kept fields.
const MOST: usize = 8;

/// A field: the IPv4 header before it, its offset behind the header, and its size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    header: u32,
    offset: u32,
    bytes: u8,
}

impl Key {
    /// The field that an instruction loads.
    pub(super) fn from_instruction(instruction: &Instruction, facts: LoadFacts) -> Option<Self> {
        let load = packet_load(instruction.code).filter(|load| load.is_indexed)?;
        Some(Self {
            header: facts.header?,
            offset: instruction.k,
            bytes: load.bytes,
        })
    }
}

/// The kept fields, each with its stack slot.
#[derive(Debug, Default)]
pub(super) struct Kept(Vec<Key>);

impl Kept {
    /// Chooses among the fields that the filters read.
    pub(super) fn choose(keys: impl Iterator<Item = Key>, places: usize) -> Self {
        let mut reads = BTreeMap::<Key, usize>::new();
        for key in keys {
            *reads.entry(key).or_default() += 1;
        }
        let mut worth: Vec<_> = reads
            .into_iter()
            .filter(|(_, reads)| *reads >= READS)
            .collect();
        worth.sort_by_key(|(_, reads)| std::cmp::Reverse(*reads));
        worth.truncate(MOST.min(places));
        let mut keys: Vec<_> = worth.into_iter().map(|(key, _)| key).collect();
        keys.sort();
        Self(keys)
    }

    /// Index of a field's stack slot.
    pub(super) fn place(&self, key: Key) -> Option<usize> {
        self.0.iter().position(|kept| *kept == key)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Emits the loads of all fields.
    pub(super) fn load(&self, to: &mut Assembler, frame: &Frame) {
        (0..self.0.len()).for_each(|place| frame.clear_kept(to, place));
        let mut slow = Vec::new();
        let numbered: Vec<_> = self.0.iter().copied().enumerate().collect();
        for of_header in numbered.chunk_by(|(_, one), (_, two)| one.header == two.header) {
            let behind = to.label();
            let first = of_header.first().map_or(0, |(_, key)| key.header);
            let byte = Field {
                size: AccessSize::Byte,
                offset: Offset::Fixed(first),
                into: X,
            };
            slow.extend(load::load(to, frame, byte, 0, behind).map(|slow| (slow, behind)));
            to.alu32(Op::And, X, With::Constant(0x0f));
            to.alu32(Op::Lsh, X, With::Constant(2));
            for &(place, key) in of_header {
                let next = to.label();
                let field = Field {
                    size: AccessSize::from_bytes(key.bytes),
                    offset: Offset::From(X, key.offset),
                    into: A,
                };
                slow.extend(load::load(to, frame, field, 0, next).map(|slow| (slow, next)));
                frame.store_kept(to, place, A);
                to.place(next);
            }
            to.place(behind);
        }
        if slow.is_empty() {
            return;
        }
        let done = to.label();
        to.go(done);
        for (slow, reject) in slow {
            load::load_slowly(to, frame, slow, reject);
        }
        to.place(done);
    }
}
