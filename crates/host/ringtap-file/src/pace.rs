// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delays packets of a file until they are due: at recorded speed, or at a rate.
//!
//! Invariants
//! - Deadlines are absolute, counted from the first packet: late wake-ups never add up.
//! - Waiting ends soon after the stop flag is set.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use ringtap_device::Speed;
use ringtap_pool::number::to_u64;

/// Longest sleep between two looks at the stop flag.
const SLICE: Duration = Duration::from_millis(50);

/// Computes when each packet of a file is due, in nanoseconds since the first one; no clock, no waiting.
#[derive(Clone, Debug)]
pub struct Schedule {
    speed: Speed,
    /// Packets or bits so far, as the rate counts them; at recorded speed, packets of this pass.
    given: u64,
    /// Recorded time of the first packet of this pass through the file.
    first_ns: Option<u64>,
    /// When the first packet of this pass is due, and the latest packet, at recorded speed.
    pass_ns: u64,
    last_ns: u64,
}

impl Schedule {
    /// A schedule whose first packet is due at once.
    pub fn new(speed: Speed) -> Self {
        Self {
            speed,
            given: 0,
            first_ns: None,
            pass_ns: 0,
            last_ns: 0,
        }
    }

    /// When the next packet is due, which was recorded at `time_ns` and has `bytes` bytes.
    ///
    /// Packets recorded before an earlier one are due at the same time as that one.
    pub fn next_ns(&mut self, time_ns: u64, bytes: u64) -> u64 {
        match self.speed {
            Speed::Rate(rate) => {
                let due_ns = rate.due_ns(self.given);
                self.given += rate.units(bytes);
                due_ns
            }
            Speed::Recorded { factor } => {
                let first_ns = *self.first_ns.get_or_insert(time_ns);
                let after = Duration::from_nanos(time_ns.saturating_sub(first_ns));
                let after = Duration::try_from_secs_f64(after.as_secs_f64() / factor);
                let after = after.map_or(u64::MAX, |after| to_u64(after.as_nanos()));
                self.given += 1;
                self.last_ns = self.last_ns.max(self.pass_ns.saturating_add(after));
                self.last_ns
            }
        }
    }

    /// Begins another pass through the file: at recorded speed, a mean gap after the last packet.
    pub fn again(&mut self) {
        if let Speed::Recorded { .. } = self.speed {
            let gaps = self.given.saturating_sub(1).max(1);
            self.pass_ns = self.last_ns + (self.last_ns - self.pass_ns) / gaps;
            self.given = 0;
            self.first_ns = None;
        }
    }

    /// End of the time of all packets so far.
    pub fn end_ns(&self) -> u64 {
        match self.speed {
            Speed::Rate(rate) => rate.due_ns(self.given),
            Speed::Recorded { .. } => self.last_ns,
        }
    }
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PaceTurn {
    /// The packet is due.
    Due,
    /// The stop flag was set.
    Stopped,
}

/// A [`Schedule`] with a clock: waits until each packet is due.
#[derive(Debug)]
pub struct Pace {
    schedule: Schedule,
    stop: Arc<AtomicBool>,
    began: Option<Instant>,
}

impl Pace {
    /// Paces at `speed` until `stop` is set.
    pub fn new(speed: Speed, stop: Arc<AtomicBool>) -> Self {
        Self {
            schedule: Schedule::new(speed),
            stop,
            began: None,
        }
    }

    /// Whether packets are due as soon as they are read.
    pub fn is_top(&self) -> bool {
        self.schedule.speed == Speed::TOP
    }

    /// Waits until the next packet, recorded at `time_ns`, is due.
    ///
    /// Sleeps and never spins: above 20,000 packets per second, packets come in small bursts, one
    /// for each wake-up. The rate over a millisecond is exact.
    #[inline]
    pub fn wait(&mut self, time_ns: u64) -> PaceTurn {
        if self.stop.load(Relaxed) {
            return PaceTurn::Stopped;
        }
        if self.schedule.speed == Speed::TOP {
            return PaceTurn::Due;
        }
        // Only a rate in bits, which no speed of a source has, counts the bytes.
        let due = Duration::from_nanos(self.schedule.next_ns(time_ns, 0));
        let began = *self.began.get_or_insert_with(Instant::now);
        loop {
            let left = due.saturating_sub(began.elapsed());
            if left.is_zero() {
                return PaceTurn::Due;
            }
            thread::sleep(left.min(SLICE));
            if self.stop.load(Relaxed) {
                return PaceTurn::Stopped;
            }
        }
    }
}
