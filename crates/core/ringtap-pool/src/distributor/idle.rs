// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers that rest on a lane: they are past their credit, or other members of their share get its
//! chunks.
//!
//! The distributor handles a chunk only for the attentive readers of the lane. What resting readers
//! miss is counted per class, which is all readers that want the same packets: once for each class
//! and chunk. A reader keeps the class's totals from the moment at which it came to rest; the
//! difference to the totals now is what it missed since.
//!
//! Invariants
//! - On each lane, a reader that is not corrupt is either attentive or rests.
//! - A reader comes to rest when a chunk is sealed, and misses every chunk of the lane until it is
//!   attentive again.
//! - A reader that rests because of its credit is attentive again as soon as it may hold more: when it
//!   returned a chunk of the lane, got more credit or a guarantee, or its owner may take a shared chunk.

use super::Distributor;
use super::chunks::{Missed, Why};
use super::entry::{Missing, Policy};
use crate::ids::ChunkId;

/// Packets of sealed chunks, as the readers of one class see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// All packets.
    pub(super) sequences: u64,
    /// Packets that the readers want.
    pub(super) wanted: u64,
    /// Packets for other members of the readers' group.
    pub(super) other_members: u64,
}

impl Seen {
    fn add(&mut self, more: Seen) {
        self.sequences += more.sequences;
        self.wanted += more.wanted;
        self.other_members += more.other_members;
    }

    fn since(self, before: Seen) -> Seen {
        Seen {
            sequences: self.sequences - before.sequences,
            wanted: self.wanted - before.wanted,
            other_members: self.other_members - before.other_members,
        }
    }

    /// What a reader misses if it does not get these packets for this reason.
    pub(super) fn missing(self, why: Why) -> Missing {
        let Seen {
            sequences,
            wanted,
            other_members,
        } = self;
        match why {
            Why::Credit | Why::Burst => Missing {
                sequences,
                packets: wanted,
                in_bursts: if why == Why::Burst { wanted } else { 0 },
                other_members,
            },
            Why::Elsewhere => Missing {
                sequences,
                other_members: wanted + other_members,
                ..Missing::default()
            },
        }
    }
}

/// State of a reader that rests on a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest {
    class: usize,
    /// The class's totals when the reader came to rest.
    since: Seen,
    why: Why,
}

/// All readers with one mask and group.
struct RestClass {
    mask: u64,
    group: u64,
    lanes: Vec<ClassLane>,
}

/// A class on one lane.
#[derive(Clone, Default)]
struct ClassLane {
    /// Number of readers that rest.
    readers: u32,
    total: Seen,
}

/// The classes of resting readers; at most one for each kind of packets that readers want.
#[derive(Default)]
pub(super) struct RestClasses(Vec<RestClass>);

impl RestClasses {
    fn begin(&mut self, (lane, lanes): (usize, usize), mask: u64, group: u64, why: Why) -> Rest {
        let is_it = |one: &RestClass| (one.mask, one.group) == (mask, group);
        let is_unused = |one: &RestClass| one.lanes.iter().all(|lane| lane.readers == 0);
        let found = self.0.iter().position(is_it);
        let class = found.or_else(|| self.0.iter().position(is_unused));
        let class = class.unwrap_or(self.0.len());
        if class == self.0.len() {
            self.0.push(RestClass {
                mask,
                group,
                lanes: vec![ClassLane::default(); lanes],
            });
        }
        (self.0[class].mask, self.0[class].group) = (mask, group);
        let of_lane = &mut self.0[class].lanes[lane];
        of_lane.readers += 1;
        Rest {
            class,
            since: of_lane.total,
            why,
        }
    }

    fn end(&mut self, lane: usize, rest: &Rest) -> Missing {
        let missing = self.missing(lane, rest);
        self.0[rest.class].lanes[lane].readers -= 1;
        missing
    }

    /// What a reader missed since it came to rest.
    pub(super) fn missing(&self, lane: usize, rest: &Rest) -> Missing {
        let total = self.0[rest.class].lanes[lane].total;
        total.since(rest.since).missing(rest.why)
    }

    /// Adds a sealed chunk to each class with resting readers.
    pub(super) fn seal(&mut self, lane: usize, mut count: impl FnMut(u64, u64) -> Seen) {
        for class in &mut self.0 {
            let of_lane = &mut class.lanes[lane];
            if of_lane.readers > 0 {
                of_lane.total.add(count(class.mask, class.group));
            }
        }
    }
}

