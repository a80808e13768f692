// SPDX-License-Identifier: MIT OR Apache-2.0
//! A consumer of a pool: takes chunks that the distributor delivers, and reads packets in place.
//!
//! Invariants
//! - Packets of a lane come in the order of capture; a [`Gap`] reports packets missing between two
//!   batches.
//! - A chunk is returned when the reader has moved past it and no batch of it is left.

mod batch;
mod delivery;
mod error;
mod lane;
mod lease;
mod peek;

use std::sync::Arc;

use crate::control::{ControlRegion, ControlRegionError, MEMORY_LOST, Progress};
pub use crate::gap::{CaptureGap, Gap};
use crate::ids::LaneId;
use crate::memory::Region;
use crate::number::to_usize;
use crate::policy::Policy;
use crate::queue::Consumer;
use crate::sync::Ordering::*;
use crate::view::Pool;
use crate::wake::{Level, Signal};
pub use batch::{ChunkBatch, ChunkPackets, Packet};
pub(crate) use delivery::DeliveryEntry;
pub use error::RecvError;
use lane::{Held, NextSlots, ReaderLane};
use lease::{Lease, LeaseHome};
pub use peek::Peek;

/// The result of [`Reader::try_next`].
pub enum NextBatch {
    /// Packets.
    Batch(ChunkBatch),
    /// No packet now.
    Empty,
    /// No packet now, and none will come.
    Ended,
}

/// One consumer of a pool.
pub struct Reader {
    home: Arc<LeaseHome>,
    deliveries: Consumer,
    lanes: Vec<ReaderLane>,
    turn: usize,
    /// Sum over the lanes of the next expected sequence number.
    read_to: u64,
    /// Bytes left of a packet that the distributor delivers as cut.
    cut_bytes: u32,
    /// Number of the memory that is mapped, and of the one in which the pool lies.
    memory: u32,
    memory_now: u32,
}

impl Reader {
    /// Opens the control region that a distributor created for this reader.
    ///
    /// `distributor` wakes the distributor's thread; the reader and its batches hold it until the last
    /// of them is dropped. `policy` is the one with which the reader was added.
    pub fn open(
        pool: Pool,
        control: &Region,
        policy: Policy,
        distributor: Arc<dyn Signal>,
    ) -> Result<Self, ControlRegionError> {
        let control = ControlRegion::open(control)?;
        let (lanes, want) = (control.starts.len(), pool.geometry().lane_count);
        if lanes != to_usize(want) {
            return Err(ControlRegionError::Lanes { lanes, want });
        }
        let starts = control.starts();
        let read_to = starts.iter().fold(0, |sum: u64, at| sum.wrapping_add(*at));
        control.reader().read_to.store(read_to, Relaxed);
        let memory = control.reader().memory.load(Relaxed);
        Ok(Reader {
            memory,
            memory_now: memory,
            deliveries: Consumer::new(control.deliveries.clone()),
            lanes: starts.into_iter().map(ReaderLane::new).collect(),
            read_to,
            turn: 0,
            cut_bytes: match policy {
                Policy::Cut { snap_bytes } => snap_bytes,
                _ => u32::MAX,
            },
            home: Arc::new(LeaseHome::new(pool, control, distributor)),
        })
    }

    /// The pool that this reader reads.
    pub fn pool(&self) -> &Pool {
        &self.home.pool
    }

    /// Takes all published packets of one chunk, lanes in turn; never waits.
    ///
    /// # Errors
    ///
    /// Every [`RecvError`]; the reader cannot be used after it.
    #[inline]
    pub fn try_next(&mut self) -> Result<NextBatch, RecvError> {
        let ended = self.accept()?;
        for _ in 0..self.lanes.len() {
            let lane = self.turn;
            self.turn += 1;
            if self.turn == self.lanes.len() {
                self.turn = 0;
            }
            if let Some(range) = self.find(lane)?
                && let Some(batch) = self.batch(lane, range)?
            {
                return Ok(NextBatch::Batch(batch));
            }
        }
        Ok(if ended {
            NextBatch::Ended
        } else {
            NextBatch::Empty
        })
    }

    /// Whether the pool lies in other memory now. The reader finds nothing until that is mapped in place of the
    /// one before, and [`Reader::has_mapped`] was called.
    pub fn new_memory(&self) -> Option<u32> {
        (self.memory_now != self.memory).then_some(self.memory_now)
    }

    /// The memory with this number is mapped.
    pub fn has_mapped(&mut self, memory: u32) {
        self.memory = memory;
        self.home.control.reader().memory.store(memory, Release);
    }

    /// The words by which this reader announces a sleep.
    pub fn sleeper(&self) -> Sleeper {
        Sleeper {
            control: self.home.control.clone(),
            distributor: Arc::clone(&self.home.distributor),
        }
    }

    /// Sequence of the first packet that the reader may get, per lane.
    pub fn starts(&self) -> Vec<u64> {
        self.home.control.starts()
    }

    /// Counters that the reader publishes for `status` and `top`.
    pub fn progress(&self) -> &Progress {
        &self.home.control.reader().progress
    }

    /// Number of waiting packets: published, delivered, and not yet taken.
    pub fn waiting(&mut self) -> Result<u64, RecvError> {
        self.accept()?;
        let held = self.lanes.iter().flat_map(ReaderLane::held);
        let waiting = |held: &Held| {
            let published = self.pool().chunk(held.chunk)?.state().published;
            Some(u64::from(published.saturating_sub(held.next)))
        };
        Ok(held.filter_map(waiting).sum())
    }

