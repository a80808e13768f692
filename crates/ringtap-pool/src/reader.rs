// SPDX-License-Identifier: MIT OR Apache-2.0
//! One consumer of a pool: takes chunks that the distributor delivers, reads packets in place.
//!
//! Invariants
//! - Packets of a lane come in the order in which they were captured; what is missing between
//!   two batches is told as a [`Gap`].
//! - A chunk goes back when the reader moves past it, never while a batch of it is borrowed.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::format::Slot;
use crate::ids::{ChunkId, LaneId, widen};
use crate::queue::{Consumer, PeerCorrupt, Producer, PushError};
use crate::sync::{AtomicU32, Ordering::*};
use crate::view::{Chunk, Pool};
use crate::wake::{Level, Signal, WakeFlag, WakeWord};

/// Words that a reader and the distributor share beside the two queues.
#[derive(Default, Debug)]
pub(crate) struct Shared {
    /// The reader sleeps.
    pub(crate) asleep: WakeFlag,
    /// The distributor waits for chunks to come back.
    pub(crate) wants_returns: WakeFlag,
    /// Nothing will be delivered any more (1).
    pub(crate) ended: AtomicU32,
}

/// A delivery: a chunk, and the first slot that is meant for this reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) chunk: ChunkId,
    pub(crate) from: u32,
}

impl Delivery {
    pub(crate) fn to_entry(self) -> u64 {
        u64::from(self.chunk.0) | (u64::from(self.from) << 32)
    }

    pub(crate) fn from_entry(entry: u64) -> Self {
        let word = |bytes: [u8; 4]| u32::from_le_bytes(bytes);
        let [a, b, c, d, e, f, g, h] = entry.to_le_bytes();
        Delivery {
            chunk: ChunkId(word([a, b, c, d])),
            from: word([e, f, g, h]),
        }
    }
}

/// Packets of a lane that this reader does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Sequence of the first missing packet.
    pub first_sequence: u64,
    /// How many are missing.
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

struct Held {
    chunk: ChunkId,
    next: u32,
}

struct Lane {
    held: VecDeque<Held>,
    expected: u64,
}

/// One consumer of a pool.
pub struct Reader {
    pool: Pool,
    deliveries: Consumer,
    returns: Producer,
    shared: Arc<Shared>,
    lanes: Vec<Lane>,
    turn: usize,
    wake_words: Vec<WakeWord>,
    distributor: Arc<dyn Signal>,
}

/// What a [`Reader`] is made of; the distributor puts it together.
pub(crate) struct ReaderParts {
    pub(crate) pool: Pool,
    pub(crate) deliveries: Consumer,
    pub(crate) returns: Producer,
    pub(crate) shared: Arc<Shared>,
    /// Sequence of the first packet that the reader may get, per lane.
    pub(crate) expected: Vec<u64>,
    pub(crate) wake_words: Vec<WakeWord>,
    pub(crate) distributor: Arc<dyn Signal>,
}

