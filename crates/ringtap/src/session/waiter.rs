// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a reader waits: naps while packets come fast, sleeps until it is woken when they do not.
//!
//! A wake-up costs the capture side about a microsecond. When packets follow each other within
//! a nap's length it is cheaper for everybody to look again after the nap.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringtap_capture::event::{Event, sleep_until_readable};
use ringtap_pool::reader::Sleeper;
use ringtap_pool::wake::FIRST_SLEEP;

/// Length of a nap: at a million packets a second about 250 packets come meanwhile.
const NAP: Duration = Duration::from_micros(250);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Packets came since the last wait.
    Awake,
    /// A nap is over and nothing came.
    Napped,
    /// The sleep is announced; after one more look it may begin.
    Armed,
    /// One short sleep is over.
    Slept,
}

/// A reader's way to wait.
pub(crate) struct Waiter {
    sleeper: Sleeper,
    event: Event,
    phase: Phase,
    /// The last sleep ended sooner than a nap would have.
    fast: bool,
}

impl Waiter {
    pub(super) fn new(sleeper: Sleeper, event: Event) -> Self {
        Waiter {
            sleeper,
            event,
            phase: Phase::Awake,
            fast: false,
        }
    }

    /// What ends this reader's sleep.
    pub(super) fn event(&self) -> Event {
        self.event.clone()
    }

    /// Says that packets were found.
    pub(crate) fn found(&mut self) {
        if matches!(self.phase, Phase::Armed | Phase::Slept) {
            self.sleeper.disarm();
        }
        self.phase = Phase::Awake;
    }

    /// Waits a little, at most until `deadline`; then look again.
    ///
    /// It may return at once: a sleep begins only after one more look.
    pub(crate) fn wait(&mut self, deadline: Option<Instant>) -> Result<()> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let at_most = |limit: Duration| Some(left.map_or(limit, |left| left.min(limit)));
        match self.phase {
            Phase::Awake if self.fast => {
                std::thread::sleep(at_most(NAP).unwrap_or(NAP));
                self.phase = Phase::Napped;
                Ok(())
            }
            Phase::Awake | Phase::Napped => {
                self.event.clear();
                self.sleeper.arm();
                self.phase = Phase::Armed;
                Ok(())
            }
            Phase::Armed => self.sleep(at_most(FIRST_SLEEP)),
            Phase::Slept => self.sleep(left),
        }
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> Result<()> {
        let begun = Instant::now();
        sleep_until_readable(&[self.event.as_fd()], timeout).context("cannot wait for packets")?;
        self.fast = begun.elapsed() < NAP;
        self.phase = Phase::Slept;
        Ok(())
    }
}
