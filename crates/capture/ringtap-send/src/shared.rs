// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the sending thread tells the others.
#![forbid(unsafe_code)]

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{SendCounters, Way, totals::Totals};

/// Counters at one moment, and whether they are final.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    counters: SendCounters,
    ended: bool,
}

impl Shared {
    pub(super) fn publish(&self, totals: Totals, way: Way, elapsed_ns: u64) {
        self.lock().counters = SendCounters {
            sent: totals.sent,
            refused: totals.refused,
            bytes: totals.bytes,
            elapsed_ns,
            way,
            refusal_errno: totals.refusal,
        };
    }

    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    pub(super) fn counters(&self) -> SendCounters {
        self.lock().counters
    }

    /// Waits for the end, at most so long; tells whether it has come.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let running = |state: &mut State| !state.ended;
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, running);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
