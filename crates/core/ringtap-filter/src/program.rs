// SPDX-License-Identifier: MIT OR Apache-2.0
//! A checked classic BPF program, and the safe interpreter that runs it.
//!
//! Invariants
//! - A `Program` ends for every packet and never panics: jumps land inside, its last instruction
//!   returns, scratch words exist, and jumps back are bounded.
//! - Verdicts are those of libpcap's interpreter for a program that libpcap's compiler can make.

mod both;
pub(crate) mod code;
mod machine;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use machine::jump;

/// One classic BPF instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Instruction {
    /// Class, size, mode or operation.
    pub code: u16,
    /// Instructions to skip when the condition holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not.
    pub jump_false: u8,
    /// The constant, offset or scratch word.
    pub k: u32,
}

/// Words of scratch memory that a program has.
pub const SCRATCH_WORDS: usize = 16;
/// Most jumps back before a packet is rejected: more headers than an IPv6 packet has room for, as
/// each has eight bytes at least.
pub const MAX_ROUNDS: u32 = 10_000;

/// Why instructions are no program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// An instruction that does not exist, jumps out, or cannot be run.
    #[error("instruction {at} (code {code:#06x}, k {k:#010x}) is not valid classic BPF")]
    Instruction {
        /// Its number, from 0.
        at: usize,
        /// Its code.
        code: u16,
        /// Its constant.
        k: u32,
    },
    /// A load of what only the kernel knows (`SKF_AD_*`), not of the packet.
    #[error("instruction {at} asks the kernel ({k:#010x}), not the packet")]
    Kernel {
        /// Its number, from 0.
        at: usize,
        /// What it asks for.
        k: u32,
    },
    /// The last instruction does not return, or there is none.
    #[error("a classic BPF program must end with a return")]
    NoEnd,
}

/// A checked program; copies share the instructions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program(Arc<[Instruction]>);

impl Program {
    /// Checks a program as libpcap's compiler makes it.
    ///
    /// # Errors
    ///
    /// What is not valid classic BPF, ancillary loads of the kernel (`SKF_AD_*`) included, since
    /// no one but the kernel can answer them.
    pub fn new(instructions: &[Instruction]) -> Result<Self, ProgramError> {
        machine::check(instructions)?;
        Ok(Self(instructions.into()))
    }

    /// The program that takes every packet.
    #[must_use]
    pub fn everything() -> Self {
        let take = Instruction {
            code: code::RETURN_CONSTANT,
            jump_true: 0,
            jump_false: 0,
            k: u32::MAX,
        };
        Self(Arc::new([take]))
    }

    /// Checks a program of one entry an instruction: code, jump_true, jump_false and k from the
    /// lowest byte up in little-endian order. No entries take everything.
    ///
    /// # Errors
    ///
    /// As for [`Program::new`].
    pub fn from_entries(entries: &[u64]) -> Result<Self, ProgramError> {
        if entries.is_empty() {
            return Ok(Self::everything());
        }
        let instructions: Vec<_> = entries.iter().copied().map(Instruction::from).collect();
        Self::new(&instructions)
    }

    /// The program as entries, as [`Program::from_entries`] takes them; none for one that takes
    /// everything.
    #[must_use]
    pub fn to_entries(&self) -> Vec<u64> {
        if self.takes_everything() {
            return Vec::new();
        }
        self.0.iter().copied().map(u64::from).collect()
    }

    /// The instructions.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// Whether it takes a packet of which `data` was captured and that was `wire_length` bytes
    /// long on the wire.
    #[inline]
    #[must_use]
    pub fn matches(&self, data: &[u8], wire_length: u32) -> bool {
        self.run(data, wire_length) != 0
    }

    /// What the program returns for a packet: how many bytes to keep, 0 for "not this one".
    #[inline]
    #[must_use]
    pub fn run(&self, data: &[u8], wire_length: u32) -> u32 {
        machine::run(&self.0, data, wire_length)
    }

    /// Whether it takes every packet, so that nobody needs to ask it.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        matches!(*self.0, [only] if only.code == code::RETURN_CONSTANT && only.k != 0)
    }
}

impl From<u64> for Instruction {
    fn from(entry: u64) -> Self {
        let [c0, c1, jump_true, jump_false, k @ ..] = entry.to_le_bytes();
        Self {
            code: u16::from_le_bytes([c0, c1]),
            jump_true,
            jump_false,
            k: u32::from_le_bytes(k),
        }
    }
}

impl From<Instruction> for u64 {
    fn from(instruction: Instruction) -> Self {
        let [c0, c1] = instruction.code.to_le_bytes();
        let [k0, k1, k2, k3] = instruction.k.to_le_bytes();
        let (jump_true, jump_false) = (instruction.jump_true, instruction.jump_false);
        Self::from_le_bytes([c0, c1, jump_true, jump_false, k0, k1, k2, k3])
    }
}
