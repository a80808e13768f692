// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tap: an eBPF program that writes each packet once into a pool that no process can write.
//!
//! Invariants
//! - Programs are attached by links only: the kernel detaches them when the process ends.
//! - No process can write the pool, not even this one: its map is frozen.
//! - Every fall-back is a note in [`Facts::notes`](ringtap_pool::source::Facts).

mod attach;
mod attachment;
mod flows;
mod forward;
mod groups;
mod layout;
mod marks;
mod object;
mod options;
mod plan;
mod programs;
mod rules;
mod source;
mod verdicts;
mod wildcards;

pub(crate) use attach::online_cpus;
pub use forward::{Checksums, Forward, Forwarded, ForwardedCounts, Passing};
pub use options::{DEFAULT_CHUNK_SIZE, DEFAULT_POOL_BYTES, Taking, TapOptions};
pub use source::Tap;
pub(crate) use source::open_device;
pub use verdicts::{
    DecidedDirection, DecidedFlow, DecidedFlows, FlowFate, InlineControl, InlineState,
};

pub use ringtap_device::{Direction, Mode};
