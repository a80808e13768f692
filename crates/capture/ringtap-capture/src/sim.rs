// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `sim` source: a simulated NIC with a line rate, receive queues and their rings.
//!
//! Invariants
//! - Everything behind a receive ring is the real thing: the pool, its writer and its distributor
//!   do not know that the packets are made up.
//! - A link with a rate waits for nobody: what finds its ring full is lost and counted. One without
//!   (`sim:max`), and one in virtual time, waits for its readers and loses nothing.

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
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_ipc::time::now_ns;
use ringtap_pool::classify::{Place, Rules};
use ringtap_pool::distributor::{LaneEnds, Policy};
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{self, Counts, Facts, LaneCounts, Pause, Source, SourceError, Status};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::Signal;
use ringtap_pool::writer::LaneCounters;

use crate::classify::{Judge, Rulebook};
use crate::shape::Shape;
use frames::Frames;
use lane::{Lane, Progress};
use ringtap_device::Clock;
use ringtap_device::Rate;
use ringtap_filter::LinkType;
use spread::{Cursor, Spread};
use wire::Wire;
use worker::{Start, Worker};

pub use crate::shape::{PoolAsked, ShapeError};
pub use options::{Load, MOST_QUEUES, RING, SimError, SimOptions};
pub use wire::PS_PER_SECOND;

/// Bytes of the pool and of a chunk, unless the user says otherwise.
const USUAL: (u64, u32) = (64 << 20, 64 << 10);

/// A simulated link with the queues that it ends in.
#[derive(Debug)]
struct Link {
    wire: Wire,
    spread: Arc<Spread>,
    frames: Frames,
    packets: u64,
    /// Packets that wait in a queue's ring and before it.
    ring: u64,
    times: Times,
}

/// What packets wait for, and which times they bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// They come by the clock.
    Clock,
    /// They wait, and bear the time at which they are taken.
    Waiting,
    /// They wait, and bear the time at which they would come.
    Virtual,
}

impl Link {
    fn new(options: &SimOptions) -> Result<Self, SimError> {
        options.check()?;
        let frames = match &options.load {
            Load::Made(traffic) => Frames::made(traffic)?,
            Load::Given(frames) => Frames::given(frames),
        };
        if frames.lengths().is_empty() {
            return Err(SimError::NoFrames);
        }
        let given = match &options.load {
            Load::Given(frames) => u64::try_from(frames.len()).ok(),
            Load::Made(_) => None,
        };
        Ok(Link {
            wire: Wire::new(options.rate, frames.lengths()),
            spread: Arc::new(Spread::new(
                options.queues,
                options.flows(),
                options.skew.as_ref(),
            )),
            packets: options.burst.or(given).unwrap_or(u64::MAX),
            frames,
            ring: u64::from(options.ring) + u64::from(options.fifo),
            times: match (options.clock, options.rate) {
                (Clock::Virtual, _) => Times::Virtual,
                (Clock::Real, Rate::Max) => Times::Waiting,
                (Clock::Real, _) => Times::Clock,
            },
        })
    }

    /// Packets of a queue that will come in all.
    fn packets_of(&self, queue: u32) -> u64 {
        self.spread.count(queue, self.packets)
    }

    /// Packets of a queue that have come by `now_ps`.
    fn due_of(&self, queue: u32, now_ps: u64) -> u64 {
        let due = self.wire.due(now_ps).min(self.packets);
        self.spread.count(queue, due)
    }

    /// When a queue's packet of this number in it comes, in picoseconds.
    fn time_of(&self, queue: u32, place: u64) -> u64 {
        let mut cursor = Cursor::new(Arc::clone(&self.spread), queue);
        cursor.seek(place);
        self.wire.time_ps(cursor.get().number)
    }

    /// The pool for it.
    fn shape(&self, options: &SimOptions) -> Result<Shape, SimError> {
        let longest = self.frames.lengths().iter().max().copied().unwrap_or(0);
        let longest = u32::try_from(longest).unwrap_or(u32::MAX);
        let kept = options
            .snap_length
            .map_or(longest, |snap| snap.min(longest));
        Ok(options.pool.shape(options.queues, kept.max(1), USUAL)?)
    }
}

/// What other threads know of a queue's.
struct Queue {
    progress: Arc<Progress>,
    lane: Arc<LaneCounters>,
    rulebook: Arc<Rulebook>,
}

