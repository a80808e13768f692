// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the thread of a bridge in user space tells, and how it is stopped.
#![forbid(unsafe_code)]

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Release},
};

use ringtap_pool::wake::Signal as _;
use ringtap_shared::event::Event;

/// What became of packets that arrived at one side.
#[derive(Debug, Default)]
pub(super) struct Way {
    /// The other interface took them.
    pub(super) sent: AtomicU64,
    pub(super) filtered: AtomicU64,
    /// No room to send, or refused by the other interface.
    pub(super) full: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// What the thread and its owner share.
pub(super) struct Shared {
    pub(super) ways: [Way; 2],
    pub(super) stop: Event,
    stopping: AtomicBool,
}

impl Shared {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Shared {
            ways: [Way::default(), Way::default()],
            stop: Event::new()?,
            stopping: AtomicBool::new(false),
        })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Acquire)
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Release);
        self.stop.signal();
    }
}
