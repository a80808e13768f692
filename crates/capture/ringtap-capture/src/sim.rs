// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `sim` source: a simulated NIC with a line rate, receive queues and their rings.
//!
//! Invariants
//! - Everything behind a receive ring is the code of live capture: pool, writer and distributor do
//!   not know that the packets are simulated.
//! - A link with a rate does not wait: a packet that finds its ring full is lost and counted. A link
//!   without one (`sim:max`), and a link in virtual time, waits for its readers and loses nothing.

mod frames;
mod lane;
mod options;
mod ring;
pub mod run;
mod spread;
mod wire;
mod worker;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use ringtap_device::{Clock, Rate};
use ringtap_filter::{LinkType, Place, Rules};
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_ipc::time::now_ns;
use ringtap_pool::distributor::{LaneEnds, Policy};
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{self, Counts, Facts, Pause, Source, SourceError, Status};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::Signal;

use crate::shape::Shape;
use frames::Frames;
use lane::{QueueState, SimQueue};
use spread::Spread;
use wire::WireTimes;
use worker::{LinkStart, SimWorker};

pub use crate::shape::{PoolAsked, ShapeError};
pub use options::{LinkTraffic, MOST_QUEUES, RING, SimError, SimOptions};
pub use wire::PS_PER_SECOND;

/// Bytes of the pool and of a chunk, unless the user says otherwise.
const USUAL: (u64, u32) = (64 << 20, 64 << 10);

/// A simulated link and the queues that it ends in.
#[derive(Debug)]
struct SimLink {
    wire: WireTimes,
    spread: Spread,
    frames: Frames,
    /// Packets that the link brings; `u64::MAX` if it has no end.
    packets: u64,
    /// Packets that the ring of each queue holds.
    ring: u32,
    times: Times,
}

/// Whether the link waits for room in its rings, and the time stamps of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// Packets arrive by the clock.
    Clock,
    /// The link waits; packets bear the time at which they are captured.
    Waiting,
    /// The link waits; packets bear the time at which they would arrive.
    Virtual,
}

impl SimLink {
    fn new(options: &SimOptions) -> Result<Self, SimError> {
        options.check()?;
        let frames = Frames::new(&options.traffic)?;
        let given = match &options.traffic {
            LinkTraffic::Given(frames) if frames.is_empty() => return Err(SimError::NoFrames),
            LinkTraffic::Given(frames) => frames.len() as u64,
            LinkTraffic::Generated(_) => u64::MAX,
        };
        Ok(SimLink {
            wire: WireTimes::new(options.rate, frames.lengths()),
            spread: Spread::new(options.queues, options.flows(), options.skew.as_ref()),
            packets: options.burst.unwrap_or(given),
            frames,
            ring: options.ring,
            times: match (options.clock, options.rate) {
                (Clock::Virtual, _) => Times::Virtual,
                (Clock::Real, Rate::Max) => Times::Waiting,
                (Clock::Real, _) => Times::Clock,
            },
        })
    }

    /// Number of packets of a queue from beginning to end.
    fn packets_of(&self, queue: u32) -> u64 {
        self.spread.count(queue, self.packets)
    }

    /// Number of packets of a queue that have arrived by `now_ps`.
    fn due_of(&self, queue: u32, now_ps: u64) -> u64 {
        let due = self.wire.due(now_ps).min(self.packets);
        self.spread.count(queue, due)
    }

    /// Arrival time of packet `n` of a queue, in picoseconds.
    fn time_of(&self, queue: u32, n: u64) -> u64 {
        self.wire.time_ps(self.spread.packet(queue, n).number)
    }

    /// The shape of the link's pool.
    fn shape(&self, options: &SimOptions) -> Result<Shape, SimError> {
        let longest = self.frames.lengths().iter().max().copied().unwrap_or(0);
        let longest = u32::try_from(longest).unwrap_or(u32::MAX);
        let kept = options.snap_length.unwrap_or(u32::MAX).min(longest);
        Ok(options.pool.shape(options.queues, kept.max(1), USUAL)?)
    }
}

/// A simulated NIC as a source.
pub struct SimSource {
    facts: Facts,
    pool: Pool,
    pool_file: Arc<OwnedFd>,
    lanes: Vec<LaneEnds>,
    event: Event,
    queues: Vec<Arc<QueueState>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Disconnected when the last thread has ended.
    running: Receiver<()>,
}

