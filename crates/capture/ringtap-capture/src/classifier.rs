// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classification in user space: rules that change while a thread captures.
//!
//! The thread reads the rules at the start of a *batch* of packets, and ends the batch when they
//! are published. [`LaneRules::set`] waits until no batch uses the old rules.
//!
//! Invariants
//! - One set of rules classifies all packets of a batch.
//! - After `LaneRules::set` returns, no packet classified by the old rules is published.
//! - A batch never waits, and no filter loops, so `set` returns soon.
//! - A filter that loops passes every packet here; its reader runs it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use ringtap_filter::{
    LinkType, Place, Program, Rule, Rules,
    classifier::{Classification, Classifier, ClassifierError, Turns},
};
use ringtap_ipc::mutex::lock;
use ringtap_pool::source::SourceError;

/// Reason why a user-space source refuses rules; the old rules stay in force.
#[derive(Debug, thiserror::Error)]
#[error("{device}: {reason}")]
pub struct ClassifyError {
    /// The device.
    pub device: String,
    /// Why the classifier refuses the request.
    pub reason: ClassifierError,
}

/// Why a filter does not run in the source.
const LOOPS: &str =
    "the filter loops over headers (protochain): only a reader itself runs such a filter";
/// Interval at which `set` checks whether a batch has ended.
const PAUSE: Duration = Duration::from_micros(50);

/// The rules of a lane, shared with the capturing thread.
#[derive(Debug, Default)]
pub struct LaneRules {
    /// `None` until rules are given.
    rules: Mutex<Option<Arc<Classifier>>>,
    /// Number of changes of the rules.
    edition: AtomicU64,
    /// Odd during a batch.
    batches: AtomicU64,
    filtered: AtomicU64,
}

/// The capturing thread's side of [`LaneRules`].
#[derive(Debug)]
pub struct LaneClassifier {
    shared: Arc<LaneRules>,
    rules: Option<Arc<Classifier>>,
    edition: u64,
    turns: Turns,
    /// Value of [`LaneRules::filtered`] after this batch.
    filtered: u64,
    /// Whether a batch has begun.
    is_busy: bool,
}

impl LaneRules {
    /// Number of packets that no rule wanted.
    pub fn filtered(&self) -> u64 {
        self.filtered.load(Relaxed)
    }

    /// Sets the rules; returns where the filter of each rule runs.
    pub fn set(
        &self,
        rules: &Rules,
        device: &str,
        link_type: LinkType,
    ) -> Result<Vec<Place>, SourceError> {
        let (rules, places) = bounded(rules);
        let classifier = Classifier::new(&rules, link_type).map_err(|reason| ClassifyError {
            device: device.to_owned(),
            reason,
        })?;
        *lock(&self.rules) = Some(Arc::new(classifier));
        // Pairs with `LaneClassifier::begin`: a batch sees this edition, or the loop below sees the batch.
        self.edition.fetch_add(1, SeqCst);
        let before = self.batches.load(SeqCst);
        while before % 2 == 1 && self.batches.load(SeqCst) == before {
            std::thread::sleep(PAUSE);
        }
        Ok(places)
    }
}

/// The rules, with filters that match everything in place of those that loop, and where each filter
/// runs.
fn bounded(rules: &Rules) -> (Rules, Vec<Place>) {
    let mut rules = rules.clone();
    let place = |rule: &mut Rule| {
        if !rule.filter.loops() {
            return Place::Source;
        }
        rule.filter = Program::everything();
        Place::Reader(LOOPS.to_owned())
    };
    let places = rules.each.iter_mut().map(place).collect();
    (rules, places)
}

impl LaneClassifier {
    /// A classifier with these rules.
    #[must_use]
    pub fn new(shared: Arc<LaneRules>) -> Self {
        Self {
            shared,
            rules: None,
            edition: 0,
            turns: Turns::default(),
            filtered: 0,
            is_busy: false,
        }
    }

    /// Begins a batch unless one has begun.
    #[inline]
    pub fn begin(&mut self) {
        if self.is_busy {
            return;
        }
        self.is_busy = true;
        self.shared.batches.fetch_add(1, SeqCst);
        let edition = self.shared.edition.load(SeqCst);
        if edition != self.edition {
            self.rules.clone_from(&lock(&self.shared.rules));
            self.edition = edition;
        }
    }

    /// Number that changes when the rules have changed since the last batch.
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// Whether the source has rules.
    #[inline]
    pub fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// Classifies a packet with captured bytes `data`; counts it and returns `None` if no rule wants it.
    #[inline]
    pub fn classify(&mut self, data: &[u8], wire_length: u32) -> Option<Classification> {
        let Some(rules) = &self.rules else {
            return Some(Classification {
                mask: u64::MAX,
                hash: None,
            });
        };
        let verdict = rules.classify(data, wire_length, &mut self.turns);
        if verdict.mask == 0 {
            self.filtered += 1;
            return None;
        }
        Some(verdict)
    }

    /// Current number of packets that no rule wanted.
    pub fn filtered(&self) -> u64 {
        self.filtered
    }

    /// Ends a batch; all of its packets are published.
    #[inline]
    pub fn end(&mut self) {
        if self.is_busy {
            self.is_busy = false;
            self.shared.filtered.store(self.filtered, Relaxed);
            self.shared.batches.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for LaneClassifier {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
