// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves chunks from lanes to readers and back: leases, credit, losses of slow readers.
//!
//! The distributor touches chunks, never packets. It does no I/O: who drives it calls
//! [`Distributor::step`] when a lane or a reader signalled, and sleeps in between.
//!
//! Invariants
//! - A chunk is recycled once it is sealed and the last lease on it has ended, and not before.
//! - A reader holds at most its credit of chunks of each lane; what it misses past that is
//!   counted as its own `slow_reader` loss, to the packet, when it is known.
//! - What readers return is checked: only a leased chunk can be given back, and only once.

mod chunks;
mod entry;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::format::Geometry;
use crate::ids::{ChunkId, LaneId, ReaderId};
use crate::queue::{Consumer, PeerCorrupt, Producer};
use crate::reader::{Delivery, Reader};
use crate::sync::Ordering::*;
use crate::view::Pool;
use crate::wake::{Level, Signal, WakeWord};
use chunks::{Chunks, Missed};
use entry::Entry;
pub use entry::{Policy, ReaderOptions};

/// Most readers of one distributor.
pub const MAX_READERS: usize = 64;

/// The distributor's ends of one lane.
pub struct LaneEnds {
    /// The capture queue: chunks that the writer opened.
    pub opened: Consumer,
    /// The recycle queue: chunks that may be written again.
    pub recycle: Producer,
    /// Where the distributor says that it sleeps.
    pub wake: WakeWord,
    /// Chunks that belong to this lane.
    pub chunks: u32,
}

/// Why the distributor cannot go on.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DistributeError {
    /// A writer's or reader's index is impossible.
    #[error(transparent)]
    PeerCorrupt(#[from] PeerCorrupt),
    /// A lane opened a chunk that is in use, or is not the pool's.
    #[error("{lane} is corrupt: it opened {chunk}, which it does not own")]
    BadChunk {
        /// The lane.
        lane: LaneId,
        /// The chunk.
        chunk: ChunkId,
    },
}

/// Why a reader cannot be added.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddReaderError {
    /// All places are taken.
    #[error("there are {MAX_READERS} readers already, the most that one pool can have")]
    TooMany,
}

struct Lane {
    ends: LaneEnds,
    open: Option<ChunkId>,
    /// Sequence of the first packet after the last sealed chunk.
    sealed_to: u64,
    in_use: u32,
}

/// Moves chunks from lanes to readers and back.
pub struct Distributor {
    pool: Pool,
    lanes: Vec<Lane>,
    chunks: Chunks,
    readers: Vec<Option<Entry>>,
    signal: Arc<dyn Signal>,
}

impl Distributor {
    /// A distributor of these lanes; `signal` ends its driver's sleep.
    pub fn new(pool: Pool, lanes: Vec<LaneEnds>, signal: Arc<dyn Signal>) -> Self {
        let chunks = Chunks::new(pool.geometry().chunk_count);
        let lane = |ends| Lane {
            ends,
            open: None,
            sealed_to: 0,
            in_use: 0,
        };
        let lanes = lanes.into_iter().map(lane).collect();
        Distributor {
            pool,
            lanes,
            chunks,
            readers: Vec::new(),
            signal,
        }
    }

    /// The sizes of the pool.
    pub fn geometry(&self) -> &Geometry {
        self.pool.geometry()
    }

    /// Adds a reader: it gets every packet that is published from now on.
    ///
    /// # Errors
    ///
    /// [`AddReaderError::TooMany`].
    pub fn add_reader(
        &mut self,
        options: &ReaderOptions,
    ) -> Result<(ReaderId, Reader), AddReaderError> {
        let free = self.readers.iter().position(Option::is_none);
        let index = free.unwrap_or(self.readers.len());
        if index >= MAX_READERS {
            return Err(AddReaderError::TooMany);
        }
        let starts: Vec<_> = self.lanes.iter().map(|lane| self.now(lane)).collect();
        let (entry, parts) = Entry::new(
            options,
            self.lanes.iter().map(|lane| lane.ends.chunks).collect(),
            starts.clone(),
            &self.pool,
            self.lanes
                .iter()
                .map(|lane| lane.ends.wake.clone())
                .collect(),
            Arc::clone(&self.signal),
        );
        if index == self.readers.len() {
            self.readers.push(None);
        }
        self.readers[index] = Some(entry);
        self.chunks.forget_missed(index);
        for lane in 0..self.lanes.len() {
            self.deliver_open_chunk(lane, index, &starts);
        }
        let id = ReaderId(u32::try_from(index).unwrap_or(u32::MAX));
        Ok((id, Reader::new(parts)))
    }

