// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection with one guest: attach, plug, signal, receive, unplug.
//!
//! Invariants
//! - A guest wakes this thread at most once per [`ROUND_INTERVAL`] and keeps it busy at most half of the
//!   time, whatever it sends or signals.
//! - What QEMU cannot survive is refused before QEMU is asked.
//! - The end of QEMU is the end of the command port's socket. A QMP connection that ends while the socket stays is made
//!   again.
#![forbid(unsafe_code)]

mod error;
mod reconnect;
mod sleep;
mod unplug;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use ringtap_ipc::event::Event;
use ringtap_pool::wake::Signal as _;
use serde_json::{Value, json};

pub use error::VmError;
use reconnect::Reconnect;

use super::budget::GuestLimits;
use super::doorbell::{self, DeviceEvents};
use super::inventory;
use super::memory::{self, HostDevice};
use super::migrate::wait_for_arrival;
use super::owner::{self, HotPlugTurn, ObjectNames, Removed, random};
use super::qmp::{Monitor, Qmp, QmpError};
use super::session::{FromGuest, HostSession};
use crate::ctrl::message::{ApplicationId, ApplicationMessage, MAX_PAYLOAD_BYTES, Message};
use crate::ctrl::{Channel, port_name};
use crate::device::{DeviceHeader, DeviceKind, SharedId};

/// Shortest time between two rounds: bounds what a guest that sends or signals without end costs.
pub(super) const ROUND_INTERVAL: Duration = Duration::from_micros(100);
/// Longest pause after a round.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of the window that the controller of the command port needs.
const CONTROLLER_BYTES: u64 = 64 * 1024;

/// A guest of this host, and what one application has plugged into it.
pub struct GuestVm {
    qmp: Qmp,
    monitor: Monitor,
    /// Present while `qmp` is not connected.
    reconnect: Option<Reconnect>,
    names: ObjectNames,
    turn: HotPlugTurn,
    /// `None` when QEMU has ended.
    channel: Option<Channel>,
    session: HostSession,
    devices: BTreeMap<SharedId, Plugged>,
    limits: GuestLimits,
    can_interrupt: bool,
    queue: VecDeque<FromGuest>,
    wake: Event,
    last_round: Instant,
    is_gone: bool,
}

struct Plugged {
    device: HostDevice,
    events: Option<DeviceEvents>,
    name: String,
    leaving: Option<Leaving>,
}

struct Leaving {
    release_until: Instant,
    asked: Option<Instant>,
}

impl GuestVm {
    /// Connects with a running QEMU as the owner of an application, and plugs its command port. `application` is the
    /// name by which the agent in the guest connects: at most 32 of a–z, 0–9 and `_`. Needs one free pcie-root-port,
    /// and one more for each device.
    ///
    /// # Errors
    ///
    /// Names what is missing and the remedy. [`VmError::Owned`]: another process serves the guest for this
    /// application.
    pub fn attach(
        monitor: &Monitor,
        application: &str,
        limits: GuestLimits,
    ) -> Result<Self, VmError> {
        let names = ObjectNames::new(application)?;
        let mut qmp = Qmp::connect(monitor, &names.name_of(""), &limits)?;
        inventory::check_version(&qmp)?;
        let wake = Event::new()?;
        let here = owner::claim(&mut qmp, &names)?;
        let mut vm = GuestVm {
            qmp,
            monitor: monitor.clone(),
            reconnect: None,
            names,
            turn: HotPlugTurn::default(),
            channel: Some(Channel::new(here, limits.unsent_bytes)),
            session: HostSession::default(),
            devices: BTreeMap::new(),
            limits,
            can_interrupt: limits.interrupts_without_kvm,
            queue: VecDeque::new(),
            wake,
            last_round: Instant::now(),
            is_gone: false,
        };
        if let Err(error) = vm.plug_port(application) {
            // What was plugged stays for the next owner, who waits for its unplug.
            let _ended = vm.turn.end(&mut vm.qmp, &vm.names);
            let _in_use = owner::remove(&mut vm.qmp, &vm.names.port());
            return Err(error);
        }
        Ok(vm)
    }

    /// Plugs the command port, once what earlier owners left is unplugged.
    fn plug_port(&mut self, application: &str) -> Result<(), VmError> {
        let limit = Duration::from_millis(self.limits.answer_ms);
        wait_for_arrival(&mut self.qmp, Duration::from_millis(self.limits.arrival_ms))?;
        inventory::check(&mut self.qmp)?;
        self.can_interrupt |= inventory::has_kvm(&mut self.qmp)?;
        let release = Duration::from_millis(self.limits.release_ms);
        inventory::wait_for_release(&mut self.qmp, &self.names, release)?;
        self.remove(Removed::Left, limit)?;
        self.turn.wait(&mut self.qmp, &self.names)?;
        let port = inventory::free_port(&mut self.qmp, CONTROLLER_BYTES)?;
        let controller = self.names.name_of("serial");
        self.add_device(json!({
            "driver": "virtio-serial-pci", "id": controller, "bus": port, "max_ports": 2,
        }))?;
        self.add_device(json!({
            "driver": "virtserialport", "id": self.names.name_of("port"), "name": port_name(application),
            "bus": format!("{controller}.0"), "chardev": self.names.port(),
        }))?;
        Ok(self.turn.end(&mut self.qmp, &self.names)?)
    }

