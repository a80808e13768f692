// SPDX-License-Identifier: MIT OR Apache-2.0
//! A QMP connection that ended while QEMU runs on: libvirt's daemon was restarted, or QEMU's QMP socket was closed.
#![forbid(unsafe_code)]

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use ringtap_ipc::event::Event;
use ringtap_pool::wake::Signal as _;

use super::{FromGuest, GuestVm, VmError};
use crate::host::budget::GuestLimits;
use crate::host::inventory;
use crate::host::owner::{CharacterDevices, ObjectNames};
use crate::host::qmp::{Monitor, Qmp};

/// Interval between two attempts.
const ATTEMPT: Duration = Duration::from_secs(1);
/// After this time the user learns of it. QEMU closes its sockets one after the other when it ends.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// A thread that connects again; it ends when this is dropped.
pub(super) struct Reconnect {
    since: Instant,
    is_told: bool,
    connected: Receiver<Qmp>,
    _stop: Sender<()>,
}

impl Reconnect {
    /// Connects once QEMU answers that the process with these names is the owner; then signals `wake`.
    fn start(
        monitor: Monitor,
        names: ObjectNames,
        limits: GuestLimits,
        wake: Event,
    ) -> io::Result<Self> {
        let (sender, connected) = channel();
        let (wanted, stop) = channel::<()>();
        let connect = move || {
            loop {
                let found = Qmp::connect(&monitor, &names.name_of(""), &limits);
                let same = found.and_then(|mut qmp| {
                    let is_owner = CharacterDevices::list(&mut qmp)?.owned(&names).is_some();
                    Ok(is_owner.then_some(qmp))
                });
                if let Ok(Some(qmp)) = same {
                    // Fails if the guest is not served any more.
                    let _late = sender.send(qmp);
                    return wake.signal();
                }
                if stop.recv_timeout(ATTEMPT) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let builder = std::thread::Builder::new().name("reconnect".into());
        builder.spawn(connect)?;
        Ok(Reconnect {
            since: Instant::now(),
            is_told: false,
            connected,
            _stop: wanted,
        })
    }

    /// When the user learns of it.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.is_told).then(|| self.since + TOLD_AFTER)
    }
}

impl GuestVm {
    /// The QMP connection has ended. Begins to connect again, unless QEMU has ended: then returns `false`.
    pub(super) fn lose_monitor(&mut self) -> io::Result<bool> {
        let is_there = self.channel.as_ref().is_some_and(|port| !port.has_left());
        if is_there && self.reconnect.is_none() {
            let (monitor, names) = (self.monitor.clone(), self.names.clone());
            let started = Reconnect::start(monitor, names, self.limits, self.wake.clone());
            self.reconnect = Some(started?);
        }
        Ok(is_there)
    }

    /// Takes the new connection, once there is one.
    pub(super) fn follow_reconnect(&mut self) -> Result<(), VmError> {
        let Some(reconnect) = &mut self.reconnect else {
            return Ok(());
        };
        if let Ok(qmp) = reconnect.connected.try_recv() {
            if reconnect.is_told {
                self.queue.push_back(FromGuest::Reconnected);
            }
            self.reconnect = None;
            self.qmp = qmp;
            return self.catch_up();
        }
        if reconnect.due().is_some_and(|due| Instant::now() >= due) {
            reconnect.is_told = true;
            self.queue.push_back(FromGuest::Disconnected);
        }
        Ok(())
    }

    /// Takes in what QEMU reported to nobody.
    fn catch_up(&mut self) -> Result<(), VmError> {
        self.turn.reset(&mut self.qmp, &self.names)?;
        let there = inventory::devices(&mut self.qmp)?;
        let own = self.devices.values().map(|one| one.name.clone());
        let all: Vec<_> = own.chain([self.names.name_of("port")]).collect();
        for name in all.iter().filter(|name| !there.contains(name)) {
            self.note_deleted(name)?;
        }
        if CharacterDevices::list(&mut self.qmp)?.owned(&self.names) == Some(false) {
            self.agent_left();
        }
        Ok(())
    }

    /// Takes in the outcome of what this process did by itself: without QEMU there is nothing more to do, without a
    /// QMP connection there will be.
    pub(super) fn settle(&mut self, outcome: Result<(), VmError>) -> Result<(), VmError> {
        match self.told_apart(outcome) {
            Err(VmError::Gone) => {
                self.lose();
                Ok(())
            }
            Err(VmError::Disconnected) => Ok(()),
            other => other,
        }
    }
}
