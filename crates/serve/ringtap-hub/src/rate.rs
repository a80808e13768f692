// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits events of each user per second: requests to the server, lines of the log.
//!
//! Invariants
//! - The memory for users without recent events is freed.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Events that a user may cause at once, as the time in which they become due.
const BURST: Duration = Duration::from_secs(1);
/// Number of users above which users without recent events are forgotten.
const MANY_USERS: usize = 256;

/// Events of all users.
#[derive(Debug)]
pub struct Rates {
    interval: Duration,
    /// Time at which a user's next event is due if events come evenly.
    due: HashMap<u32, Instant>,
}

impl Rates {
    /// Allows each user this number of events per second.
    #[must_use]
    pub fn new(per_second: NonZeroU32) -> Self {
        Rates {
            interval: Duration::from_secs(1) / per_second.get(),
            due: HashMap::new(),
        }
    }

    /// Allows each user this number of events per second from now on.
    pub fn allow(&mut self, per_second: NonZeroU32) {
        self.interval = Duration::from_secs(1) / per_second.get();
    }

    /// Time until this user may cause the next event; zero if it may at once.
    #[must_use]
    pub fn wait(&self, uid: u32, now: Instant) -> Duration {
        let ahead = self
            .due
            .get(&uid)
            .map(|due| due.saturating_duration_since(now));
        ahead.unwrap_or_default().saturating_sub(BURST)
    }

    /// Counts an event of this user.
    pub fn count(&mut self, uid: u32, now: Instant) {
        self.count_many(uid, 1, now);
    }

    /// Counts events of this user.
    pub fn count_many(&mut self, uid: u32, events: u32, now: Instant) {
        if self.due.len() > MANY_USERS {
            self.due.retain(|_, due| *due > now);
        }
        let due = self.due.entry(uid).or_insert(now);
        *due = (*due).max(now) + self.interval * events;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_its_burst_then_its_rate_and_others_are_not_concerned() {
        let mut rates = Rates::new(NonZeroU32::new(10).unwrap());
        let start = Instant::now();
        for _ in 0..11 {
            assert_eq!(rates.wait(1, start), Duration::ZERO);
            rates.count(1, start);
        }
        assert_eq!(rates.wait(1, start), Duration::from_millis(100));
        assert_eq!(rates.wait(2, start), Duration::ZERO);
        let later = start + Duration::from_millis(100);
        assert_eq!(rates.wait(1, later), Duration::ZERO);
        let much_later = start + Duration::from_secs(100);
        rates.count_many(1, 12, much_later);
        let wait = rates.wait(1, much_later);
        assert_eq!(wait, Duration::from_millis(200), "silence saves nothing up");
        let much_later = much_later + Duration::from_secs(100);
        (0..1000).for_each(|uid| rates.count(uid, start));
        rates.count(5000, much_later);
        assert_eq!(rates.due.len(), 1);
    }

    #[test]
    fn a_new_rate_holds_from_the_next_event_on() {
        let mut rates = Rates::new(NonZeroU32::new(10).unwrap());
        let start = Instant::now();
        rates.count_many(1, 11, start);
        rates.allow(NonZeroU32::new(2).unwrap());
        rates.count(1, start);
        assert_eq!(rates.wait(1, start), Duration::from_millis(600));
    }
}