    /// Makes a device with `bytes` bytes of zeroed memory for an application, and plugs it.
    ///
    /// # Errors
    ///
    /// Names what is missing and the remedy; nothing is plugged then.
    pub fn plug(
        &mut self,
        application: ApplicationId,
        kind: DeviceKind,
        bytes: u64,
    ) -> Result<HostDevice, VmError> {
        let size = memory::size_of(kind, bytes)?;
        let header = DeviceHeader {
            device: SharedId(random()),
            application,
            kind,
            bytes,
        };
        let (device, file) = memory::make(header, size, self.wake.clone())?;
        if device.application() == 0 {
            return Err(VmError::NoApplication);
        }
        let followed = self.follow_reconnect();
        self.settle(followed)?;
        let plugged = self.plug_in_turn(&device, file.as_fd(), size);
        self.told_apart(plugged)?;
        Ok(device)
    }

    fn plug_in_turn(
        &mut self,
        device: &HostDevice,
        file: BorrowedFd<'_>,
        size: u64,
    ) -> Result<(), VmError> {
        inventory::check(&mut self.qmp)?;
        // An unplug of this process may be under way.
        let had_turn = self.turn.wait(&mut self.qmp, &self.names)?;
        let plugged = inventory::free_port(&mut self.qmp, size)
            .and_then(|port| self.plug_into(&port, device, file, size));
        if !had_turn {
            self.turn.end(&mut self.qmp, &self.names)?;
        }
        plugged?;
        if let Some(message) = self.session.add(device.memory().header()) {
            self.say(&message)?;
        }
        Ok(())
    }

    fn plug_into(
        &mut self,
        port: &str,
        device: &HostDevice,
        file: BorrowedFd<'_>,
        size: u64,
    ) -> Result<(), VmError> {
        let (id, kind) = (device.id(), device.kind());
        let name = self.names.name_of(format_args!("{:016x}", id.0));
        let backing = format!("{name}-memory");
        let mut events = None;
        match kind {
            DeviceKind::Bulk => {
                let (set, path) = self.qmp.add_fd(file)?;
                let arguments = json!({
                    "qom-type": "memory-backend-file", "id": backing, "size": size,
                    "share": true, "readonly": true, "mem-path": path,
                });
                let added = self.qmp.run("object-add", arguments);
                // QEMU has opened the file, or never will.
                self.qmp.run("remove-fd", json!({ "fdset-id": set }))?;
                match added {
                    Err(QmpError::Refused { text, .. }) => return Err(VmError::Memory(text)),
                    added => added?,
                };
                self.add_device(json!({
                    "driver": "ivshmem-plain", "id": name, "bus": port, "memdev": backing,
                }))
            }
            DeviceKind::Control { vectors } => {
                let (made, for_qemu) = doorbell::make(file, vectors, self.can_interrupt)?;
                events = Some(made);
                self.qmp.add_socket(&backing, for_qemu.as_fd())?;
                self.add_device(json!({
                    "driver": "ivshmem-doorbell", "id": name, "bus": port, "chardev": backing,
                    "vectors": vectors,
                }))
            }
        }
        .inspect_err(|_| remove_backing(&mut self.qmp, kind, &backing))?;
        let plugged = Plugged {
            device: device.clone(),
            events,
            name,
            leaving: None,
        };
        self.devices.insert(id, plugged);
        Ok(())
    }

    /// What an action yields: the end of the QMP connection is that of QEMU only if the command port has ended, too.
    fn told_apart<T>(&mut self, outcome: Result<T, VmError>) -> Result<T, VmError> {
        match outcome {
            Err(VmError::Gone | VmError::Qmp(QmpError::Libvirt(_))) if !self.is_gone => {
                if self.lose_monitor()? {
                    Err(VmError::Disconnected)
                } else {
                    Err(VmError::Gone)
                }
            }
            outcome => outcome,
        }
    }

    /// Begins to unplug a device: the guest unmaps it, or its time for that ends. The end is
    /// [`FromGuest::Unplugged`]. A guest whose kernel does not let the device go keeps its memory.
    ///
    /// # Errors
    ///
    /// [`VmError::NoDevice`]
    pub fn unplug(&mut self, device: SharedId) -> Result<(), VmError> {
        let plugged = self.devices.get_mut(&device).ok_or(VmError::NoDevice)?;
        if plugged.leaving.is_none() {
            plugged.leaving = Some(Leaving {
                release_until: Instant::now() + Duration::from_millis(self.limits.release_ms),
                asked: None,
            });
            if let Some(message) = self.session.leave(device) {
                self.say(&message)?;
            }
            self.wake.signal();
        }
        Ok(())
    }

