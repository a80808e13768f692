// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run in virtual time: the link, the capture threads, the hub and its readers take turns on one
//! thread, each at the exact moment at which it would act.
//!
//! Pool, writer, queues, distributor, credit, buddy groups and wake-ups are those of live capture;
//! only time is made up. Arrivals and service times are whole picoseconds, ties have one order
//! (readers, then capture, arrivals, the hub's own clock), so every run of one experiment ends alike to the packet.
//!
//! Invariants
//! - An actor that waits is woken as it would be live: by its signal, its flag or a free chunk.
#![forbid(unsafe_code)]

mod flows;
mod outcome;
mod queue;
mod reader;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ringtap_pool::distributor::{Buddies, Distributor, Policy, ReaderOptions, Returns};
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::Signal;

use super::{Link, SimError, SimOptions, lane};
use flows::Flows;
use outcome::disorder;
pub use outcome::{LaneOutcome, Outcome, ReaderOutcome};
use queue::Queue;
use reader::Member;

/// A NIC, what it costs to empty it, and the readers behind.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The NIC; its clock is not asked.
    pub nic: SimOptions,
    /// What the capture step costs a packet, in picoseconds.
    pub capture_ps: u64,
    /// How long a reader takes for a packet, in picoseconds.
    pub service_ps: u64,
    /// Readers: one for each lane, which is what a pool without buddies is; or one for all.
    pub readers: u32,
    /// What the readers divide between them.
    pub affinity: Affinity,
    /// The offload threshold of advanced mode; basic mode without it.
    pub offload_percent: Option<u8>,
}

/// What a group of readers divides, and a busy one leaves to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// Lanes: whole chunks go to the least busy.
    #[default]
    Chunk,
    /// Flows: whole hash buckets of them move, and no flow is read out of order.
    Flow,
}

/// The group of all readers of an experiment.
const GROUP: u32 = 0;

/// Rings in the one thread that there is.
#[derive(Default)]
struct Doorbell(AtomicBool);

impl Signal for Doorbell {
    fn signal(&self) {
        self.0.store(true, Relaxed);
    }
}

struct Run {
    queues: Vec<Queue>,
    members: Vec<Member>,
    distributor: Distributor,
    doorbell: Arc<Doorbell>,
    flows: Option<Flows>,
    now_ps: u64,
    /// When the hub looked last, and when anything but that happened.
    looked_ps: u64,
    end_ps: u64,
}

/// Who acts next, in the order of ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Reader(usize),
    Capture(usize),
    Link(usize),
    Hub,
}

impl Experiment {
    /// Runs it until all packets have come and every reader is done with its own.
    ///
    /// # Errors
    ///
    /// - [`SimError::Endless`]: no burst was given.
    /// - [`SimError::Readers`]: neither one reader a queue nor one for all.
    /// - Those of [`SimSource::open`](super::SimSource::open).
    pub fn run(&self) -> Result<Outcome, SimError> {
        let mut run = self.set_up()?;
        for member in &mut run.members {
            member.wake(0)?;
        }
        run.hub()?;
        while let Some((at_ps, actor)) = run.next() {
            run.now_ps = at_ps;
            run.act(actor)?;
        }
        run.end()
    }

    fn set_up(&self) -> Result<Run, SimError> {
        let link = Arc::new(Link::new(&self.nic)?);
        if link.packets == u64::MAX {
            return Err(SimError::Endless);
        }
        let queues = self.nic.queues;
        if self.readers != queues && self.readers != 1 {
            let readers = self.readers;
            return Err(SimError::Readers { readers, queues });
        }
        let shape = link.shape(&self.nic)?;
        let pool = Pool::on_heap(shape.geometry);
        let doorbell = Arc::new(Doorbell::default());
        let (mut made, mut ends) = (Vec::new(), Vec::new());
        for queue in 0..queues {
            let signal: Arc<dyn Signal> = doorbell.clone();
            let (lane, lane_ends, counters) = lane(&link, queue, &pool, shape, signal);
            made.push(Queue::new(&link, queue, lane, counters, self.capture_ps));
            ends.push(lane_ends);
        }
        let mut distributor = Distributor::new(pool, ends, doorbell.clone());
        let mut members = Vec::new();
        for at in 0..self.readers {
            let options = self.reader(at);
            let added = distributor.add_reader(&options);
            let (id, reader) = added.map_err(|error| SimError::Run(error.to_string()))?;
            let keeps_order = self.divides_flows() || self.offload_percent.is_some();
            members.push(Member::new(
                id,
                reader,
                options.mask,
                self.service_ps,
                keeps_order,
            ));
        }
        let flows = match self.divides_flows() {
            true => {
                let readers = members.iter().map(|member| member.id).collect();
                Some(Flows::new(readers, self.offload_percent, &made)?)
            }
            false => None,
        };
        Ok(Run {
            queues: made,
            members,
            distributor,
            doorbell,
            flows,
            now_ps: 0,
            looked_ps: 0,
            end_ps: 0,
        })
    }

