// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs in virtual time: the link, the capture threads, the hub and its readers take turns on one
//! thread, each at the exact picosecond at which it would act.
//!
//! Pool, writer, queues, distributor, credit and wake-ups are those of live capture;
//! only time is simulated. Simultaneous events have one order (readers, capture, arrivals), so
//! every run of one experiment gives the same result to the packet.
//!
//! Invariants
//! - An actor that waits is woken as in live capture: by its signal, its flag or a free chunk.

mod outcome;
mod queue;
mod reader;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ringtap_device::Rate;
use ringtap_pool::distributor::{Distributor, Policy, ReaderOptions, Returns, Scheduler};
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::wake::Signal;

use super::lane::SimQueue;
use super::{SimLink, SimOptions};
use crate::{CaptureError, source};
use outcome::disorder;
pub use outcome::{LaneOutcome, ReaderOutcome, SimOutcome};
use queue::VirtualQueue;
use reader::VirtualReader;

/// A NIC, the cost of capture, and one reader for each queue.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The NIC; its clock is ignored.
    pub nic: SimOptions,
    /// Time that the capture step takes for a packet, in picoseconds.
    pub capture_ps: u64,
    /// Time that a reader takes for a packet, in picoseconds.
    pub service_ps: u64,
    /// Whether to count packets that readers finish out of order within their flow.
    pub counts_disorder: bool,
}

/// Chunk share of all readers of an experiment with several queues.
pub const CHUNK_SHARE: u32 = 0;

/// Signal to the hub, which runs on the same thread.
#[derive(Default)]
struct RunSignal(AtomicBool);

impl Signal for RunSignal {
    fn signal(&self) {
        self.0.store(true, Relaxed);
    }
}

struct VirtualRun {
    queues: Vec<VirtualQueue>,
    readers: Vec<VirtualReader>,
    distributor: Distributor,
    signal: Arc<RunSignal>,
    now_ps: u64,
}

/// Source of the next event, in the order of simultaneous events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Reader(usize),
    Capture(usize),
    Link(usize),
}

impl Experiment {
    /// Runs until all packets have arrived and every reader has finished with its own; `scheduler`
    /// divides the chunks between the readers.
    ///
    /// # Errors
    ///
    /// - [`CaptureError::Endless`]: no burst was given.
    /// - [`CaptureError::VirtualMax`]: the link has no rate.
    /// - Those of [`sim::open`](super::open).
    pub fn run(&self, scheduler: Arc<dyn Scheduler>) -> Result<SimOutcome, CaptureError> {
        let mut run = self.set_up(scheduler)?;
        for reader in &mut run.readers {
            reader.wake(0)?;
        }
        run.hub()?;
        run.act_until_idle()?;
        run.end()
    }

    fn set_up(&self, scheduler: Arc<dyn Scheduler>) -> Result<VirtualRun, CaptureError> {
        if self.nic.rate == Rate::Max {
            return Err(CaptureError::VirtualMax);
        }
        let link = Arc::new(SimLink::new(&self.nic)?);
        if link.packets == u64::MAX {
            return Err(CaptureError::Endless);
        }
        let shape = link.shape(&self.nic)?;
        let signal = Arc::new(RunSignal::default());
        let wake: Arc<dyn Signal> = signal.clone();
        let (pool, lanes, ends) = source::on_heap(shape.geometry, &wake, shape.packets);
        let queue = |(number, lane)| {
            let queue = SimQueue::new(Arc::clone(&link), number, lane);
            VirtualQueue::new(queue, self.capture_ps)
        };
        let queues: Vec<_> = (0..).zip(lanes).map(queue).collect();
        let distributor = Distributor::new(pool, ends, signal.clone());
        let mut distributor = distributor.with_scheduler(scheduler);
        let mut readers = Vec::new();
        for _ in 0..self.nic.queues {
            let options = self.reader();
            let added = distributor.add_reader(&options);
            let (id, reader) = added.map_err(|error| CaptureError::Run(error.to_string()))?;
            let reader = VirtualReader::new(
                id,
                reader,
                options.mask,
                self.service_ps,
                self.counts_disorder,
            );
            readers.push(reader);
        }
        Ok(VirtualRun {
            queues,
            readers,
            distributor,
            signal,
            now_ps: 0,
        })
    }

