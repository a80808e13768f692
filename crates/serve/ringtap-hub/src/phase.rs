// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the hub falls asleep: it announces the sleep, looks for chunks once more, sleeps briefly,
//! then sleeps without limit.
//!
//! A signal for each chunk costs more than the chunk itself. While chunks follow each other within
//! a nap's length, the hub naps without an announcement, and no lane signals.

use std::time::Duration;

use ringtap_pool::wake::FIRST_SLEEP;

/// Length of a nap, which delays chunks by at most this long.
pub(crate) const NAP: Duration = Duration::from_micros(400);

/// The hub's progress towards a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The hub moved a chunk just now.
    Awake,
    /// A nap is over.
    Napped,
    /// The sleep is announced and begins after one more look for chunks.
    Armed,
    /// One short sleep is over.
    ShortSleep,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Announce the sleep, then look for chunks once more.
    Arm,
    /// Sleep for a nap's length; only commands and doorbells end it sooner.
    Nap,
    /// Sleep at most this long; absent: without limit.
    Sleep(Option<Duration>),
}

impl Phase {
    /// The next action and phase when the hub found no chunk. `may_nap`: the last sleep was short, and
    /// the lanes have enough free chunks for the length of a nap.
    pub(crate) fn next(self, may_nap: bool) -> (Next, Phase) {
        match self {
            Phase::Awake if may_nap => (Next::Nap, Phase::Napped),
            Phase::Awake | Phase::Napped => (Next::Arm, Phase::Armed),
            Phase::Armed => (Next::Sleep(Some(FIRST_SLEEP)), Phase::ShortSleep),
            Phase::ShortSleep => (Next::Sleep(None), Phase::ShortSleep),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_that_found_nothing_is_followed_by_a_sleep_that_is_announced() {
        let (mut phase, mut seen) = (Phase::Awake, Vec::new());
        for _ in 0..4 {
            let (next, then) = phase.next(true);
            phase = then;
            seen.push(next);
        }
        let first = Next::Sleep(Some(FIRST_SLEEP));
        assert_eq!(seen, [Next::Nap, Next::Arm, first, Next::Sleep(None)]);
        assert!(NAP < FIRST_SLEEP, "readers rely on it");
    }
}
