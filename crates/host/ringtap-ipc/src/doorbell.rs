// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-up signals between two processes.
//!
//! Each direction has a descriptor of its own. The hub signals the reader through a pair of UNIX
//! sockets, of which the hub's end receives nothing. The reader signals the hub through an eventfd,
//! which the hub neither reads nor writes.
//!
//! Invariants
//! - No call of the hub waits, whatever the reader does with its descriptors. (So the hub signals
//!   through no eventfd: all its holders share O_NONBLOCK, and a reader could fill it. The hub uses
//!   no pipe either: a process that reads or writes a pipe holds the pipe's lock while it copies, for
//!   instance from a file system of the process's own.)
//! - A reader cannot send descriptors to the hub through a doorbell.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringtap_pool::wake::Signal;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair, sockopt,
};

use crate::event::Event;
use crate::time::thread_time;

/// Shortest time between two wake-ups by readers; see also [`DoorbellBudget`].
pub const DOORBELL_INTERVAL: Duration = Duration::from_micros(100);

/// Most readers whose signals one call takes.
const MAX_EVENTS: usize = 64;

/// Most reads of one call that empties a doorbell: the other end may refill it all the time.
const MAX_READS: usize = 512;

/// Both ends of a doorbell between processes of one host.
///
/// # Errors
///
/// The system's, when no descriptor is free.
pub fn doorbell() -> io::Result<(HubDoorbell, ReaderDoorbell)> {
    let flags = SocketFlags::CLOEXEC;
    let (to_reader, news) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // From now on the kernel refuses what the reader sends.
    shutdown(&to_reader, Shutdown::Read)?;
    let from_reader = Event::new()?;
    let hub = from_reader.clone();
    Ok((
        HubDoorbell {
            to_reader,
            from_reader,
        },
        ReaderDoorbell { news, hub },
    ))
}

/// The hub's end of a doorbell; [`Signal::signal`] wakes the reader. [`DoorbellWatch`] notices the
/// reader's signals.
pub struct HubDoorbell {
    to_reader: OwnedFd,
    from_reader: Event,
}

impl Signal for HubDoorbell {
    fn signal(&self) {
        // Fails if the buffer is full, so that the sleeper is awake already, or if the other end is
        // gone.
        let _refused = send(
            &self.to_reader,
            &[1],
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
    }
}

/// The reader's end of a doorbell; [`Signal::signal`] wakes the hub.
pub struct ReaderDoorbell {
    news: OwnedFd,
    hub: Event,
}

impl ReaderDoorbell {
    /// The end that a hub sent, as [`ReaderDoorbell::descriptors`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] for any other kind of descriptor: calls on it might wait.
    pub fn from_peer(news: OwnedFd, hub: OwnedFd) -> io::Result<Self> {
        let is_doorbell = sockopt::socket_domain(&news) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&news) == Ok(SocketType::STREAM);
        if !is_doorbell {
            let text = "a descriptor that is no doorbell";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let hub = Event::from_peer(hub)?;
        Ok(ReaderDoorbell { news, hub })
    }

