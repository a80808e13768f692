// SPDX-License-Identifier: MIT OR Apache-2.0
//! Share of the hub's time that questions of readers may take: chunks come first.
//!
//! Invariants
//! - After a piece of work, none begins for four times as long, so that readers with many questions
//!   cannot keep the hub's thread from moving chunks.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// Pause after a piece of work, in multiples of the work's duration.
const PAUSE: u32 = 4;
/// Longest duration of a piece of work that counts; a longer one was interrupted.
const LONGEST: Duration = Duration::from_millis(5);

/// Decides when the hub's thread answers the next question.
pub(crate) struct WorkShare {
    next: Instant,
    /// Work was put off at the last question.
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

    /// Time until work that was put off may begin; `None` if none was.
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