/// A simulated NIC as a source.
pub struct SimSource {
    facts: Facts,
    pool: Pool,
    pool_file: Arc<OwnedFd>,
    lanes: Vec<LaneEnds>,
    event: Event,
    queues: Vec<Queue>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    ended: Receiver<()>,
    running: usize,
}

impl SimSource {
    /// Begins to simulate.
    ///
    /// # Errors
    ///
    /// Every [`SimError`] but those of runs in virtual time.
    pub fn open(options: &SimOptions) -> Result<Self, SimError> {
        let link = Arc::new(Link::new(options)?);
        let shape = link.shape(options)?;
        let event = Event::new().map_err(system("cannot make an event"))?;
        let pool = SealedPool::create(shape.geometry).map_err(system("cannot make the pool"))?;
        let stop = Arc::new(AtomicBool::new(false));
        if link.times == Times::Clock {
            allocate(&pool.file, shape.geometry.region_bytes())?;
        }
        let start = Arc::new(OnceLock::new());
        let mut made = Vec::new();
        for queue in 0..options.queues {
            let signal: Arc<dyn Signal> = Arc::new(event.clone());
            let (lane, ends, queue_) = lane(&link, queue, &pool.writable, shape, signal);
            let worker = Worker {
                link: Arc::clone(&link),
                queue,
                lane,
                stop: Arc::clone(&stop),
                start: Arc::clone(&start),
            };
            made.push((worker, ends, queue_));
        }
        let (tell, ended) = mpsc::channel();
        let mut source = SimSource {
            facts: facts(options, link.times, shape.geometry.snap_length),
            pool: pool.readable,
            pool_file: pool.file,
            lanes: Vec::new(),
            event: event.clone(),
            queues: Vec::new(),
            stop,
            threads: Vec::new(),
            ended,
            running: 0,
        };
        for (worker, ends, queue) in made {
            source.lanes.push(ends);
            source.queues.push(queue);
            source
                .threads
                .push(run(worker, tell.clone(), event.clone())?);
            source.running += 1;
        }
        let at = Instant::now();
        let _first = start.set(Start {
            at,
            at_ns: now_ns(),
        });
        Ok(source)
    }
}

/// A queue's lane, the distributor's ends of it, and what others may know of it.
fn lane(
    link: &Arc<Link>,
    queue: u32,
    writable: &Pool,
    shape: Shape,
    signal: Arc<dyn Signal>,
) -> (Lane, LaneEnds, Queue) {
    let ids = source::share(writable.geometry(), LaneId(queue));
    // SAFETY: `writable` is mapped writable, and `share` gives each lane chunks of its own.
    let (mut writer, ends) = unsafe { source::lane(writable, LaneId(queue), ids, signal) };
    if let Some(packets) = shape.packets {
        writer.limit_packets(packets);
    }
    let rulebook = Arc::new(Rulebook::default());
    let judge = Judge::new(Arc::clone(&rulebook));
    let lane = Lane::new(Arc::clone(link), queue, writer, judge);
    let queue = Queue {
        progress: lane.progress(),
        lane: lane.counters(),
        rulebook,
    };
    (lane, ends, queue)
}

/// Has the kernel find the pool's memory now, not while packets come.
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

fn run(
    mut worker: Worker,
    tell: mpsc::Sender<()>,
    event: Event,
) -> Result<JoinHandle<()>, SimError> {
    let thread = std::thread::Builder::new()
        .name(format!("sim-{}", worker.queue))
        .spawn(move || {
            worker.work();
            // Seals what is open before the end is told.
            drop(worker);
            let _gone = tell.send(());
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
        let mut counts = Counts::default();
        for queue in &self.queues {
            let unwanted = || queue.rulebook.unwanted();
            let moment = queue.progress.moment(&queue.lane, unwanted);
            counts.nic += moment.nic;
            counts.lanes.push(LaneCounts {
                seen: moment.seen,
                captured: moment.captured,
                bytes: moment.bytes,
                unwanted: moment.unwanted,
                pool_full: moment.pool_full,
                kernel: 0,
            });
        }
        counts
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
            let paused = &queue.progress.is_paused;
            paused.store(pause == Pause::Paused, Relaxed);
        }
    }

    fn status(&mut self) -> Status {
        loop {
            match self.ended.try_recv() {
                Ok(()) => self.running = self.running.saturating_sub(1),
                Err(TryRecvError::Disconnected) => self.running = 0,
                Err(TryRecvError::Empty) if self.running > 0 => return Status::Running,
                Err(TryRecvError::Empty) => return Status::Ended,
            }
            if self.running == 0 {
                return Status::Ended;
            }
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
