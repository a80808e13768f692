// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buddy groups: readers that share the lanes' chunks between them (WireCAP's basic and advanced
//! mode).
//!
//! Each lane has an owner in the group, who gets its chunks. In advanced mode a chunk goes to the
//! least busy buddy instead, once the owner holds more than a threshold.
//!
//! Invariants
//! - Of each chunk that was opened since a group has members, one member gets all that it may
//!   still read; to the others these packets are somebody else's, not lost.
#![forbid(unsafe_code)]

use super::Distributor;
use super::chunks::Missed;
use super::entry::Policy;
use crate::ids::{ChunkId, ReaderId};
use crate::number::to_u64;
use crate::view::Pool;

/// Most buddy groups of one distributor.
const MOST_GROUPS: usize = 64;

/// With whom a reader shares chunks, and when a buddy takes its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buddies {
    /// Readers with the same number are buddies.
    pub group: u32,
    /// The threshold T: a chunk goes to the least busy buddy once its lane's owner holds more than
    /// so many percent of the lane's number of chunks. Never if absent: basic mode.
    pub offload_percent: Option<u8>,
}

/// What a buddy group did since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuddyCounts {
    /// Chunks that went to one of its members.
    pub chunks: u64,
    /// Those that went to another than the lane's owner.
    pub offloaded_chunks: u64,
    /// Packets in these.
    pub offloaded_packets: u64,
    /// Packets that a member was done with while another still held earlier packets of the same
    /// flow: their order within the flow is broken.
    pub disordered_packets: u64,
}

struct Group {
    number: u32,
    offload_percent: Option<u8>,
    members: Vec<usize>,
    counts: BuddyCounts,
}

/// All buddy groups.
#[derive(Default)]
pub(super) struct Groups(Vec<Group>);

impl Groups {
    /// Groups that have members.
    pub(super) fn count(&self) -> usize {
        let with_members = |group: &&Group| !group.members.is_empty();
        self.0.iter().filter(with_members).count()
    }

    /// A group keeps the counts of its number; its threshold is the one given last.
    pub(super) fn join(&mut self, buddies: Buddies, reader: usize) {
        let known = self.0.iter().position(|one| one.number == buddies.group);
        let at = known.unwrap_or_else(|| {
            self.0.push(Group {
                number: buddies.group,
                offload_percent: None,
                members: Vec::new(),
                counts: BuddyCounts::default(),
            });
            self.0.len() - 1
        });
        self.0[at].offload_percent = buddies.offload_percent;
        self.0[at].members.push(reader);
    }

    pub(super) fn leave(&mut self, reader: usize) {
        for group in &mut self.0 {
            group.members.retain(|member| *member != reader);
        }
    }

    /// Whether this group exists, or one more can be told apart from the others.
    pub(super) fn has_room_for(&self, buddies: Buddies) -> bool {
        self.0.len() < MOST_GROUPS || self.0.iter().any(|one| one.number == buddies.group)
    }

    fn of(&self, reader: usize) -> Option<&Group> {
        self.0.iter().find(|group| group.members.contains(&reader))
    }
}

impl Distributor {
    /// What a buddy group did since it began.
    pub fn buddy_counts(&self, group: u32) -> BuddyCounts {
        let known = self.groups.0.iter().find(|one| one.number == group);
        known.map_or(BuddyCounts::default(), |group| group.counts)
    }

    /// Chunks that this reader took instead of their lane's owner.
    pub fn helped_chunks(&self, id: ReaderId) -> u64 {
        let entry = self.readers.get(id.index()).and_then(Option::as_ref);
        entry.map_or(0, |entry| entry.helped_chunks)
    }

    /// The owner of a lane in a group, and who gets the lane's next chunk.
    fn choose(&self, group: &Group, lane: usize) -> Option<(usize, usize)> {
        let entry = |reader: usize| self.readers[reader].as_ref().filter(|entry| !entry.corrupt);
        let members = group.members.iter().copied();
        let sound: Vec<usize> = members.filter(|member| entry(*member).is_some()).collect();
        let owner = *sound.get(lane.checked_rem(sound.len())?)?;
        let load = |reader: usize| entry(reader).map_or(0, |entry| entry.load());
        let share = u64::from(self.lanes[lane].ends.chunks);
        let is_busy = |percent: u8| u64::from(load(owner)) * 100 > share * u64::from(percent);
        if !group.offload_percent.is_some_and(is_busy) {
            return Some((owner, owner));
        }
        let least = sound.into_iter().min_by_key(|member| load(*member))?;
        let taker = if load(least) < load(owner) {
            least
        } else {
            owner
        };
        Some((owner, taker))
    }

    /// Who of each group gets a chunk that a lane just opened.
    pub(super) fn choose_buddies(&mut self, lane: usize, id: ChunkId) -> Vec<usize> {
        let mut chosen = Vec::new();
        for at in 0..self.groups.0.len() {
            let group = &self.groups.0[at];
            let Some((owner, reader)) = self.choose(group, lane) else {
                continue;
            };
            let counts = &mut self.groups.0[at].counts;
            counts.chunks += 1;
            if reader != owner {
                counts.offloaded_chunks += 1;
                *self.chunks.offloaded(id) |= 1 << at;
                if let Some(entry) = self.readers[reader].as_mut() {
                    entry.helped_chunks += 1;
                }
            }
            chosen.push(reader);
        }
        chosen
    }

