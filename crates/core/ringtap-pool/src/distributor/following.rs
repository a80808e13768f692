// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers that wait for another: who gets a part of its packets must not read them before the
//! other is done with earlier ones.
//!
//! A reader that is held back keeps what it has. Chunks that are opened later are lent to it, but
//! handed over only when it goes on.
//!
//! Invariants
//! - What waits for a reader counts towards its credit; past it the reader loses packets as if
//!   it were slow. Order is kept, whatever that costs.
//! - Chunks of a lane are handed over in the order in which they were opened.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

use super::Distributor;
use super::entry::{Entry, Missing};
use crate::ids::{ChunkId, LaneId, ReaderId};
use crate::number::to_u64;

/// Where a reader is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// On any lane.
    Anywhere,
    /// On lanes of which the one it waits for has nothing but the chunk that is being filled.
    OnQuietLanes,
}

/// A chunk that was lent and not yet handed over.
struct Parked {
    chunk: ChunkId,
    from: u32,
    cut: bool,
    missed: Missing,
}

/// How it goes on one lane.
#[derive(Default)]
struct Course {
    goes_on: bool,
    /// Whoever it waits for must be done with all packets before this one.
    until: Option<u64>,
    parked: VecDeque<Parked>,
}

/// What a reader waits for.
pub(super) struct Following {
    /// For whom; nobody yet if absent.
    leader: Option<usize>,
    lanes: Vec<Course>,
}

impl Entry {
    /// Keeps a chunk for later if it is held back on this lane; tells whether it did.
    pub(super) fn parks(&mut self, lane: usize, chunk: ChunkId, from: u32, cut: bool) -> bool {
        let Some(following) = &mut self.following else {
            return false;
        };
        let course = &mut following.lanes[lane];
        if course.goes_on {
            return false;
        }
        let account = &mut self.lanes[lane];
        let missed = account.take_unreported();
        account.held += 1;
        course.parked.push_back(Parked {
            chunk,
            from,
            cut,
            missed,
        });
        true
    }

    /// Hands over what waits for it on a lane.
    fn go_on(&mut self, lane: usize) {
        let Some(following) = &mut self.following else {
            return;
        };
        let course = &mut following.lanes[lane];
        course.goes_on = true;
        for parked in std::mem::take(&mut course.parked) {
            self.hand_over(lane, parked.chunk, parked.from, parked.cut, parked.missed);
        }
        let following = self.following.as_ref();
        if following.is_some_and(|one| one.leader.is_some() && one.is_over()) {
            self.following = None;
        }
    }

    fn go_on_everywhere(&mut self) {
        for lane in 0..self.lanes.len() {
            self.go_on(lane);
        }
        self.following = None;
    }
}

impl Following {
    fn new(lanes: usize) -> Self {
        Following {
            leader: None,
            lanes: (0..lanes).map(|_| Course::default()).collect(),
        }
    }

    fn is_over(&self) -> bool {
        self.lanes.iter().all(|course| course.goes_on)
    }

    fn waits_for(&self, chunk: ChunkId, lane: usize) -> bool {
        let mut parked = self.lanes[lane].parked.iter();
        parked.any(|parked| parked.chunk == chunk)
    }
}

impl Distributor {
    /// Hands this reader nothing over that is opened from now on.
    pub fn hold_back(&mut self, id: ReaderId) {
        let lanes = self.lanes.len();
        if let Some(entry) = self.readers.get_mut(id.index()).and_then(Option::as_mut) {
            entry.following.get_or_insert_with(|| Following::new(lanes));
        }
    }

    /// Whether no lane fills a chunk any more that this reader was handed; `true` if it is gone.
    pub fn is_held_back(&self, id: ReaderId) -> bool {
        (0..self.lanes.len()).all(|lane| !self.fills_for(id.index(), lane))
    }

    /// Whether a reader that is held back reads the chunk that a lane fills all the same.
    fn fills_for(&self, reader: usize, lane: usize) -> bool {
        let Some(open) = self.lanes[lane].open else {
            return false;
        };
        let entry = self.readers.get(reader).and_then(Option::as_ref);
        let following = entry.and_then(|entry| entry.following.as_ref());
        self.chunks.is_leased_to(open, reader)
            && following.is_some_and(|one| !one.lanes[lane].goes_on && !one.waits_for(open, lane))
    }