impl Distributor {
    /// Lets a reader rest that missed the chunk which was just sealed, if it will most likely miss the
    /// next one, too.
    pub(super) fn rest(&mut self, lane: usize, reader: usize, why: Why) {
        let lanes = self.lanes.len();
        let Some(entry) = self.readers[reader].as_mut() else {
            return;
        };
        // The member that is to get a share's chunk, and a sample that left a chunk out, do not rest.
        let rests = match why {
            Why::Elsewhere => true,
            Why::Credit | Why::Burst => !entry.is_in_share && entry.part(lane, false).is_none(),
        };
        if !rests || entry.corrupt || entry.policy == Policy::Block && why != Why::Elsewhere {
            return;
        }
        let (mask, group) = (entry.mask, entry.group);
        let rest = self.resting.begin((lane, lanes), mask, group, why);
        let account = &mut entry.lanes[lane];
        account.rest = Some(rest);
        let waits = why != Why::Elsewhere && account.held < account.credit;
        let owner = entry.owner;
        let of_lane = &mut self.lanes[lane];
        of_lane.attentive.remove(reader);
        of_lane.bursts.set(reader, why == Why::Burst);
        if waits {
            of_lane.waiting_owners.add(owner);
            self.owners.waiting(owner, lane).add(reader);
        }
    }

    /// Makes a reader attentive on a lane: counts what it missed, and returns why it rested; `None` if it
    /// did not rest.
    pub(super) fn attend(&mut self, lane: usize, reader: usize) -> Option<Why> {
        let entry = self.readers.get_mut(reader)?.as_mut()?;
        let rest = entry.lanes[lane].rest.take()?;
        entry.miss(lane, self.resting.end(lane, &rest));
        let of_lane = &mut self.lanes[lane];
        of_lane.attentive.add(reader);
        of_lane.bursts.remove(reader);
        let waiting = self.owners.waiting(entry.owner, lane);
        waiting.remove(reader);
        if waiting.is_empty() {
            of_lane.waiting_owners.remove(entry.owner);
        }
        Some(rest.why)
    }

    /// Makes a reader attentive on a lane; the reader misses the lane's open chunk so far.
    pub(super) fn attend_open(&mut self, lane: usize, reader: usize) {
        if let Some(why) = self.attend(lane, reader)
            && self.lanes[lane].open.is_some()
        {
            let from = self.lanes[lane].open_from;
            self.lanes[lane].missed.push(Missed { reader, from, why });
        }
    }

    /// Makes a reader attentive on a lane if it rested because of its credit.
    pub(super) fn has_returned(&mut self, lane: usize, reader: usize) {
        let entry = self.readers[reader].as_ref();
        let rest = entry.and_then(|entry| entry.lanes[lane].rest);
        if rest.is_some_and(|rest| rest.why != Why::Elsewhere) {
            self.attend_open(lane, reader);
        }
    }

    /// Makes readers attentive whose guarantee or credit permits a further chunk.
    pub(super) fn attend_permitted(&mut self) {
        for lane in 0..self.lanes.len() {
            for reader in 0..self.readers.len() {
                let entry = self.readers[reader].as_ref();
                if entry.is_some_and(|entry| entry.part(lane, false).is_some()) {
                    self.has_returned(lane, reader);
                }
            }
        }
    }

    /// Resting readers of owners that may take a chunk of a lane's shared half now, or have taken this
    /// one.
    pub(super) fn take_waiting(
        &mut self,
        lane: usize,
        chunk: ChunkId,
        threshold: u32,
    ) -> Vec<usize> {
        let mut found = Vec::new();
        for owner in self.lanes[lane].waiting_owners.iter() {
            let of_owner = self.owners.get(owner);
            if of_owner.shared_held(lane) < threshold
                || self.chunks.is_shared_by(chunk, &of_owner.readers)
            {
                found.extend(self.owners.waiting(owner, lane).iter());
            }
        }
        found
    }

    /// Notes that a lane's next chunk opens in this burst: what resting readers miss from it on because of
    /// an earlier burst is their own slowness.
    pub(super) fn begin_in_burst(&mut self, lane: usize) {
        if std::mem::replace(&mut self.lanes[lane].burst, self.bursts) == self.bursts {
            return;
        }
        for reader in std::mem::take(&mut self.lanes[lane].bursts).iter() {
            if self.attend(lane, reader).is_some() {
                self.rest(lane, reader, Why::Credit);
            }
        }
    }
}

#[cfg(test)]
mod tests;
