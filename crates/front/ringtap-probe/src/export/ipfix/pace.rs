// SPDX-License-Identifier: MIT OR Apache-2.0
//! Even rate of messages: a burst overflows the socket of a collector, which loses records without an error.

use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

/// Most time that a late sender may make up for.
const BURST: Duration = Duration::from_millis(10);

/// When the next message may be sent.
#[derive(Default)]
pub(super) struct SendingPace {
    /// Time of one flow; zero: no limit.
    per_flow: Duration,
    due: Option<Instant>,
}

impl SendingPace {
    pub(super) fn new(flows_per_second: NonZeroU32) -> Self {
        SendingPace {
            per_flow: Duration::from_secs(1) / flows_per_second.get(),
            due: None,
        }
    }

    /// Waits until a message with this many flows may be sent.
    pub(super) fn wait(&mut self, flows: u32) {
        thread::sleep(self.next(flows, Instant::now()));
    }

    /// Time until a message with this many flows is due.
    fn next(&mut self, flows: u32, now: Instant) -> Duration {
        if self.per_flow.is_zero() {
            return Duration::ZERO;
        }
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let due = self.due.unwrap_or(now).max(earliest);
        self.due = Some(due + self.per_flow * flows);
        due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_evenly_and_a_pause_allows_no_burst() {
        let mut pace = SendingPace::new(NonZeroU32::new(1000).expect("not 0"));
        let start = Instant::now();
        let waits = [0, 1, 2, 3].map(|_| pace.next(10, start));
        assert_eq!(waits, [0, 10, 20, 30].map(Duration::from_millis));
        let later = start + Duration::from_secs(60);
        let waits = [0, 1, 2].map(|_| pace.next(10, later));
        assert_eq!(waits, [0, 0, 10].map(Duration::from_millis));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = SendingPace::default();
        let start = Instant::now();
        for _ in 0..100 {
            assert_eq!(pace.next(u32::MAX, start), Duration::ZERO);
        }
    }
}
