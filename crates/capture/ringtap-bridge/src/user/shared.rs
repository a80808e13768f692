// SPDX-License-Identifier: MIT OR Apache-2.0
//! State shared by the thread of a user-space bridge and its owner.

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use ringtap_ipc::event::Event;
use ringtap_pool::wake::Signal as _;

/// Counts the packets that arrived at one side, by outcome.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// The other interface took the packet.
    pub(super) sent: AtomicU64,
    pub(super) filtered: AtomicU64,
    /// The transmit ring was full, or the other interface refused the packet.
    pub(super) full: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Packets that passed, and packets that were dropped, without a verdict.
    pub(super) no_verdict_passed: AtomicU64,
    pub(super) no_verdict_dropped: AtomicU64,
}

/// State of an inline reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum InlineState {
    /// It is not connected.
    #[default]
    Absent,
    /// Packets wait for the reader's verdicts.
    Deciding,
    /// A packet waited longer than the timeout.
    Late,
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
}

/// Progress in closing one side's mirror.
#[derive(Debug, Default)]
pub(super) struct MirrorState {
    /// Requests the thread to stop writing; [`BridgeState::close_mirror`] sets it.
    pub(super) closing: AtomicBool,
    /// The thread has stopped writing.
    pub(super) closed: AtomicBool,
}

/// State shared by the thread and its owner.
pub(super) struct BridgeState {
    pub(super) ways: [Way; 2],
    /// Wakes the thread.
    pub(super) wake: Event,
    stopping: AtomicBool,
    pub(super) mirrors: [MirrorState; 2],
    /// An [`InlineState`] as a number.
    pub(super) inline_state: AtomicU32,
    /// How often the inline reader was late.
    pub(super) late_count: AtomicU64,
}

impl BridgeState {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(BridgeState {
            ways: [Way::default(), Way::default()],
            wake: Event::new()?,
            stopping: AtomicBool::new(false),
            mirrors: [MirrorState::default(), MirrorState::default()],
            inline_state: AtomicU32::new(InlineState::Absent as u32),
            late_count: AtomicU64::new(0),
        })
    }

    pub(super) fn inline(&self) -> InlineReport {
        let states = [
            InlineState::Absent,
            InlineState::Deciding,
            InlineState::Late,
        ];
        let now = self.inline_state.load(Acquire);
        let is_it = |state: &InlineState| *state as u32 == now;
        let passed = |way: &Way| way.no_verdict_passed.load(Relaxed);
        InlineReport {
            state: states.into_iter().find(is_it).unwrap_or_default(),
            late_count: self.late_count.load(Relaxed),
            passed: [passed(&self.ways[0]), passed(&self.ways[1])],
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Release);
        self.wake.signal();
    }

    /// Requests the thread to close a side's mirror.
    pub(super) fn close_mirror(&self, side: usize) {
        self.mirrors[side & 1].closing.store(true, Release);
        self.wake.signal();
    }
}