    /// Takes a reader out, and back everything that it holds.
    pub fn remove_reader(&mut self, id: ReaderId) {
        if self
            .readers
            .get_mut(id.index())
            .and_then(Option::take)
            .is_none()
        {
            return;
        }
        for chunk in self.chunks.end_leases_of(id.index()) {
            self.recycle_if_done(chunk);
        }
    }

    /// Moves all that can be moved; tells whether anything was.
    ///
    /// # Errors
    ///
    /// Every [`DistributeError`] of a lane. A corrupt reader only loses its own place.
    pub fn step(&mut self) -> Result<bool, DistributeError> {
        let mut moved = self.take_back();
        for lane in 0..self.lanes.len() {
            moved |= self.finish_sealed(lane);
            while self.may_deliver(lane) {
                let Some(entry) = self.lanes[lane].ends.opened.pop()? else {
                    break;
                };
                self.opened(lane, entry)?;
                moved = true;
            }
            self.deliver_missed(lane);
        }
        Ok(moved)
    }

    /// Whether every chunk that was opened has been delivered, or missed.
    pub fn is_drained(&self) -> bool {
        self.lanes.iter().all(|lane| lane.ends.opened.is_empty())
    }

    /// Tells every reader that nothing follows. The writers have ended; call it once
    /// [`Distributor::step`] moves nothing and [`Distributor::is_drained`].
    pub fn finish(&mut self) {
        for lane in 0..self.lanes.len() {
            if let Some(chunk) = self.lanes[lane].open.take() {
                self.settle(lane, chunk);
            }
        }
        for entry in self.readers.iter().flatten() {
            entry.shared.ended.store(1, Release);
        }
    }

    /// Packets that this reader lost on this lane because it was past its credit.
    ///
    /// What it misses in a chunk that is still being filled is not yet counted.
    pub fn slow_reader(&self, id: ReaderId, lane: LaneId) -> u64 {
        let entry = self.readers.get(id.index()).and_then(Option::as_ref);
        entry
            .and_then(|entry| entry.slow.get(lane.index()).copied())
            .unwrap_or(0)
    }

    /// Whether this reader broke the rules and gets nothing any more.
    pub fn is_corrupt(&self, id: ReaderId) -> bool {
        self.readers
            .get(id.index())
            .and_then(Option::as_ref)
            .is_some_and(|entry| entry.corrupt)
    }

    /// Chunks of this lane that are not free.
    pub fn chunks_in_use(&self, lane: LaneId) -> u32 {
        self.lanes.get(lane.index()).map_or(0, |lane| lane.in_use)
    }

    /// Says to writers and readers that the driver is about to sleep; then call
    /// [`Distributor::step`] once more.
    pub fn arm(&self) {
        let asleep = self
            .readers
            .iter()
            .flatten()
            .any(|entry| entry.shared.asleep.is_raised());
        let level = if asleep { Level::Packet } else { Level::Chunk };
        for lane in &self.lanes {
            lane.ends.wake.arm(level);
        }
        self.want_returns();
    }

