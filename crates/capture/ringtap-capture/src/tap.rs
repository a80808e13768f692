// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tap: an eBPF program that writes each packet once into a pool that no process can write.
//!
//! Invariants
//! - Programs are attached by links only: the kernel detaches them when the process ends.
//! - No process can write the pool, not even this one: its map is frozen.
//! - Every fall-back is a note in [`Facts::notes`](ringtap_pool::source::Facts).

mod attach;
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
use std::time::Instant;

use libbpf_rs::RingBuffer;
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::memory::Words;
use ringtap_pool::source::Facts;
use ringtap_pool::view::Pool;

pub use forward::{Checksums, Forward, Forwarded, ForwardedCounts, Passing};
use layout::LaneWords;
use object::Loaded;
pub use options::{DEFAULT_CHUNK_SIZE, DEFAULT_POOL_BYTES, Taking, TapOptions};
use programs::Links;
pub use rules::RulesError;
use rules::TapRules;

use crate::CaptureError;
use crate::nic::NicLosses;

pub use ringtap_device::{Direction, Mode};
use ringtap_net::interface::{Interface, Promiscuous, Watch};

/// A tap on one interface; a [`Source`](ringtap_pool::source::Source).
pub struct Tap {
    links: Links,
    /// Present until [`Source`](ringtap_pool::source::Source) hands it to another thread.
    rules: Option<TapRules>,
    /// Link of the program that forwards from the network stack's buffers.
    forward_link: Option<OwnedFd>,
    watched: Watched,
    facts: Facts,
    pool: Pool,
    /// Present until the distributor takes them.
    ends: Vec<LaneEnds>,
    lanes: Words<LaneWords>,
    signals: RingBuffer<'static>,
    /// Readable on signals of the lanes and on changes of the interface.
    events: OwnedFd,
    /// Set when capture has ended; holds the reason until it is reported.
    ended: Option<Option<CaptureError>>,
    clock_set: Instant,
    loaded: Loaded,
}

/// The interface, and the notifications about it.
struct Watched {
    interface: Interface,
    watch: Watch,
    nic: NicLosses,
    _promiscuous: Option<Promiscuous>,
}
