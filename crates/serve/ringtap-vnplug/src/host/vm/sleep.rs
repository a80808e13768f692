// SPDX-License-Identifier: MIT OR Apache-2.0
//! One round of a guest's thread: sleep, then take in what has happened.
#![forbid(unsafe_code)]

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{FromGuest, GuestVm, LONGEST_PAUSE, ROUND_INTERVAL, VmError};
use crate::ctrl::Channel;
use crate::device::SharedId;

/// What can end a sleep.
#[derive(Clone, Copy)]
enum Awaited {
    Waker,
    Qmp,
    Port,
    Vector(SharedId, u16),
}

impl GuestVm {
    /// Sleeps until something happens or the deadline, and takes it in; returns whether the waker ended
    /// the sleep.
    pub(super) fn round(&mut self, deadline: Option<Instant>) -> Result<bool, VmError> {
        let worked = self.last_round.elapsed().min(LONGEST_PAUSE);
        std::thread::sleep(worked.max(ROUND_INTERVAL));
        self.advance_unplugs_unless_gone()?;
        let ready = self.sleep(deadline)?;
        self.last_round = Instant::now();
        let mut was_woken = false;
        for awaited in ready {
            match awaited {
                Awaited::Waker => {
                    self.wake.clear();
                    was_woken = true;
                }
                Awaited::Qmp => self.take_news()?,
                Awaited::Port => self.take_messages()?,
                Awaited::Vector(device, vector) => {
                    let events = self
                        .devices
                        .get(&device)
                        .and_then(|one| one.events.as_ref());
                    if let Some(event) =
                        events.and_then(|events| events.from_guest.get(usize::from(vector)))
                    {
                        event.clear();
                        self.queue.push_back(FromGuest::Signal(device, vector));
                    }
                }
            }
        }
        self.deliver_signals()?;
        Ok(was_woken)
    }

    fn sleep(&self, deadline: Option<Instant>) -> Result<Vec<Awaited>, VmError> {
        let mut awaited = vec![Awaited::Waker, Awaited::Qmp];
        let mut fds = vec![
            PollFd::new(&self.wake, PollFlags::IN),
            PollFd::new(&self.qmp, PollFlags::IN),
        ];
        if let Some(channel) = &self.channel {
            let mut flags = PollFlags::IN;
            if channel.has_unsent() {
                flags |= PollFlags::OUT;
            }
            awaited.push(Awaited::Port);
            fds.push(PollFd::from_borrowed_fd(channel.as_fd(), flags));
        }
        for (id, plugged) in &self.devices {
            let events = plugged.events.iter().flat_map(|one| &one.from_guest);
            for (vector, event) in (0..).zip(events) {
                awaited.push(Awaited::Vector(*id, vector));
                fds.push(PollFd::new(event, PollFlags::IN));
            }
        }
        let has_news = self.qmp.has_news();
        let now = has_news.then(Instant::now);
        let due = [now, self.unplug_due(), deadline];
        let until = due.into_iter().flatten().min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|timeout: Duration| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        let ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let ready = awaited.into_iter().zip(ready);
        let is_ready =
            |(what, is)| (is || (has_news && matches!(what, Awaited::Qmp))).then_some(what);
        Ok(ready.filter_map(is_ready).collect())
    }

    fn take_news(&mut self) -> Result<(), VmError> {
        let Ok(news) = self.qmp.news() else {
            self.lose();
            return Ok(());
        };
        if news.port_open == Some(false) {
            self.agent_left();
        }
        let noted = news.deleted.iter().map(|name| self.note_deleted(name));
        noted.fold(Ok(()), Result::and)
    }

    fn take_messages(&mut self) -> Result<(), VmError> {
        let mut messages = Vec::new();
        let is_open = match &mut self.channel {
            None => return Ok(()),
            Some(channel) => flush_and_receive(channel, &mut messages),
        };
        for message in messages {
            self.take_message(message)?;
        }
        if !is_open {
            self.channel = None;
            self.agent_left();
        }
        Ok(())
    }

    fn advance_unplugs_unless_gone(&mut self) -> Result<(), VmError> {
        match self.advance_unplugs() {
            Err(VmError::Gone) => {
                self.lose();
                Ok(())
            }
            other => other,
        }
    }

    /// QEMU is gone: so is everything that was plugged.
    fn lose(&mut self) {
        self.agent_left();
        self.is_gone = true;
        self.channel = None;
        self.devices.clear();
        self.queue.push_back(FromGuest::Gone);
    }
}

/// Returns `false` when the port is closed.
fn flush_and_receive(channel: &mut Channel, into: &mut Vec<crate::ctrl::message::Message>) -> bool {
    channel.flush().is_ok() && channel.receive(into).unwrap_or(false)
}
