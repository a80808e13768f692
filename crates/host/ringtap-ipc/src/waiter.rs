// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a reader waits: naps while packets come fast, sleeps until it is woken when they do not.
//!
//! A wake-up costs the capture side about a microsecond. When packets follow each other within
//! a nap's length it is cheaper for everybody to look again after the nap.
//!
//! Invariants
//! - Between the end of a sleep and the first packet nothing is done that can be done before the
//!   one or after the other: caches are cold then. What is left is settled at the next call.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_pool::reader::Sleeper;
use ringtap_pool::wake::FIRST_SLEEP;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::doorbell::Doorbell;

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
    /// Something ended a sleep, of which nothing is settled yet.
    Woken,
    /// The same, and packets were found after it.
    Found,
}

/// What [`Waiter::wait`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It is time to look again.
    Look,
    /// The connection that is listened to was ended by the other side.
    HungUp,
}

/// Bit of an event of the set: it is the end of a connection.
const HANG_UP: u64 = 1;
/// It is the reader's own event.
const DOORBELL: u64 = 2;
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
    doorbell: Arc<dyn Doorbell>,
    /// All that ends a sleep.
    set: OwnedFd,
    /// Signals of sources, which others clear: only a new one ends a sleep.
    wakes: Vec<Arc<OwnedFd>>,
    /// Its own event may have been signalled since that was last cleared.
    rang: bool,
    phase: Phase,
    /// When the last sleep began.
    begun: Instant,
    /// The last sleep ended sooner than a nap would have, what was then found first included.
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
    pub fn new(
        sleepers: Vec<Sleeper>,
        doorbell: Arc<dyn Doorbell>,
        wakes: Vec<Arc<OwnedFd>>,
    ) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        add(&set, doorbell.fd(), DOORBELL, epoll::EventFlags::IN)?;
        for wake in &wakes {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            add(&set, wake.as_fd(), OTHER, flags)?;
        }
        Ok(Waiter {
            sleepers,
            doorbell,
            set,
            wakes,
            rang: true,
            phase: Phase::Awake,
            begun: Instant::now(),
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
        self.settle();
        if self.wakes.is_empty() {
            self.rang = true;
        } else {
            // Forgets old signals; who cannot look finds them again.
            let _found = self.look(Some(&Timespec::default()));
        }
        if std::mem::take(&mut self.rang) {
            // A hub that is gone is found by those who look at the connection.
            let _gone = self.doorbell.clear();
        }
        self.sleepers.iter().for_each(Sleeper::arm);
        self.phase = Phase::Armed;
    }

    /// Says that packets were found.
    #[inline]
    pub fn found(&mut self) {
        match self.phase {
            Phase::Awake => {}
            Phase::Woken => self.phase = Phase::Found,
            _ => self.wake_up(),
        }
    }

    #[cold]
    fn wake_up(&mut self) {
        if matches!(self.phase, Phase::Armed | Phase::Slept) {
            self.sleepers.iter().for_each(Sleeper::disarm);
        }
        self.settle();
        self.phase = Phase::Awake;
    }

    /// Does what the end of a sleep left undone.
    fn settle(&mut self) {
        self.phase = match self.phase {
            Phase::Woken => Phase::Napped,
            Phase::Found => Phase::Awake,
            _ => return,
        };
        self.fast = self.begun.elapsed() < NAP;
        self.sleepers.iter().for_each(Sleeper::disarm);
    }

    /// Waits a little, at most until `deadline`; then look again.
    ///
    /// It may return at once: a sleep begins only after one more look.
    ///
    /// # Errors
    ///
    /// The system's.
    #[inline]
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<Waited> {
        match self.phase {
            Phase::Armed | Phase::Slept => self.sleep(deadline),
            _ => {
                self.nap_or_announce(deadline);
                Ok(Waited::Look)
            }
        }
    }

    #[cold]
    fn nap_or_announce(&mut self, deadline: Option<Instant>) {
        self.settle();
        if self.phase == Phase::Awake && self.fast {
            std::thread::sleep(left_until(deadline).map_or(NAP, |left| left.min(NAP)));
            self.phase = Phase::Napped;
        } else {
            // After a sleep that ended for nothing, too: the event stays readable until the sleep
            // is announced anew, so to sleep on would be to spin.
            self.announce();
        }
    }

    #[inline]
    fn sleep(&mut self, deadline: Option<Instant>) -> io::Result<Waited> {
        let timeout = self.timeout(deadline);
        let found = self.look(timeout.as_ref())?;
        self.phase = match found {
            Some(_) => Phase::Woken,
            None => Phase::Slept,
        };
        Ok(found.unwrap_or(Waited::Look))
    }

    /// How long a sleep that begins now may last.
    #[inline(never)]
    fn timeout(&mut self, deadline: Option<Instant>) -> Option<Timespec> {
        self.begun = Instant::now();
        let left = left_until(deadline);
        let timeout = match self.phase {
            Phase::Armed => Some(left.map_or(FIRST_SLEEP, |left| left.min(FIRST_SLEEP))),
            _ => left,
        };
        timeout.and_then(|timeout| Timespec::try_from(timeout).ok())
    }

    /// Sleeps until something ends the sleep; tells what, if anything did.
    #[inline]
    fn look(&mut self, timeout: Option<&Timespec>) -> io::Result<Option<Waited>> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; MOST_EVENTS];
        match epoll::wait(&self.set, &mut events[..], timeout) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Ok(found) => {
                let events = events.iter().take(found);
                let what = events.fold(0, |all, one| all | one.data.u64());
                // There may be more than were taken.
                self.rang |= what & DOORBELL != 0 || found == MOST_EVENTS;
                Ok(Some(match what & HANG_UP != 0 {
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

fn left_until(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

fn add(set: &OwnedFd, fd: BorrowedFd<'_>, what: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(set, fd, epoll::EventData::new_u64(what), flags)?)
}

#[cfg(test)]
mod tests {
    use ringtap_pool::distributor::{Distributor, ReaderOptions};
    use ringtap_pool::format::Geometry;
    use ringtap_pool::view::Pool;
    use ringtap_pool::wake::{NoSignal, Signal};

    use super::*;
    use crate::doorbell::SocketDoorbell;

    #[test]
    fn a_signal_for_nothing_does_not_keep_a_reader_awake() {
        let pool = Pool::on_heap(Geometry::contiguous(4096, 4, 1, 100).unwrap());
        let mut distributor = Distributor::new(pool, Vec::new(), Arc::new(NoSignal));
        let (_, reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
        let (hub, doorbell) = SocketDoorbell::pair().unwrap();
        let doorbell = Arc::new(doorbell);
        let mut waiter = Waiter::new(vec![reader.sleeper()], doorbell, Vec::new()).unwrap();
        let until = Instant::now() + Duration::from_millis(200);
        let mut waits = 0;
        while Instant::now() < until {
            if waits == 2 {
                hub.signal();
            }
            waiter.wait(Some(until)).unwrap();
            waits += 1;
        }
        assert!((3..20).contains(&waits), "{waits} waits");
    }
}
