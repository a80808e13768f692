// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread that puts one source's rules in force, so that the hub's thread need not wait.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use ringtap_filter::{Place, Rules};
use ringtap_pool::source::{RuleLoader, SourceError};
use ringtap_pool::wake::Signal;

use crate::background;

/// Where each rule's filter runs, or why the rules are not in force.
pub(crate) type Outcome = Result<Vec<Place>, SourceError>;

/// The thread, which ends when this is dropped.
pub(crate) struct LoaderThread {
    rules: Option<Sender<Rules>>,
    outcomes: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
}

impl LoaderThread {
    /// Starts the thread, which signals `done` after each set of rules.
    ///
    /// # Errors
    ///
    /// The system's, when no thread can start.
    pub(crate) fn start(
        mut loader: Box<dyn RuleLoader>,
        done: Arc<dyn Signal>,
    ) -> io::Result<Self> {
        let (rules, inbox) = mpsc::channel::<Rules>();
        let (outbox, outcomes) = mpsc::channel();
        let thread = background::spawn("rules", move || {
            for rules in inbox {
                if outbox.send(loader.classify(&rules)).is_err() {
                    return;
                }
                done.signal();
            }
        })?;
        Ok(LoaderThread {
            rules: Some(rules),
            outcomes,
            thread: Some(thread),
        })
    }

    /// Queues a set of rules; each set has one outcome.
    pub(crate) fn load(&self, rules: &Rules) {
        // `outcome` reports a thread that has ended.
        let _gone = self.rules.as_ref().map(|to| to.send(rules.clone()));
    }

    /// Outcome of the oldest set of rules without one; `None` while the thread loads that set.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self.outcomes.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("its rules can no longer change".into())),
        }
    }
}

impl Drop for LoaderThread {
    fn drop(&mut self) {
        self.rules = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
