// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classification in user space: rules that change while a thread captures.
//!
//! The thread takes the rules at the beginning of a *batch* of packets, and ends the batch when
//! they are published. [`LaneRules::set`] waits until no batch uses the old rules.
//!
//! Invariants
//! - One set of rules classifies all packets of a batch.
//! - When `LaneRules::set` has returned, no packet is published that the old rules classified.
//! - A batch never waits, so `set` returns soon.
#![forbid(unsafe_code)]

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use ringtap_filter::{
    LinkType, Place, Rules,
    classifier::{Classifier, ClassifierError, Turns, Verdict},
};
use ringtap_pool::source::SourceError;

/// Why a source in user space refuses rules; the rules before stay in force.
#[derive(Debug, thiserror::Error)]
#[error("{device}: {reason}")]
pub struct ClassifyError {
    /// The device.
    pub device: String,
    /// What cannot be done.
    pub reason: ClassifierError,
}

/// How often `set` looks whether a batch has ended.
const NAP: Duration = Duration::from_micros(50);

/// The rules of a lane, shared with the thread that captures.
#[derive(Debug, Default)]
pub struct LaneRules {
    /// `None` until rules are given.
    rules: Mutex<Option<Arc<Classifier>>>,
    /// How often the rules were changed.
    edition: AtomicU64,
    /// Odd while a batch is under way.
    batches: AtomicU64,
    unwanted: AtomicU64,
}

/// The capturing thread's side of [`LaneRules`].
#[derive(Debug)]
pub struct LaneClassifier {
    shared: Arc<LaneRules>,
    rules: Option<Arc<Classifier>>,
    edition: u64,
    turns: Turns,
    /// What [`LaneRules::unwanted`] will be after this batch.
    unwanted: u64,
    /// A batch has begun.
    is_busy: bool,
}

impl LaneRules {
    /// Packets that no rule wanted.
    pub fn unwanted(&self) -> u64 {
        self.unwanted.load(Relaxed)
    }

    /// Puts rules in force; returns where the filter of each runs.
    pub fn set(
        &self,
        rules: &Rules,
        device: &str,
        link_type: LinkType,
    ) -> Result<Vec<Place>, SourceError> {
        let classifier = Classifier::new(rules, link_type).map_err(|reason| ClassifyError {
            device: device.to_owned(),
            reason,
        })?;
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(classifier));
        // With the order in `LaneClassifier::begin`: a batch either sees this edition, or is seen here.
        self.edition.fetch_add(1, SeqCst);
        let before = self.batches.load(SeqCst);
        while before % 2 == 1 && self.batches.load(SeqCst) == before {
            std::thread::sleep(NAP);
        }
        Ok(vec![Place::Source; rules.0.len()])
    }
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
            unwanted: 0,
            is_busy: false,
        }
    }

    /// Begins a batch, unless one is under way.
    #[inline]
    pub fn begin(&mut self) {
        if self.is_busy {
            return;
        }
        self.is_busy = true;
        self.shared.batches.fetch_add(1, SeqCst);
        let edition = self.shared.edition.load(SeqCst);
        if edition != self.edition {
            let rules = self.shared.rules.lock();
            self.rules
                .clone_from(&rules.unwrap_or_else(PoisonError::into_inner));
            self.edition = edition;
        }
    }

    /// Changes when the rules have changed since the batch before.
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// Whether the source has rules.
    #[inline]
    pub fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// The verdict on a packet of which `data` is captured; `None`, and counted, if no rule wants it.
    #[inline]
    pub fn classify(&mut self, data: &[u8], wire_length: u32) -> Option<Verdict> {
        let Some(rules) = &self.rules else {
            return Some(Verdict {
                mask: u64::MAX,
                hash: None,
            });
        };
        let verdict = rules.classify(data, wire_length, &mut self.turns);
        if verdict.mask == 0 {
            self.unwanted += 1;
            return None;
        }
        Some(verdict)
    }

    /// Packets that no rule wanted, as of now.
    pub fn unwanted(&self) -> u64 {
        self.unwanted
    }

    /// Ends a batch, all of whose packets are published.
    #[inline]
    pub fn end(&mut self) {
        if self.is_busy {
            self.is_busy = false;
            self.shared.unwanted.store(self.unwanted, Relaxed);
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
