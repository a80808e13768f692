// SPDX-License-Identifier: MIT OR Apache-2.0
//! An eventfd that ends somebody's sleep.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringtap_pool::wake::Signal;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// An eventfd; clones signal the same sleeper.
#[derive(Clone)]
pub struct Event(Arc<OwnedFd>);

impl Event {
    /// An event that has not been signalled.
    ///
    /// # Errors
    ///
    /// The system's, when no more descriptors are allowed.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Event(Arc::new(fd)))
    }

    /// The event of this descriptor, which another process sent.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it is something else, on which we could wait for ever;
    /// the system's, where `/proc` is not mounted.
    pub fn from_peer(fd: OwnedFd) -> io::Result<Self> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if link.as_os_str() != "anon_inode:[eventfd]" {
            let text = format!("{} is no event", link.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(Event(Arc::new(fd)))
    }

    /// Forgets the signals so far.
    pub fn clear(&self) {
        // An event that was not signalled refuses the read, which is as good.
        let _unsignalled = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl Signal for Event {
    fn signal(&self) {
        // Refused only when the counter is full, and then the sleeper is awake already.
        let _full = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
    let mut polled: Vec<_> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut polled, timeout.as_ref()) {
        Ok(readable) => Ok(readable > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// As [`sleep_until_readable`] for `event`; a connection whose other side left ends it, too.
///
/// # Errors
///
/// The system's.
pub fn sleep_until_signalled(
    event: &Event,
    connection: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let own = PollFd::new(event, PollFlags::IN);
    let mut polled = vec![own];
    if let Some(connection) = &connection {
        polled.push(PollFd::new(connection, PollFlags::RDHUP));
    }
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut polled, timeout.as_ref()) {
        Ok(readable) => Ok(readable > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the other side of a connection left.
pub fn has_left(connection: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&connection, PollFlags::RDHUP)];
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().intersects(gone)
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
    fn what_is_no_event_is_refused() {
        let event = Event::new().unwrap();
        assert!(Event::from_peer(event.as_fd().try_clone_to_owned().unwrap()).is_ok());
        let (reading, _writing) = io::pipe().unwrap();
        assert!(Event::from_peer(reading.into()).is_err());
    }
}
