// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves chunks from lanes to readers and back: leases, credit, losses of slow readers.
//!
//! The distributor handles chunks, never packets, and does no I/O. Its driver calls
//! [`Distributor::step`] when a lane or a reader signalled, and sleeps in between.
//!
//! Invariants
//! - A chunk goes to every reader, but only to one reader of each chunk share.
//! - A chunk is recycled only after it is sealed and the last lease on it has ended.
//! - A reader holds at most its credit of chunks of each lane, and beyond its guarantee only what
//!   other readers leave. Packets that it misses for that count as its own `overrun`, exactly,
//!   once their number is known.
//! - Returns are checked: a reader can return only a leased chunk, and only once.
//! - The work for a chunk does not grow with the number of readers that get none ([`idle`]).
//! - A step moves at most [`STEP_CHUNKS`] chunks, or one of each lane.

mod admission;
mod budget;
mod choosing;
mod chunks;
mod entry;
mod figures;
mod idle;
mod leasing;
mod missed;
mod options;
mod reader_set;
mod resting;
mod returns;
mod scheduler;
mod shares;
mod signs;
mod slot_masks;
#[cfg(test)]
mod tests;
mod wakeups;

use std::sync::Arc;

use crate::control::{self, ControlRegion, ControlRegionError, MEMORY_LOST};
use crate::format::Geometry;
use crate::ids::{ChunkId, LaneId, ReaderId};
use crate::memory::Region;
use crate::number::{to_u32, to_usize};
pub use crate::policy::Policy;
use crate::queue::{Consumer, PeerCorrupt, Producer};
use crate::reader::Reader;
use crate::sync::Ordering::*;
use crate::view::Pool;
use crate::wake::{Signal, WakeWord};
use budget::{LaneBudget, Owners};
use chunks::Chunks;
use entry::Entry;
use missed::Missed;
pub use missed::Missing;
pub use options::ReaderOptions;
pub use reader_set::MAX_READERS;
use reader_set::ReaderSet;
use resting::RestClasses;
pub use scheduler::{Candidate, EvenLanes, NextChunk, Returned, Scheduler};
use shares::{Choice, ChunkShares, is_elsewhere};
use signs::Signs;
use slot_masks::SlotMasks;
pub use wakeups::Returns;

/// Maximum number of chunks that one step moves, divided evenly between the lanes: between two steps, the
/// driver wakes readers.
pub const STEP_CHUNKS: usize = 64;

/// The distributor's ends of one lane.
pub struct LaneEnds {
    /// The capture queue: chunks that the writer opened.
    pub opened: Consumer,
    /// The recycle queue: chunks that the writer may reuse.
    pub recycle: Producer,
    /// Word in which the distributor announces a sleep.
    pub wake: WakeWord,
    /// Chunks that belong to this lane.
    pub chunks: u32,
}

