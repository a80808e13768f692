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

/// Longest sleep between two looks at the stop flag.
const SLICE: Duration = Duration::from_millis(50);

/// Computes when each packet is due after the first one; no clock, no waiting.
#[derive(Clone, Debug)]
pub struct Schedule {
    speed: Speed,
    first_ns: Option<u64>,
    given: u64,
}

impl Schedule {
    /// A schedule whose first packet is due at once.
    pub fn new(speed: Speed) -> Self {
        Self {
            speed,
            first_ns: None,
            given: 0,
        }
    }

    /// Time after the first packet at which the next packet, recorded at `time_ns`, is due.
    ///
    /// Packets recorded before the first one are due at once.
    pub fn next_due(&mut self, time_ns: u64) -> Duration {
        let before = self.given;
        self.given += 1;
        match self.speed {
            Speed::Top => Duration::ZERO,
            Speed::Recorded { factor } => {
                let first_ns = *self.first_ns.get_or_insert(time_ns);
                let after = Duration::from_nanos(time_ns.saturating_sub(first_ns));
                scaled(after.as_secs_f64(), factor)
            }
            // Exact to a packet up to 2^53 packets.
            Speed::Rate { rate_pps } => scaled(before as f64, rate_pps as f64),
        }
    }
}

fn scaled(amount: f64, per_second: f64) -> Duration {
    Duration::try_from_secs_f64(amount / per_second).unwrap_or(Duration::MAX)
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
        self.schedule.speed == Speed::Top
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
        if self.schedule.speed == Speed::Top {
            return PaceTurn::Due;
        }
        let due = self.schedule.next_due(time_ns);
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
