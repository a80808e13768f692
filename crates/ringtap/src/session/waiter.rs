// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a reader waits: naps while packets come fast, sleeps until it is woken when they do not.
//!
//! A wake-up costs the capture side about a microsecond. When packets follow each other within
//! a nap's length it is cheaper for everybody to look again after the nap.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringtap_pool::reader::Sleeper;
use ringtap_pool::wake::FIRST_SLEEP;
use ringtap_shared::event::{Event, sleep_until_readable};

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
        let woken = sleep_until_readable(&[self.event.as_fd()], timeout)
            .context("cannot wait for packets")?;
        self.fast = begun.elapsed() < NAP;
        self.phase = match woken {
            // The event stays readable until the sleep is announced anew: to sleep on would be
            // to spin, should nothing have come.
            true => {
                self.sleeper.disarm();
                Phase::Napped
            }
            false => Phase::Slept,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ringtap_capture::files::Speed;
    use ringtap_capture::pcap::{PcapOptions, PcapSource};
    use ringtap_pool::distributor::{Distributor, ReaderOptions};
    use ringtap_pool::source::Source;
    use ringtap_pool::wake::{NoSignal, Signal};

    use super::*;

    /// A pcap file without packets.
    const EMPTY: [u8; 24] = [
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
    ];

    #[test]
    fn a_signal_for_nothing_does_not_keep_a_reader_awake() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), EMPTY).unwrap();
        let mut source = PcapSource::open(&PcapOptions {
            file: file.path().to_str().unwrap().into(),
            speed: Speed::Top,
            snap_length: None,
            pool_bytes: None,
        })
        .unwrap();
        let lanes = source.take_lanes();
        let mut distributor = Distributor::new(source.pool(), lanes, Arc::new(NoSignal));
        let (_, reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
        let mut waiter = Waiter::new(reader.sleeper(), Event::new().unwrap());
        let until = Instant::now() + Duration::from_millis(200);
        let mut waits = 0;
        while Instant::now() < until {
            if waits == 2 {
                waiter.event().signal();
            }
            waiter.wait(Some(until)).unwrap();
            waits += 1;
        }
        assert!((3..20).contains(&waits), "{waits} waits");
    }
}
