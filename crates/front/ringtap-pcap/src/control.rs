// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a handle's reads that other threads, signal handlers and `border.c` use.
//!
//! Invariants
//! - [`ReadControl::break_loop`] takes no lock, allocates nothing and does not change `errno`. It never writes
//!   to a closed descriptor.

use std::sync::atomic::{AtomicBool, Ordering::*};

use crate::shared::{SharedState, this_thread};
use crate::wakeup::Wakeup;

/// Window, break request and wake-up of a handle's reads.
#[repr(C)]
pub(crate) struct ReadControl {
    pub(crate) shared: SharedState,
    /// The program called `pcap_breakloop`.
    breaking: AtomicBool,
    pub(crate) wakeup: Wakeup,
}

impl ReadControl {
    pub(crate) fn new() -> Self {
        ReadControl {
            shared: SharedState::new(),
            breaking: AtomicBool::new(false),
            wakeup: Wakeup::new(),
        }
    }

    /// Whether a read must end: its loop is broken or the handle is closed. Clears the request.
    pub(crate) fn take_break(&self) -> bool {
        self.shared.window.clear_interrupt();
        let breaks = self.breaking.load(Relaxed) && self.breaking.swap(false, AcqRel);
        if breaks {
            self.wakeup.clear();
        }
        breaks || self.shared.closed.load(SeqCst) != 0
    }

    /// Ends the reads of the handle: those in progress, else the next one.
    pub(crate) fn break_loop(&self) {
        self.breaking.store(true, Release);
        self.shared.window.interrupt();
        // A woken reader finds the flag set.
        self.wakeup.signal();
    }

    /// Whether a call of another thread reads from the handle.
    pub(crate) fn is_read_by_another(&self) -> bool {
        ![0, this_thread()].contains(&self.shared.thread.load(SeqCst))
    }

    /// Forgets the handle before. A call that still uses that one finds another serial.
    pub(crate) fn begin_anew(&self) {
        self.shared.serial.fetch_add(1, SeqCst);
        self.breaking.store(false, Relaxed);
        for place in [&self.shared.frame, &self.shared.thread] {
            place.store(0, SeqCst);
        }
        self.shared.closed.store(0, SeqCst);
    }
}
