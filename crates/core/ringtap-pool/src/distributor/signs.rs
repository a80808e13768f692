// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words by which readers show what they do: returned chunks, announced sleeps, merging by time.
//!
//! With up to [`FEW`] readers, each step looks at all of them. With more, it looks at those that did something in the
//! last [`QUIET`] steps or so; the others take turns, of [`TURNS`] steps, or of [`LONG_TURNS`] steps for those that did
//! nothing for [`LONG_QUIET`] steps. When the driver asks for it, all are looked at.
//!
//! Invariants
//! - A quiet reader sees the level `Chunk`, so it signals the driver when it falls asleep. The driver then
//!   calls [`Signs::look_at_all`].
//! - A reader that did nothing for some steps waits at most a sixteenth as many until its next sign is found; a new
//!   reader waits at most [`LONG_TURNS`] steps.

use super::reader_set::{MAX_READERS, ReaderSet};
use crate::control::{ControlRegion, HubWords, ReaderWords};
use crate::memory::Words;
use crate::number::to_usize;
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::wake::Level;

/// Number of readers up to which each step looks at all.
const FEW: usize = 32;
/// After this number of steps without a sign, the distributor checks a reader only in turn.
const QUIET: u64 = 1024;
/// Number of steps in which the distributor checks each quiet reader once.
const TURNS: u64 = QUIET / 16;
/// Number of steps without a sign after which a reader's turn comes less often.
const LONG_QUIET: u64 = QUIET * 16;
/// Number of steps in which the distributor checks each reader that was quiet for [`LONG_QUIET`]: one reader in a step.
const LONG_TURNS: u64 = LONG_QUIET / 16;

struct Sign {
    words: Words<ReaderWords>,
    told: Words<HubWords>,
    /// Index of the next returned chunk.
    next_return: u32,
    /// The number of sleeps when it was last looked at, and when the reader was last awake.
    sleeps: u32,
    slept: u32,
}

/// Readers that did something in the last `STEPS` to twice as many steps.
#[derive(Default)]
struct Lately<const STEPS: u64> {
    members: ReaderSet,
    /// Those that did since the members were last renewed.
    seen: ReaderSet,
}

impl<const STEPS: u64> Lately<STEPS> {
    fn add(&mut self, reader: usize) {
        self.members.add(reader);
        self.seen.add(reader);
    }

    fn remove(&mut self, reader: usize) {
        self.members.remove(reader);
        self.seen.remove(reader);
    }

    /// Renews the members, if it is time.
    fn stepped(&mut self, steps: u64) {
        if steps.is_multiple_of(STEPS) {
            self.members = std::mem::take(&mut self.seen);
        }
    }
}

/// Signs that the readers showed at the last check.
#[derive(Default)]
pub(super) struct Signs {
    all: Vec<Option<Sign>>,
    present: ReaderSet,
    lively: Lately<QUIET>,
    /// Those and the readers whose turn comes every [`TURNS`] steps.
    calm: Lately<LONG_QUIET>,
    /// Readers with returned chunks.
    pub(super) returning: ReaderSet,
    /// Readers that announced a sleep.
    pub(super) asleep: ReaderSet,
    /// Readers that merge lanes by time.
    merging: ReaderSet,
    /// Sleepers that may have packets left to take.
    pub(super) unsure: ReaderSet,
    /// Readers that see the level `Packet`; the others see `Chunk`.
    told: ReaderSet,
    steps: u64,
    /// Number of readers that were looked at since the start.
    #[cfg(test)]
    pub(super) looks: u64,
}

impl Signs {
    pub(super) fn add(&mut self, reader: usize, control: &ControlRegion, next_return: u32) {
        let hub = control.hub();
        hub.watching.store(Level::Chunk as u32, Relaxed);
        while self.all.len() <= reader {
            self.all.push(None);
        }
        self.all[reader] = Some(Sign {
            words: control.reader.clone(),
            told: control.hub.clone(),
            next_return,
            sleeps: 0,
            slept: 0,
        });
        self.present.add(reader);
        self.lively.add(reader);
        self.unsure.add(reader);
    }

    pub(super) fn remove(&mut self, reader: usize) {
        self.all[reader] = None;
        self.lively.remove(reader);
        self.calm.remove(reader);
        for set in [
            &mut self.present,
            &mut self.returning,
            &mut self.asleep,
            &mut self.merging,
            &mut self.unsure,
            &mut self.told,
        ] {
            set.remove(reader);
        }
    }

    /// Notes that the returned chunks of a reader were taken; `next_return`: index of the next one.
    pub(super) fn has_returned(&mut self, reader: usize, next_return: u32) {
        self.returning.remove(reader);
        if let Some(sign) = &mut self.all[reader] {
            sign.next_return = next_return;
        }
    }

    /// Looks at the readers that did something lately, and at a part of the others.
    pub(super) fn look(&mut self) {
        self.look_at(self.scope());
    }

    /// Looks at all readers.
    pub(super) fn look_at_all(&mut self) {
        self.look_at(self.present);
    }

    /// Stores the level that readers see. Returns those that see a lower level than before: look at them
    /// after a full fence.
    pub(super) fn watch(&mut self, level: Level) -> ReaderSet {
        let told = match (level, self.present.len() <= FEW) {
            (Level::Packet, true) => self.present,
            (Level::Packet, false) => self.present.and(self.lively.members),
            _ => ReaderSet::default(),
        };
        let before = std::mem::replace(&mut self.told, told);
        let lowered = before.without(told);
        for (readers, level) in [
            (told.without(before), Level::Packet),
            (lowered, Level::Chunk),
        ] {
            for reader in readers.iter() {
                if let Some(sign) = &self.all[reader] {
                    sign.told[0].watching.store(level as u32, Relaxed);
                }
            }
        }
        lowered
    }

    /// Readers that did something lately, and a part of the others.
    fn scope(&self) -> ReaderSet {
        if self.present.len() <= FEW {
            return self.present;
        }
        let part = self.calm.members.and(ReaderSet::every(TURNS, self.steps));
        let mut scope = self.lively.members.or(part);
        let turn = to_usize(self.steps % LONG_TURNS);
        if turn < MAX_READERS {
            scope.add(turn);
        }
        self.present.and(scope)
    }

    pub(super) fn look_at(&mut self, readers: ReaderSet) {
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
                self.calm.add(reader);
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
        self.lively = Lately::default();
    }

    /// Forgets what the readers did before that, too.
    #[cfg(test)]
    pub(super) fn all_are_quiet_for_long(&mut self) {
        self.all_are_quiet();
        self.calm = Lately::default();
    }

    /// Counts a step.
    pub(super) fn stepped(&mut self) {
        self.steps += 1;
        self.lively.stepped(self.steps);
        self.calm.stepped(self.steps);
    }

    /// Whether a reader outside `deferred` sleeps, or slept since it was last seen awake by this call.
    pub(super) fn slept_lately(&mut self, deferred: ReaderSet) -> bool {
        let mut lately = false;
        for reader in self.scope().iter() {
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