    /// Descriptor that a signal from the hub makes readable until [`ReaderDoorbell::clear`]. Once the hub
    /// is gone, the descriptor stays readable.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Discards the signals so far.
    pub fn clear(&self) {
        let mut bytes = [0; 512];
        for _ in 0..MAX_READS {
            match recv(&self.news, &mut bytes, RecvFlags::DONTWAIT) {
                // Readers notice the end of the hub by its connection.
                Ok((0, _)) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Makes [`ReaderDoorbell::fd`] readable for ever, which ends a sleep at this end.
    pub fn end_own_sleep(&self) {
        // Fails only if the other end is gone, which has ended every sleep already.
        let _gone = shutdown(&self.news, Shutdown::Read);
    }

    /// Descriptors with which another process uses this end: the one of [`ReaderDoorbell::fd`], then the
    /// one that wakes the hub.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.news.as_fd(), self.hub.as_fd()]
    }
}

impl Signal for ReaderDoorbell {
    fn signal(&self) {
        self.hub.signal();
    }
}

/// Doorbells of the readers that may signal. A signal costs the hub no system call of its own: one call
/// notices those of many readers.
pub struct DoorbellWatch(OwnedFd);

impl DoorbellWatch {
    /// A set without doorbells.
    ///
    /// # Errors
    ///
    /// The system's, when no descriptor is free.
    pub fn new() -> io::Result<Self> {
        Ok(DoorbellWatch(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Notices the signals of this doorbell's reader, too.
    ///
    /// # Errors
    ///
    /// The system's, when it has no memory.
    pub fn add(&self, doorbell: &HubDoorbell) -> io::Result<()> {
        // Edge-triggered: each signal is an event, so that nobody needs to reset the eventfd.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(&self.0, &doorbell.from_reader, data, flags)?)
    }

    /// No longer notices this doorbell's signals. The reader may keep its end, so closing the hub's
    /// end is not enough.
    pub fn remove(&self, doorbell: &HubDoorbell) {
        // Fails only for a doorbell that was never added.
        let _absent = epoll::delete(&self.0, &doorbell.from_reader);
    }

    /// Discards the signals so far; returns whether there was one.
    pub fn take(&self) -> bool {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; MAX_EVENTS];
        let at_once = Timespec::default();
        epoll::wait(&self.0, &mut events[..], Some(&at_once)).is_ok_and(|found| found > 0)
    }
}

/// Processor time of a sleep that a signal ends, besides what the clock of the thread shows.
const WAKE_COST: Duration = Duration::from_micros(10);

/// Longest time for which signals are ignored at once.
const LONGEST_IGNORED: Duration = Duration::from_millis(5);

/// How often the time for which signals are ignored doubles at most.
const MAX_DOUBLINGS: u32 = 6;

/// Limits what the signals of readers cost the thread that they wake: wake-ups of no use take at most a
/// percentage of the time, for any number of readers together.
///
/// Meanwhile the thread ignores signals. What a reader did is found with the thread's next work, or when
/// the time is over. The time doubles, up to [`LONGEST_IGNORED`], while a signal waits at its end: somebody
/// signals without a pause.
#[derive(Debug)]
pub struct DoorbellBudget {
    percent: NonZeroU32,
    ignored_until: Instant,
    /// Number of signals, one after the other, that waited until they were no longer ignored.
    waited: u32,
    /// Processor time of the thread when a signal ended its sleep, unless it has found work since.
    woken: Option<Duration>,
}

impl DoorbellBudget {
    /// Wake-ups of no use take at most this percentage of the time.
    #[must_use]
    pub fn new(percent: NonZeroU32) -> Self {
        DoorbellBudget {
            percent,
            ignored_until: Instant::now(),
            waited: 0,
            woken: None,
        }
    }

    /// Changes the percentage of the time that wake-ups of no use may take.
    pub fn allow(&mut self, percent: NonZeroU32) {
        self.percent = percent;
    }

    /// Time for which signals are ignored from now on.
    #[must_use]
    pub fn ignored_for(&self) -> Duration {
        self.ignored_until.saturating_duration_since(Instant::now())
    }

    /// Notes that a signal ended a sleep.
    pub fn woke(&mut self) {
        self.woke_at(Instant::now());
        self.woken = Some(thread_time());
    }

    fn woke_at(&mut self, now: Instant) {
        let has_waited = now.saturating_duration_since(self.ignored_until) < DOORBELL_INTERVAL;
        self.waited = if has_waited {
            self.waited.saturating_add(1)
        } else {
            0
        };
        self.ignored_until = now + DOORBELL_INTERVAL;
    }

    /// Notes that the thread found work: the wake-up was of use.
    pub fn found_work(&mut self) {
        self.woken = None;
    }

    /// Notes that the thread is about to sleep.
    pub fn sleeps(&mut self) {
        if let Some(woken) = self.woken.take() {
            self.charge(thread_time().saturating_sub(woken) + WAKE_COST);
        }
    }

    fn charge(&mut self, took: Duration) {
        let times = 1 << self.waited.min(MAX_DOUBLINGS);
        let earned = took * times * 100 / self.percent.get();
        let until = Instant::now() + earned.min(LONGEST_IGNORED);
        self.ignored_until = self.ignored_until.max(until);
    }
}

/// Readable while there are signals.
impl AsFd for DoorbellWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};

    use super::*;
    use crate::event::sleep_until_readable;

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        sleep_until_readable(&[fd], Some(Duration::ZERO)).unwrap()
    }

    #[test]
    fn a_signal_ends_the_sleep_at_the_readers_end_until_it_is_cleared() {
        let (hub, reader) = doorbell().unwrap();
        hub.signal();
        assert!(is_readable(reader.fd()));
        reader.clear();
        assert!(!is_readable(reader.fd()));
        drop(hub);
        assert!(is_readable(reader.fd()));
        reader.clear();
    }

    #[test]
    fn a_sleep_can_be_ended_from_the_same_end() {
        let (_hub, reader) = doorbell().unwrap();
        reader.end_own_sleep();
        assert!(is_readable(reader.fd()));
    }

    #[test]
    fn a_reader_that_never_reads_delays_no_hub_whatever_flags_it_sets() {
        let (hub, reader) = doorbell().unwrap();
        for fd in reader.descriptors() {
            let flags = rustix::fs::fcntl_getfl(fd).unwrap();
            rustix::fs::fcntl_setfl(fd, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
        }
        // The count is one below the one at which a write waits.
        let full = u64::MAX - 1;
        rustix::io::write(reader.descriptors()[1], &full.to_ne_bytes()).unwrap();
        for _ in 0..100_000 {
            hub.signal();
        }
        let doorbells = DoorbellWatch::new().unwrap();
        doorbells.add(&hub).unwrap();
        assert!(doorbells.take());
        doorbells.remove(&hub);
    }

    #[test]
    fn a_reader_cannot_send_descriptors_through_a_doorbell() {
        let (_hub, reader) = doorbell().unwrap();
        let fds = [reader.fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [io::IoSlice::new(b"x")];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(reader.fd(), &bytes, &mut beside, flags);
        assert_eq!(sent, Err(Errno::PIPE));
        assert!(
            rustix::io::write(reader.descriptors()[1], &[0; 8]).is_ok(),
            "an eventfd"
        );
    }

    #[test]
    fn other_descriptors_are_refused() {
        let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let (_hub, reader) = doorbell().unwrap();
        let [news, hub] = reader.descriptors();
        assert!(ReaderDoorbell::from_peer(copy(news), copy(hub)).is_ok());
        assert!(ReaderDoorbell::from_peer(copy(hub), copy(news)).is_err());
        assert!(ReaderDoorbell::from_peer(copy(news), copy(news)).is_err());
        let (reading, writing) = io::pipe().unwrap();
        assert!(ReaderDoorbell::from_peer(reading.into(), copy(hub)).is_err());
        assert!(ReaderDoorbell::from_peer(copy(news), writing.into()).is_err());
    }

    #[test]
    fn wake_ups_of_no_use_take_their_percentage_of_the_time_and_others_cost_nothing() {
        let mut budget = DoorbellBudget::new(NonZeroU32::new(5).unwrap());
        assert!(budget.ignored_for().is_zero());
        for _ in 0..3 {
            budget.woke();
            budget.found_work();
            budget.sleeps();
            assert!(budget.ignored_for() <= DOORBELL_INTERVAL);
        }
        let begun = Instant::now();
        budget.woke();
        budget.sleeps();
        let least = budget.ignored_until - begun;
        assert!(least >= WAKE_COST * 20, "{least:?}");
        budget.charge(Duration::from_secs(1));
        assert!(budget.ignored_for() <= LONGEST_IGNORED);
        // Signals that wait each time are ignored for longer and longer, until one comes after a pause.
        budget.woke_at(budget.ignored_until + DOORBELL_INTERVAL);
        assert_eq!(budget.waited, 0);
        for doublings in 1..=MAX_DOUBLINGS {
            budget.woke_at(budget.ignored_until);
            assert_eq!(budget.waited, doublings);
        }
        let begun = Instant::now();
        budget.ignored_until = begun;
        budget.charge(WAKE_COST);
        assert!(budget.ignored_until - begun >= LONGEST_IGNORED);
        budget.ignored_until = begun;
        // As long as the signals come, and the thread listens again as soon as it may.
        let (begun, mut wakes, mut took) = (Instant::now(), 0_u32, Duration::ZERO);
        while begun.elapsed() < Duration::from_millis(100) {
            if budget.ignored_for().is_zero() {
                let woke = thread_time();
                budget.woke();
                while thread_time() - woke < Duration::from_micros(50) {}
                budget.sleeps();
                (wakes, took) = (wakes + 1, took + (thread_time() - woke));
            }
        }
        let time = begun.elapsed();
        assert!(
            wakes > 0 && took * 100 <= time * 5 + Duration::from_millis(50),
            "{took:?} of {time:?}"
        );
    }

    #[test]
    fn each_signal_is_noticed_once_and_a_removed_reader_is_not_heard() {
        let doorbells = DoorbellWatch::new().unwrap();
        let (hub, reader) = doorbell().unwrap();
        doorbells.add(&hub).unwrap();
        for _ in 0..3 {
            assert!(!doorbells.take());
            reader.signal();
            assert!(sleep_until_readable(&[doorbells.as_fd()], None).unwrap());
            assert!(doorbells.take());
        }
        doorbells.remove(&hub);
        drop(hub);
        reader.signal();
        assert!(!doorbells.take());
    }
}
