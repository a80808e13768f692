// SPDX-License-Identifier: MIT OR Apache-2.0
//! One descriptor for the poll loop of a program that reads packets.
//!
//! Invariants
//! - The descriptor is readable when packets come after the reader announced a sleep, when the hub
//!   leaves, and when the alarm is due.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// An epoll descriptor over the reader's doorbell, its connection and a timer.
pub(crate) struct Descriptor {
    all: OwnedFd,
    timer: OwnedFd,
}

impl Descriptor {
    pub(crate) fn new(event: BorrowedFd<'_>, connection: BorrowedFd<'_>) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Watches only for the end of the connection, not for answers.
        let watched = [
            (event, EventFlags::IN),
            (timer.as_fd(), EventFlags::IN),
            (connection, EventFlags::RDHUP),
        ];
        // A capture in this process has no connection: the caller names its event twice, and epoll takes it once.
        let count = if event.as_raw_fd() == connection.as_raw_fd() {
            2
        } else {
            3
        };
        for (fd, events) in watched.into_iter().take(count) {
            epoll::add(&all, fd, EventData::new_u64(0), events)?;
        }
        Ok(Descriptor { all, timer })
    }

    /// Replaces what the descriptor watches, under the same number. After a fork this leaves the other
    /// process's descriptor alone.
    pub(crate) fn renew(
        &mut self,
        event: BorrowedFd<'_>,
        connection: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let new = Descriptor::new(event, connection)?;
        rustix::io::dup3(&new.all, &mut self.all, rustix::io::DupFlags::CLOEXEC)?;
        self.timer = new.timer;
        Ok(())
    }

    pub(crate) fn number(&self) -> RawFd {
        self.all.as_raw_fd()
    }

    /// Makes the descriptor readable after this time, although no packet came; absent: not at all.
    /// Replaces the alarm before.
    pub(crate) fn arm(&self, alarm: Option<Duration>) -> io::Result<()> {
        // Zero would disarm the timer.
        let after = alarm.map_or(Duration::ZERO, |time| time.max(Duration::from_nanos(1)));
        let time = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(after).map_err(io::Error::other)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time)?;
        Ok(())
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }
}
