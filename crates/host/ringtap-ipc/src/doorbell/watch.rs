// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notices the signals of many readers.
//!
//! Invariants
//! - A signal costs the hub no system call of its own: one call notices those of many readers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use super::HubDoorbell;

/// Shortest time between two wake-ups by readers: one that signals without end costs the hub a wake-up
/// per interval, for any number of these readers.
pub const DOORBELL_INTERVAL: Duration = Duration::from_micros(100);

/// Most readers whose signals one call takes.
const MOST_EVENTS: usize = 64;

/// Doorbells of the readers that may signal.
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
        }; MOST_EVENTS];
        let at_once = Timespec::default();
        epoll::wait(&self.0, &mut events[..], Some(&at_once)).is_ok_and(|found| found > 0)
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
    use ringtap_pool::wake::Signal as _;

    use super::*;
    use crate::doorbell::doorbell;
    use crate::event::sleep_until_readable;

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
