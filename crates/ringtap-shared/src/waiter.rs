// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a reader waits: naps while packets come fast, sleeps until it is woken when they do not.
//!
//! A wake-up costs the capture side about a microsecond. When packets follow each other within
//! a nap's length it is cheaper for everybody to look again after the nap.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_pool::reader::Sleeper;
use ringtap_pool::wake::FIRST_SLEEP;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::event::Event;

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

/// What [`Waiter::wait`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It is time to look again.
    Look,
    /// The connection that is listened to was ended by the other side.
    HungUp,
}

/// In an event of the set: it is the end of a connection.
const HANG_UP: u64 = 1;
/// It is the reader's own event.
const BELL: u64 = 2;
/// It is something else.
const OTHER: u64 = 0;
/// Events that are taken from the set at once.
const MOST_EVENTS: usize = 8;

/// What ends a sleep beside the reader's own event.
#[derive(Clone, Copy, Debug)]
pub enum Beside<'a> {
    /// The end of a connection.
    HangUp(BorrowedFd<'a>),
    /// Another event.
    Event(BorrowedFd<'a>),
}

/// A reader's way to wait.
pub struct Waiter {
    sleepers: Vec<Sleeper>,
    event: Event,
    /// All that ends a sleep.
    set: OwnedFd,
    /// Signals of sources, which others clear: only a new one ends a sleep.
    wakes: Vec<Arc<OwnedFd>>,
    /// Its own event may have been signalled since that was last cleared.
    rang: bool,
    phase: Phase,
    /// The last sleep ended sooner than a nap would have.
    fast: bool,
}

impl Waiter {
    /// A reader's that reads where these sleepers say, and that this event wakes.
    ///
    /// Signals of the sources themselves (`wakes`) spare it the way over its driver.
    ///
    /// # Errors
    ///
    /// The system's, when no more descriptors are allowed.
    pub fn new(sleepers: Vec<Sleeper>, event: Event, wakes: Vec<Arc<OwnedFd>>) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        add(&set, event.as_fd(), BELL, epoll::EventFlags::IN)?;
        for wake in &wakes {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            add(&set, wake.as_fd(), OTHER, flags)?;
        }
        Ok(Waiter {
            sleepers,
            event,
            set,
            wakes,
            rang: true,
            phase: Phase::Awake,
            fast: false,
        })
    }

    /// Lets this end sleeps, too, as long as it is open.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn listen(&self, beside: Beside<'_>) -> io::Result<()> {
        match beside {
            Beside::HangUp(connection) => {
                add(&self.set, connection, HANG_UP, epoll::EventFlags::RDHUP)
            }
            Beside::Event(other) => add(&self.set, other, OTHER, epoll::EventFlags::IN),
        }
    }

    /// Does not let this end sleeps any more.
    ///
    /// # Errors
    ///
    /// The system's; it was not listened to.
    pub fn ignore(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.set, fd)?)
    }

    /// Says that the reader sleeps, so that the event is signalled when packets come; then look
    /// once more. For readers that wait for it in a loop of their own.
    pub fn announce(&mut self) {
        if self.wakes.is_empty() {
            self.rang = true;
        } else {
            // Forgets old signals; who cannot look finds them again.
            let _found = self.look(Some(Duration::ZERO));
        }
        if std::mem::take(&mut self.rang) {
            // A hub that is gone is found by those who look at the connection.
            let _gone = self.event.clear();
        }
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
    /// It may return at once: a sleep begins only after one more look.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<Waited> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let at_most = |limit: Duration| Some(left.map_or(limit, |left| left.min(limit)));
        match self.phase {
            Phase::Awake if self.fast => {
                std::thread::sleep(at_most(NAP).unwrap_or(NAP));
                self.phase = Phase::Napped;
                Ok(Waited::Look)
            }
            Phase::Awake | Phase::Napped => {
                self.announce();
                Ok(Waited::Look)
            }
            Phase::Armed => self.sleep(at_most(FIRST_SLEEP)),
            Phase::Slept => self.sleep(left),
        }
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<Waited> {
        let begun = Instant::now();
        let found = self.look(timeout)?;
        let woken = found.is_some();
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
        Ok(found.unwrap_or(Waited::Look))
    }

    /// Sleeps until something ends the sleep; tells what, if anything did.
    fn look(&mut self, timeout: Option<Duration>) -> io::Result<Option<Waited>> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; MOST_EVENTS];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match epoll::wait(&self.set, &mut events[..], timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Ok(found) => {
                let is = |what| events[..found].iter().any(|one| one.data.u64() == what);
                // There may be more than were taken.
                self.rang |= is(BELL) || found == MOST_EVENTS;
                Ok(Some(match is(HANG_UP) {
                    true => Waited::HungUp,
                    false => Waited::Look,
                }))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Waiter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

fn add(set: &OwnedFd, fd: BorrowedFd<'_>, what: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(set, fd, epoll::EventData::new_u64(what), flags)?)
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
        let event = Event::new().unwrap();
        let mut waiter = Waiter::new(vec![reader.sleeper()], event.clone(), Vec::new()).unwrap();
        let until = Instant::now() + Duration::from_millis(200);
        let mut waits = 0;
        while Instant::now() < until {
            if waits == 2 {
                event.signal();
            }
            waiter.wait(Some(until)).unwrap();
            waits += 1;
        }
        assert!((3..20).contains(&waits), "{waits} waits");
    }
}
