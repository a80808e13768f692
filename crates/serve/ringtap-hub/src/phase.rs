// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the hub falls asleep: it announces the sleep, looks for chunks once more, sleeps briefly,
//! then sleeps without limit.
//!
//! A signal for each chunk costs more than the chunk itself. While chunks follow each other within
//! the length of a pause, the hub pauses without an announcement, and no lane signals.

use std::time::Duration;

use ringtap_pool::wake::FIRST_SLEEP;

/// Length of a pause, which delays chunks by at most this long.
pub(crate) const PAUSE: Duration = Duration::from_micros(400);

/// The hub's progress towards a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The hub moved a chunk just now.
    Awake,
    /// A pause is over.
    Paused,
    /// The sleep is announced and begins after one more look for chunks.
    Armed,
    /// One short sleep is over.
    ShortSleep,
}

/// What the hub does without chunks to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleAction {
    /// Announce the sleep, then look for chunks once more.
    Arm,
    /// Pause; only commands and doorbells end the pause sooner.
    Pause,
    /// Sleep at most this long; absent: without limit.
    Sleep(Option<Duration>),
}

impl Phase {
    /// The next action and phase when the hub found no chunk. `may_pause`: the last sleep was short, and
    /// the lanes have enough free chunks for a pause.
    pub(crate) fn next(self, may_pause: bool) -> (IdleAction, Phase) {
        match self {
            Phase::Awake if may_pause => (IdleAction::Pause, Phase::Paused),
            Phase::Awake | Phase::Paused => (IdleAction::Arm, Phase::Armed),
            Phase::Armed => (IdleAction::Sleep(Some(FIRST_SLEEP)), Phase::ShortSleep),
            Phase::ShortSleep => (IdleAction::Sleep(None), Phase::ShortSleep),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_without_chunks_is_followed_by_a_sleep_that_is_announced() {
        let (mut phase, mut seen) = (Phase::Awake, Vec::new());
        for _ in 0..4 {
            let (next, then) = phase.next(true);
            phase = then;
            seen.push(next);
        }
        let first = IdleAction::Sleep(Some(FIRST_SLEEP));
        assert_eq!(
            seen,
            [
                IdleAction::Pause,
                IdleAction::Arm,
                first,
                IdleAction::Sleep(None)
            ]
        );
        assert!(PAUSE < FIRST_SLEEP, "readers rely on it");
    }
}
