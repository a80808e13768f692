// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the hub goes to sleep: armed, it looks once more, then sleeps briefly, then for good.
//!
//! A signal for each chunk would cost the hub and the capture side more than the chunk itself.
//! While chunks follow each other within a nap's length the hub naps instead, and announces
//! nothing: then nobody signals.
#![forbid(unsafe_code)]

use std::time::Duration;

use ringtap_pool::wake::FIRST_SLEEP;

/// Length of a nap; chunks that are opened meanwhile reach readers so much later.
pub(crate) const NAP: Duration = Duration::from_micros(400);

/// Where it stands on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Something was done just now.
    Awake,
    /// A nap is over.
    Napped,
    /// Everybody knows that we are about to sleep; after one more look we may.
    Armed,
    /// One short sleep is over.
    ShortSleep,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Announce the sleep, then look once more.
    Arm,
    /// Sleep for a nap's length; only orders and readers end it sooner.
    Nap,
    /// Sleep at most so long.
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