    /// Sends a message to an application in the guest.
    ///
    /// # Errors
    ///
    /// [`VmError::NoAgent`] if no agent is there, [`VmError::Unsent`] if the agent does not take its
    /// messages, [`VmError::TooLong`].
    pub fn send(&mut self, message: ApplicationMessage) -> Result<(), VmError> {
        if message.application == 0 {
            return Err(VmError::NoApplication);
        }
        if message.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(VmError::TooLong(message.payload.len()));
        }
        if !self.session.has_agent() {
            return Err(VmError::NoAgent);
        }
        if self.say(&Message::Application(message))? {
            Ok(())
        } else {
            Err(VmError::Unsent(self.limits.unsent_bytes))
        }
    }

    /// The next thing that the guest did; `None` after `timeout` (absent: no limit), or when
    /// [`GuestVm::waker`] was signalled.
    ///
    /// # Errors
    ///
    /// [`VmError::Gone`] after [`FromGuest::Gone`]; the system's.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<FromGuest>, VmError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(Some(event));
            }
            if self.is_gone {
                return Err(VmError::Gone);
            }
            let was_woken = self.round(deadline)?;
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if self.queue.is_empty() && (was_woken || is_late) {
                return Ok(None);
            }
        }
    }

    /// Event that ends a wait in [`GuestVm::next`], from any thread.
    #[must_use]
    pub fn waker(&self) -> Event {
        self.wake.clone()
    }

    /// The plugged devices.
    pub fn devices(&self) -> impl Iterator<Item = &HostDevice> {
        self.devices.values().map(|plugged| &plugged.device)
    }

    /// Messages of the guest that were damaged or of an unknown form.
    #[must_use]
    pub fn refused_messages(&self) -> u64 {
        self.channel.as_ref().map_or(0, Channel::refused)
    }

    /// Unplugs everything, waiting at most `limit` for the guest.
    ///
    /// # Errors
    ///
    /// [`VmError::Held`] names what the guest did not let go: a later [`GuestVm::attach`] tries again.
    pub fn detach(mut self, limit: Duration) -> Result<(), VmError> {
        match self.unplug_all(Instant::now() + limit) {
            // With QEMU, everything that was plugged is gone.
            Err(VmError::Gone) => Ok(()),
            other => other,
        }
    }

    fn remove(&mut self, what: Removed, limit: Duration) -> Result<(), VmError> {
        inventory::remove_all(&mut self.qmp, &self.names, &mut self.turn, what, limit)
    }

    fn add_device(&mut self, arguments: Value) -> Result<(), VmError> {
        self.qmp.run("device_add", arguments)?;
        Ok(())
    }

    /// Sends a message; returns `false` if there is no room for it or the port is closed.
    fn say(&mut self, message: &Message) -> Result<bool, VmError> {
        match &mut self.channel {
            Some(channel) => Ok(channel.send(message).unwrap_or(false)),
            None => Ok(false),
        }
    }

    fn take_message(&mut self, mut message: Message) -> Result<(), VmError> {
        if let Message::DeviceReady { interrupts, .. } = &mut message {
            *interrupts &= self.can_interrupt;
        }
        let outcome = self.session.receive(message);
        if outcome.is_new_agent
            && let Some(channel) = &mut self.channel
        {
            channel.discard();
        }
        self.queue.extend(outcome.events);
        for answer in &outcome.answers {
            self.say(answer)?;
        }
        Ok(())
    }

    fn agent_left(&mut self) {
        if self.session.agent_left() {
            self.queue.push_back(FromGuest::Left);
        }
    }

    /// Signals the guest where it is due.
    fn deliver_signals(&mut self) -> Result<(), VmError> {
        for (id, plugged) in &self.devices {
            let Some(interrupts) = self.session.interrupts(*id) else {
                continue;
            };
            let bits = plugged.device.take_pending();
            let vectors = (0..64_u16).filter(|vector| bits & (1 << vector) != 0);
            for vector in vectors {
                let event = plugged
                    .events
                    .as_ref()
                    .and_then(|events| events.to_guest.get(usize::from(vector)));
                let message = Message::Signal {
                    device: *id,
                    vector,
                };
                let channel = self.channel.as_mut();
                let is_sent = match (event, channel) {
                    (Some(event), _) if interrupts => {
                        event.signal();
                        true
                    }
                    (_, Some(channel)) => channel.send(&message).unwrap_or(false),
                    _ => true,
                };
                if !is_sent {
                    plugged.device.keep_pending(1 << vector);
                }
            }
        }
        Ok(())
    }
}

/// Removes the object or socket behind a device. QEMU aborts on a second device with the same object.
fn remove_backing(qmp: &mut Qmp, kind: DeviceKind, name: &str) {
    let command = match kind {
        DeviceKind::Bulk => "object-del",
        DeviceKind::Control { .. } => "chardev-remove",
    };
    // Fails only if QEMU is gone or has removed it.
    let _absent = qmp.run(command, json!({ "id": name }));
}
