// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the thread of a bridge in user space tells, and how it is stopped.
#![forbid(unsafe_code)]

use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Release},
};

use ringtap_ipc::event::Event;
use ringtap_pool::wake::Signal as _;

/// What became of packets that arrived at one side.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// The other interface took them.
    pub(super) sent: AtomicU64,
    pub(super) filtered: AtomicU64,
    /// No room to send, or refused by the other interface.
    pub(super) full: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Without a verdict: passed, and dropped.
    pub(super) unjudged_passed: AtomicU64,
    pub(super) unjudged_dropped: AtomicU64,
}

/// How the judge does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum JudgeState {
    /// There is none.
    #[default]
    Absent,
    /// Packets wait for its verdicts.
    Judging,
    /// It let packets wait for too long.
    Late,
}

/// One side's mirror.
#[derive(Debug, Default)]
struct Mirror {
    /// Nothing more is to be noted there.
    closing: AtomicBool,
    /// Nothing more is noted there.
    closed: AtomicBool,
}

/// What the thread and its owner share.
pub(super) struct Shared {
    pub(super) ways: [Way; 2],
    /// Ends the thread's sleep.
    pub(super) wake: Event,
    stopping: AtomicBool,
    mirrors: [Mirror; 2],
    /// A [`JudgeState`], and how often it was late.
    pub(super) judge: AtomicU32,
    pub(super) judge_lates: AtomicU64,
}

impl Shared {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Shared {
            ways: [Way::default(), Way::default()],
            wake: Event::new()?,
            stopping: AtomicBool::new(false),
            mirrors: [Mirror::default(), Mirror::default()],
            judge: AtomicU32::new(JudgeState::Absent as u32),
            judge_lates: AtomicU64::new(0),
        })
    }

    pub(super) fn judge(&self) -> JudgeState {
        let states = [JudgeState::Absent, JudgeState::Judging, JudgeState::Late];
        let now = self.judge.load(Acquire);
        let is_it = |state: &JudgeState| *state as u32 == now;
        states.into_iter().find(is_it).unwrap_or_default()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Release);
        self.wake.signal();
    }

    /// Asks that nothing more be noted in a side's mirror.
    pub(super) fn close_mirror(&self, side: usize) {
        self.mirrors[side & 1].closing.store(true, Release);
        self.wake.signal();
    }

    pub(super) fn is_mirror_closing(&self, side: usize) -> bool {
        self.mirrors[side & 1].closing.load(Acquire)
    }

    /// Tells that nothing more is noted in a side's mirror.
    pub(super) fn mirror_is_closed(&self, side: usize) {
        self.mirrors[side & 1].closed.store(true, Release);
    }

    pub(super) fn is_mirror_closed(&self, side: usize) -> bool {
        self.mirrors[side & 1].closed.load(Acquire)
    }
}
