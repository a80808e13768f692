// SPDX-License-Identifier: MIT OR Apache-2.0
//! One descriptor for everything that a reader may have to be called for.
//!
//! Invariants
//! - It is readable when packets come after the reader said that it sleeps, when the hub leaves,
//!   and when the first short sleep is over, after which a reader has to look once more.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// An epoll descriptor over the reader's event, its connection and a timer.
pub(crate) struct Descriptor {
    all: OwnedFd,
    timer: OwnedFd,
}

/// When the reader has to look again at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// At once.
    Now,
    /// After so long.
    After(Duration),
    /// When it is woken.
    WhenWoken,
}

impl Descriptor {
    pub(crate) fn new(event: BorrowedFd<'_>, connection: BorrowedFd<'_>) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Answers that come over the connection are nobody's business here, its end is.
        let watched = [
            (event, EventFlags::IN),
            (timer.as_fd(), EventFlags::IN),
            (connection, EventFlags::RDHUP),
        ];
        for (fd, events) in watched {
            epoll::add(&all, fd, EventData::new_u64(0), events)?;
        }
        Ok(Descriptor { all, timer })
    }

    pub(crate) fn number(&self) -> RawFd {
        self.all.as_raw_fd()
    }

    /// Says when it shall become readable without being woken; forgets what was said before.
    pub(crate) fn look(&self, when: Look) -> io::Result<()> {
        // Zero would be never.
        let least = Duration::from_nanos(1);
        let after = match when {
            Look::Now => least,
            Look::After(time) => time.max(least),
            Look::WhenWoken => Duration::ZERO,
        };
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
