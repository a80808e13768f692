// SPDX-License-Identifier: MIT OR Apache-2.0
//! A checked classic BPF program, and the safe interpreter that runs it.
//!
//! Invariants
//! - A `Program` ends for every packet and never panics: jumps land inside the program, the last
//!   instruction returns, scratch words exist, and backward jumps are limited.
//! - Verdicts equal those of libpcap's interpreter for programs from libpcap's compiler.

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
    /// Instructions to skip when the condition fails.
    pub jump_false: u8,
    /// The constant, offset or scratch word.
    pub k: u32,
}

/// Number of scratch memory words.
pub const SCRATCH_WORDS: usize = 16;
/// Number of backward jumps after which a packet is rejected: more than the headers (of at least
/// eight bytes) that fit into an IPv6 packet.
pub const MAX_ROUNDS: u32 = 10_000;

/// Why instructions are not a valid program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// An unknown instruction, a jump outside the program, or an invalid operand.
    #[error("instruction {at} (code {code:#06x}, k {k:#010x}) is not valid classic BPF")]
    Instruction {
        /// Number of the instruction, from 0.
        at: usize,
        /// Its code.
        code: u16,
        /// Its constant.
        k: u32,
    },
    /// A load of kernel metadata (`SKF_AD_*`), which is not in the packet.
    #[error("instruction {at} asks the kernel ({k:#010x}), not the packet")]
    Kernel {
        /// Number of the instruction, from 0.
        at: usize,
        /// Offset of the load.
        k: u32,
    },
    /// The program is empty, or its last instruction does not return.
    #[error("a classic BPF program must end with a return")]
    NoEnd,
}

/// A checked program; copies share the instructions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Program(Arc<[Instruction]>);

impl Program {
    /// Checks a program from libpcap's compiler.
    ///
    /// # Errors
    ///
    /// Invalid classic BPF, including loads of kernel metadata (`SKF_AD_*`).
    pub fn new(instructions: &[Instruction]) -> Result<Self, ProgramError> {
        machine::check(instructions)?;
        Ok(Self(instructions.into()))
    }

    /// The program that matches every packet.
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

    /// Checks a program with one entry per instruction: code, jump_true, jump_false and k, lowest byte
    /// first. An empty program matches every packet.
    ///
    /// # Errors
    ///
    /// Like [`Program::new`].
    pub fn from_entries(entries: &[u64]) -> Result<Self, ProgramError> {
        if entries.is_empty() {
            return Ok(Self::everything());
        }
        let instructions: Vec<_> = entries.iter().copied().map(Instruction::from).collect();
        Self::new(&instructions)
    }

    /// Entries for [`Program::from_entries`]; empty for a program that matches every packet.
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

    /// Whether the program matches a packet with captured bytes `data` that was `wire_length` bytes
    /// long on the wire.
    #[inline]
    #[must_use]
    pub fn matches(&self, data: &[u8], wire_length: u32) -> bool {
        self.run(data, wire_length) != 0
    }

    /// Runs the program on a packet; returns the number of bytes to keep, 0 for "no match".
    #[inline]
    #[must_use]
    pub fn run(&self, data: &[u8], wire_length: u32) -> u32 {
        machine::run(&self.0, data, wire_length)
    }

    /// Whether the program matches every packet, so that running it is unnecessary.
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
