// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the hub falls asleep: it announces the sleep, looks once more, sleeps briefly, then without
//! limit.
//!
//! A signal for each chunk costs more than the chunk itself. While chunks follow each other within
//! a nap's length, the hub naps without announcing it, and no lane signals.
#![forbid(unsafe_code)]

use std::time::Duration;

use ringtap_pool::wake::FIRST_SLEEP;

/// Length of a nap, by which chunks reach readers later.
pub(crate) const NAP: Duration = Duration::from_micros(400);

/// How far the hub has fallen asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The hub moved a chunk just now.
    Awake,
    /// A nap is over.
    Napped,
    /// The sleep is announced; it begins after one more look.
    Armed,
    /// One short sleep is over.
    ShortSleep,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Announce the sleep, then look once more.
    Arm,
    /// Sleep for a nap's length; only commands and doorbells end it sooner.
    Nap,
    /// Sleep at most this long (absent: without limit).
    Sleep(Option<Duration>),
}

impl Phase {
    /// What to do when nothing was found, and the phase after that; `may_nap` when the last sleep
    /// was a short one and there is room for what comes during a nap.
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
