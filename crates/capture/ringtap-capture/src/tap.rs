// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tap: an eBPF program that writes each packet once into a pool that no process can write.
//!
//! Invariants
//! - Programs are attached by links only: the kernel detaches them when the process ends.
//! - No process can write the pool, not even this one: its map is frozen.
//! - Every fall-back is a note in [`Facts::notes`](ringtap_pool::source::Facts).

mod attach;
mod attachment;
mod forward;
mod groups;
mod layout;
mod object;
mod options;
mod plan;
mod programs;
mod rules;
mod source;

use std::os::fd::OwnedFd;

use libbpf_rs::RingBuffer;
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::memory::Words;
use ringtap_pool::source::Facts;
use ringtap_pool::view::Pool;

pub(crate) use attach::online_cpus;
pub use forward::{Checksums, Forward, Forwarded, ForwardedCounts, Passing};
use layout::LaneWords;
use object::Loaded;
pub use options::{DEFAULT_CHUNK_SIZE, DEFAULT_POOL_BYTES, Taking, TapOptions};
use programs::Links;
use rules::TapRules;
pub(crate) use source::open_device;

use crate::CaptureError;
use crate::monitor::InterfaceMonitor;
use attachment::UnseenPackets;

pub use ringtap_device::{Direction, Mode};

/// A tap on one interface; a [`Source`](ringtap_pool::source::Source).
pub struct Tap {
    /// Stopped first: it attaches programs.
    monitor: InterfaceMonitor,
    links: Links,
    /// Present until [`Source`](ringtap_pool::source::Source) hands it to another thread.
    rules: Option<TapRules>,
    missed: UnseenPackets,
    facts: Facts,
    pool: Pool,
    /// Present until the distributor takes them.
    ends: Vec<LaneEnds>,
    lanes: Words<LaneWords>,
    signals: RingBuffer<'static>,
    /// Readable on signals of the lanes and of the monitor.
    events: OwnedFd,
    /// Set when capture has ended; holds the reason until it is reported.
    ended: Option<Option<CaptureError>>,
    loaded: Loaded,
}
