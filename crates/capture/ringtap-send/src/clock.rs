// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time since a run began, and sleep to a moment of it.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use ringtap_ipc::time::nanoseconds;

/// Longest sleep between two looks at the stop flag.
const TICK: Duration = Duration::from_millis(20);

/// Measures nanoseconds since its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock(Instant);

impl RunClock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed_ns(&self) -> u64 {
        nanoseconds(self.0.elapsed())
    }

    /// Sleeps until this time has elapsed, or until `stop` is set.
    pub(super) fn sleep_until(&self, elapsed_ns: u64, stop: &AtomicBool) {
        let end = Duration::from_nanos(elapsed_ns);
        loop {
            let left = end.saturating_sub(self.0.elapsed());
            if left.is_zero() || stop.load(Relaxed) {
                return;
            }
            thread::sleep(left.min(TICK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_ends_not_before_its_moment_and_at_once_when_stopped() {
        let clock = RunClock::start();
        clock.sleep_until(3_000_000, &AtomicBool::new(false));
        assert!(clock.elapsed_ns() >= 3_000_000);
        clock.sleep_until(u64::MAX, &AtomicBool::new(true));
    }
}
