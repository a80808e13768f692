// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread of one simulated queue: lets packets arrive by a clock, and captures them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use ringtap_ipc::time::now_ns;
use ringtap_pool::number::to_u64;

use super::Times;
use super::lane::{CaptureStep, SimQueue};
use crate::source::SourceStart;

/// Packets that become visible at a time.
const BATCH: u64 = 64;
/// The same where the link waits, and latency does not matter.
const LARGE_BATCH: u64 = 1024;
/// How long the thread sleeps when it may, as a NIC delays its interrupts.
const PAUSE: Duration = Duration::from_micros(50);
/// The longest sleep before the thread checks its stop flag again.
const LONG_PAUSE: Duration = Duration::from_millis(20);
/// Naps in which a ring must not fill by half.
const PAUSES: u32 = 8;

/// One queue and its thread's share of the source.
pub(super) struct SimWorker {
    pub(super) queue: SimQueue,
    pub(super) stop: Arc<AtomicBool>,
    /// Arrival of the link's first packet: set when all threads run, or, if the link waits, by the first that has rules.
    pub(super) start: Arc<OnceLock<LinkStart>>,
    pub(super) begins: SourceStart,
}

/// Arrival of the link's first packet, by two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkStart {
    pub(super) at: Instant,
    pub(super) at_ns: u64,
}

impl LinkStart {
    pub(super) fn now() -> Self {
        LinkStart {
            at: Instant::now(),
            at_ns: now_ns(),
        }
    }

    fn elapsed_ps(&self) -> u64 {
        to_u64(self.at.elapsed().as_nanos() * 1000)
    }
}

impl SimWorker {
    /// Works until all packets have arrived and are captured, or until stopped.
    pub(super) fn work(&mut self) {
        let Some(start) = self.wait_for_start() else {
            return;
        };
        let link = Arc::clone(&self.queue.link);
        let last = link.packets_of(self.queue.number);
        while !self.stop.load(Relaxed) {
            let wire = &link.wire;
            let queue = &mut self.queue;
            let step = match link.times {
                Times::Clock => {
                    queue.arrive(link.due_of(queue.number, start.elapsed_ps()));
                    queue.capture(BATCH, |n| start.at_ns + wire.time_ps(n) / 1000)
                }
                Times::Virtual => {
                    queue.fill(last);
                    queue.capture(LARGE_BATCH, |n| wire.time_ps(n) / 1000)
                }
                Times::Waiting => {
                    queue.fill(last);
                    let now_ns = start.at_ns + start.elapsed_ps() / 1000;
                    queue.capture(LARGE_BATCH, |_| now_ns)
                }
            };
            match step {
                CaptureStep::Captured => {}
                CaptureStep::PoolFull => self.wait_for_room(),
                CaptureStep::RingEmpty if self.queue.ring.arrived() == last => return,
                CaptureStep::RingEmpty => self.wait_for_packets(start),
            }
        }
    }

    /// Waits until the link begins, and until this queue has rules if the link waits for them; `None` if stopped.
    fn wait_for_start(&mut self) -> Option<LinkStart> {
        while !self.stop.load(Relaxed) {
            let start = match self.begins {
                SourceStart::AtOnce => self.start.get().copied(),
                SourceStart::WithRules => {
                    (self.queue.look_for_rules()).then(|| *self.start.get_or_init(LinkStart::now))
                }
            };
            if start.is_some() {
                return start;
            }
            match self.begins {
                SourceStart::AtOnce => thread::yield_now(),
                SourceStart::WithRules => thread::sleep(PAUSE),
            }
        }
        None
    }

    fn wait_for_room(&self) {
        match self.queue.link.times {
            // A packet that arrives meanwhile is lost now, not later.
            Times::Clock if !self.may_nap() => thread::yield_now(),
            _ => thread::sleep(PAUSE),
        }
    }

    fn wait_for_packets(&self, start: LinkStart) {
        let queue = &self.queue;
        let next_ps = queue.link.time_of(queue.number, queue.ring.arrived());
        let left = Duration::from_nanos(next_ps.saturating_sub(start.elapsed_ps()) / 1000);
        if left > PAUSE * 4 {
            thread::sleep((left - PAUSE).min(LONG_PAUSE));
        } else if self.may_nap() {
            thread::sleep(PAUSE);
        } else {
            std::hint::spin_loop();
        }
    }

    /// Whether the ring is large enough for the link's rate to sleep now and then.
    fn may_nap(&self) -> bool {
        let link = &self.queue.link;
        let half_ps = link.wire.time_ps(u64::from(link.ring) / 2);
        Duration::from_nanos(half_ps / 1000) > PAUSE * PAUSES
    }
}
