// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-up signal within a process, and waiting for descriptors to become readable.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringtap_pool::wake::Signal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags};

/// An eventfd; clones are the same event. The process that made it sleeps on it, and others may signal it.
#[derive(Clone)]
pub struct Event(Arc<OwnedFd>);

impl Event {
    /// An event without a signal.
    ///
    /// # Errors
    ///
    /// The system's, when no descriptor is free.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Event(Arc::new(fd)))
    }

    /// The event of another process, to be signalled. That process can make [`Signal::signal`] wait.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] for files, pipes and sockets.
    pub fn from_peer(fd: OwnedFd) -> io::Result<Self> {
        // An eventfd's inode has no file type.
        match rustix::fs::fstat(&fd)?.st_mode & 0o170_000 {
            0 => Ok(Event(Arc::new(fd))),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a descriptor that is no eventfd",
            )),
        }
    }

    /// Discards the signals so far.
    pub fn clear(&self) {
        let mut count = [0; 8];
        let mut into = [IoSliceMut::new(&mut count)];
        // Does not wait even if another process that has the eventfd cleared its O_NONBLOCK. Without a
        // signal the read fails and changes nothing. The offset stands for "none".
        let _unsignalled =
            rustix::io::preadv2(&self.0, &mut into, u64::MAX, ReadWriteFlags::NOWAIT);
    }
}

impl Signal for Event {
    fn signal(&self) {
        // Fails only if the count is full, so that the sleeper is awake already.
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until a descriptor is readable or broken, at most for `timeout` (absent: without limit);
/// returns whether a descriptor is.
///
/// Returns early, with `false`, when a signal handler ran.
///
/// # Errors
///
/// The system's.
pub fn sleep_until_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let ready = readable_among(fds, timeout)?;
    Ok(ready.contains(&true))
}

/// Sleeps as [`sleep_until_readable`]; returns for each descriptor whether it is readable or broken.
///
/// # Errors
///
/// The system's.
pub fn readable_among(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let polled = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
    sleep_on(polled.collect(), timeout)
}

/// Whether the other end of a connection has left.
pub fn has_left(connection: BorrowedFd<'_>) -> bool {
    let polled = vec![PollFd::new(&connection, PollFlags::RDHUP)];
    sleep_on(polled, Some(Duration::ZERO)).is_ok_and(|left| left[0])
}

/// Sleeps as [`sleep_until_readable`], for other events, too; returns for each descriptor whether one
/// occurred.
///
/// # Errors
///
/// The system's.
pub fn sleep_on(mut polled: Vec<PollFd<'_>>, timeout: Option<Duration>) -> io::Result<Vec<bool>> {
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
        assert!(!sleep_until_readable(&[event.as_fd()], Some(Duration::ZERO)).unwrap());
    }
}
