// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet filters: classic BPF in; eBPF, a user-space classifier and the flow hash out.
//!
//! Pure: no input or output, no system calls, no unsafe code.
#![forbid(unsafe_code)]

pub mod classifier;
pub mod ebpf;
pub mod hash;
pub mod program;

pub use program::{Instruction, Program, ProgramError};
