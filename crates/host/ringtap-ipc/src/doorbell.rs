// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-up signals between two processes.
//!
//! Invariants
//! - No call waits, whatever the other end does. (So an eventfd is no doorbell: another process that
//!   holds it can fill it, and then writes block.)
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringtap_pool::wake::Signal;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown,
    socketpair, sockopt,
};

/// Most reads of one call that empties a doorbell: the other end may refill it all the time.
const MOST_READS: usize = 512;

/// One end of a wake-up signal; [`Signal::signal`] wakes the sleeper at the other end.
pub trait Doorbell: Signal {
    /// Descriptor that a signal from the other end makes readable until [`Doorbell::clear`]. Once the
    /// other end is gone, the descriptor stays readable.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Discards the signals so far.
    ///
    /// # Errors
    ///
    /// [`OtherEndGone`].
    fn clear(&self) -> Result<(), OtherEndGone>;

    /// Makes [`Doorbell::fd`] readable for ever, which ends a sleep at this end.
    fn end_own_sleep(&self);
}

/// The error that the other end of a doorbell is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherEndGone;

/// A doorbell between processes of one host: one end of a pair of stream sockets.
pub struct SocketDoorbell(OwnedFd);

impl SocketDoorbell {
    /// Both ends of a doorbell.
    ///
    /// # Errors
    ///
    /// The system's, when no descriptor is free.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((SocketDoorbell(one), SocketDoorbell(other)))
    }

    /// The end that another process sent.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] for any other kind of descriptor: calls on it might wait.
    pub fn from_peer(fd: OwnedFd) -> io::Result<Self> {
        let is_doorbell = sockopt::socket_domain(&fd) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(&fd) == Ok(SocketType::STREAM);
        match is_doorbell {
            true => Ok(SocketDoorbell(fd)),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a descriptor that is no doorbell",
            )),
        }
    }
}

impl Signal for SocketDoorbell {
    fn signal(&self) {
        // Fails if the buffer is full, so that the sleeper is awake already, or if the other end is
        // gone.
        let _refused = send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl Doorbell for SocketDoorbell {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn clear(&self) -> Result<(), OtherEndGone> {
        let mut bytes = [0; 512];
        for _ in 0..MOST_READS {
            match recv(&self.0, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(OtherEndGone),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(_) => return Err(OtherEndGone),
            }
        }
        Ok(())
    }

    fn end_own_sleep(&self) {
        // Fails only if the other end is gone, which has ended every sleep already.
        let _gone = shutdown(&self.0, Shutdown::Read);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::{Event, sleep_until_readable};

    fn is_readable(doorbell: &SocketDoorbell) -> bool {
        sleep_until_readable(&[doorbell.fd()], Some(Duration::ZERO)).unwrap()
    }

    #[test]
    fn a_signal_ends_the_sleep_at_the_other_end_until_it_is_cleared() {
        let (one, other) = SocketDoorbell::pair().unwrap();
        one.signal();
        assert!(is_readable(&other));
        assert_eq!(other.clear(), Ok(()));
        assert!(!is_readable(&other) && !is_readable(&one));
        drop(one);
        assert!(is_readable(&other));
        assert_eq!(other.clear(), Err(OtherEndGone));
    }

    #[test]
    fn a_sleep_can_be_ended_from_the_same_end() {
        let (one, _other) = SocketDoorbell::pair().unwrap();
        one.end_own_sleep();
        assert!(is_readable(&one));
    }

    #[test]
    fn an_end_that_never_reads_or_never_stops_signalling_delays_nobody() {
        let (one, deaf) = SocketDoorbell::pair().unwrap();
        // The other process may change the flags of its end.
        let flags = rustix::fs::fcntl_getfl(&deaf.0).unwrap();
        rustix::fs::fcntl_setfl(&deaf.0, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
        for _ in 0..1_000_000 {
            one.signal();
        }
        assert_eq!(one.clear(), Ok(()), "no signal came, and the call returns");
    }

    #[test]
    fn other_descriptors_are_refused() {
        let (doorbell, _other) = SocketDoorbell::pair().unwrap();
        assert!(SocketDoorbell::from_peer(doorbell.0).is_ok());
        let (reading, _writing) = io::pipe().unwrap();
        assert!(SocketDoorbell::from_peer(reading.into()).is_err());
        let event = Event::new().unwrap();
        assert!(SocketDoorbell::from_peer(event.as_fd().try_clone_to_owned().unwrap()).is_err());
    }
}
