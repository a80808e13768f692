// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the thread of a bridge in user space shares with its owner.
#![forbid(unsafe_code)]

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use ringtap_ipc::event::Event;
use ringtap_pool::wake::Signal as _;

/// Counts what became of the packets that arrived at one side.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// The other interface took them.
    pub(super) sent: AtomicU64,
    pub(super) filtered: AtomicU64,
    /// No room to send, or refused by the other interface.
    pub(super) full: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Packets that passed without a verdict, and that were dropped without one.
    pub(super) no_verdict_passed: AtomicU64,
    pub(super) no_verdict_dropped: AtomicU64,
}

/// What the inline reader does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum InlineState {
    /// It is not connected.
    #[default]
    Absent,
    /// Packets wait for its verdicts.
    Deciding,
    /// It let a packet wait past the timeout.
    Late,
}

/// What the inline reader of a bridge does, and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineReport {
    /// What it does now.
    pub state: InlineState,
    /// How often it was late.
    pub late_count: u64,
    /// Packets that passed without a verdict, by the side where they arrived.
    pub passed: [u64; 2],
}

/// One side's mirror.
#[derive(Debug, Default)]
struct MirrorState {
    /// The thread shall write nothing more there.
    closing: AtomicBool,
    /// The thread writes nothing more there.
    closed: AtomicBool,
}

/// What the thread and its owner share.
pub(super) struct Shared {
    pub(super) ways: [Way; 2],
    /// Ends the thread's sleep.
    pub(super) wake: Event,
    stopping: AtomicBool,
    mirrors: [MirrorState; 2],
    /// An [`InlineState`].
    pub(super) inline_state: AtomicU32,
    /// How often the inline reader was late.
    pub(super) late_count: AtomicU64,
}

impl Shared {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Shared {
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

    /// Makes the thread close a side's mirror.
    pub(super) fn close_mirror(&self, side: usize) {
        self.mirrors[side & 1].closing.store(true, Release);
        self.wake.signal();
    }

    pub(super) fn is_mirror_closing(&self, side: usize) -> bool {
        self.mirrors[side & 1].closing.load(Acquire)
    }

    /// The thread has closed a side's mirror.
    pub(super) fn mirror_is_closed(&self, side: usize) {
        self.mirrors[side & 1].closed.store(true, Release);
    }

    pub(super) fn is_mirror_closed(&self, side: usize) -> bool {
        self.mirrors[side & 1].closed.load(Acquire)
    }
}
