// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time since a run began, and sleep to a moment of it.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::time::{ClockId, Timespec, clock_gettime};

const NS_PER_SECOND: u64 = 1_000_000_000;
/// The longest sleep before the stop flag is looked at again.
const LONGEST_SLEEP_NS: u64 = 20_000_000;

/// Nanoseconds since its making, on a clock that never jumps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start_ns: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            start_ns: monotonic_ns(),
        }
    }

    pub(super) fn elapsed_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.start_ns)
    }

    /// Sleeps until that much has elapsed, or until `stop` is set.
    pub(super) fn sleep_until(&self, elapsed_ns: u64, stop: &AtomicBool) {
        loop {
            let now_ns = self.elapsed_ns();
            if now_ns >= elapsed_ns || stop.load(Relaxed) {
                return;
            }
            let next_ns = elapsed_ns.min(now_ns + LONGEST_SLEEP_NS);
            let until = timespec(self.start_ns.saturating_add(next_ns));
            // Ends early when a signal comes; the loop looks at the clock again.
            let _interrupted = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until);
        }
    }
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * NS_PER_SECOND + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn timespec(ns: u64) -> Timespec {
    let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: part(ns / NS_PER_SECOND),
        tv_nsec: part(ns % NS_PER_SECOND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_ends_not_before_its_moment_and_at_once_when_stopped() {
        let clock = Clock::start();
        clock.sleep_until(3_000_000, &AtomicBool::new(false));
        assert!(clock.elapsed_ns() >= 3_000_000);
        clock.sleep_until(u64::MAX, &AtomicBool::new(true));
    }
}
