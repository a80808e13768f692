// SPDX-License-Identifier: MIT OR Apache-2.0
//! A checked classic BPF program, and the safe interpreter that runs it.
//!
//! Invariants
//! - A `Program` ends for every packet and never panics: jumps land inside the program, the last
//!   instruction returns, and scratch words exist.
//! - Only a loop of the shape that libpcap compiles for `protochain` jumps back, at most
//!   [`MAX_ROUNDS`] times. A program without one has a known largest number of steps.
//! - Verdicts equal those of libpcap's interpreter for programs from libpcap's compiler.

mod any;
mod both;
pub(crate) mod code;
mod machine;
#[cfg(test)]
mod tests;
mod time;
mod work;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use machine::{is_outside, jump, targets};
pub use time::{FilterTime, PACKET_NS};

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

impl Instruction {
    /// An instruction; both jumps are 0 unless it is a conditional jump.
    #[must_use]
    pub const fn new(code: u16, jump_true: u8, jump_false: u8, k: u32) -> Self {
        Instruction {
            code,
            jump_true,
            jump_false,
            k,
        }
    }
}

/// Number of scratch memory words.
pub const SCRATCH_WORDS: usize = 16;
/// Number of backward jumps after which a packet is rejected: more than the headers (of at least
/// eight bytes) that fit into an IPv6 packet.
pub const MAX_ROUNDS: u32 = 10_000;

/// Most instructions of a program in a message or behind a join; the kernel has the same limit.
pub const MAX_INSTRUCTIONS: usize = 4096;

/// Why instructions are not a valid program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum ProgramError {
    /// An unknown instruction, a jump outside the program, or an invalid operand.
    #[error("instruction {at} (code {code:#06x}, k {k:#010x}) is not valid classic BPF")]
    Instruction { at: usize, code: u16, k: u32 },
    /// A load of kernel metadata (`SKF_AD_*`), which is not in the packet.
    #[error("instruction {at} loads data of the kernel ({k:#010x}), not of the packet")]
    Kernel { at: usize, k: u32 },
    /// A backward jump outside the loop that libpcap compiles for `protochain`.
    #[error("instruction {at} jumps back: only the loops that libpcap compiles for protochain may")]
    Loop { at: usize },
    /// The program is empty, or its last instruction does not return.
    #[error("a classic BPF program must end with a return")]
    NoEnd,
}

/// The list of a message is not a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum EntriesError {
    /// More instructions than a message may have.
    #[error("a filter of {count} instructions: at most {MAX_INSTRUCTIONS} are possible")]
    TooMany { count: usize },
    /// The instructions are not valid.
    #[error("invalid filter: {0}")]
    Invalid(#[from] ProgramError),
}

/// A checked program; copies share the instructions. In messages it is the list of its
/// [entries](Program::to_entries).
///
/// # Examples
///
/// ```
/// use ringtap_filter::{Instruction, Program};
///
/// // `tcpdump -ddd arp`: load the ethertype, compare, keep all bytes or none.
/// let arp = Program::new(&[
///     Instruction::new(0x28, 0, 0, 12),
///     Instruction::new(0x15, 0, 1, 0x0806),
///     Instruction::new(0x06, 0, 0, 262_144),
///     Instruction::new(0x06, 0, 0, 0),
/// ])?;
/// let mut packet = [0; 60];
/// packet[12..14].copy_from_slice(&[0x08, 0x06]);
/// assert!(arp.matches(&packet, 60));
/// # Ok::<(), ringtap_filter::ProgramError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Program {
    instructions: Arc<[Instruction]>,
    longest_time: Option<FilterTime>,
}

impl Program {
    /// Checks a program from libpcap's compiler.
    ///
    /// # Errors
    ///
    /// Invalid classic BPF, including loads of kernel metadata (`SKF_AD_*`) and loops other than
    /// those of `protochain`.
    pub fn new(instructions: &[Instruction]) -> Result<Self, ProgramError> {
        machine::check(instructions)?;
        Ok(Self {
            longest_time: work::longest_time(instructions)?,
            instructions: instructions.into(),
        })
    }

    /// The program that matches every packet.
    #[must_use]
    pub fn everything() -> Self {
        Self::returning(u32::MAX)
    }

    /// The program that matches no packet.
    #[must_use]
    pub fn nothing() -> Self {
        Self::returning(0)
    }

    fn returning(bytes: u32) -> Self {
        let only = Instruction::new(code::RETURN_CONSTANT, 0, 0, bytes);
        Self {
            instructions: Arc::new([only]),
            longest_time: Some(time::of(&only).with_rule()),
        }
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
        self.instructions.iter().copied().map(u64::from).collect()
    }

    /// The instructions.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
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
        machine::run(&self.instructions, data, wire_length)
    }

    /// Estimate of the longest time that the program, with its rule, takes for a packet; `None` if the
    /// packet decides how often a loop runs (`protochain`).
    #[must_use]
    pub fn longest_time(&self) -> Option<FilterTime> {
        self.longest_time
    }

    /// Whether the packet decides how long the program runs.
    #[must_use]
    pub fn loops(&self) -> bool {
        self.longest_time.is_none()
    }

    /// Whether the program matches every packet, so that running it is unnecessary.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        matches!(*self.instructions, [only] if only.code == code::RETURN_CONSTANT && only.k != 0)
    }
}

impl TryFrom<Vec<u64>> for Program {
    type Error = EntriesError;

    fn try_from(entries: Vec<u64>) -> Result<Self, EntriesError> {
        let count = entries.len();
        if count > MAX_INSTRUCTIONS {
            return Err(EntriesError::TooMany { count });
        }
        Ok(Program::from_entries(&entries)?)
    }
}

impl From<Program> for Vec<u64> {
    fn from(program: Program) -> Self {
        program.to_entries()
    }
}

impl From<u64> for Instruction {
    fn from(entry: u64) -> Self {
        let [c0, c1, jump_true, jump_false, k @ ..] = entry.to_le_bytes();
        let (code, k) = (u16::from_le_bytes([c0, c1]), u32::from_le_bytes(k));
        Self::new(code, jump_true, jump_false, k)
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
