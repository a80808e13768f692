// SPDX-License-Identifier: MIT OR Apache-2.0
//! One round of a guest's thread: sleep, then take in what has happened.
#![forbid(unsafe_code)]

use std::time::Instant;

use ringtap_ipc::event::{Event, sleep_on};
use rustix::event::{PollFd, PollFlags};

use super::{FromGuest, GuestVm, LONGEST_PAUSE, ROUND_INTERVAL, Reconnect, VmError};
use crate::device::SharedId;

/// Causes that can end a sleep.
enum Awaited {
    Waker,
    Qmp,
    Port,
    Vector(SharedId, u16, Event),
}

impl GuestVm {
    /// Sleeps until something happens or the deadline, and takes it in; returns whether the waker ended
    /// the sleep.
    pub(super) fn round(&mut self, deadline: Option<Instant>) -> Result<bool, VmError> {
        let worked = self.last_round.elapsed().min(LONGEST_PAUSE);
        std::thread::sleep(worked.max(ROUND_INTERVAL));
        let followed = self.follow_reconnect();
        self.settle(followed)?;
        if self.reconnect.is_none() && !self.is_gone {
            let advanced = self.advance_unplugs();
            self.settle(advanced)?;
        }
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
                Awaited::Vector(device, vector, event) => {
                    event.clear();
                    self.queue.push_back(FromGuest::Signal(device, vector));
                }
            }
        }
        self.deliver_signals()?;
        Ok(was_woken)
    }

    fn sleep(&self, deadline: Option<Instant>) -> Result<Vec<Awaited>, VmError> {
        let mut awaited = vec![Awaited::Waker];
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        if self.reconnect.is_none() {
            awaited.push(Awaited::Qmp);
            fds.push(PollFd::new(&self.qmp, PollFlags::IN));
        }
        if let Some(channel) = &self.channel {
            awaited.push(Awaited::Port);
            fds.push(channel.poll());
        }
        for (id, plugged) in &self.devices {
            let events = plugged.events.iter().flat_map(|one| &one.from_guest);
            for (vector, event) in (0..).zip(events) {
                awaited.push(Awaited::Vector(*id, vector, event.clone()));
                fds.push(PollFd::new(event, PollFlags::IN));
            }
        }
        let has_news = self.reconnect.is_none() && self.qmp.has_news();
        // What follows up on QMP may have found something to report.
        let now = (has_news || !self.queue.is_empty()).then(Instant::now);
        let told = self.reconnect.as_ref().and_then(Reconnect::due);
        let due = [now, told, self.unplug_due(), deadline];
        let until = due.into_iter().flatten().min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let ready = sleep_on(fds, timeout)?;
        let ready = awaited
            .into_iter()
            .zip(ready)
            .filter(|(what, is)| *is || (has_news && matches!(what, Awaited::Qmp)));
        Ok(ready.map(|(what, _)| what).collect())
    }

    fn take_news(&mut self) -> Result<(), VmError> {
        let news = match self.qmp.news() {
            Ok(news) => news,
            Err(_) => return self.settle(Err(VmError::Gone)),
        };
        if news.port_open == Some(false) {
            self.agent_left();
        }
        let noted = news.deleted.iter().map(|name| self.note_deleted(name));
        let noted = noted.fold(Ok(()), Result::and);
        self.settle(noted)
    }

    fn take_messages(&mut self) -> Result<(), VmError> {
        let mut messages = Vec::new();
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        let is_open = channel.exchange(&mut messages);
        for message in messages {
            self.take_message(message)?;
        }
        if !is_open {
            self.lose();
        }
        Ok(())
    }

    /// QEMU is gone: so is everything that was plugged.
    pub(super) fn lose(&mut self) {
        if std::mem::replace(&mut self.is_gone, true) {
            return;
        }
        self.agent_left();
        self.channel = None;
        self.reconnect = None;
        self.devices.clear();
        self.queue.push_back(FromGuest::Gone);
    }
}