    fn divides_flows(&self) -> bool {
        self.affinity == Affinity::Flow && self.readers > 1
    }

    fn reader(&self, at: u32) -> ReaderOptions {
        if self.divides_flows() {
            // Every chunk goes to all of them, as at a hub: what bounds each is its credit.
            return ReaderOptions {
                mask: flows::mask(at),
                ..ReaderOptions::default()
            };
        }
        // All of them may hold all chunks: what bounds them is the pool.
        ReaderOptions {
            credit: Some(u32::MAX),
            policy: Policy::DropNewest,
            buddies: (self.readers > 1).then_some(Buddies {
                group: GROUP,
                offload_percent: self.offload_percent,
            }),
            ..ReaderOptions::default()
        }
    }
}

impl Run {
    /// The next event; ties go to readers, then to capture.
    fn next(&self) -> Option<(u64, Actor)> {
        let mut next: Option<(u64, Actor)> = None;
        let mut offer = |at: Option<u64>, actor| {
            if let Some(at) = at
                && next.is_none_or(|next| (at, actor) < next)
            {
                next = Some((at, actor));
            }
        };
        for (at, member) in self.members.iter().enumerate() {
            offer(member.done_ps(), Actor::Reader(at));
        }
        for (at, queue) in self.queues.iter().enumerate() {
            offer(queue.copied_ps(), Actor::Capture(at));
            offer(queue.next_arrival_ps(), Actor::Link(at));
        }
        if self.flows.as_ref().is_some_and(Flows::are_moving) {
            offer(Some(self.looked_ps + flows::LOOK_PS), Actor::Hub);
        }
        next
    }

    fn act(&mut self, actor: Actor) -> Result<(), SimError> {
        if actor != Actor::Hub {
            self.end_ps = self.now_ps;
        }
        match actor {
            Actor::Hub => self.hub()?,
            Actor::Link(at) => self.queues[at].arrive(self.now_ps),
            Actor::Capture(at) => self.queues[at].copy(self.now_ps),
            Actor::Reader(at) => self.members[at].read(self.now_ps)?,
        }
        self.settle()
    }

    /// Lets everybody act who was signalled, until nobody is.
    fn settle(&mut self) -> Result<(), SimError> {
        while self.doorbell.0.swap(false, Relaxed) {
            self.hub()?;
        }
        Ok(())
    }

    /// What the hub's thread does between two sleeps.
    fn hub(&mut self) -> Result<(), SimError> {
        self.looked_ps = self.now_ps;
        self.serve()?;
        while self.offload_flows()? {
            self.serve()?;
        }
        Ok(())
    }

    /// Lets busy readers give flows to idle ones; tells whether anything was due.
    fn offload_flows(&mut self) -> Result<bool, SimError> {
        let Some(flows) = &mut self.flows else {
            return Ok(false);
        };
        flows.carry_on(self.now_ps, &mut self.distributor, &self.queues)
    }

    /// Moves chunks until nothing is left to be moved.
    fn serve(&mut self) -> Result<(), SimError> {
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
            queue.room_may_be(self.now_ps);
        }
        for member in self
            .members
            .iter_mut()
            .filter(|one| woken.contains(&one.id))
        {
            member.wake(self.now_ps)?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<bool, SimError> {
        let stepped = self.distributor.step();
        for (lane, queue) in (0..).map(LaneId).zip(&mut self.queues) {
            let used = self.distributor.chunks_in_use(lane);
            queue.most_chunks = queue.most_chunks.max(used);
        }
        stepped.map_err(|error| SimError::Run(error.to_string()))
    }

    /// Nothing happens any more: ends the capture, and lets the readers find the end.
    fn end(mut self) -> Result<Outcome, SimError> {
        for queue in &mut self.queues {
            queue.close();
        }
        while self.step()? {}
        self.distributor.finish();
        for member in &mut self.members {
            member.wake(self.now_ps)?;
        }
        while let Some((at_ps, actor)) = self.next() {
            self.now_ps = at_ps;
            self.act(actor)?;
        }
        while self.step()? {}
        let lanes = (0..).map(LaneId).zip(&self.queues);
        let lanes = lanes.map(|(id, queue)| queue.outcome(id)).collect();
        let readers = self.members.iter();
        let readers = readers.map(|member| member.outcome(&self.distributor));
        Ok(Outcome {
            readers: readers.collect(),
            lanes,
            buddies: self.distributor.buddy_counts(GROUP),
            disordered_packets: disorder(self.members.iter_mut().map(Member::take_notes)),
            moved_buckets: self.flows.as_ref().map_or(0, Flows::moved_buckets),
            unordered_moves: self.flows.as_ref().map_or(0, |flows| flows.unordered_moves),
            end_ps: self.end_ps,
            chunks: self.distributor.chunks_of(LaneId(0)),
            chunk_bytes: self.distributor.geometry().chunk_size,
        })
    }
}

#[cfg(test)]
mod tests;