/// Why the distributor cannot continue.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DistributeError {
    /// A writer's or reader's index is impossible.
    #[error(transparent)]
    PeerCorrupt(#[from] PeerCorrupt),
    /// A lane opened a chunk that is in use or outside the pool.
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
    /// The distributor has the maximum number of readers.
    #[error("there are {MAX_READERS} readers already, the most that one pool can have")]
    TooMany,
    /// The reader's control region is invalid.
    #[error(transparent)]
    Control(#[from] ControlRegionError),
    /// Packets at the start sequence are not readable any more, or not yet.
    #[error("{lane} cannot be read from packet {start} on")]
    Start {
        /// The lane.
        lane: LaneId,
        /// The requested sequence number.
        start: u64,
    },
}

struct Lane {
    ends: LaneEnds,
    open: Option<ChunkId>,
    /// Attentive readers that miss the open chunk.
    missed: Vec<Missed>,
    /// Readers that a chunk of the lane concerns; the others rest.
    attentive: ReaderSet,
    /// Readers with a lease on the open chunk.
    filling: ReaderSet,
    /// Burst in which the open chunk was opened, and readers that rest because of it.
    burst: u64,
    bursts: ReaderSet,
    /// Owners with resting readers that wait for a chunk of the shared half.
    waiting_owners: ReaderSet,
    /// Sequence of the first packet after the last sealed chunk.
    sealed_to: u64,
    in_use: u32,
    budget: LaneBudget,
}

impl Lane {
    fn free(&self) -> u32 {
        self.ends.chunks.saturating_sub(self.in_use)
    }

    /// Sequence number of the next packet, which is not yet published.
    fn now(&self, pool: &Pool) -> u64 {
        match self.open.and_then(|id| pool.chunk(id)) {
            Some(chunk) => chunk.first_sequence() + u64::from(chunk.state().published),
            None => self.sealed_to,
        }
    }
}

/// Moves chunks from lanes to readers and back.
pub struct Distributor {
    pool: Pool,
    lanes: Vec<Lane>,
    chunks: Chunks,
    readers: Vec<Option<Entry>>,
    owners: Owners,
    shares: ChunkShares,
    scheduler: Arc<dyn Scheduler>,
    signal: Arc<dyn Signal>,
    /// Number of readers with a full guarantee.
    guaranteed_readers: u32,
    /// Packets that resting readers miss.
    resting: RestClasses,
    /// Signs that the readers showed at the last check.
    signs: Signs,
    /// Readers that must not miss anything.
    blocking: ReaderSet,
    /// Readers that are left asleep, because they wait for more packets.
    deferred: ReaderSet,
    /// Whether readers may see a request to signal returned chunks.
    wants_returns: bool,
    /// Masks of the slots that are being counted; kept to reuse the allocation.
    slots: SlotMasks,
    /// Number of bursts: runs of steps without an end, in which chunks that came at once are moved.
    bursts: u64,
    /// The last step left chunks because it had moved its maximum.
    is_behind: bool,
    /// Number of readers that a chunk was offered to since the start.
    #[cfg(test)]
    lease_tries: u64,
    /// Whether a sleeper was woken since the last check: it will soon sleep again.
    woke: bool,
    /// Number of the memory in which the pool lies.
    memory: u32,
    /// Returned chunks while they are processed; kept to reuse the allocation.
    returned: Vec<(usize, ChunkId)>,
}

impl Distributor {
    /// Creates a distributor for these lanes; `signal` wakes its driver.
    pub fn new(pool: Pool, lanes: Vec<LaneEnds>, signal: Arc<dyn Signal>) -> Self {
        let chunks = Chunks::new(pool.geometry().chunk_count, lanes.len());
        let lane = |ends| Lane {
            ends,
            open: None,
            missed: Vec::new(),
            attentive: ReaderSet::default(),
            filling: ReaderSet::default(),
            burst: 0,
            bursts: ReaderSet::default(),
            waiting_owners: ReaderSet::default(),
            sealed_to: 0,
            in_use: 0,
            budget: LaneBudget::UNLIMITED,
        };
        let lanes = lanes.into_iter().map(lane).collect();
        Distributor {
            pool,
            lanes,
            chunks,
            readers: Vec::new(),
            owners: Owners::default(),
            shares: ChunkShares::default(),
            scheduler: Arc::new(EvenLanes),
            signal,
            guaranteed_readers: 1,
            resting: RestClasses::default(),
            signs: Signs::default(),
            blocking: ReaderSet::default(),
            deferred: ReaderSet::default(),
            wants_returns: false,
            slots: SlotMasks::default(),
            bursts: 0,
            is_behind: false,
            #[cfg(test)]
            lease_tries: 0,
            woke: false,
            memory: 0,
            returned: Vec::new(),
        }
    }

    /// Lets this scheduler divide chunks between the readers of a share from now on; without one,
    /// the lanes are divided evenly.
    #[must_use]
    pub fn with_scheduler(self, scheduler: Arc<dyn Scheduler>) -> Self {
        Distributor { scheduler, ..self }
    }

    /// Lets the lanes begin at these sequences, not at 0.
    pub(crate) fn begin_at(&mut self, starts: &[u64]) {
        for (lane, start) in self.lanes.iter_mut().zip(starts) {
            lane.sealed_to = *start;
        }
    }

    /// The sizes of the pool.
    pub fn geometry(&self) -> &Geometry {
        self.pool.geometry()
    }

    /// Adds a reader in this process, which gets every packet published from now on.
    pub fn add_reader(
        &mut self,
        options: &ReaderOptions,
    ) -> Result<(ReaderId, Reader), AddReaderError> {
        let memory = Region::on_heap(control::control_bytes(self.pool.geometry()));
        let starts: Vec<_> = self.lanes.iter().map(|lane| lane.now(&self.pool)).collect();
        let id = self.add_reader_at(options, &memory, &starts)?;
        let signal = Arc::clone(&self.signal);
        let reader = Reader::open(self.pool.clone(), &memory, options.policy, signal)?;
        Ok((id, reader))
    }

    /// Adds a reader with this control region (zeroed, writable, not yet known to anybody else):
    /// it gets every packet from these sequences on, one a lane.
    ///
    /// # Errors
    ///
    /// Every [`AddReaderError`]; [`AddReaderError::Start`] if the lane's open chunk begins after
    /// that packet, or it is not yet published. Call [`Distributor::step`] and try a newer one.
    pub fn add_reader_at(
        &mut self,
        options: &ReaderOptions,
        memory: &Region,
        starts: &[u64],
    ) -> Result<ReaderId, AddReaderError> {
        let free = self.readers.iter().position(Option::is_none);
        let index = free.unwrap_or(self.readers.len());
        if index >= MAX_READERS {
            return Err(AddReaderError::TooMany);
        }
        for (id, (lane, start)) in (0..).map(LaneId).zip(self.lanes.iter().zip(starts)) {
            if !(self.sealed_before(lane)..=lane.now(&self.pool)).contains(start) {
                return Err(AddReaderError::Start {
                    lane: id,
                    start: *start,
                });
            }
        }
        let control = ControlRegion::create(memory, self.pool.geometry(), starts)?;
        control.hub().memory.store(self.memory, Relaxed);
        control.reader().memory.store(self.memory, Relaxed);
        let credit = |lane: &Lane| {
            let chunks = lane.ends.chunks;
            entry::credit(options.credit, options.policy, chunks, &lane.budget)
        };
        let credits: Vec<_> = self.lanes.iter().map(credit).collect();
        if index == self.readers.len() {
            self.readers.push(None);
        }
        let owner = self.owners.join(options.user, index, self.lanes.len());
        let entry = Entry::new(options, owner, &credits, control);
        self.signs.add(index, &entry.control, entry.next_return());
        self.blocking.set(index, options.policy == Policy::Block);
        self.deferred.remove(index);
        for lane in &mut self.lanes {
            lane.attentive.add(index);
        }
        self.readers[index] = Some(entry);
        self.assign_guarantees();
        if let Some(share) = options.chunk_share {
            self.shares.join(share, index);
        }
        for lane in 0..self.lanes.len() {
            self.deliver_open_chunk(lane, index, starts);
        }
        Ok(ReaderId(to_u32(index)))
    }

    /// Changes how many chunks of each lane a reader may hold.
    pub fn set_credit(&mut self, id: ReaderId, chunks: u32) {
        let entry = self.readers.get_mut(id.index()).and_then(Option::as_mut);
        if let Some(entry) = entry {
            let policy = entry.policy;
            for (account, lane) in entry.lanes.iter_mut().zip(&self.lanes) {
                let all = lane.ends.chunks;
                account.credit = entry::credit(Some(chunks), policy, all, &lane.budget);
            }
            self.attend_permitted();
        }
    }

    /// Changes the mask bits of a reader, whose packets so far have the same bits by both masks.
    pub fn set_mask(&mut self, id: ReaderId, mask: u64) {
        for lane in 0..self.lanes.len() {
            self.attend_open(lane, id.index());
        }
        if let Some(entry) = self.readers.get_mut(id.index()).and_then(Option::as_mut) {
            entry.mask = mask;
        }
    }

    /// Tells the readers that the pool lies in the memory with this number from now on. In this process it is
    /// mapped already. Chunks that readers hold have the same content there.
    pub fn set_memory(&mut self, number: u32) {
        self.memory = number;
        for entry in self.readers.iter().flatten() {
            // Pairs with the load in `Reader::accept`: what is delivered after this is read there.
            let word = &entry.control.hub().memory;
            if word.load(Relaxed) != MEMORY_LOST {
                word.store(number, Release);
            }
        }
    }

    fn without_memory(&self) -> impl Iterator<Item = &Entry> {
        let lacks = |entry: &&Entry| {
            let has = entry.control.reader().memory.load(Acquire);
            entry.control.hub().memory.load(Relaxed) != MEMORY_LOST && has != self.memory
        };
        self.readers.iter().flatten().filter(lacks)
    }

    /// Whether every reader has mapped the memory of [`Distributor::set_memory`], or has lost it.
    pub fn is_memory_taken(&self) -> bool {
        self.without_memory().next().is_none()
    }

    /// Ends the reading of those that still have not mapped that memory: the one before goes.
    pub fn lose_memory(&mut self) {
        for entry in self.without_memory() {
            entry.control.hub().memory.store(MEMORY_LOST, Release);
        }
    }

    /// Charges a reader with packets that it wanted and that were lost outside this pool. The reader gets
    /// the report before the lane's next chunk.
    pub fn charge(&mut self, id: ReaderId, lane: LaneId, packets: u64) {
        let entry = self.readers.get_mut(id.index()).and_then(Option::as_mut);
        if let Some(entry) = entry.filter(|entry| lane.index() < entry.lanes.len()) {
            let missing = Missing {
                packets,
                ..Missing::default()
            };
            entry.miss(lane.index(), missing);
        }
    }

    /// Removes a reader and takes back its chunks.
    pub fn remove_reader(&mut self, id: ReaderId) {
        for lane in 0..self.lanes.len() {
            self.attend(lane, id.index());
        }
        let Some(entry) = self.readers.get_mut(id.index()).and_then(Option::take) else {
            return;
        };
        self.shares.leave(id.index());
        self.scheduler.removed(id);
        for lane in &mut self.lanes {
            lane.missed.retain(|missed| missed.reader != id.index());
            lane.attentive.remove(id.index());
            lane.filling.remove(id.index());
        }
        self.signs.remove(id.index());
        self.blocking.remove(id.index());
        for chunk in self.chunks.all_leased_to(id.index()) {
            self.return_chunk(chunk, id.index(), entry.owner);
        }
        self.owners.leave(entry.owner, id.index());
        self.free_guarantees(&entry);
        self.adopt_open_chunks();
    }

    /// Moves chunks, at most [`STEP_CHUNKS`] or one of each lane; returns whether there were any. Call it
    /// until nothing moved.
    ///
    /// # Errors
    ///
    /// Every [`DistributeError`] of a lane. A corrupt reader only loses its own membership.
    pub fn step(&mut self) -> Result<bool, DistributeError> {
        if !std::mem::take(&mut self.is_behind) {
            self.bursts += 1;
        }
        let mut moved = self.take_back();
        let of_each_lane = self.chunks_of_each_lane();
        for lane in 0..self.lanes.len() {
            moved |= self.finish_sealed(lane);
            let mut left = of_each_lane;
            while !self.lanes[lane].ends.opened.is_empty() {
                if left == 0 {
                    self.is_behind = true;
                    break;
                }
                left -= 1;
                let choices = self.choose_readers(lane);
                if !self.may_deliver(lane, &choices) {
                    break;
                }
                let Some(entry) = self.lanes[lane].ends.opened.pop()? else {
                    break;
                };
                self.opened(lane, entry, &choices)?;
                moved = true;
            }
            self.deliver_missed(lane);
        }
        self.signs.stepped();
        Ok(moved)
    }

    /// Largest number of chunks of one lane that a step moves.
    fn chunks_of_each_lane(&self) -> usize {
        (STEP_CHUNKS / self.lanes.len().max(1)).max(1)
    }

    /// Number of steps that take the chunks which wait now, settle the last one if it is sealed, and take
    /// back what was returned.
    pub fn steps_behind(&self) -> usize {
        let waiting = self.lanes.iter().map(|lane| lane.ends.opened.len());
        let most = to_usize(waiting.max().unwrap_or(0));
        most.div_ceil(self.chunks_of_each_lane()) + 2
    }

    /// Whether the last step left chunks because it had moved its maximum.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Time of the first packet in the oldest chunk that a lane opened and no step has taken yet.
    pub fn waits_since_ns(&self) -> Option<u64> {
        let first = |lane: &Lane| {
            let entry = lane.ends.opened.peek()?;
            self.pool.chunk(ChunkId(to_u32(entry)))?.first_time_ns()
        };
        self.lanes.iter().filter_map(first).min()
    }

    /// Whether every opened chunk has been delivered or counted as missed.
    pub fn is_drained(&self) -> bool {
        self.lanes.iter().all(|lane| lane.ends.opened.is_empty())
    }

    /// Tells every reader that no more chunks follow. Call it after the writers have ended, once
    /// [`Distributor::step`] moves nothing and [`Distributor::is_drained`] holds.
    pub fn finish(&mut self) {
        for lane in 0..self.lanes.len() {
            if let Some(chunk) = self.lanes[lane].open.take() {
                self.settle(lane, chunk);
            }
        }
        for entry in self.readers.iter_mut().flatten() {
            entry.control.hub().ended.store(1, Release);
            entry.unreported_end = true;
        }
        self.signs.is_unsure_of_all();
    }

    /// Sequence of the first packet of a lane that a new reader can get.
    fn sealed_before(&self, lane: &Lane) -> u64 {
        let open = lane.open.and_then(|id| self.pool.chunk(id));
        open.map_or(lane.sealed_to, |chunk| chunk.first_sequence())
    }

    /// Handles a newly opened chunk: settles the one before, and delivers the new one, for which
    /// these readers of the shares were chosen.
    fn opened(
        &mut self,
        lane: usize,
        entry: u64,
        choices: &[Choice],
    ) -> Result<(), DistributeError> {
        let id = ChunkId(to_u32(entry));
        if !self.geometry().holds(id) || !self.chunks.take(id, lane) {
            let lane = LaneId::at(lane);
            return Err(DistributeError::BadChunk { lane, chunk: id });
        }
        if let Some(before) = self.lanes[lane].open.replace(id) {
            self.settle(lane, before);
        }
        self.begin_in_burst(lane);
        self.lanes[lane].in_use += 1;
        self.report_opened(lane, id, choices);
        let threshold = self.lanes[lane].budget.threshold();
        for choice in choices {
            self.attend(lane, choice.reader());
        }
        for reader in self.lanes[lane].attentive.iter() {
            let entry = self.readers[reader].as_ref();
            let is_in_share = entry.is_some_and(|entry| entry.is_in_share);
            if is_in_share && is_elsewhere(reader, choices) {
                self.lanes[lane].missed.push(Missed::elsewhere(reader, 0));
            } else {
                self.lease(lane, reader, id, 0, threshold);
            }
        }
        for reader in self.take_waiting(lane, id, threshold) {
            self.attend(lane, reader);
            self.lease(lane, reader, id, 0, threshold);
        }
        Ok(())
    }

    /// Settles the open chunk of a lane if its writer sealed it without opening another.
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

    /// Counts losses in a sealed chunk, whose number of packets is final.
    fn settle(&mut self, lane: usize, id: ChunkId) {
        let Some(chunk) = self.pool.chunk(id) else {
            return;
        };
        let published = chunk.state().published;
        let end = chunk.first_sequence() + u64::from(published);
        self.lanes[lane].sealed_to = end;
        for reader in std::mem::take(&mut self.lanes[lane].filling).iter() {
            if let Some(entry) = self.readers[reader].as_mut() {
                entry.lanes[lane].seal(end);
                self.signs.unsure.add(reader);
            }
        }
        self.scheduler.sealed(id, published);
        self.chunks.seal(id);
        let (pool, slots) = (&self.pool, &mut self.slots);
        slots.forget();
        self.resting.seal(lane, |mask, group| {
            slots.see(pool, id, 0..published, (mask, group))
        });
        for missed in std::mem::take(&mut self.lanes[lane].missed) {
            self.count_missed(lane, id, missed, published);
            self.rest(lane, missed.reader, missed.why);
        }
        self.recycle_if_done(id);
    }
}
