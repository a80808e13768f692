// SPDX-License-Identifier: MIT OR Apache-2.0
//! One consumer of a pool: takes chunks that the distributor delivers, reads packets in place.
//!
//! Invariants
//! - Packets of a lane come in the order in which they were captured; what is missing between
//!   two batches is told as a [`Gap`].
//! - A chunk goes back when the reader moves past it, never while a batch of it is borrowed.

mod batch;
mod delivery;
mod glance;
mod lane;
mod ordered;

use std::sync::Arc;

use crate::control::{Control, ControlError, Progress};
use crate::distributor::Policy;
use crate::ids::{ChunkId, LaneId, widen};
use crate::memory::Region;
use crate::queue::{Consumer, PeerCorrupt, Producer, PushError};
use crate::sync::Ordering::*;
use crate::view::Pool;
use crate::wake::{Level, Signal};
pub use batch::{Batch, Packet, Packets};
pub(crate) use delivery::{Delivery, MOST_LOST};
use lane::{Held, Lane};
pub use ordered::Heads;

/// What a reader does not get of a lane, just before a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Sequence of the first packet that is left out.
    pub first_sequence: u64,
    /// How many packets of the lane are left out, wanted or not.
    pub sequences: u64,
    /// How many of them this reader wanted, and lost.
    pub packets: u64,
}

/// Why nothing can be received any more.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// The distributor's index is impossible.
    #[error("the capture side is corrupt: {0}")]
    PeerCorrupt(#[from] PeerCorrupt),
    /// A delivered chunk lies outside the pool, or holds what cannot be.
    #[error("the capture side is corrupt: it delivered {0}, which cannot be read")]
    BadChunk(ChunkId),
    /// A loss was told of a lane that there is not.
    #[error("the capture side is corrupt: it told of {0}, which does not exist")]
    BadLane(LaneId),
}

/// What [`Reader::next`] found.
pub enum Next<'a> {
    /// Packets.
    Batch(Batch<'a>),
    /// Nothing now.
    Empty,
    /// Nothing, and nothing will come any more.
    Ended,
}

/// What [`Reader::waits`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Packets that [`Reader::next`] will give.
    Packets,
    /// Nothing now.
    Nothing,
    /// Nothing, and nothing will come any more.
    Ended,
}

/// Slots of one chunk that are to be read.
#[derive(Clone, Copy)]
struct Found {
    chunk: ChunkId,
    from: u32,
    to: u32,
    cut: bool,
}

impl Found {
    #[inline]
    fn of(held: Held, published: u32) -> Self {
        Found {
            chunk: held.chunk,
            from: held.next,
            to: published,
            cut: held.cut,
        }
    }
}

/// One consumer of a pool.
pub struct Reader {
    pool: Pool,
    deliveries: Consumer,
    returns: Producer,
    control: Control,
    lanes: Vec<Lane>,
    turn: usize,
    /// Sum over the lanes of what is expected next.
    read_to: u64,
    /// Bytes of a packet that are left when the distributor says that it is cut.
    cut_bytes: u32,
    distributor: Arc<dyn Signal>,
}