    fn reader(&self) -> ReaderOptions {
        // Every reader may hold all chunks: only the pool limits them.
        ReaderOptions {
            credit: Some(u32::MAX),
            policy: Policy::DropNewest,
            chunk_share: (self.nic.queues > 1).then_some(CHUNK_SHARE),
            ..ReaderOptions::default()
        }
    }
}

impl VirtualRun {
    /// Lets every actor act at its time, until no event is left.
    fn act_until_idle(&mut self) -> Result<(), CaptureError> {
        while let Some((at_ps, actor)) = self.next() {
            self.now_ps = at_ps;
            match actor {
                Actor::Link(at) => self.queues[at].arrive(at_ps),
                Actor::Capture(at) => self.queues[at].copy(at_ps),
                Actor::Reader(at) => self.readers[at].read(at_ps)?,
            }
            while self.signal.0.swap(false, Relaxed) {
                self.hub()?;
            }
        }
        Ok(())
    }

    /// The next event.
    fn next(&self) -> Option<(u64, Actor)> {
        let mut next: Option<(u64, Actor)> = None;
        let mut offer = |at: Option<u64>, actor| {
            if let Some(at) = at
                && next.is_none_or(|next| (at, actor) < next)
            {
                next = Some((at, actor));
            }
        };
        for (at, reader) in self.readers.iter().enumerate() {
            offer(reader.done_ps, Actor::Reader(at));
        }
        for (at, queue) in self.queues.iter().enumerate() {
            offer(queue.copied_ps, Actor::Capture(at));
            offer(queue.next_arrival_ps(), Actor::Link(at));
        }
        next
    }

    /// Moves chunks until none is left to be moved, and wakes readers and capture threads.
    fn hub(&mut self) -> Result<(), CaptureError> {
        let mut woken: Vec<ReaderId> = Vec::new();
        loop {
            let moved = self.step()?;
            self.distributor.wake_sleepers(|id| woken.push(id));
            if !moved {
                self.distributor.arm(Returns::WhenDry);
                if !self.step()? {
                    break;
                }
            }
        }
        for queue in &mut self.queues {
            queue.retry(self.now_ps);
        }
        for reader in &mut self.readers {
            if woken.contains(&reader.id) {
                reader.wake(self.now_ps)?;
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<bool, CaptureError> {
        let stepped = self.distributor.step();
        for (lane, queue) in (0..).map(LaneId).zip(&mut self.queues) {
            let used = self.distributor.chunks_in_use(lane);
            queue.max_chunks = queue.max_chunks.max(used);
        }
        stepped.map_err(|error| CaptureError::Run(error.to_string()))
    }

    /// Ends capture after the last event, and lets the readers find the end.
    fn end(mut self) -> Result<SimOutcome, CaptureError> {
        for queue in &mut self.queues {
            queue.close();
        }
        while self.step()? {}
        self.distributor.finish();
        for reader in &mut self.readers {
            reader.wake(self.now_ps)?;
        }
        self.act_until_idle()?;
        while self.step()? {}
        let records = self.readers.iter_mut().map(VirtualReader::take_records);
        let disordered_packets = disorder(records);
        let readers = self.readers.iter();
        Ok(SimOutcome {
            lanes: self.queues.iter().map(VirtualQueue::outcome).collect(),
            readers: readers.map(|one| one.outcome(&self.distributor)).collect(),
            disordered_packets,
            chunks: self.distributor.chunks_of(LaneId(0)),
        })
    }
}

#[cfg(test)]
mod tests;