    /// Readers that said they sleep; each is then taken to be awake: signal it.
    pub fn sleepers(&self) -> impl Iterator<Item = ReaderId> {
        self.readers
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                let asleep = &entry.as_ref()?.shared.asleep;
                asleep
                    .take()
                    .then(|| ReaderId(u32::try_from(index).unwrap_or(u32::MAX)))
            })
    }

    /// Asks readers to signal when they give a chunk back, if a lane is about to run dry.
    fn want_returns(&self) {
        let dry =
            |lane: &Lane| lane.in_use >= lane.ends.chunks - lane.ends.chunks.min(entry::RESERVE);
        // What a lane opened is left in its queue only while a blocking reader has no credit.
        let waits = |lane: &Lane| !lane.ends.opened.is_empty();
        let wants = self.lanes.iter().any(|lane| dry(lane) || waits(lane));
        for entry in self.readers.iter().flatten() {
            if wants {
                entry.shared.wants_returns.raise();
            } else {
                entry.shared.wants_returns.lower();
            }
        }
    }

    /// Sequence of the next packet of a lane, and the first slot of the open chunk that is
    /// not yet published.
    fn now(&self, lane: &Lane) -> u64 {
        match lane.open.and_then(|id| self.pool.chunk(id)) {
            Some(chunk) => chunk.first_sequence() + u64::from(chunk.state().published),
            None => lane.sealed_to,
        }
    }

    /// Lends the chunk that is being filled to a new reader, from `starts` on.
    fn deliver_open_chunk(&mut self, lane: usize, reader: usize, starts: &[u64]) {
        let Some(id) = self.lanes[lane].open else {
            return;
        };
        let Some(chunk) = self.pool.chunk(id) else {
            return;
        };
        let from = starts[lane].saturating_sub(chunk.first_sequence());
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        self.lend(lane, reader, Delivery { chunk: id, from });
    }

    /// Whether every reader that must not miss anything can take another chunk.
    fn may_deliver(&self, lane: usize) -> bool {
        let waits = |entry: &Entry| entry.policy == Policy::Block && !entry.has_credit(lane);
        !self.readers.iter().flatten().any(waits)
    }

    /// A writer opened a chunk: the one before is sealed, the new one goes to the readers.
    fn opened(&mut self, lane: usize, entry: u64) -> Result<(), DistributeError> {
        let id = ChunkId(u32::try_from(entry).unwrap_or(u32::MAX));
        if !self.geometry().holds(id) || !self.chunks.take(id, lane) {
            let lane = LaneId(u32::try_from(lane).unwrap_or(u32::MAX));
            return Err(DistributeError::BadChunk { lane, chunk: id });
        }
        if let Some(before) = self.lanes[lane].open.replace(id) {
            self.settle(lane, before);
        }
        self.lanes[lane].in_use += 1;
        for reader in 0..self.readers.len() {
            self.lend(lane, reader, Delivery { chunk: id, from: 0 });
        }
        Ok(())
    }

    /// Lends a chunk to a reader, or notes that the reader misses it from there on.
    fn lend(&mut self, lane: usize, reader: usize, delivery: Delivery) -> bool {
        let Some(entry) = self.readers[reader].as_mut().filter(|entry| !entry.corrupt) else {
            return false;
        };
        if entry.has_credit(lane) && entry.deliver(lane, delivery) {
            self.chunks.lease(delivery.chunk, reader);
            return true;
        }
        self.chunks.miss(
            delivery.chunk,
            Missed {
                reader,
                from: delivery.from,
            },
        );
        false
    }

    /// The open chunk of a lane, if its writer sealed it without opening another.
    fn finish_sealed(&mut self, lane: usize) -> bool {
        let Some(id) = self.lanes[lane].open else {
            return false;
        };
        if !self
            .pool
            .chunk(id)
            .is_some_and(|chunk| chunk.state().sealed)
        {
            return false;
        }
        self.lanes[lane].open = None;
        self.settle(lane, id);
        true
    }

    /// A chunk is sealed: its count is final, so losses are known.
    fn settle(&mut self, lane: usize, id: ChunkId) {
        let Some(chunk) = self.pool.chunk(id) else {
            return;
        };
        let published = chunk.state().published;
        self.lanes[lane].sealed_to = chunk.first_sequence() + u64::from(published);
        for Missed { reader, from } in self.chunks.seal(id) {
            if let Some(entry) = self.readers[reader].as_mut() {
                entry.slow[lane] += u64::from(published.saturating_sub(from));
            }
        }
        self.recycle_if_done(id);
    }

    /// Readers with credit again get the rest of a chunk that is still being filled.
    fn deliver_missed(&mut self, lane: usize) {
        let Some(id) = self.lanes[lane].open else {
            return;
        };
        for Missed { reader, from } in self.chunks.take_missed(id) {
            let Some(chunk) = self.pool.chunk(id) else {
                return;
            };
            let now = chunk.state().published;
            let credit = self.readers[reader]
                .as_ref()
                .is_some_and(|entry| entry.has_credit(lane));
            if !credit {
                self.chunks.miss(id, Missed { reader, from });
                continue;
            }
            if self.lend(
                lane,
                reader,
                Delivery {
                    chunk: id,
                    from: now,
                },
            ) && let Some(entry) = self.readers[reader].as_mut()
            {
                entry.slow[lane] += u64::from(now.saturating_sub(from));
            }
        }
    }

    /// Takes chunks that readers gave back.
    fn take_back(&mut self) -> bool {
        let mut moved = false;
        for reader in 0..self.readers.len() {
            while let Some(id) = self.readers[reader].as_mut().and_then(Entry::returned) {
                moved = true;
                if !self.chunks.end_lease(id, reader) {
                    if let Some(entry) = self.readers[reader].as_mut() {
                        entry.corrupt = true;
                    }
                    break;
                }
                let lane = self.chunks.lane(id);
                if let Some(entry) = self.readers[reader].as_mut() {
                    entry.held[lane] -= 1;
                }
                self.recycle_if_done(id);
            }
        }
        moved
    }

    fn recycle_if_done(&mut self, id: ChunkId) {
        if !self.chunks.free_if_done(id) {
            return;
        }
        let lane = &mut self.lanes[self.chunks.lane(id)];
        lane.in_use -= 1;
        // The queue has room for every chunk; a corrupt writer only loses its own chunks.
        let _lost = lane.ends.recycle.push(u64::from(id.0));
    }
}
