// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ringtap's core: format, chunks, queues, delivery and counters. No I/O, no system calls.
//!
//! A *source* writes packets into chunks of a pool through [`writer::LaneWriter`] or an eBPF program.
//! A [`distributor::Distributor`] moves chunk ownership, and every [`reader::Reader`] reads the
//! packets in place. `docs/internals/format.md` specifies the memory layout.
//!
//! Under `--cfg loom` only what loom can model is compiled: queues, publishing and wake-ups.

pub mod congestion;
pub mod counters;
pub mod format;
pub mod ids;
pub mod memory;
pub mod number;
pub mod publish;
pub mod queue;
mod sync;
pub mod wake;

#[cfg(all(not(loom), feature = "conformance"))]
pub mod conformance;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
pub mod distributor;
#[cfg(not(loom))]
mod gap;
#[cfg(not(loom))]
pub mod passed;
#[cfg(not(loom))]
mod policy;
#[cfg(not(loom))]
pub mod private;
#[cfg(not(loom))]
pub mod reader;
#[cfg(not(loom))]
pub mod source;
#[cfg(not(loom))]
pub mod view;
#[cfg(not(loom))]
pub mod writer;

pub use sync::{AtomicU32, AtomicU64};
