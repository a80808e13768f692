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

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use ringtap_device::{Clock, DeviceSpec, Rate};
use ringtap_filter::LinkType;
use ringtap_pool::counters::Dropped;
use ringtap_pool::distributor::Policy;
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::to_u32;
use ringtap_pool::source::{Counts, Facts, Pause, Source};
use rustix::fs::{FallocateFlags, fallocate};

use crate::CaptureError;
use crate::shape::PoolShape;
use crate::source::{SourceSetup, SourceStart, SourceThread, ThreadedDriver};
use frames::Frames;
use lane::{QueueState, SimQueue};
use spread::Spread;
use wire::WireTimes;
use worker::{LinkStart, SimWorker};

pub use options::{LinkTraffic, MAX_QUEUES, RING, SimOptions};
pub use wire::PS_PER_SECOND;

/// Bytes of the pool and of a chunk, unless the user says otherwise.
const USUAL: (u64, u32) = (64 << 20, 64 << 10);

/// A simulated link and the queues that it ends in.
#[derive(Debug)]
struct SimLink {
    wire: WireTimes,
    spread: Spread,
    frames: Frames,
    /// Number of packets on the link; `u64::MAX` if it has no end.
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
    fn new(options: &SimOptions) -> Result<Self, CaptureError> {
        options.check()?;
        let frames = Frames::new(&options.traffic)?;
        let given = match &options.traffic {
            LinkTraffic::Given(frames) if frames.is_empty() => return Err(CaptureError::NoFrames),
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
    fn shape(&self, options: &SimOptions) -> Result<PoolShape, CaptureError> {
        let longest = self.frames.lengths().iter().max().copied().unwrap_or(0);
        let longest = to_u32(longest);
        let kept = options.snap_length.unwrap_or(u32::MAX).min(longest);
        Ok(options.pool.shape(options.queues, kept.max(1), USUAL)?)
    }
}

/// Begins to simulate.
///
/// # Errors
///
/// Those of [`CaptureError`] that concern simulated NICs, but for runs in virtual time.
pub fn open(options: &SimOptions) -> Result<Source, CaptureError> {
    open_at(options, SourceStart::AtOnce)
}

fn open_at(options: &SimOptions, begins: SourceStart) -> Result<Source, CaptureError> {
    let link = Arc::new(SimLink::new(options)?);
    let shape = link.shape(options)?;
    let mut setup = SourceSetup::new(&options.device, shape.geometry)?;
    if link.times == Times::Clock {
        // Now instead of during capture.
        let bytes = shape.geometry.region_bytes();
        let done = fallocate(&setup.pool.file, FallocateFlags::empty(), 0, bytes);
        let action = "allocating the pool";
        done.map_err(CaptureError::system(&options.device, action))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let start = Arc::new(OnceLock::new());
    let mut queues = Vec::new();
    let mut workers: Vec<SourceThread> = Vec::new();
    for (number, lane) in (0..).zip(setup.lanes(shape.packets)) {
        let queue = SimQueue::new(Arc::clone(&link), number, lane);
        queues.push(queue.state());
        let mut worker = SimWorker {
            queue,
            stop: Arc::clone(&stop),
            start: Arc::clone(&start),
            begins,
        };
        let work = move || {
            worker.work();
            Ok(())
        };
        workers.push((format!("sim-{number}"), Box::new(work)));
    }
    let facts = facts(options, link.times, shape.geometry.snap_length);
    let driver = SimDriver {
        queues,
        stop,
        waits: facts.policy == Policy::Block,
    };
    let source = setup.start(facts, Box::new(driver), workers)?;
    if begins == SourceStart::AtOnce {
        let _first = start.set(LinkStart::now());
    }
    Ok(source)
}

/// Opens a device of this kind.
pub(crate) fn open_device(
    device: &DeviceSpec,
    begins: SourceStart,
) -> Result<Source, CaptureError> {
    open_at(&SimOptions::from_device(device)?, begins)
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
        offered_from: "the simulated link".into(),
        ..Facts::default()
    }
}

/// The simulated NIC's part of the source.
struct SimDriver {
    queues: Vec<Arc<QueueState>>,
    stop: Arc<AtomicBool>,
    /// The link waits for its readers.
    waits: bool,
}

impl ThreadedDriver for SimDriver {
    fn counts(&mut self) -> Counts {
        let nic = self.queues.iter().map(|queue| queue.nic.load(Relaxed));
        let lanes = self.queues.iter().map(|queue| queue.totals.counts());
        Counts {
            lanes: lanes.collect(),
            dropped: Dropped {
                nic: nic.sum(),
                ..Dropped::default()
            },
        }
    }

    fn pause(&mut self, lane: LaneId, pause: Pause) {
        if let Some(queue) = self.queues.get(lane.index())
            && !self.waits
        {
            queue.is_paused.store(pause == Pause::Paused, Relaxed);
        }
    }

    fn stop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests;