impl SimSource {
    /// Begins to simulate.
    ///
    /// # Errors
    ///
    /// Every [`SimError`] but those of runs in virtual time.
    pub fn open(options: &SimOptions) -> Result<Self, SimError> {
        let link = Arc::new(SimLink::new(options)?);
        let shape = link.shape(options)?;
        let event = Event::new().map_err(system("cannot make an event"))?;
        let pool = SealedPool::create(shape.geometry).map_err(system("cannot make the pool"))?;
        if link.times == Times::Clock {
            allocate(&pool.file, shape.geometry.region_bytes())?;
        }
        let start = Arc::new(OnceLock::new());
        let (alive, running) = mpsc::channel();
        let mut source = SimSource {
            facts: facts(options, link.times, shape.geometry.snap_length),
            pool: pool.readable,
            pool_file: pool.file,
            lanes: Vec::new(),
            event: event.clone(),
            queues: Vec::new(),
            stop: Arc::default(),
            threads: Vec::new(),
            running,
        };
        for number in 0..options.queues {
            let signal = Arc::new(event.clone());
            let (queue, ends) = queue(&link, number, &pool.writable, shape, signal);
            source.lanes.push(ends);
            source.queues.push(queue.state());
            let worker = SimWorker {
                queue,
                stop: Arc::clone(&source.stop),
                start: Arc::clone(&start),
            };
            let thread = run(worker, alive.clone(), event.clone())?;
            source.threads.push(thread);
        }
        let at = Instant::now();
        let _first = start.set(LinkStart {
            at,
            at_ns: now_ns(),
        });
        Ok(source)
    }
}

/// A queue and the distributor's ends of its lane.
fn queue(
    link: &Arc<SimLink>,
    number: u32,
    writable: &Pool,
    shape: Shape,
    signal: Arc<dyn Signal>,
) -> (SimQueue, LaneEnds) {
    let ids = source::share(writable.geometry(), LaneId(number));
    // SAFETY: `writable` is mapped writable, and `share` gives each lane chunks of its own.
    let (mut writer, ends) = unsafe { source::lane(writable, LaneId(number), ids, signal) };
    if let Some(packets) = shape.packets {
        writer.limit_packets(packets);
    }
    (SimQueue::new(Arc::clone(link), number, writer), ends)
}

/// Makes the kernel allocate the pool's memory now instead of during capture.
fn allocate(file: &OwnedFd, bytes: u64) -> Result<(), SimError> {
    let done = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    done.map_err(|error| system("cannot allocate the pool")(error.into()))
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> SimError {
    move |source| SimError::System { what, source }
}

fn facts(options: &SimOptions, times: Times, snap_length: u32) -> Facts {
    Facts {
        device: options.device.clone(),
        interface: None,
        link_type: LinkType::ETHERNET.0,
        snap_length,
        policy: match times {
            Times::Clock => Policy::DropNewest,
            Times::Waiting | Times::Virtual => Policy::Block,
        },
        notes: Vec::new(),
        offered_from: "the simulated link".into(),
    }
}

fn run(mut worker: SimWorker, alive: Sender<()>, event: Event) -> Result<JoinHandle<()>, SimError> {
    let thread = std::thread::Builder::new()
        .name(format!("sim-{}", worker.queue.number))
        .spawn(move || {
            worker.work();
            // Seals the open chunk before the end becomes visible.
            drop(worker);
            drop(alive);
            event.signal();
        });
    thread.map_err(system("cannot start a thread"))
}

impl Source for SimSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn pool(&self) -> Pool {
        self.pool.clone()
    }

    fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pool_file.as_fd())
    }

    fn take_lanes(&mut self) -> Vec<LaneEnds> {
        std::mem::take(&mut self.lanes)
    }

    fn counts(&mut self) -> Counts {
        let nic = self.queues.iter().map(|queue| queue.nic.load(Relaxed));
        Counts {
            nic: nic.sum(),
            lanes: self.queues.iter().map(|queue| queue.counts()).collect(),
            ..Counts::default()
        }
    }

    fn classify(&mut self, rules: &Rules) -> Result<Vec<Place>, SourceError> {
        let link_type = LinkType(self.facts.link_type);
        let mut places = Vec::new();
        for queue in &self.queues {
            places = queue.rulebook.set(rules, &self.facts.device, link_type)?;
        }
        Ok(places)
    }

    fn pause(&mut self, lane: LaneId, pause: Pause) {
        if self.facts.policy == Policy::Block {
            return;
        }
        if let Some(queue) = self.queues.get(lane.index()) {
            queue.is_paused.store(pause == Pause::Paused, Relaxed);
        }
    }

    fn status(&mut self) -> Status {
        match self.running.try_recv() {
            Err(TryRecvError::Disconnected) => Status::Ended,
            Ok(()) | Err(TryRecvError::Empty) => Status::Running,
        }
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn clear_wake(&mut self) {
        self.event.clear();
    }

    fn stop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

impl Drop for SimSource {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests;