    /// Assigns new deliveries to their lanes; returns whether no more will come.
    #[inline]
    fn accept(&mut self) -> Result<bool, RecvError> {
        // Before the queue, so that every delivery before the end is found below.
        let ended = self.home.control.hub().ended.load(Acquire) != 0;
        while let Some(entry) = self.deliveries.pop()? {
            self.accept_one(DeliveryEntry::from_entry(entry))?;
        }
        // After the deliveries: those that came after a change of the memory are read in the new one.
        self.memory_now = self.home.control.hub().memory.load(Acquire);
        if self.memory_now == MEMORY_LOST {
            return Err(RecvError::MemoryLost);
        }
        Ok(ended && self.memory_now == self.memory)
    }

    fn accept_one(&mut self, delivery: DeliveryEntry) -> Result<(), RecvError> {
        match delivery {
            DeliveryEntry::Chunk { chunk, from, cut } => {
                let view = self.pool().chunk(chunk);
                let lane = view.ok_or(RecvError::BadChunk(chunk))?.lane();
                let most = to_usize(self.pool().geometry().chunk_count);
                let lane = self.lanes.get_mut(lane.index());
                // A lane with more chunks than the pool got some chunk twice.
                let lane = lane.filter(|lane| lane.len() < most);
                lane.ok_or(RecvError::BadChunk(chunk))?.hold(Held {
                    lease: Lease::new(Arc::clone(&self.home), chunk),
                    chunk,
                    next: from,
                    cut,
                });
            }
            DeliveryEntry::Lost { lane, packets } => self.lane(lane)?.miss(packets, 0),
            DeliveryEntry::OtherMembers { lane, packets } => self.lane(lane)?.miss(0, packets),
        }
        Ok(())
    }

    fn lane(&mut self, lane: LaneId) -> Result<&mut ReaderLane, RecvError> {
        let known = self.lanes.get_mut(lane.index());
        known.ok_or(RecvError::BadLane(lane))
    }

    /// Finds the next slots of a lane; moves past chunks that are read to their end.
    #[inline]
    fn find(&mut self, lane: usize) -> Result<Option<NextSlots>, RecvError> {
        if self.memory_now != self.memory {
            return Ok(None);
        }
        while let Some(held) = &self.lanes[lane].front {
            let (chunk, from) = (held.chunk, held.next);
            let view = self.pool().chunk(chunk);
            let state = view.ok_or(RecvError::BadChunk(chunk))?.state();
            if from < state.published {
                return Ok(Some(NextSlots {
                    chunk,
                    from,
                    to: state.published,
                    is_open: !state.sealed,
                }));
            }
            if !state.sealed {
                return Ok(None);
            }
            self.lanes[lane].pass();
            self.home.check()?;
        }
        Ok(None)
    }

    /// Takes these slots, which [`Reader::find`] found at the lane's front.
    #[inline]
    fn batch(&mut self, lane: usize, range: NextSlots) -> Result<Option<ChunkBatch>, RecvError> {
        let id = range.chunk;
        let chunk = self.home.pool.chunk(id).ok_or(RecvError::BadChunk(id))?;
        let first_sequence = chunk.first_sequence().wrapping_add(u64::from(range.from));
        let lane_state = &mut self.lanes[lane];
        let Some(held) = &mut lane_state.front else {
            return Ok(None);
        };
        held.next = range.to;
        let (lease, cut) = (Arc::clone(&held.lease), held.cut);
        let expected = lane_state.expected;
        let count = range.to - range.from;
        lane_state.expected = first_sequence.wrapping_add(u64::from(count));
        let taken = lane_state.expected.wrapping_sub(expected);
        // Later chunks repeat the gap, for readers that miss the first one after it.
        let is_new = |gap: &CaptureGap| (expected..=first_sequence).contains(&gap.sequence);
        let capture_gap = chunk.capture_gap().filter(is_new);
        self.read_to = self.read_to.wrapping_add(taken);
        let words = self.home.control.reader();
        words.read_to.store(self.read_to, Relaxed);
        // A reader that takes packets is awake.
        words.asleep.lower();
        let missed = lane_state.missed_before(id);
        let gap = (first_sequence > expected || missed.lost > 0).then(|| Gap {
            first_sequence: expected,
            sequences: first_sequence.saturating_sub(expected),
            packets: missed.lost,
            other_members: missed.other_members,
        });
        Ok(Some(ChunkBatch {
            lease,
            from: range.from,
            to: range.to,
            is_open: range.is_open,
            lane: LaneId::at(lane),
            first_sequence,
            gap,
            capture_gap,
            max_bytes: if cut {
                to_usize(self.cut_bytes)
            } else {
                usize::MAX
            },
        }))
    }
}

/// Announces a reader's sleep; usable while the reader itself is borrowed.
#[derive(Clone)]
pub struct Sleeper {
    control: ControlRegion,
    distributor: Arc<dyn Signal>,
}

impl Sleeper {
    /// Announces that the reader is about to sleep; then call [`Reader::try_next`] once more.
    pub fn arm(&self) {
        let reader = self.control.reader();
        let sleeps = reader.sleeps.load(Relaxed); // ours: nobody else writes it
        reader.sleeps.store(sleeps.wrapping_add(1), Relaxed);
        // Pairs with the fence in `Distributor::arm`: either this side sees that the distributor does
        // not watch every packet, or the distributor sees that this reader sleeps.
        reader.asleep.raise();
        if self.control.hub().watching.load(Relaxed) < Level::Packet as u32 {
            self.distributor.signal();
        }
    }

    /// Announces that the reader is awake again.
    pub fn disarm(&self) {
        self.control.reader().asleep.lower();
    }
}

#[cfg(test)]
mod tests;
