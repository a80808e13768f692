// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a reader stays behind the writer.
//!
//! Each look at the chunk that is being filled takes cache lines from the capturing processor, which
//! then waits for them. While packets come fast, it pays both sides to look rarely. A sealed chunk
//! costs the writer nothing.

use std::time::{Duration, Instant};

/// A reader pauses if at least this many packets come in the time of a pause.
const MANY: u128 = 8;

/// Pauses of a reader between two looks at open chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distance {
    pause: Duration,
    /// When packets of an open chunk were last taken.
    looked: Instant,
    /// Packets came so fast that the next look waits.
    waits: bool,
}

impl Distance {
    /// Pauses of this length; zero: none.
    pub(crate) fn new(pause: Duration) -> Self {
        Distance {
            pause,
            looked: Instant::now(),
            waits: false,
        }
    }

    /// Notes that the reader took `packets` packets: the rest of a sealed chunk, or, if the chunk
    /// `is_open`, all that the writer has published in it.
    #[inline]
    pub(crate) fn took(&mut self, packets: usize, is_open: bool) {
        self.waits = is_open && !self.pause.is_zero() && self.are_many(packets);
    }

    /// Whether these packets, since the last look, come so fast that a pause pays.
    fn are_many(&mut self, packets: usize) -> bool {
        let now = Instant::now();
        let since = now.duration_since(std::mem::replace(&mut self.looked, now));
        packets as u128 * self.pause.as_nanos() >= MANY * since.as_nanos()
    }

    /// Ends the pause, because no packet was found, or the reader is about to sleep.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.waits = false;
    }

    /// Time until the next look, if it must wait.
    #[inline]
    pub(crate) fn left(&self) -> Option<Duration> {
        if self.waits {
            self.pause.checked_sub(self.looked.elapsed())
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn packets_that_come_fast_are_left_to_gather() {
        let mut distance = Distance::new(LONG);
        assert_eq!(distance.left(), None);
        // At a thousand packets a second, 60 seconds have many.
        sleep(Duration::from_millis(1));
        distance.took(1, true);
        assert!(distance.left().is_some_and(|left| left <= LONG));
        distance.end();
        assert_eq!(distance.left(), None, "a sleep follows");
    }

    #[test]
    fn sealed_chunks_and_lone_packets_are_read_at_once() {
        let mut distance = Distance::new(LONG);
        distance.took(100_000, false);
        assert_eq!(distance.left(), None, "nobody writes to a sealed chunk");
        let mut distance = Distance::new(Duration::from_micros(1));
        sleep(Duration::from_millis(1));
        distance.took(100, true);
        assert_eq!(distance.left(), None, "fewer than eight packets in a pause");
        let mut distance = Distance::new(Duration::ZERO);
        distance.took(100_000, true);
        assert_eq!(distance.left(), None, "no pauses");
    }

    #[test]
    fn a_pause_ends() {
        let mut distance = Distance::new(Duration::from_millis(1));
        distance.took(1_000_000_000, true);
        sleep(Duration::from_millis(2));
        assert_eq!(distance.left(), None);
    }
}
