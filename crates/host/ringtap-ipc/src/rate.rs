// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits events of each peer per second: requests to a server, and lines that peers make a process print.
//!
//! A peer is another process, user, guest or library.
//!
//! Invariants
//! - However many peers there are, the memory is bounded: at most [`MAX_PEERS`] have an entry. Further
//!   peers share one.
//! - The work for an event does not grow with the number of peers, but once a second.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Events that a peer may cause at once, as the time in which they become due.
const BURST: Duration = Duration::from_secs(1);
/// Most peers with an entry of their own.
const MAX_PEERS: usize = 1024;

/// Events of all peers.
#[derive(Debug)]
pub struct Rates<K> {
    interval: Duration,
    /// Time at which a peer's next event is due if events come evenly.
    due: HashMap<K, Instant>,
    /// The same for all peers without an entry, once there are [`MAX_PEERS`].
    others: Instant,
    /// The earliest time to look again for entries that can be freed.
    next_cleaning: Instant,
}

impl<K: Eq + Hash> Rates<K> {
    /// Allows each peer this number of events per second.
    #[must_use]
    pub fn new(per_second: NonZeroU32) -> Self {
        let now = Instant::now();
        Rates {
            interval: Duration::from_secs(1) / per_second.get(),
            due: HashMap::new(),
            others: now,
            next_cleaning: now,
        }
    }

    /// Allows each peer this number of events per second from now on.
    pub fn allow(&mut self, per_second: NonZeroU32) {
        self.interval = Duration::from_secs(1) / per_second.get();
    }

    /// Time until this peer may cause the next event; zero if it may at once.
    #[must_use]
    pub fn wait(&self, peer: &K, now: Instant) -> Duration {
        let due = match self.due.get(peer) {
            Some(due) => *due,
            None if self.due.len() < MAX_PEERS => return Duration::ZERO,
            None => self.others,
        };
        due.saturating_duration_since(now).saturating_sub(BURST)
    }

    /// Counts an event of this peer.
    pub fn count(&mut self, peer: K, now: Instant) {
        self.count_many(peer, 1, now);
    }

    /// Counts events of this peer.
    pub fn count_many(&mut self, peer: K, events: u32, now: Instant) {
        let is_full = self.due.len() >= MAX_PEERS;
        if is_full && now >= self.next_cleaning {
            self.next_cleaning = now + BURST;
            self.due.retain(|_, due| *due > now);
        }
        let is_full = self.due.len() >= MAX_PEERS;
        let due = if is_full && !self.due.contains_key(&peer) {
            &mut self.others
        } else {
            self.due.entry(peer).or_insert(now)
        };
        *due = (*due).max(now) + self.interval * events;
    }
}

/// Lines that peers make this process print: a number per second for each peer, and for all together.
#[derive(Debug)]
pub struct LineLimit<K> {
    peers: Rates<K>,
    all: Rates<()>,
    left_out: u64,
}

impl<K: Eq + Hash> LineLimit<K> {
    /// Lines per second of one peer, unless the user configures another number.
    pub const PER_PEER: NonZeroU32 = NonZeroU32::new(10).expect("not 0");
    /// Lines per second of all peers together, unless the user configures another number.
    pub const OF_ALL: NonZeroU32 = NonZeroU32::new(50).expect("not 0");

    /// Allows these numbers of lines per second.
    #[must_use]
    pub fn new(per_peer: NonZeroU32, of_all: NonZeroU32) -> Self {
        LineLimit {
            peers: Rates::new(per_peer),
            all: Rates::new(of_all),
            left_out: 0,
        }
    }

    /// Whether to print a line that this peer caused (`None`: no particular one).
    pub fn allows(&mut self, peer: Option<K>, now: Instant) -> bool {
        let of_peer = peer.as_ref().map(|peer| self.peers.wait(peer, now));
        if !of_peer.unwrap_or_default().is_zero() || !self.all.wait(&(), now).is_zero() {
            self.left_out = self.left_out.saturating_add(1);
            return false;
        }
        self.all.count((), now);
        if let Some(peer) = peer {
            self.peers.count(peer, now);
        }
        true
    }

    /// Number of lines left out since the last call.
    pub fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    /// The line of this peer, with the number of lines left out before it; `None` to leave it out.
    pub fn pass(&mut self, peer: K, line: String, now: Instant) -> Option<String> {
        if !self.allows(Some(peer), now) {
            return None;
        }
        Some(match self.take_left_out() {
            0 => line,
            left_out => format!("{line} ({left_out} lines left out before this one)"),
        })
    }
}

impl<K: Eq + Hash> Default for LineLimit<K> {
    fn default() -> Self {
        LineLimit::new(Self::PER_PEER, Self::OF_ALL)
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
            assert_eq!(rates.wait(&1, start), Duration::ZERO);
            rates.count(1, start);
        }
        assert_eq!(rates.wait(&1, start), Duration::from_millis(100));
        assert_eq!(rates.wait(&2, start), Duration::ZERO);
        let later = start + Duration::from_millis(100);
        assert_eq!(rates.wait(&1, later), Duration::ZERO);
        let much_later = start + Duration::from_secs(100);
        rates.count_many(1, 12, much_later);
        let wait = rates.wait(&1, much_later);
        assert_eq!(wait, Duration::from_millis(200), "silence saves nothing up");
    }

    #[test]
    fn a_new_rate_holds_from_the_next_event_on() {
        let mut rates = Rates::new(NonZeroU32::new(10).unwrap());
        let start = Instant::now();
        rates.count_many(1, 11, start);
        rates.allow(NonZeroU32::new(2).unwrap());
        rates.count(1, start);
        assert_eq!(rates.wait(&1, start), Duration::from_millis(600));
    }

    #[test]
    fn a_million_peers_take_bounded_memory_and_share_one_rate() {
        let mut rates = Rates::new(NonZeroU32::new(10).unwrap());
        let start = Instant::now();
        let mut allowed = 0;
        for peer in 0..1_000_000 {
            if rates.wait(&peer, start).is_zero() {
                allowed += 1;
                rates.count(peer, start);
            }
        }
        assert_eq!((rates.due.len(), allowed), (MAX_PEERS, MAX_PEERS + 11));
        assert_eq!(
            rates.wait(&0, start),
            Duration::ZERO,
            "peer 0 had one event"
        );
        // Silent peers are forgotten.
        let later = start + Duration::from_secs(100);
        rates.count(5_000_000, later);
        assert_eq!(rates.due.len(), 1);
    }

    #[test]
    fn one_peer_cannot_use_up_the_lines_of_all() {
        let mut limit = LineLimit::default();
        let now = Instant::now();
        let allowed = (0..1000).filter(|_| limit.allows(Some(1), now)).count();
        assert_eq!(allowed, 11);
        assert_eq!(limit.left_out, 989);
        assert!(limit.allows(Some(2), now) && limit.allows(None, now));
        let of_many = (100..1000).filter(|uid| limit.allows(Some(*uid), now));
        assert_eq!(of_many.count(), 51 - 13);
    }

    #[test]
    fn the_next_line_states_how_many_were_left_out() {
        let mut limit = LineLimit::default();
        let now = Instant::now();
        let line = || "forged".to_owned();
        let passed = (0..500).filter_map(|_| limit.pass("a", line(), now));
        assert_eq!(passed.collect::<Vec<_>>(), vec!["forged"; 11]);
        let later = now + Duration::from_secs(1);
        let next = limit.pass("a", line(), later).expect("a second later");
        assert_eq!(next, "forged (489 lines left out before this one)");
        assert_eq!(limit.pass("a", line(), later).as_deref(), Some("forged"));
    }
}
