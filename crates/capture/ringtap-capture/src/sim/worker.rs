// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of one simulated queue: lets packets arrive by a clock, and captures them.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use super::lane::{Lane, Step};
use super::{Link, Times};

/// Packets that become visible at a time.
const BATCH: u64 = 64;
/// The same where packets wait for us, and nobody asks how long they took.
const LARGE_BATCH: u64 = 1024;
/// How long the thread sleeps when it may, as a NIC holds its interrupts back.
const NAP: Duration = Duration::from_micros(50);
/// The longest sleep before the stop flag is looked at again.
const LONG_NAP: Duration = Duration::from_millis(20);
/// Naps in which a ring must not fill by half.
const NAPS: u32 = 8;

/// One queue at work.
pub(super) struct Worker {
    pub(super) link: Arc<Link>,
    pub(super) queue: u32,
    pub(super) lane: Lane,
    pub(super) stop: Arc<AtomicBool>,
    /// When the first packet of the link arrives: once all queues are ready.
    pub(super) start: Arc<OnceLock<Start>>,
}

/// When the first packet arrives, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) at: Instant,
    pub(super) at_ns: u64,
}

impl Worker {
    /// Works until all packets have come and are captured, or it is stopped.
    pub(super) fn work(&mut self) {
        let start = loop {
            match self.start.get() {
                Some(start) => break *start,
                None if self.stop.load(Relaxed) => return,
                None => thread::yield_now(),
            }
        };
        let last = self.link.packets_of(self.queue);
        while !self.stop.load(Relaxed) {
            match self.link.times {
                Times::Clock => {
                    let now_ps = ps(start.at.elapsed());
                    self.lane.arrive(self.link.due_of(self.queue, now_ps));
                }
                Times::Waiting | Times::Virtual => self.lane.fill(last),
            }
            match self.capture(start) {
                Step::Took(_) => {}
                Step::PoolFull => self.wait_for_room(),
                Step::Nothing if self.lane.arrived() == last => return,
                Step::Nothing => self.wait_for_packets(start),
            }
        }
    }

    fn capture(&mut self, start: Start) -> Step {
        let link = Arc::clone(&self.link);
        match link.times {
            Times::Clock => self
                .lane
                .capture(BATCH, |n| start.at_ns + link.wire.time_ps(n) / 1000),
            Times::Virtual => self
                .lane
                .capture(LARGE_BATCH, |n| link.wire.time_ps(n) / 1000),
            Times::Waiting => {
                let now_ns = start.at_ns + ps(start.at.elapsed()) / 1000;
                self.lane.capture(LARGE_BATCH, |_| now_ns)
            }
        }
    }

    fn wait_for_room(&self) {
        match self.link.times {
            // What arrives meanwhile must be counted when it does.
            Times::Clock if !self.may_nap() => thread::yield_now(),
            _ => thread::sleep(NAP),
        }
    }

    fn wait_for_packets(&self, start: Start) {
        let next = self.link.time_of(self.queue, self.lane.arrived());
        let left = Duration::from_nanos(next.saturating_sub(ps(start.at.elapsed())) / 1000);
        if left > NAP * 4 {
            thread::sleep((left - NAP).min(LONG_NAP));
        } else if self.may_nap() {
            thread::sleep(NAP);
        } else {
            std::hint::spin_loop();
        }
    }

    /// Whether the ring is large enough for the link's rate to sleep now and then.
    fn may_nap(&self) -> bool {
        let half_ps = self.link.wire.time_ps(self.link.ring / 2);
        Duration::from_nanos(half_ps / 1000) > NAP * NAPS
    }
}

fn ps(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() * 1000).unwrap_or(u64::MAX)
}
