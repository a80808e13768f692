// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a reader waits: naps while packets come fast, sleeps until it is woken when they do not.
//!
//! A wake-up costs the capture side about a microsecond. When packets follow each other within
//! a nap's length it is cheaper for everybody to look again after the nap.
#![forbid(unsafe_code)]

use std::io;
use std::time::{Duration, Instant};

use ringtap_pool::reader::Sleeper;
use ringtap_pool::wake::FIRST_SLEEP;

use crate::event::{Beside, Event, sleep_until_signalled};

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
pub struct Waiter {
    sleepers: Vec<Sleeper>,
    event: Event,
    phase: Phase,
    /// The last sleep ended sooner than a nap would have.
    fast: bool,
}

impl Waiter {
    /// A reader's that reads where these sleepers say, and that this event wakes.
    pub fn new(sleepers: Vec<Sleeper>, event: Event) -> Self {
        Waiter {
            sleepers,
            event,
            phase: Phase::Awake,
            fast: false,
        }
    }

    /// What ends this reader's sleep.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Says that the reader sleeps, so that the event is signalled when packets come; then look
    /// once more. For readers that wait for the event in a loop of their own.
    pub fn announce(&mut self) {
        // A hub that is gone is found by those who look at the connection.
        let _gone = self.event.clear();
        self.sleepers.iter().for_each(Sleeper::arm);
        self.phase = Phase::Armed;
    }

    /// Says that packets were found.
    #[inline]
    pub fn found(&mut self) {
        if matches!(self.phase, Phase::Armed | Phase::Slept) {
            self.sleepers.iter().for_each(Sleeper::disarm);
        }
        self.phase = Phase::Awake;
    }

    /// Waits a little, at most until `deadline`; then look again.
    ///
    /// It may return at once: a sleep begins only after one more look. What is `beside` ends a
    /// sleep, too.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn wait(&mut self, deadline: Option<Instant>, beside: &[Beside<'_>]) -> io::Result<()> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let at_most = |limit: Duration| Some(left.map_or(limit, |left| left.min(limit)));
        match self.phase {
            Phase::Awake if self.fast => {
                std::thread::sleep(at_most(NAP).unwrap_or(NAP));
                self.phase = Phase::Napped;
                Ok(())
            }
            Phase::Awake | Phase::Napped => {
                self.announce();
                Ok(())
            }
            Phase::Armed => self.sleep(at_most(FIRST_SLEEP), beside),
            Phase::Slept => self.sleep(left, beside),
        }
    }

    fn sleep(&mut self, timeout: Option<Duration>, beside: &[Beside<'_>]) -> io::Result<()> {
        let begun = Instant::now();
        let woken = sleep_until_signalled(&self.event, beside, timeout)?;
        self.fast = woken && begun.elapsed() < NAP;
        self.phase = match woken {
            // The event stays readable until the sleep is announced anew: to sleep on would be
            // to spin, should nothing have come.
            true => {
                self.sleepers.iter().for_each(Sleeper::disarm);
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

    use ringtap_pool::distributor::{Distributor, ReaderOptions};
    use ringtap_pool::format::Geometry;
    use ringtap_pool::view::Pool;
    use ringtap_pool::wake::{NoSignal, Signal};

    use super::*;

    #[test]
    fn a_signal_for_nothing_does_not_keep_a_reader_awake() {
        let pool = Pool::on_heap(Geometry::contiguous(4096, 4, 1, 100).unwrap());
        let mut distributor = Distributor::new(pool, Vec::new(), Arc::new(NoSignal));
        let (_, reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
        let mut waiter = Waiter::new(vec![reader.sleeper()], Event::new().unwrap());
        let until = Instant::now() + Duration::from_millis(200);
        let mut waits = 0;
        while Instant::now() < until {
            if waits == 2 {
                waiter.event().signal();
            }
            waiter.wait(Some(until), &[]).unwrap();
            waits += 1;
        }
        assert!((3..20).contains(&waits), "{waits} waits");
    }
}
