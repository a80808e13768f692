// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a reader waits: it pauses while packets come fast, else sleeps until the hub wakes it.
//!
//! A wake-up costs the capture side about a microsecond. When packets follow each other within
//! the length of a pause, it costs both sides less to look again after the pause.
//!
//! Invariants
//! - Caches are cold after a sleep. So between the end of a sleep and the first packet the waiter
//!   does only what cannot wait; the next call settles the rest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_ipc::doorbell::ReaderDoorbell;
use ringtap_pool::reader::Sleeper;
use ringtap_pool::wake::FIRST_SLEEP;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// Length of a pause; at a million packets a second, 250 packets come during a pause.
const PAUSE: Duration = Duration::from_micros(250);

#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitPhase {
    /// Packets came since the last wait.
    Awake,
    /// A pause is over without a packet.
    Paused,
    /// The sleep is announced and begins after one more look for packets.
    Armed,
    /// One short sleep is over.
    Slept,
    /// A sleep has ended; the state is not settled yet.
    Woken,
    /// As `Woken`, and packets were found after the sleep.
    Found,
}

/// The next wait of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitPlan {
    /// No wait: look for packets again.
    Look,
    /// A pause of this length.
    Pause(Duration),
    /// A sleep until the set is readable, at most this long (absent: without limit).
    Sleep(Option<Duration>),
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Look for packets again.
    Look,
    /// The other side ended the connection that the waiter listens to.
    HungUp,
}

/// Bit of a set entry that is the end of a connection.
const HANG_UP: u64 = 1;
/// Bit of the entry for the reader's own doorbell.
const DOORBELL: u64 = 2;
/// Value of any other entry.
const OTHER: u64 = 0;
/// Most events taken from the set in one call.
const MAX_EVENTS: usize = 8;