impl Reader {
    pub(crate) fn new(parts: ReaderParts) -> Self {
        let lane = |expected| Lane {
            held: VecDeque::new(),
            expected,
        };
        Reader {
            pool: parts.pool,
            deliveries: parts.deliveries,
            returns: parts.returns,
            shared: parts.shared,
            lanes: parts.expected.into_iter().map(lane).collect(),
            turn: 0,
            wake_words: parts.wake_words,
            distributor: parts.distributor,
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
        let ended = self.shared.ended.load(Acquire) != 0;
        self.accept()?;
        for _ in 0..self.lanes.len() {
            let lane = self.turn;
            self.turn += 1;
            if self.turn == self.lanes.len() {
                self.turn = 0;
            }
            if let Some(found) = self.advance(lane)? {
                return Ok(Next::Batch(self.batch(lane, found)));
            }
        }
        Ok(if ended { Next::Ended } else { Next::Empty })
    }

    /// What this reader says before it sleeps and after.
    pub fn sleeper(&self) -> Sleeper {
        Sleeper {
            shared: Arc::clone(&self.shared),
            wake_words: self.wake_words.clone(),
        }
    }

    /// Sorts new deliveries to their lanes.
    fn accept(&mut self) -> Result<(), RecvError> {
        while let Some(entry) = self.deliveries.pop()? {
            let Delivery { chunk, from } = Delivery::from_entry(entry);
            let view = self.pool.chunk(chunk).ok_or(RecvError::BadChunk(chunk))?;
            let lane = self.lanes.get_mut(view.lane().index());
            let lane = lane.ok_or(RecvError::BadChunk(chunk))?;
            lane.held.push_back(Held { chunk, next: from });
        }
        Ok(())
    }

    /// Gives back what a lane has moved past, and finds the next slots to read.
    fn advance(&mut self, lane: usize) -> Result<Option<Found>, RecvError> {
        while let Some(held) = self.lanes[lane].held.front_mut() {
            let chunk = held.chunk;
            let view = self.pool.chunk(chunk).ok_or(RecvError::BadChunk(chunk))?;
            let state = view.state();
            if held.next < state.published {
                let found = Found {
                    chunk,
                    from: held.next,
                    to: state.published,
                };
                held.next = state.published;
                return Ok(Some(found));
            }
            if !state.sealed {
                return Ok(None);
            }
            self.lanes[lane].held.pop_front();
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
        if self.shared.wants_returns.take() {
            self.distributor.signal();
        }
        Ok(())
    }

    fn batch(&mut self, lane: usize, found: Found) -> Batch<'_> {
        let chunk = self.pool.chunk(found.chunk);
        let first_sequence = chunk
            .map_or(0, |chunk| chunk.first_sequence())
            .wrapping_add(u64::from(found.from));
        let expected = self.lanes[lane].expected;
        let count = found.to - found.from;
        self.lanes[lane].expected = first_sequence.wrapping_add(u64::from(count));
        let gap = (first_sequence > expected).then(|| Gap {
            first_sequence: expected,
            packets: first_sequence - expected,
        });
        Batch {
            chunk,
            id: found.chunk,
            from: found.from,
            to: found.to,
            lane: LaneId(u32::try_from(lane).unwrap_or(u32::MAX)),
            first_sequence,
            gap,
        }
    }
}

/// A reader's announcements that it sleeps; apart from it, so that a batch may be borrowed.
#[derive(Clone)]
pub struct Sleeper {
    shared: Arc<Shared>,
    wake_words: Vec<WakeWord>,
}

impl Sleeper {
    /// Says that the reader is about to sleep; then call [`Reader::next`] once more.
    pub fn arm(&self) {
        self.shared.asleep.raise();
        for word in &self.wake_words {
            word.arm(Level::Packet);
        }
    }

    /// Says that the reader is awake again.
    pub fn disarm(&self) {
        self.shared.asleep.lower();
    }
}

/// How many packets ahead payloads are asked for.
const AHEAD: u32 = 12;

struct Found {
    chunk: ChunkId,
    from: u32,
    to: u32,
}

/// Packets of one lane that follow each other, lent out until the next call.
pub struct Batch<'a> {
    chunk: Option<Chunk<'a>>,
    id: ChunkId,
    from: u32,
    to: u32,
    lane: LaneId,
    first_sequence: u64,
    gap: Option<Gap>,
}

/// One packet in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// What was written of it.
    pub slot: Slot,
    /// Its number in its lane, counted from 0 over all captured packets.
    pub sequence: u64,
    /// Its captured bytes.
    pub data: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The lane that captured these packets.
    pub fn lane(&self) -> LaneId {
        self.lane
    }

    /// What this reader misses just before this batch.
    pub fn gap(&self) -> Option<Gap> {
        self.gap
    }

    /// How many packets there are; never none.
    pub fn len(&self) -> usize {
        widen(self.to - self.from)
    }

    /// Whether there is no packet; never, see [`Next::Empty`].
    pub fn is_empty(&self) -> bool {
        self.to == self.from
    }

    /// The packets, in the order of capture.
    ///
    /// A slot that cannot be (its payload outside the chunk) ends the iteration with an error.
    pub fn packets(&self) -> Packets<'a> {
        Packets {
            chunk: self.chunk,
            id: self.id,
            at: self.from,
            to: self.to,
            sequence: self.first_sequence,
        }
    }
}

/// Iterator over the packets of a [`Batch`].
pub struct Packets<'a> {
    chunk: Option<Chunk<'a>>,
    id: ChunkId,
    at: u32,
    to: u32,
    sequence: u64,
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a>, RecvError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.to {
            return None;
        }
        // SAFETY: `at` is below the count that `advance` observed; the lease is held until the
        // reader is borrowed mutably again, which ends `'a`.
        let found = self
            .chunk
            .and_then(|chunk| unsafe { chunk.packet(self.at) });
        let Some((slot, data)) = found else {
            self.at = self.to;
            return Some(Err(RecvError::BadChunk(self.id)));
        };
        if let Some(chunk) = self.chunk.filter(|_| self.at + AHEAD < self.to) {
            chunk.will_read(self.at + AHEAD);
        }
        let packet = Packet {
            slot,
            sequence: self.sequence,
            data,
        };
        self.at += 1;
        self.sequence = self.sequence.wrapping_add(1);
        Some(Ok(packet))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = widen(self.to - self.at);
        (left, Some(left))
    }
}