impl Reader {
    /// The reader whose control region a distributor made.
    ///
    /// `distributor` wakes its driver. `policy` is the one that the reader was added with.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    pub fn open(
        pool: Pool,
        control: &Region,
        policy: Policy,
        distributor: Arc<dyn Signal>,
    ) -> Result<Self, ControlError> {
        let control = Control::open(control)?;
        let (lanes, want) = (control.starts.len(), pool.geometry().lane_count);
        if lanes != widen(want) {
            return Err(ControlError::Lanes { lanes, want });
        }
        Ok(Reader::new(pool, control, policy, distributor))
    }

    pub(crate) fn new(
        pool: Pool,
        control: Control,
        policy: Policy,
        distributor: Arc<dyn Signal>,
    ) -> Self {
        let starts = control.starts();
        let read_to = starts.iter().fold(0, |sum: u64, at| sum.wrapping_add(*at));
        control.reader().read_to.store(read_to, Relaxed);
        Reader {
            deliveries: Consumer::new(control.deliveries.clone()),
            returns: Producer::new(control.returns.clone()),
            lanes: starts.into_iter().map(Lane::new).collect(),
            read_to,
            turn: 0,
            cut_bytes: match policy {
                Policy::Cut { snap_bytes } => snap_bytes,
                _ => u32::MAX,
            },
            pool,
            control,
            distributor,
        }
    }

    /// The pool that this reader reads.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Takes all packets that are published in one chunk, lanes by turns; never waits.
    ///
    /// What the last batch lent out goes back first.
    ///
    /// # Errors
    ///
    /// Every [`RecvError`]; the reader is of no use any more.
    #[expect(
        clippy::should_implement_trait,
        reason = "a lending iterator cannot be an Iterator"
    )]
    pub fn next(&mut self) -> Result<Next<'_>, RecvError> {
        // Read before the queue: what was delivered before the end is found below.
        let ended = self.control.hub().ended.load(Acquire) != 0;
        self.accept()?;
        for _ in 0..self.lanes.len() {
            let lane = self.turn;
            self.turn += 1;
            if self.turn == self.lanes.len() {
                self.turn = 0;
            }
            if let Some(found) = self.find(lane)? {
                return Ok(Next::Batch(self.batch(lane, found)));
            }
        }
        Ok(if ended { Next::Ended } else { Next::Empty })
    }

    /// What this reader says before it sleeps and after.
    pub fn sleeper(&self) -> Sleeper {
        Sleeper {
            control: self.control.clone(),
            distributor: Arc::clone(&self.distributor),
        }
    }

    /// Sequence of the first packet that the reader may get, per lane.
    pub fn starts(&self) -> Vec<u64> {
        self.control.starts()
    }

    /// Where the reader tells how far it came, for those who watch it.
    pub fn progress(&self) -> &Progress {
        self.control.reader().progress()
    }

    /// Packets that wait here: published, delivered, and not yet read.
    pub fn waiting(&self) -> u64 {
        let held = self.lanes.iter().flat_map(Lane::held);
        let waiting = |held: &Held| {
            let published = self.pool.chunk(held.chunk)?.state().published;
            Some(u64::from(published.saturating_sub(held.next)))
        };
        held.filter_map(waiting).sum()
    }

    /// Whether packets wait here, without taking them.
    ///
    /// # Errors
    ///
    /// As for [`Reader::next`].
    pub fn waits(&mut self) -> Result<Waits, RecvError> {
        let ended = self.control.hub().ended.load(Acquire) != 0;
        self.accept()?;
        for lane in 0..self.lanes.len() {
            if self.find(lane)?.is_some() {
                return Ok(Waits::Packets);
            }
        }
        Ok(if ended { Waits::Ended } else { Waits::Nothing })
    }

    /// Sorts new deliveries to their lanes.
    fn accept(&mut self) -> Result<(), RecvError> {
        while let Some(entry) = self.deliveries.pop()? {
            match Delivery::from_entry(entry) {
                Delivery::Chunk { chunk, from, cut } => {
                    let view = self.pool.chunk(chunk).ok_or(RecvError::BadChunk(chunk))?;
                    let lane = self.lanes.get_mut(view.lane().index());
                    let lane = lane.ok_or(RecvError::BadChunk(chunk))?;
                    // No chunk is lent twice at a time: more than there are is a lie.
                    if lane.len() >= widen(self.pool.geometry().chunk_count) {
                        return Err(RecvError::BadChunk(chunk));
                    }
                    let next = from;
                    lane.hold(Held { chunk, next, cut });
                }
                Delivery::Lost { lane, packets } => {
                    let known = self.lanes.get_mut(lane.index());
                    known.ok_or(RecvError::BadLane(lane))?.lose(packets);
                }
            }
        }
        Ok(())
    }

    /// Gives back what a lane has moved past, and finds the next slots to read.
    fn find(&mut self, lane: usize) -> Result<Option<Found>, RecvError> {
        while let Some(held) = self.lanes[lane].front {
            let chunk = held.chunk;
            let view = self.pool.chunk(chunk).ok_or(RecvError::BadChunk(chunk))?;
            let state = view.state();
            if held.next < state.published {
                return Ok(Some(Found::of(held, state.published)));
            }
            if !state.sealed {
                return Ok(None);
            }
            self.lanes[lane].pass();
            self.give_back(chunk)?;
        }
        Ok(None)
    }

    fn give_back(&mut self, chunk: ChunkId) -> Result<(), RecvError> {
        match self.returns.push(u64::from(chunk.0)) {
            Ok(()) => {}
            Err(PushError::PeerCorrupt(corrupt)) => return Err(corrupt.into()),
            // There is room for every chunk that the distributor may lend.
            Err(PushError::Full) => return Err(RecvError::BadChunk(chunk)),
        }
        if self.control.hub().wants_returns.take() {
            self.distributor.signal();
        }
        Ok(())
    }

    /// Lends these slots out: the lane has moved past them.
    #[inline]
    fn batch(&mut self, lane: usize, found: Found) -> Batch<'_> {
        let chunk = self.pool.chunk(found.chunk);
        let first_sequence = chunk
            .map_or(0, |chunk| chunk.first_sequence())
            .wrapping_add(u64::from(found.from));
        let lane_state = &mut self.lanes[lane];
        if let Some(held) = &mut lane_state.front {
            held.next = found.to;
        }
        let expected = lane_state.expected;
        let count = found.to - found.from;
        lane_state.expected = first_sequence.wrapping_add(u64::from(count));
        let taken = lane_state.expected.wrapping_sub(expected);
        self.read_to = self.read_to.wrapping_add(taken);
        let told = self.control.reader();
        told.read_to.store(self.read_to, Relaxed);
        // Who takes packets is awake: nobody need ring.
        told.asleep.lower();
        let packets = lane_state.loss_before(found.chunk);
        let gap = (first_sequence > expected || packets > 0).then(|| Gap {
            first_sequence: expected,
            sequences: first_sequence.saturating_sub(expected),
            packets,
        });
        Batch {
            chunk,
            id: found.chunk,
            from: found.from,
            to: found.to,
            lane: LaneId::at(lane),
            first_sequence,
            gap,
            most_bytes: if found.cut {
                widen(self.cut_bytes)
            } else {
                usize::MAX
            },
        }
    }
}

/// A reader's announcements that it sleeps; apart from it, so that a batch may be borrowed.
#[derive(Clone)]
pub struct Sleeper {
    control: Control,
    distributor: Arc<dyn Signal>,
}

impl Sleeper {
    /// Says that the reader is about to sleep; then call [`Reader::next`] once more.
    pub fn arm(&self) {
        let reader = self.control.reader();
        let sleeps = reader.sleeps.load(Relaxed); // ours: nobody else writes it
        reader.sleeps.store(sleeps.wrapping_add(1), Relaxed);
        // The fence in it pairs with the one in `Distributor::arm`: either we see that it does
        // not watch every packet, or it sees that we sleep.
        reader.asleep.raise();
        if self.control.hub().watching.load(Relaxed) < Level::Packet as u32 {
            self.distributor.signal();
        }
    }

    /// Says that the reader is awake again.
    pub fn disarm(&self) {
        self.control.reader().asleep.lower();
    }
}

#[cfg(test)]
mod tests;
