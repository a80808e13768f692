// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unplugs the devices of a guest, one after the other, and takes in that they are gone.
#![forbid(unsafe_code)]

use std::time::Instant;

use super::{FromGuest, GuestVm, Leaving, VmError, remove_backing};
use crate::host::inventory::{self, ASK_AGAIN};
use crate::host::owner::Removed;

impl GuestVm {
    pub(super) fn unplug_all(&mut self, deadline: Instant) -> Result<(), VmError> {
        let devices: Vec<_> = self.devices.keys().copied().collect();
        for device in devices {
            self.unplug(device)?;
        }
        let is_busy = |vm: &Self| !vm.devices.is_empty() || vm.reconnect.is_some();
        while !self.is_gone && is_busy(self) && Instant::now() < deadline {
            self.round(Some(deadline))?;
            self.queue.clear();
        }
        if self.is_gone {
            return Err(VmError::Gone);
        }
        if self.reconnect.is_some() {
            return Err(VmError::Disconnected);
        }
        // The command port and its controller, and devices that the guest holds.
        let left = deadline.saturating_duration_since(Instant::now());
        let removed = self.remove(Removed::All, left);
        self.told_apart(removed)
    }

    /// Takes in that a device was unplugged.
    pub(super) fn note_deleted(&mut self, name: &str) -> Result<(), VmError> {
        let mut devices = self.devices.iter();
        let found = devices.find_map(|(id, one)| (one.name == name).then_some(*id));
        let Some(plugged) = found.and_then(|id| self.devices.remove(&id)) else {
            // A device may be reported twice: by QEMU, and by its absence.
            let is_port = ["port", "serial"]
                .iter()
                .any(|one| self.names.name_of(one) == name);
            return if is_port {
                Err(VmError::Unplugged(name.to_owned()))
            } else {
                Ok(())
            };
        };
        let id = plugged.device.id();
        let backing = format!("{name}-memory");
        remove_backing(&mut self.qmp, plugged.device.kind(), &backing);
        self.session.remove(id);
        self.queue.push_back(FromGuest::Unplugged(id));
        match plugged.leaving {
            Some(Leaving { asked: Some(_), .. }) => {
                self.turn.end(&mut self.qmp, &self.names)?;
                Ok(())
            }
            _ => Err(VmError::Unplugged(name.to_owned())),
        }
    }

    /// The time of the next request to unplug a device.
    pub(super) fn unplug_due(&self) -> Option<Instant> {
        if self.reconnect.is_some() {
            return None;
        }
        let leaving = self.devices.values().filter_map(|one| one.leaving.as_ref());
        let released = leaving.map(|one| one.release_until).min();
        let again = self.last_asked().map(|asked| asked + ASK_AGAIN);
        self.turn.next_try().or(again).or(released)
    }

    fn last_asked(&self) -> Option<Instant> {
        let devices = self.devices.values();
        devices.filter_map(|one| one.leaving.as_ref()?.asked).max()
    }

    /// Asks QEMU to unplug one of the devices that the guest has released, or should have; the next one when
    /// that is gone, or does not go.
    pub(super) fn advance_unplugs(&mut self) -> Result<(), VmError> {
        let now = Instant::now();
        let last_asked = self.last_asked();
        if last_asked.is_some_and(|last| now < last + ASK_AGAIN)
            || self.turn.next_try().is_some_and(|next| now < next)
        {
            return Ok(());
        }
        if last_asked.is_some() && self.turn.next_try().is_none() {
            // The guest keeps the device: others may plug and unplug before this process asks again.
            self.turn.end(&mut self.qmp, &self.names)?;
        }
        let leaving = self.devices.iter_mut();
        let leaving = leaving.filter_map(|(id, one)| Some((id, &one.name, one.leaving.as_mut()?)));
        let due = leaving.filter(|(id, _, one)| {
            now >= one.release_until || self.session.interrupts(**id).is_none()
        });
        let Some((_, name, one)) = due.min_by_key(|(_, _, one)| one.asked) else {
            // The device for which this process waited for its turn is gone.
            return Ok(self.turn.end(&mut self.qmp, &self.names)?);
        };
        if !self.turn.try_take(&mut self.qmp, &self.names)? {
            return Ok(());
        }
        one.asked = Some(Instant::now());
        let name = name.clone();
        if inventory::unplug(&mut self.qmp, &name)? {
            Ok(())
        } else {
            self.note_deleted(&name)
        }
    }
}
