// SPDX-License-Identifier: MIT OR Apache-2.0
//! State shared by the thread of the inline reader's packets and its owner.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use ringtap_capture::tap::{DecidedFlow, InlineState};
use ringtap_ipc::event::Event;
use ringtap_pool::wake::Signal as _;

/// Counts the waiting packets that arrived at one side, by outcome.
#[derive(Debug, Default)]
pub(crate) struct OutcomeCounters {
    /// The other interface took the packet.
    pub(super) sent: AtomicU64,
    /// The other interface refused the packet.
    pub(super) refused: AtomicU64,
    /// The inline reader dropped the packet.
    pub(super) filtered: AtomicU64,
    /// Packets that passed, and packets that were dropped, without a verdict.
    pub(super) no_verdict_passed: AtomicU64,
    pub(super) no_verdict_dropped: AtomicU64,
}

/// Outcomes of waiting packets that arrived at one side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SideOutcomes {
    pub(crate) sent: u64,
    pub(crate) refused: u64,
    pub(crate) filtered: u64,
    pub(crate) no_verdict_passed: u64,
    pub(crate) no_verdict_dropped: u64,
}

impl SideOutcomes {
    /// Number of packets that wait no longer.
    pub(crate) fn settled(&self) -> u64 {
        self.sent + self.refused + self.filtered + self.no_verdict_dropped
    }
}

/// State and counters of the inline reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineReport {
    /// Current state.
    pub state: InlineState,
    /// How often it was late.
    pub late_count: u64,
    /// Packets that passed without a verdict, by the side of their arrival.
    pub passed: [u64; 2],
    /// Packets that the kernel forwarded by a verdict on their flow, by the side of their arrival.
    pub flow_passed: [u64; 2],
    /// Decided flows.
    pub flows: u64,
    /// Flows for which there was no room: each of their packets waits.
    pub flows_not_added: u64,
    /// Ended flows that were not taken in time.
    pub lost_ends: u64,
}

/// State shared by the thread and its owner.
pub(crate) struct InlineShared {
    pub(super) ways: [OutcomeCounters; 2],
    /// Wakes the thread.
    pub(super) wake: Event,
    stopping: AtomicBool,
    /// An [`InlineState`] as a number.
    pub(super) state: AtomicU32,
    pub(super) late_count: AtomicU64,
    pub(super) flows: AtomicU64,
    pub(super) flows_not_added: AtomicU64,
    pub(super) lost_ends: AtomicU64,
    /// Flows that have ended, until they are taken.
    pub(super) ended: Mutex<VecDeque<DecidedFlow>>,
}

impl InlineShared {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(InlineShared {
            ways: [OutcomeCounters::default(), OutcomeCounters::default()],
            wake: Event::new()?,
            stopping: AtomicBool::new(false),
            state: AtomicU32::new(InlineState::Absent as u32),
            late_count: AtomicU64::new(0),
            flows: AtomicU64::new(0),
            flows_not_added: AtomicU64::new(0),
            lost_ends: AtomicU64::new(0),
            ended: Mutex::default(),
        })
    }

    /// Without the counts of the programs in the kernel.
    pub(super) fn report(&self) -> InlineReport {
        let states = [
            InlineState::Absent,
            InlineState::Deciding,
            InlineState::Late,
        ];
        let now = self.state.load(Acquire);
        let is_it = |state: &InlineState| *state as u32 == now;
        InlineReport {
            state: states.into_iter().find(is_it).unwrap_or_default(),
            late_count: self.late_count.load(Relaxed),
            flows: self.flows.load(Relaxed),
            flows_not_added: self.flows_not_added.load(Relaxed),
            lost_ends: self.lost_ends.load(Relaxed),
            ..InlineReport::default()
        }
    }

    pub(super) fn counts(&self, from: usize) -> SideOutcomes {
        let way = &self.ways[from & 1];
        SideOutcomes {
            sent: way.sent.load(Acquire),
            refused: way.refused.load(Acquire),
            filtered: way.filtered.load(Acquire),
            no_verdict_passed: way.no_verdict_passed.load(Relaxed),
            no_verdict_dropped: way.no_verdict_dropped.load(Acquire),
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Release);
        self.wake.signal();
    }
}
