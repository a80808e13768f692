// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buddy groups: readers that divide the lanes' chunks between them (WireCAP's basic and advanced
//! mode).
//!
//! Each lane has an owner in the group, which gets the lane's chunks. In advanced mode a chunk
//! goes to the least busy member instead, once the owner holds more than a threshold.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use ringtap_ipc::mutex::lock;
use ringtap_ipc::protocol::BuddyCounts;
use ringtap_pool::distributor::{NextChunk, Returned, Scheduler};
use ringtap_pool::ids::{ChunkId, ReaderId};
use ringtap_pool::view::Pool;

/// The buddy groups of one distributor. A group is the chunk share of the same number.
#[derive(Default)]
pub struct BuddyGroups(Mutex<BuddyState>);

#[derive(Default)]
struct BuddyState {
    groups: HashMap<u32, BuddyGroup>,
    /// Chunks that each reader took instead of their lane's owner.
    helped_chunks: HashMap<ReaderId, u64>,
    /// Groups in which an open chunk went to another member than the owner.
    offloaded: HashMap<ChunkId, Vec<u32>>,
    /// Flows of sealed chunks, in order; a chunk leaves the map when it is sealed again.
    flows: HashMap<ChunkId, Vec<u32>>,
}

#[derive(Default)]
struct BuddyGroup {
    offload_percent: Option<u8>,
    counts: BuddyCounts,
}

impl BuddyGroups {
    // One thread drives a distributor and reads the counters: it never waits for this lock.
    fn state(&self) -> MutexGuard<'_, BuddyState> {
        lock(&self.0)
    }

    /// Sets the threshold T of a group: a chunk goes to the least busy member once the lane's owner
    /// holds more than T percent of the lane's number of chunks. `None` is basic mode.
    pub fn set_threshold(&self, group: u32, offload_percent: Option<u8>) {
        self.state()
            .groups
            .entry(group)
            .or_default()
            .offload_percent = offload_percent;
    }

    /// Counters of a group since it began.
    pub fn counts(&self, group: u32) -> BuddyCounts {
        let state = self.state();
        let known = state.groups.get(&group);
        known.map_or(BuddyCounts::default(), |group| group.counts)
    }

    /// Chunks that a reader took instead of their lane's owner.
    pub fn helped_chunks(&self, reader: ReaderId) -> u64 {
        self.state()
            .helped_chunks
            .get(&reader)
            .copied()
            .unwrap_or(0)
    }
}

impl Scheduler for BuddyGroups {
    fn choose(&self, next: &NextChunk<'_>) -> ReaderId {
        let owner = next.owner();
        let is_busy = |percent: u8| {
            u64::from(owner.held) * 100 > u64::from(next.lane_chunks) * u64::from(percent)
        };
        let state = self.state();
        let group = state.groups.get(&next.share);
        let threshold = group.and_then(|group| group.offload_percent);
        let least = next.candidates.iter().min_by_key(|one| one.held);
        let helper =
            least.filter(|least| threshold.is_some_and(is_busy) && least.held < owner.held);
        helper.unwrap_or(&owner).reader
    }

    fn opened(&self, chunk: ChunkId, next: &NextChunk<'_>, reader: ReaderId) {
        let state = &mut *self.state();
        let counts = &mut state.groups.entry(next.share).or_default().counts;
        counts.chunks += 1;
        if reader != next.owner().reader {
            counts.offloaded_chunks += 1;
            *state.helped_chunks.entry(reader).or_default() += 1;
            state.offloaded.entry(chunk).or_default().push(next.share);
        }
    }

    fn sealed(&self, chunk: ChunkId, packets: u32) {
        let state = &mut *self.state();
        state.flows.remove(&chunk);
        for group in state.offloaded.remove(&chunk).into_iter().flatten() {
            if let Some(group) = state.groups.get_mut(&group) {
                group.counts.offloaded_packets += u64::from(packets);
            }
        }
    }

    fn returned(&self, returned: &Returned<'_>) {
        let BuddyState { groups, flows, .. } = &mut *self.state();
        let Some(group) = groups.get_mut(&returned.share) else {
            return;
        };
        if group.counts.offloaded_chunks == 0 {
            return;
        }
        let own = flows_of(returned.pool, returned.chunk);
        let mut broken = vec![false; own.len()];
        for chunk in earlier_at_buddies(returned) {
            let held = flows
                .entry(chunk)
                .or_insert_with(|| sorted_flows(returned.pool, chunk));
            for (flow, is_broken) in own.iter().zip(&mut broken) {
                *is_broken |= held.binary_search(flow).is_ok();
            }
        }
        for _ in broken.into_iter().filter(|is_broken| *is_broken) {
            group.counts.disordered_packets += 1;
        }
    }

    fn removed(&self, reader: ReaderId) {
        self.state().helped_chunks.remove(&reader);
    }
}

/// Chunks of the same lane that came before the returned one and that other members hold.
fn earlier_at_buddies(returned: &Returned<'_>) -> Vec<ChunkId> {
    let sequence = |id| {
        let chunk = returned.pool.chunk(id);
        chunk.map_or(0, |chunk| chunk.chunk_sequence())
    };
    let own = sequence(returned.chunk);
    let others = returned.others.iter().copied();
    let earlier = others.flat_map(|other| {
        let held = returned.held_by(other);
        held.take_while(|held| sequence(*held) < own)
    });
    earlier.collect()
}

fn sorted_flows(pool: &Pool, id: ChunkId) -> Vec<u32> {
    let mut flows = flows_of(pool, id);
    flows.sort_unstable();
    flows.dedup();
    flows
}

/// The flow of each packet of a chunk.
fn flows_of(pool: &Pool, id: ChunkId) -> Vec<u32> {
    let Some(chunk) = pool.chunk(id) else {
        return Vec::new();
    };
    let slots = 0..chunk.state().published;
    slots.filter_map(|slot| chunk.flow(slot)).collect()
}

#[cfg(test)]
mod tests;
