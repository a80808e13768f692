// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words by which readers show what they do: returned chunks, announced sleeps, the wish for a horizon.
//!
//! Up to [`FEW`] readers are looked at each time. Of more, only those that did something lately are, and
//! of the others a part in turn; all of them when the driver is about to sleep, and after a sleep.
//!
//! Invariants
//! - Before the driver sleeps, all readers were looked at after it raised its flags.
//! - What a reader did is found after at most [`TURNS`] steps.

use super::reader_set::ReaderSet;
use crate::control::ReaderWords;
use crate::memory::Words;
use crate::sync::Ordering::{Acquire, Relaxed};

/// Number of readers up to which each step looks at all.
const FEW: usize = 32;
/// Number of steps in which each reader is looked at.
const TURNS: u32 = 16;
/// Number of steps without a sign after which a reader is looked at only in turn.
const QUIET: u64 = 1024;

struct Sign {
    words: Words<ReaderWords>,
    /// Index of the next returned chunk.
    next_return: u32,
    /// The number of sleeps when it was last looked at, and when the reader was last awake.
    sleeps: u32,
    slept: u32,
}

/// What the readers showed when they were last looked at.
#[derive(Default)]
pub(super) struct Signs {
    all: Vec<Option<Sign>>,
    present: ReaderSet,
    /// Readers that did something lately, and those that did since this set was last renewed.
    lively: ReaderSet,
    seen: ReaderSet,
    /// Readers with returned chunks.
    pub(super) returning: ReaderSet,
    /// Readers that announced a sleep.
    pub(super) asleep: ReaderSet,
    /// Readers that merge lanes by time.
    merging: ReaderSet,
    /// Sleepers that may have packets left to take.
    pub(super) unsure: ReaderSet,
    steps: u64,
    /// The driver was about to sleep, and no chunk has moved since.
    is_alert: bool,
    /// All readers were looked at since the last step, and since the last check for sleepers.
    is_fresh: [bool; 2],
    /// Number of readers that were looked at since the start.
    #[cfg(test)]
    pub(super) looks: u64,
}

/// Why the readers are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// For returned chunks.
    Step = 0,
    /// For sleepers.
    Wake = 1,
}

impl Signs {
    pub(super) fn add(&mut self, reader: usize, words: Words<ReaderWords>, next_return: u32) {
        while self.all.len() <= reader {
            self.all.push(None);
        }
        self.all[reader] = Some(Sign {
            words,
            next_return,
            sleeps: 0,
            slept: 0,
        });
        for set in [&mut self.present, &mut self.lively, &mut self.seen] {
            set.add(reader);
        }
        self.unsure.add(reader);
    }

    pub(super) fn remove(&mut self, reader: usize) {
        self.all[reader] = None;
        let sets = [&mut self.present, &mut self.lively, &mut self.seen];
        let others = [&mut self.returning, &mut self.asleep, &mut self.merging];
        for set in sets.into_iter().chain(others).chain([&mut self.unsure]) {
            set.remove(reader);
        }
    }

    /// Stores the index of a reader's next returned chunk.
    pub(super) fn has_returned(&mut self, reader: usize, next_return: u32) {
        if let Some(sign) = &mut self.all[reader] {
            sign.next_return = next_return;
        }
    }

    /// Looks at the readers that this step concerns.
    pub(super) fn look(&mut self, purpose: Look) {
        let is_few = self.present.len() <= FEW;
        let is_fresh = std::mem::take(&mut self.is_fresh[purpose as usize]);
        if is_few || self.is_alert && !is_fresh {
            self.look_at(self.present);
            self.is_fresh = [true; 2];
            self.is_fresh[purpose as usize] = false;
        } else {
            self.look_at(self.scope());
        }
    }

    /// Looks at all readers because the driver is about to sleep; the next step and the next check for
    /// sleepers need not.
    pub(super) fn look_before_sleep(&mut self) {
        self.is_alert = true;
        self.look_at(self.present);
        self.is_fresh = [true; 2];
    }

    /// Readers that did something lately, and a part of the others.
    fn scope(&self) -> ReaderSet {
        if self.present.len() <= FEW {
            return self.present;
        }
        let turn = u32::try_from(self.steps % u64::from(TURNS)).unwrap_or(0);
        let part = ReaderSet::every(TURNS, turn);
        self.present.and(self.lively.or(part))
    }

    fn look_at(&mut self, readers: ReaderSet) {
        for reader in readers.iter() {
            let Some(sign) = &mut self.all[reader] else {
                continue;
            };
            let words = &sign.words[0];
            let sleeps = words.sleeps.load(Relaxed);
            // Pairs with the release store in `Producer::push`.
            let returns = words.returns_tail.load(Acquire) != sign.next_return;
            let asleep = words.asleep.is_raised();
            if returns || sleeps != sign.sleeps {
                self.lively.add(reader);
                self.seen.add(reader);
            }
            if sleeps != sign.sleeps || asleep && !self.asleep.has(reader) {
                self.unsure.add(reader);
            }
            sign.sleeps = sleeps;
            self.returning.set(reader, returns);
            self.asleep.set(reader, asleep);
            self.merging.set(reader, words.merges.load(Relaxed) != 0);
        }
        #[cfg(test)]
        {
            self.looks += u64::try_from(readers.len()).unwrap_or(0);
        }
    }

    /// Notes that each sleeper may have news.
    pub(super) fn is_unsure_of_all(&mut self) {
        self.unsure = self.present;
    }

    /// Forgets what the readers did lately.
    #[cfg(test)]
    pub(super) fn all_are_quiet(&mut self) {
        (self.lively, self.seen) = Default::default();
    }

    /// Counts a step.
    pub(super) fn stepped(&mut self, moved: bool) {
        self.is_alert &= !moved;
        self.steps += 1;
        if self.steps.is_multiple_of(QUIET) {
            self.lively = std::mem::take(&mut self.seen);
        }
    }

    /// Whether a reader outside `deferred` sleeps, or slept since it was last seen awake by this call.
    pub(super) fn slept_lately(&mut self, deferred: ReaderSet) -> bool {
        let mut lately = false;
        for reader in self.present.iter() {
            let Some(sign) = &mut self.all[reader] else {
                continue;
            };
            let is_deferred = deferred.has(reader);
            lately |= sign.sleeps != sign.slept && !is_deferred;
            if is_deferred || !self.asleep.has(reader) {
                sign.slept = sign.sleeps;
            }
        }
        lately
    }

    /// Readers that merge lanes by time, and whose horizon the driver sets now.
    pub(super) fn merging(&self) -> ReaderSet {
        if self.present.len() > FEW {
            return self.merging.and(self.scope());
        }
        let mut merging = ReaderSet::default();
        for reader in self.present.iter() {
            let words = self.all[reader].as_ref().map(|sign| &sign.words[0]);
            let merges = words.is_some_and(|words| words.merges.load(Relaxed) != 0);
            merging.set(reader, merges);
        }
        merging
    }
}
