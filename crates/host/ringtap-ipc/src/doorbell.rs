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

mod watch;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringtap_pool::wake::Signal;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair, sockopt,
};

use crate::event::Event;
pub use watch::{DOORBELL_INTERVAL, DoorbellWatch};

/// Most reads of one call that empties a doorbell: the other end may refill it all the time.
const MOST_READS: usize = 512;

/// A reader's end of a doorbell; [`Signal::signal`] wakes the hub.
pub trait Doorbell: Signal {
    /// Descriptor that a signal from the hub makes readable until [`Doorbell::clear`]. Once the hub is
    /// gone, the descriptor stays readable.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Discards the signals so far.
    fn clear(&self);

    /// Makes [`Doorbell::fd`] readable for ever, which ends a sleep at this end.
    fn end_own_sleep(&self);

    /// Descriptors with which another process uses this end: the one of [`Doorbell::fd`], then the
    /// one that wakes the hub.
    fn descriptors(&self) -> [BorrowedFd<'_>; 2];
}

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

/// A reader's end of a doorbell between processes of one host.
pub struct ReaderDoorbell {
    news: OwnedFd,
    hub: Event,
}

impl ReaderDoorbell {
    /// The end that a hub sent, as [`Doorbell::descriptors`].
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
}

impl Signal for ReaderDoorbell {
    fn signal(&self) {
        self.hub.signal();
    }
}

impl Doorbell for ReaderDoorbell {
    fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    fn clear(&self) {
        let mut bytes = [0; 512];
        for _ in 0..MOST_READS {
            match recv(&self.news, &mut bytes, RecvFlags::DONTWAIT) {
                // Readers notice the end of the hub by its connection.
                Ok((0, _)) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn end_own_sleep(&self) {
        // Fails only if the other end is gone, which has ended every sleep already.
        let _gone = shutdown(&self.news, Shutdown::Read);
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.news.as_fd(), self.hub.as_fd()]
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::time::Duration;

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
}
