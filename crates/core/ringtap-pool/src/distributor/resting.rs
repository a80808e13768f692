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

use super::missed::{Missing, Why};

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

    /// Counts of a reader that does not get these packets for this reason.
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
    pub(super) why: Why,
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
    pub(super) fn begin(
        &mut self,
        (lane, lanes): (usize, usize),
        mask: u64,
        group: u64,
        why: Why,
    ) -> Rest {
        let is_it = |one: &RestClass| (one.mask, one.group) == (mask, group);
        let is_unused = |one: &RestClass| one.lanes.iter().all(|lane| lane.readers == 0);
        let found = self.0.iter().position(is_it);
        let class = found
            .or_else(|| self.0.iter().position(is_unused))
            .unwrap_or(self.0.len());
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

    pub(super) fn end(&mut self, lane: usize, rest: &Rest) -> Missing {
        let missing = self.missing(lane, rest);
        self.0[rest.class].lanes[lane].readers -= 1;
        missing
    }

    /// Number of readers that rest on a lane.
    #[cfg(test)]
    pub(super) fn readers(&self, lane: usize) -> u32 {
        self.0.iter().map(|class| class.lanes[lane].readers).sum()
    }

    /// Packets that a reader missed since it came to rest.
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
