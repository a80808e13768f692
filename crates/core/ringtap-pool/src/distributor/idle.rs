// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lets readers rest on a lane, and makes them attentive again; see [`super::resting`].

use super::Distributor;
use super::missed::{Missed, Why};
use crate::ids::ChunkId;
use crate::policy::Policy;

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
            Why::Credit | Why::Burst => {
                !entry.is_in_share && entry.lease_kind(lane, false).is_none()
            }
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
            let missed = Missed {
                reader,
                from: 0,
                why,
            };
            self.lanes[lane].missed.push(missed);
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
                if entry.is_some_and(|entry| entry.lease_kind(lane, false).is_some()) {
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