    /// Lets a reader that is held back go on, lane by lane, once `leader` is done with all that
    /// was captured by now.
    pub fn follow(&mut self, id: ReaderId, leader: ReaderId) {
        let fills = (0..self.lanes.len()).filter(|lane| self.fills_for(id.index(), *lane));
        let unordered = to_u64(fills.count());
        if self.progress(leader).is_none() {
            return self.let_go(id, HeldBack::Anywhere);
        }
        let Some(entry) = self.readers.get_mut(id.index()).and_then(Option::as_mut) else {
            return;
        };
        entry.unordered += unordered;
        if let Some(following) = &mut entry.following {
            following.leader = Some(leader.index());
            if following.is_over() {
                entry.following = None;
            }
        }
    }

    /// Whether a reader is held back anywhere.
    pub fn follows(&self, id: ReaderId) -> bool {
        let entry = self.readers.get(id.index()).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.following.is_some())
    }

    /// Whether any reader is held back.
    pub(super) fn anyone_follows(&self) -> bool {
        let mut readers = self.readers.iter().flatten();
        readers.any(|entry| entry.following.is_some())
    }

    /// Lets a reader go on, whatever it waits for.
    pub fn let_go(&mut self, id: ReaderId, held: HeldBack) {
        for lane in 0..self.lanes.len() {
            if held == HeldBack::Anywhere || self.is_quiet_for_leader(id.index(), lane) {
                let Some(entry) = self.readers.get_mut(id.index()).and_then(Option::as_mut) else {
                    return;
                };
                let following = entry.following.as_ref();
                if following.is_some_and(|one| one.leader.is_some() && !one.lanes[lane].goes_on) {
                    entry.unordered += 1;
                }
                entry.go_on(lane);
            }
        }
        let entry = self.readers.get_mut(id.index()).and_then(Option::as_mut);
        if let Some(entry) = entry.filter(|_| held == HeldBack::Anywhere) {
            entry.following = None;
        }
    }

    fn is_quiet_for_leader(&self, reader: usize, lane: usize) -> bool {
        let entry = self.readers.get(reader).and_then(Option::as_ref);
        let leader = entry.and_then(|entry| entry.following.as_ref()?.leader);
        leader.is_some_and(|leader| {
            let mut held = self.chunks.leased_to(leader, lane);
            held.all(|chunk| Some(chunk) == self.lanes[lane].open)
        })
    }

    /// How often a reader went on without knowing that the one before it was done, a lane each;
    /// since this was last asked.
    pub fn take_unordered(&mut self, id: ReaderId) -> u64 {
        let entry = self.readers.get_mut(id.index()).and_then(Option::as_mut);
        entry.map_or(0, |entry| std::mem::take(&mut entry.unordered))
    }

    /// A reader leaves: nobody waits for it any more.
    pub(super) fn release_followers_of(&mut self, leader: usize) {
        for entry in self.readers.iter_mut().flatten() {
            let following = entry.following.as_ref();
            if following.is_some_and(|one| one.leader == Some(leader)) {
                entry.go_on_everywhere();
            }
        }
    }

    /// Nothing follows: whoever waits goes on.
    pub(super) fn release_all_followers(&mut self) {
        for entry in self.readers.iter_mut().flatten() {
            entry.go_on_everywhere();
        }
    }

    /// Lets readers go on whose leaders are done on this lane; tells whether any did.
    pub(super) fn release_followers(&mut self, lane: usize) -> bool {
        let is_dry = self.lanes[lane].ends.opened.is_empty();
        let mut moved = false;
        for reader in 0..self.readers.len() {
            let Some((leader, until)) = self.waits_on(reader, lane) else {
                continue;
            };
            // What is still in the queue may have been captured before.
            let until = until.or_else(|| is_dry.then(|| self.position(LaneId::at(lane))));
            let oldest = self.oldest_held(ReaderId::at(leader), LaneId::at(lane));
            let oldest = oldest.and_then(|id| self.pool.chunk(id));
            let is_done = until
                .is_some_and(|until| oldest.is_none_or(|chunk| chunk.first_sequence() >= until));
            let Some(entry) = self.readers[reader].as_mut() else {
                continue;
            };
            if is_done {
                entry.go_on(lane);
                moved = true;
            } else if let Some(following) = &mut entry.following {
                following.lanes[lane].until = until;
            }
        }
        moved
    }

    /// For whom, and up to where, a reader waits on a lane.
    fn waits_on(&self, reader: usize, lane: usize) -> Option<(usize, Option<u64>)> {
        let following = self.readers[reader].as_ref()?.following.as_ref()?;
        let course = &following.lanes[lane];
        (!course.goes_on).then_some((following.leader?, course.until))
    }
}

#[cfg(test)]
mod tests;
