// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies a reader's packets into private pools, for private delivery and for guests.
//!
//! Invariants
//! - Each packet for the reader is copied, or counted as lost because its pool had no room.
//! - The copy waits for a reader of a copy only if the pool is told to wait for room.

use std::time::Duration;

use ringtap_pool::ids::LaneId;
use ringtap_pool::number::{to_u32, to_usize};
use ringtap_pool::private::PrivatePool;

use crate::classified::Batch;
use crate::receiver::{ReceiveError, Receiver};
use crate::tally::Tally;

/// Pause between two looks for room.
const ROOM_PAUSE: Duration = Duration::from_micros(200);

/// A private pool that is filled with copies.
pub struct CopyPool {
    /// The pool.
    pub private: PrivatePool,
    /// A packet waits for room in the pool; otherwise it is lost.
    pub waits: bool,
}

/// What a [`Copier`] has read and copied.
#[derive(Clone, Debug)]
pub struct CopyCounts {
    /// The packets read.
    pub tally: Tally,
    /// Packets copied, per lane of all sources.
    pub copied: Vec<u64>,
}

/// Copies batches into private pools.
pub struct Copier {
    /// The pools.
    pub pools: Vec<CopyPool>,
    /// Index of the pool, and its lane, per lane of all sources.
    places: Vec<(usize, LaneId)>,
}

impl CopyCounts {
    /// Counts of this many lanes, all 0.
    pub fn new(lanes: u32) -> Self {
        CopyCounts {
            tally: Tally::new(lanes),
            copied: vec![0; to_usize(lanes)],
        }
    }

    /// Packets copied.
    pub fn copied(&self) -> u64 {
        self.copied.iter().sum()
    }

    /// Packets lost because a pool had no room.
    pub fn lost(&self) -> u64 {
        self.tally.packets().saturating_sub(self.copied())
    }
}

impl Copier {
    /// Copies the packets of each source into the pool of its number, lane by lane. What has no pool or lane
    /// of its number goes into the last one.
    pub fn new(receiver: &Receiver, pools: Vec<CopyPool>) -> Self {
        let mut places = Vec::new();
        for (source, (_, lanes)) in receiver.sources().enumerate() {
            let pool = source.min(pools.len() - 1);
            let last = to_u32(pools[pool].private.writers.len() - 1);
            places.extend((0..to_u32(lanes.len())).map(|lane| (pool, LaneId(lane.min(last)))));
        }
        Copier { pools, places }
    }

    /// Counts a batch, copies its packets and hands them to the pool's distributor; [`Copier::wake`] then
    /// wakes the reader. While a packet waits for room, ends once `is_stopped`; that packet and those
    /// after it stay uncounted.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Corrupt`].
    pub fn copy(
        &mut self,
        batch: &Batch,
        counts: &mut CopyCounts,
        is_stopped: impl Fn() -> bool,
    ) -> Result<(), ReceiveError> {
        let (pool, lane) = self.places[batch.lane().index()];
        let CopyPool { private, waits } = &mut self.pools[pool];
        if let Some(gap) = batch.capture_gap() {
            private.writers[lane.index()].capture_gap(gap.after, gap.duration_ns);
        }
        if let Some(gap) = batch.gap() {
            let reader = private.reader;
            private.distributor.charge(reader, lane, gap.packets);
        }
        let copied = &mut counts.copied[batch.lane().index()];
        counts.tally.count_batch(batch, |packet| {
            while *waits && !has_room(private, lane, packet.data.len()) {
                if is_stopped() {
                    return false;
                }
            }
            *copied += u64::from(private.put(lane, packet));
            true
        })?;
        private.writers[lane.index()].publish();
        let _moved = private.distributor.step();
        Ok(())
    }

    /// Calls `signal` for each reader that sleeps although packets wait for it.
    pub fn wake(&mut self, signal: impl Fn()) {
        for pool in &mut self.pools {
            pool.private.distributor.wake_sleepers(|_| signal());
        }
    }
}

/// Whether the pool has room for a packet of this size; first takes back returned chunks.
fn has_room(private: &mut PrivatePool, lane: LaneId, bytes: usize) -> bool {
    let writer = &mut private.writers[lane.index()];
    if writer.has_room(bytes) {
        return true;
    }
    writer.publish();
    let _moved = private.distributor.step();
    std::thread::sleep(ROOM_PAUSE);
    private.writers[lane.index()].has_room(bytes)
}
