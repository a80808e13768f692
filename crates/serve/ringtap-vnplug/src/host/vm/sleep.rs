// SPDX-License-Identifier: MIT OR Apache-2.0
//! One round of a guest's thread: sleep, then take in what has happened.
#![forbid(unsafe_code)]

use std::time::Instant;

use ringtap_ipc::event::{Event, sleep_on};
use rustix::event::{PollFd, PollFlags};

use super::{FromGuest, GuestVm, LONGEST_PAUSE, ROUND_INTERVAL, VmError};
use crate::device::SharedId;

/// What can end a sleep.
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
        match self.advance_unplugs() {
            Err(VmError::Gone) => self.lose(),
            advanced => advanced?,
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
        let mut awaited = vec![Awaited::Waker, Awaited::Qmp];
        let mut fds = vec![
            PollFd::new(&self.wake, PollFlags::IN),
            PollFd::new(&self.qmp, PollFlags::IN),
        ];
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
        let has_news = self.qmp.has_news();
        let now = has_news.then(Instant::now);
        let due = [now, self.unplug_due(), deadline];
        let until = due.into_iter().flatten().min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let ready = sleep_on(fds, timeout)?;
        let ready = awaited.into_iter().zip(ready);
        let ready = ready.filter(|(what, is)| *is || (has_news && matches!(what, Awaited::Qmp)));
        Ok(ready.map(|(what, _)| what).collect())
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
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        let is_open = channel.exchange(&mut messages);
        for message in messages {
            self.take_message(message)?;
        }
        if !is_open {
            self.channel = None;
            self.agent_left();
        }
        Ok(())
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
