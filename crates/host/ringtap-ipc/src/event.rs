// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ends somebody's sleep: an eventfd within a process, a pair of doorbells between two.
//!
//! Invariants
//! - Whoever holds the other doorbell cannot make us wait: nothing here blocks but the sleep. (An
//!   eventfd would not do between processes: who holds it can fill it and make writes block.)
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringtap_pool::wake::Signal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair, sockopt,
};

/// Something that can be signalled and slept on; clones are the same.
#[derive(Clone)]
pub struct Event {
    fd: Arc<OwnedFd>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Signals its own sleeper.
    Counter,
    /// Signals who sleeps on the other doorbell of the pair, and is signalled by it.
    Doorbell,
}

/// What [`Event::clear`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Signals, or none.
    Signals,
    /// The other doorbell is gone: it will be readable for ever, and never signal again.
    Gone,
}

/// Most reads to empty a doorbell that somebody fills all the time.
const MOST_READS: usize = 512;

impl Event {
    /// An event of this process that has not been signalled.
    ///
    /// # Errors
    ///
    /// The system's, when no more descriptors are allowed.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Event {
            fd: Arc::new(fd),
            kind: Kind::Counter,
        })
    }

    /// Two doorbells: each signals who sleeps on the other.
    ///
    /// # Errors
    ///
    /// As for [`Event::new`].
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let doorbell = |fd| Event {
            fd: Arc::new(fd),
            kind: Kind::Doorbell,
        };
        Ok((doorbell(one), doorbell(other)))
    }

    /// The doorbell of this descriptor, which another process sent.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it is something else, on which we could wait for ever.
    pub fn from_peer(fd: OwnedFd) -> io::Result<Self> {
        let is_doorbell = sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&fd) == Ok(SocketType::STREAM);
        if !is_doorbell {
            let text = "a descriptor that is no doorbell";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Event {
            fd: Arc::new(fd),
            kind: Kind::Doorbell,
        })
    }

    /// Ends our own sleep on it, for good.
    pub fn end_own_sleep(&self) {
        // A doorbell that is gone ends every sleep already.
        match self.kind {
            Kind::Counter => self.signal(),
            Kind::Doorbell => {
                let _gone = shutdown(&self.fd, Shutdown::Read);
            }
        }
    }

    /// Forgets the signals so far.
    pub fn clear(&self) -> Heard {
        let mut bytes = [0; 512];
        if self.kind == Kind::Counter {
            // An event that was not signalled refuses the read, which is as good.
            let _unsignalled = rustix::io::read(&self.fd, &mut bytes[..8]);
            return Heard::Signals;
        }
        for _ in 0..MOST_READS {
            match recv(&self.fd, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Heard::Gone,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Heard::Signals,
                Err(_) => return Heard::Gone,
            }
        }
        Heard::Signals
    }
}

impl Signal for Event {
    fn signal(&self) {
        // Refused only when so many signals wait that the sleeper is awake already, or when
        // nobody is there.
        match self.kind {
            Kind::Counter => {
                let _full = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
            }
            Kind::Doorbell => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _full = send(&self.fd, &[1], flags);
            }
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sleeps until one of these is readable (or broken), at most `timeout`; for ever without one.
///
/// Tells whether one is. Returns early when a signal handler ran.
///
/// # Errors
///
/// The system's.
pub fn sleep_until_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let ready = readable_among(fds, timeout)?;
    Ok(ready.contains(&true))
}

/// Sleeps until one of these is readable (or broken), at most `timeout`; for ever without one.
///
/// Tells of each whether it is; of none when the time is over or a signal handler ran.
///
/// # Errors
///
/// The system's.
pub fn readable_among(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let polled = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
    sleep_on(polled.collect(), timeout)
}

/// Whether the other side of a connection left.
pub fn has_left(connection: BorrowedFd<'_>) -> bool {
    let polled = vec![PollFd::new(&connection, PollFlags::RDHUP)];
    sleep_on(polled, Some(Duration::ZERO)).is_ok_and(|left| left[0])
}

/// Sleeps until something happened to one of these; tells to which.
fn sleep_on(mut polled: Vec<PollFd<'_>>, timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {
            Ok(polled.iter().map(|one| !one.revents().is_empty()).collect())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signalled_event_ends_the_sleep_until_it_is_cleared() {
        let event = Event::new().unwrap();
        event.clone().signal();
        assert!(sleep_until_readable(&[event.as_fd()], None).unwrap());
        event.clear();
        assert!(!sleep_until_readable(&[event.as_fd()], Some(Duration::from_millis(5))).unwrap());
    }

    #[test]
    fn a_doorbell_ends_the_sleep_on_the_other_one() {
        let (one, other) = Event::pair().unwrap();
        one.signal();
        assert!(sleep_until_readable(&[other.as_fd()], None).unwrap());
        assert_eq!(other.clear(), Heard::Signals);
        let short = Some(Duration::from_millis(5));
        assert!(!sleep_until_readable(&[other.as_fd(), one.as_fd()], short).unwrap());
        drop(one);
        assert_eq!(other.clear(), Heard::Gone);
    }

    #[test]
    fn a_sleep_on_a_doorbell_can_be_ended_on_the_same_side() {
        let (one, _other) = Event::pair().unwrap();
        one.end_own_sleep();
        assert!(sleep_until_readable(&[one.as_fd()], None).unwrap());
    }

    #[test]
    fn who_does_not_listen_holds_nobody_up() {
        let (one, deaf) = Event::pair().unwrap();
        // Whatever the other side does to its flags is no affair of ours.
        let flags = rustix::fs::fcntl_getfl(&deaf).unwrap();
        rustix::fs::fcntl_setfl(&deaf, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
        for _ in 0..1_000_000 {
            one.signal();
        }
        assert_eq!(
            one.clear(),
            Heard::Signals,
            "nothing to be heard, and no wait for it"
        );
    }

    #[test]
    fn what_is_no_doorbell_is_refused() {
        let (doorbell, _other) = Event::pair().unwrap();
        assert!(Event::from_peer(doorbell.as_fd().try_clone_to_owned().unwrap()).is_ok());
        let (reading, _writing) = io::pipe().unwrap();
        assert!(Event::from_peer(reading.into()).is_err());
        let event = Event::new().unwrap();
        assert!(Event::from_peer(event.as_fd().try_clone_to_owned().unwrap()).is_err());
    }
}
