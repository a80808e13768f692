// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies a reader's packets into private pools, for private delivery and for guests.
//!
//! Invariants
//! - Each packet for the reader is copied, or counted as lost because its pool had no room.
//! - The copy waits for a reader of a copy only if the pool is told to wait for room.

use std::time::Duration;

use ringtap_pool::distributor::DistributeError;
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::{to_u32, to_usize};
use ringtap_pool::private::PrivatePool;
use ringtap_pool::reader::RecvError;

use crate::classified::Batch;
use crate::receiver::Receiver;
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
    pools: Vec<CopyPool>,
    /// Index of the pool, and its lane, per lane of all sources.
    places: Vec<(usize, LaneId)>,
}

/// Why a batch cannot be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The batch cannot be read.
    #[error(transparent)]
    Read(#[from] Box<RecvError>),
    /// The pool cannot be written.
    #[error(transparent)]
    Write(#[from] DistributeError),
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
    /// Copies the packets of each source into a pool of its own, which has as many lanes.
    pub fn per_source(receiver: &Receiver, pools: Vec<CopyPool>) -> Self {
        let sources = (0..).zip(receiver.sources());
        let places = sources.flat_map(|(pool, (_, lanes))| {
            let count = to_u32(lanes.len());
            (0..count).map(move |lane| (pool, LaneId(lane)))
        });
        Copier {
            places: places.collect(),
            pools,
        }
    }

    /// Copies the packets of all sources into the only lane of a pool.
    pub fn into_one(receiver: &Receiver, pool: CopyPool) -> Self {
        Copier {
            pools: vec![pool],
            places: vec![(0, LaneId(0)); to_usize(receiver.lanes())],
        }
    }

    /// The pools, one per source or one.
    pub fn pools(&self) -> &[CopyPool] {
        &self.pools
    }

    /// As [`Copier::pools`], to take chunks back and to end.
    pub fn pools_mut(&mut self) -> &mut [CopyPool] {
        &mut self.pools
    }

    /// Counts a batch, copies its packets and hands them to the pool's distributor; [`Copier::wake`] then
    /// wakes the reader. While a packet waits for room, ends once `is_stopped`; that packet and those
    /// after it stay uncounted.
    ///
    /// # Errors
    ///
    /// Every [`CopyError`].
    pub fn copy(
        &mut self,
        batch: &Batch,
        counts: &mut CopyCounts,
        is_stopped: impl Fn() -> bool,
    ) -> Result<(), CopyError> {
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
        counts.tally.count_while(batch, |packet| {
            while *waits && !has_room(private, lane, packet.data.len()) {
                if is_stopped() {
                    return false;
                }
            }
            *copied += u64::from(private.put(lane, packet));
            true
        })?;
        private.writers[lane.index()].publish();
        private.distributor.step()?;
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
