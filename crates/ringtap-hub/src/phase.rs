// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the hub goes to sleep: armed, it looks once more, then sleeps briefly, then for good.
#![forbid(unsafe_code)]

use std::time::Duration;

use ringtap_pool::wake::FIRST_SLEEP;

/// Where it stands on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Something was done just now.
    Awake,
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
    /// Sleep at most so long.
    Sleep(Option<Duration>),
}

impl Phase {
    /// What to do when nothing was found, and the phase after that.
    pub(crate) fn next(self) -> (Next, Phase) {
        match self {
            Phase::Awake => (Next::Arm, Phase::Armed),
            Phase::Armed => (Next::Sleep(Some(FIRST_SLEEP)), Phase::ShortSleep),
            Phase::ShortSleep => (Next::Sleep(None), Phase::ShortSleep),
        }
    }
}