/// An additional event that ends a sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beside<'a> {
    /// The end of a connection.
    HangUp(BorrowedFd<'a>),
    /// Another event.
    Event(BorrowedFd<'a>),
}

/// Waits for packets on behalf of a reader.
pub(crate) struct Waiter {
    sleepers: Vec<Sleeper>,
    doorbell: Arc<ReaderDoorbell>,
    /// Epoll descriptor of everything that ends a sleep.
    set: OwnedFd,
    /// Signals of sources. Others clear them, so only a new signal ends a sleep.
    wakes: Vec<Arc<OwnedFd>>,
    /// The doorbell may have been signalled since it was last cleared.
    rang: bool,
    phase: WaitPhase,
    /// When the last sleep began.
    begun: Instant,
    /// The last sleep, including the first look for packets after it, was shorter than a pause.
    fast: bool,
}

impl Waiter {
    /// A waiter for a reader with these sleep flags, woken by this doorbell.
    ///
    /// The sources' own signals (`wakes`) wake the reader directly, without the hub.
    pub(crate) fn new(
        sleepers: Vec<Sleeper>,
        doorbell: Arc<ReaderDoorbell>,
        wakes: Vec<Arc<OwnedFd>>,
    ) -> io::Result<Self> {
        let set = new_set(&doorbell, &wakes)?;
        Ok(Waiter {
            sleepers,
            doorbell,
            set,
            wakes,
            rang: true,
            phase: WaitPhase::Awake,
            begun: Instant::now(),
            fast: false,
        })
    }

    /// Replaces the set by a new one, without the descriptors of [`Waiter::listen`]. After a fork, both
    /// processes would take each other's events from the old one.
    pub(crate) fn renew(&mut self) -> io::Result<()> {
        self.set = new_set(&self.doorbell, &self.wakes)?;
        self.rang = true;
        Ok(())
    }

    /// Lets `beside` end sleeps, too, as long as its descriptor is open.
    pub(crate) fn listen(&self, beside: Beside<'_>) -> io::Result<()> {
        match beside {
            Beside::HangUp(connection) => {
                add(&self.set, connection, HANG_UP, epoll::EventFlags::RDHUP)
            }
            Beside::Event(other) => add(&self.set, other, OTHER, epoll::EventFlags::IN),
        }
    }

    /// Announces that the reader sleeps, so that the doorbell is signalled when packets come; look for
    /// packets once more after this. For readers with an event loop of their own.
    pub(crate) fn announce(&mut self) {
        self.settle();
        if self.wakes.is_empty() {
            self.rang = true;
        } else {
            // Discards old signals; if the call fails, a later wait finds them again.
            let _found = self.look(Some(&Timespec::default()));
        }
        if std::mem::take(&mut self.rang) {
            self.doorbell.clear();
        }
        self.sleepers.iter().for_each(Sleeper::arm);
        self.phase = WaitPhase::Armed;
    }

    /// Tells the waiter that packets were found.
    #[inline]
    pub(crate) fn found(&mut self) {
        match self.phase {
            WaitPhase::Awake => {}
            WaitPhase::Woken => self.phase = WaitPhase::Found,
            _ => self.wake_up(),
        }
    }

    #[cold]
    fn wake_up(&mut self) {
        if matches!(self.phase, WaitPhase::Armed | WaitPhase::Slept) {
            self.sleepers.iter().for_each(Sleeper::disarm);
        }
        self.settle();
        self.phase = WaitPhase::Awake;
    }

    /// Settles what the end of a sleep left open.
    fn settle(&mut self) {
        self.phase = match self.phase {
            WaitPhase::Woken => WaitPhase::Paused,
            WaitPhase::Found => WaitPhase::Awake,
            _ => return,
        };
        self.fast = self.begun.elapsed() < PAUSE;
        self.sleepers.iter().for_each(Sleeper::disarm);
    }

    /// Decides how to wait next, at most until `deadline`; look for packets after the wait.
    ///
    /// A sleep begins only after one more look. [`Waiter::sleep`] sleeps; a caller that sleeps on the set
    /// itself calls it afterwards, without time.
    pub(crate) fn plan(&mut self, deadline: Option<Instant>) -> WaitPlan {
        match self.phase {
            WaitPhase::Armed | WaitPhase::Slept => WaitPlan::Sleep(self.timeout(deadline)),
            _ => self.pause_or_announce(deadline),
        }
    }

    #[cold]
    fn pause_or_announce(&mut self, deadline: Option<Instant>) -> WaitPlan {
        self.settle();
        if self.phase == WaitPhase::Awake && self.fast {
            self.phase = WaitPhase::Paused;
            WaitPlan::Pause(left_until(deadline).map_or(PAUSE, |left| left.min(PAUSE)))
        } else {
            // Also after a sleep that ended without a packet: the doorbell stays readable until the next
            // announcement, so another sleep would end at once.
            self.announce();
            WaitPlan::Look
        }
    }

    /// Sleeps until something ends the sleep, at most for `timeout`.
    #[inline]
    pub(crate) fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<Waited> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let found = self.look(timeout.as_ref())?;
        self.phase = match found {
            Some(_) => WaitPhase::Woken,
            None => WaitPhase::Slept,
        };
        Ok(found.unwrap_or(Waited::Look))
    }

    /// Longest duration of a sleep that begins now.
    #[inline(never)]
    fn timeout(&mut self, deadline: Option<Instant>) -> Option<Duration> {
        self.begun = Instant::now();
        let left = left_until(deadline);
        match self.phase {
            WaitPhase::Armed => Some(left.map_or(FIRST_SLEEP, |left| left.min(FIRST_SLEEP))),
            _ => left,
        }
    }

    /// Sleeps until something ends the sleep; returns which entries of the set did.
    #[inline]
    fn look(&mut self, timeout: Option<&Timespec>) -> io::Result<Option<Waited>> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; MAX_EVENTS];
        match epoll::wait(&self.set, &mut events[..], timeout) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Ok(found) => {
                let events = events.iter().take(found);
                let what = events.fold(0, |all, one| all | one.data.u64());
                // The set may have more events than were taken.
                self.rang |= what & DOORBELL != 0 || found == MAX_EVENTS;
                Ok(Some(if what & HANG_UP != 0 {
                    Waited::HungUp
                } else {
                    Waited::Look
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

fn new_set(doorbell: &ReaderDoorbell, wakes: &[Arc<OwnedFd>]) -> io::Result<OwnedFd> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    add(&set, doorbell.fd(), DOORBELL, epoll::EventFlags::IN)?;
    for wake in wakes {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        add(&set, wake.as_fd(), OTHER, flags)?;
    }
    Ok(set)
}

fn add(set: &OwnedFd, fd: BorrowedFd<'_>, what: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(set, fd, epoll::EventData::new_u64(what), flags)?)
}

/// The part of this time that ends before `deadline`.
pub(crate) fn cut(time: Duration, deadline: Option<Instant>) -> Duration {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(time, |left| left.min(time))
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::doorbell::doorbell;
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
        let (hub, doorbell) = doorbell().unwrap();
        let doorbell = Arc::new(doorbell);
        let mut waiter = Waiter::new(vec![reader.sleeper()], doorbell, Vec::new()).unwrap();
        let until = Instant::now() + Duration::from_millis(200);
        let mut waits = 0;
        while Instant::now() < until {
            if waits == 2 {
                hub.signal();
            }
            match waiter.plan(Some(until)) {
                WaitPlan::Look => {}
                WaitPlan::Pause(time) => std::thread::sleep(time),
                WaitPlan::Sleep(timeout) => drop(waiter.sleep(timeout).unwrap()),
            }
            waits += 1;
        }
        assert!((3..20).contains(&waits), "{waits} waits");
    }
}
