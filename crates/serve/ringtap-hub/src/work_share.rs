// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits the share of the hub thread's time that goes into answers to readers; the rest is for
//! moving chunks.
//!
//! Invariants
//! - After a piece of work, none begins for four times as long, so that readers with many questions
//!   cannot keep the hub's thread from moving chunks.

use std::time::{Duration, Instant};

/// Pause after a piece of work, in multiples of the work's duration.
const PAUSE: u32 = 4;
/// Longest duration of a piece of work that counts; a longer one was interrupted.
const LONGEST: Duration = Duration::from_millis(5);

/// Decides when the hub's thread answers the next question.
pub(crate) struct WorkShare {
    next: Instant,
    /// Whether the last call of [`WorkShare::may_begin`] returned `false`.
    waits: bool,
}

impl WorkShare {
    pub(crate) fn new() -> Self {
        WorkShare {
            next: Instant::now(),
            waits: false,
        }
    }

    /// Whether a piece of work may begin now.
    pub(crate) fn may_begin(&mut self, now: Instant) -> bool {
        self.waits = now < self.next;
        !self.waits
    }

    /// Notes that a piece of work took this long until now.
    pub(crate) fn took(&mut self, duration: Duration, now: Instant) {
        self.next = now + duration.min(LONGEST) * PAUSE;
    }

    /// Time until the thread may answer a question that waits; `None` if no question waits.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        self.waits.then(|| self.next.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_follows_work_waits_and_is_not_forgotten() {
        let mut share = WorkShare::new();
        let begun = share.next;
        assert!(share.may_begin(begun) && share.wait(begun).is_none());
        let (short, end) = (Duration::from_millis(1), begun + Duration::from_millis(1));
        share.took(short, end);
        assert_eq!(share.wait(end), None, "nobody asked");
        assert!(!share.may_begin(end));
        assert_eq!(share.wait(end), Some(4 * short));
        assert_eq!(share.wait(end + 9 * short), Some(Duration::ZERO));
        assert!(share.may_begin(end + 4 * short));
        share.took(Duration::from_secs(9), end);
        assert!(share.may_begin(end + 4 * LONGEST));
    }
}
