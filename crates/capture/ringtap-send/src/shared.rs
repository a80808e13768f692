// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that the sending thread shares with the caller.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use ringtap_ipc::mutex::lock;

use super::counters::SendCounters;

/// Counters and notes of a run; a flag that asks for its end.
#[derive(Debug, Default)]
pub(super) struct SharedRun {
    pub(super) stop: Arc<AtomicBool>,
    state: Mutex<RunState>,
}

#[derive(Debug, Default)]
struct RunState {
    counters: SendCounters,
    notes: Vec<String>,
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

    fn lock(&self) -> MutexGuard<'_, RunState> {
        lock(&self.state)
    }
}
