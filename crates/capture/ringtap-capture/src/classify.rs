// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules in user space: handed over to the thread that captures, without loss or waiting.
//!
//! The thread takes the rules at the beginning of a *batch* of packets, and ends the batch when
//! they are published. Whoever changes the rules waits until no batch is under the old ones.
//!
//! Invariants
//! - All packets of a batch are judged by the same rules.
//! - When `Rulebook::set` has returned, no packet is published that the old rules judged.
//! - A batch never waits for anything, so `set` returns soon.
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

/// The rules in force, shared with the thread that captures.
#[derive(Debug, Default)]
pub(crate) struct Rulebook {
    /// `None` until rules are given.
    rules: Mutex<Option<Arc<Classifier>>>,
    /// How often the rules were changed.
    edition: AtomicU64,
    /// Odd while a batch is under way.
    batches: AtomicU64,
    unwanted: AtomicU64,
}

/// The capturing thread's side of a [`Rulebook`].
#[derive(Debug)]
pub(crate) struct Judge {
    book: Arc<Rulebook>,
    rules: Option<Arc<Classifier>>,
    edition: u64,
    turns: Turns,
    /// What [`Rulebook::unwanted`] will be after this batch.
    unwanted: u64,
    /// A batch has begun.
    is_busy: bool,
}

impl Rulebook {
    /// Packets that no rule wanted.
    pub(crate) fn unwanted(&self) -> u64 {
        self.unwanted.load(Relaxed)
    }

    /// Puts rules in force; gives where each one's filter runs.
    pub(crate) fn set(
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
        // With the order in `Judge::begin`: a batch either sees this edition, or is seen here.
        self.edition.fetch_add(1, SeqCst);
        let before = self.batches.load(SeqCst);
        while before % 2 == 1 && self.batches.load(SeqCst) == before {
            std::thread::sleep(NAP);
        }
        Ok(vec![Place::Source; rules.0.len()])
    }
}

impl Judge {
    pub(crate) fn new(book: Arc<Rulebook>) -> Self {
        Self {
            book,
            rules: None,
            edition: 0,
            turns: Turns::default(),
            unwanted: 0,
            is_busy: false,
        }
    }

    /// Begins a batch, unless one is under way.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.is_busy {
            return;
        }
        self.is_busy = true;
        self.book.batches.fetch_add(1, SeqCst);
        let edition = self.book.edition.load(SeqCst);
        if edition != self.edition {
            let rules = self.book.rules.lock();
            self.rules
                .clone_from(&rules.unwrap_or_else(PoisonError::into_inner));
            self.edition = edition;
        }
    }

    /// Changes when the rules have changed since the batch before.
    pub(crate) fn edition(&self) -> u64 {
        self.edition
    }

    /// Whether there are rules to judge by.
    #[inline]
    pub(crate) fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// Who wants a packet of which `data` will be captured; `None`, and counted, if nobody does.
    #[inline]
    pub(crate) fn judge(&mut self, data: &[u8], wire_length: u32) -> Option<Verdict> {
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

    /// Packets that this judge let nobody have.
    pub(crate) fn unwanted(&self) -> u64 {
        self.unwanted
    }

    /// Ends a batch, all of whose packets are published.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.is_busy {
            self.is_busy = false;
            self.book.unwanted.store(self.unwanted, Relaxed);
            self.book.batches.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
