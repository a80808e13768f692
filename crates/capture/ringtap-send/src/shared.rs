// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that the sending thread shares with the caller.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use super::SendCounters;

/// Counters, notes and the end of a run; a flag that asks for the end.
#[derive(Debug, Default)]
pub(super) struct SharedRun {
    pub(super) stop: Arc<AtomicBool>,
    state: Mutex<RunState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct RunState {
    counters: SendCounters,
    notes: Vec<String>,
    is_over: bool,
}

impl SharedRun {
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    pub(super) fn publish(&self, counters: SendCounters) {
        self.lock().counters = counters;
    }

    pub(super) fn counters(&self) -> SendCounters {
        self.lock().counters
    }

    pub(super) fn say(&self, note: impl Into<String>) {
        self.lock().notes.push(note.into());
    }

    pub(super) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().notes)
    }

    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.ended.notify_all();
    }

    /// Waits for the end, at most `timeout`; returns whether the run has ended.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        let running = |state: &mut RunState| !state.is_over;
        let waited = self.ended.wait_timeout_while(self.lock(), timeout, running);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    fn lock(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