    /// Whether a reader has a buddy that was chosen instead of it.
    pub(super) fn is_elsewhere(&self, reader: usize, chosen: &[usize]) -> bool {
        let entry = self.readers[reader].as_ref();
        let has_buddies = entry.is_some_and(|entry| entry.buddies.is_some());
        has_buddies && !chosen.contains(&reader)
    }

    /// Whether a buddy of this reader has a chunk already.
    pub(super) fn is_with_buddy(&self, id: ChunkId, reader: usize) -> bool {
        let Some(group) = self.groups.of(reader) else {
            return false;
        };
        let mut others = group.members.iter().filter(|member| **member != reader);
        others.any(|member| self.chunks.is_leased_to(id, *member))
    }

    /// Whether no group has to wait for the one who is to get a lane's next chunk.
    pub(super) fn buddies_may_take(&self, lane: usize) -> bool {
        let may = |group: &Group| {
            let chosen = self.choose(group, lane);
            let entry = chosen.and_then(|(_, reader)| self.readers[reader].as_ref());
            entry.is_none_or(|entry| {
                entry.policy != Policy::Block || entry.has_credit(lane, u32::MAX)
            })
        };
        self.groups.0.iter().all(may)
    }

    /// Chunks that are still being filled, and whose reader left, go to a buddy from here on.
    pub(super) fn adopt_open_chunks(&mut self) {
        for lane in 0..self.lanes.len() {
            let Some(id) = self.lanes[lane].open else {
                continue;
            };
            for at in 0..self.groups.0.len() {
                let group = &self.groups.0[at];
                let has = |member: &usize| self.chunks.is_leased_to(id, *member);
                if group.members.iter().any(has) {
                    continue;
                }
                if let Some((_, heir)) = self.choose(group, lane) {
                    self.adopt(lane, id, heir);
                }
            }
        }
    }

    fn adopt(&mut self, lane: usize, id: ChunkId, heir: usize) {
        let missed = std::mem::take(&mut self.lanes[lane].missed);
        let (own, others): (Vec<_>, Vec<_>) =
            missed.into_iter().partition(|missed| missed.reader == heir);
        self.lanes[lane].missed = others;
        let now = self
            .pool
            .chunk(id)
            .map_or(0, |chunk| chunk.state().published);
        for Missed { from, why, .. } in own {
            // What it lost itself stays lost.
            let missing = self.missing(id, heir, from..now, why);
            if let Some(entry) = self.readers[heir].as_mut() {
                entry.miss(lane, missing);
            }
        }
        self.lease(lane, heir, id, now, self.room(lane));
    }

    /// An offloaded chunk is sealed, and its packets are known.
    pub(super) fn settle_offloaded(&mut self, id: ChunkId, published: u32) {
        let offloaded = *self.chunks.offloaded(id);
        for (at, group) in self.groups.0.iter_mut().enumerate() {
            if offloaded & (1 << at) != 0 {
                group.counts.offloaded_packets += u64::from(published);
            }
        }
    }

    /// A reader is done with a chunk: counts packets whose order within their flow is broken.
    pub(super) fn note_disorder(&mut self, id: ChunkId, reader: usize) {
        let Some(at) = self
            .groups
            .0
            .iter()
            .position(|group| group.members.contains(&reader))
        else {
            return;
        };
        if self.groups.0[at].counts.offloaded_chunks == 0 || !self.chunks.is_leased_to(id, reader) {
            return;
        }
        let flows = flows(&self.pool, id);
        let mut broken = vec![false; flows.len()];
        for chunk in self.earlier_at_buddies(id, reader, at) {
            let pool = &self.pool;
            let held = self.chunks.flows(chunk, || self::flows(pool, chunk));
            for (flow, is_broken) in flows.iter().zip(&mut broken) {
                *is_broken |= held.binary_search(flow).is_ok();
            }
        }
        let broken = broken.iter().filter(|is_broken| **is_broken).count();
        self.groups.0[at].counts.disordered_packets += to_u64(broken);
    }

    /// Chunks of the same lane that came before this one and that buddies of a reader hold.
    fn earlier_at_buddies(&self, id: ChunkId, reader: usize, group: usize) -> Vec<ChunkId> {
        let lane = self.chunks.lane(id);
        let place = |id| {
            self.pool
                .chunk(id)
                .map_or(0, |chunk| chunk.chunk_sequence())
        };
        let mine = place(id);
        let members = self.groups.0[group].members.iter();
        let others = members.filter(|member| **member != reader);
        let earlier = others.flat_map(|member| {
            let held = self.chunks.leased_to(*member, lane);
            held.take_while(|held| place(*held) < mine)
        });
        earlier.collect()
    }
}

/// The flow of each packet of a chunk.
fn flows(pool: &Pool, id: ChunkId) -> Vec<u32> {
    let Some(chunk) = pool.chunk(id) else {
        return Vec::new();
    };
    let slots = 0..chunk.state().published;
    slots.filter_map(|slot| chunk.flow(slot)).collect()
}

#[cfg(test)]
mod tests;
