// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's side: gives the groups of a hub to one guest.
//!
//! [`HostGroups`] is a back end of vNPlug. Its requests run on a thread of their own, and each
//! subscription on another, so that the thread of the guest waits for no hub.
//!
//! Invariants
//! - A guest can make only the process of its own virtual machine busy, and reach the hub only as a
//!   reader of the granted groups.

mod commands;
mod life;
mod part;
mod queue;
mod relay;
mod status;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringtap_client::{ConnectError, Connection, ControlError};
use ringtap_ipc::mutex::lock;
use ringtap_pool::memory::Region;
use ringtap_pool::number::{to_u64, to_usize};
use ringtap_pool::wake::Signal;
use ringtap_vnplug::ctrl::message::ApplicationMessage;
use ringtap_vnplug::device::{DeviceKind, HEADER_BYTES};
use ringtap_vnplug::host::{BackEnd, FromGuest, GuestVm, HostDevice, Monitor, VmError};

use crate::messages::{
    APPLICATION, DevicePart, GuestRequest, HostMessage, PACKETS_VECTOR, pack, unpack,
};
use commands::{Answers, Commands, DETACHED, GuestAnswer, answers_of};
use life::{GroupLife, GroupLives};
use part::{GroupPart, PartBytes};
use queue::CommandQueue;
use status::VmState;
pub use status::{AttachedVms, DeviceReport, GroupReport, StatusServer, VmReport, standard_folder};

/// Groups for a virtual machine.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Name of the virtual machine.
    pub vm: String,
    /// Where its QEMU takes commands.
    pub monitor: Monitor,
    /// Socket of the hub.
    pub socket: PathBuf,
    /// Groups that the guest may read.
    pub groups: Vec<String>,
    /// Bytes of the pool device, a power of two.
    pub memory_bytes: u64,
}

/// Why groups cannot be given to a guest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The hub cannot be asked.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The hub gives no status.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The hub has no such group.
    #[error("the hub has no group {group}: it has {}", .there.join(", "))]
    NoGroup {
        /// The group.
        group: String,
        /// The hub's groups.
        there: Vec<String>,
    },
    /// The memory has a size that no device has.
    #[error(
        "--memory {}: the size must be a power of two: use {} or {}",
        size(*bytes), size(below(*bytes)), size(below(*bytes) * 2)
    )]
    NoPowerOfTwo {
        /// The size asked for.
        bytes: u64,
    },
    /// The memory is too small for the groups.
    #[error(
        "{bytes} bytes of memory are too few for {groups} groups: use a larger --memory, a power of two"
    )]
    Memory {
        /// The size asked for.
        bytes: u64,
        /// Number of groups.
        groups: usize,
    },
    /// The virtual machine refuses.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The groups of one guest.
pub struct HostGroups {
    /// Number of the agent that is there, or will be the next.
    agent: u64,
    queue: Arc<CommandQueue>,
    inbox: Inbox<GuestAnswer>,
    state: Arc<Mutex<VmState>>,
    report: Box<dyn FnMut(String)>,
    is_stopped: bool,
}

/// Longest wait at the end for the hub to tell the final counters.
const STOP_LIMIT: Duration = Duration::from_secs(10);

impl GroupOptions {
    /// Checks what can be checked without the virtual machine.
    ///
    /// # Errors
    ///
    /// [`HostError::NoGroup`], [`HostError::Memory`], [`HostError::Connect`].
    pub fn check(&self) -> Result<(), HostError> {
        self.part_bytes()?;
        let status = Connection::open(&self.socket, &self.vm)?.status()?;
        let there: Vec<_> = status.groups.into_iter().map(|one| one.name).collect();
        match self.groups.iter().find(|group| !there.contains(group)) {
            None => Ok(()),
            Some(group) => Err(HostError::NoGroup {
                group: group.clone(),
                there,
            }),
        }
    }

    fn count(&self) -> u64 {
        to_u64(self.groups.len())
    }

    /// Bytes for the application in the pool device.
    fn pool_bytes(&self) -> u64 {
        self.memory_bytes.saturating_sub(to_u64(HEADER_BYTES))
    }

    fn part_bytes(&self) -> Result<PartBytes, HostError> {
        let bytes = self.memory_bytes;
        if !bytes.is_power_of_two() {
            return Err(HostError::NoPowerOfTwo { bytes });
        }
        let parts = PartBytes::of(self.pool_bytes(), self.count());
        parts.ok_or(HostError::Memory {
            bytes,
            groups: self.groups.len(),
        })
    }
}

impl HostGroups {
    /// Plugs the devices into a virtual machine. `report` gets sentences for the user.
    ///
    /// # Errors
    ///
    /// Every [`HostError`].
    pub fn plug(
        vm: &mut GuestVm,
        options: &GroupOptions,
        report: Box<dyn FnMut(String)>,
    ) -> Result<Self, HostError> {
        let bytes = options.part_bytes()?;
        let pool = vm.plug(APPLICATION, DeviceKind::Bulk, options.pool_bytes())?;
        let kind = DeviceKind::Control { vectors: 1 };
        let control = vm.plug(APPLICATION, kind, bytes.control * options.count())?;
        let part = |(at, group): (u64, &String)| {
            let (pool_part, pool) = device_part(&pool, at, bytes.pool)?;
            let (control_part, control) = device_part(&control, at, bytes.control)?;
            Some(GroupPart {
                group: group.clone(),
                pool,
                pool_part,
                control,
                control_part,
            })
        };
        let parts = (0..).zip(&options.groups).map(part).collect::<Option<_>>();
        let parts = parts.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let devices = [("pool", pool), ("control", control.clone())];
        let state = VmState::new(options, &devices);
        let waker = vm.waker();
        let guest = Arc::new(PacketsSignal(control));
        let (queue, inbox) = start(options, parts, guest, waker, &state.lives)?;
        Ok(HostGroups {
            agent: 0,
            queue,
            inbox,
            state: Arc::new(Mutex::new(state)),
            report,
            is_stopped: false,
        })
    }

    /// Ends all subscriptions, and sends the guest their final counters: call this before the devices are
    /// unplugged. No packet is copied after it returns. The guest may still read what it was given until this is
    /// dropped.
    pub fn stop(&mut self, vm: &mut GuestVm) {
        for (request, message) in self.end_subscriptions() {
            // Fails if QEMU has ended.
            let _gone = self.send(vm, request, &message);
        }
    }

    /// Ends all subscriptions, and the thread; returns what the agent has not been told yet.
    fn end_subscriptions(&mut self) -> Vec<(u32, HostMessage)> {
        let mut messages = Vec::new();
        if std::mem::replace(&mut self.is_stopped, true) {
            return messages;
        }
        let lives = Arc::clone(&lock(&self.state).lives);
        // At once, also while the thread waits for the hub.
        let stop = |life: &GroupLife| life.active().into_iter().for_each(|one| one.stop());
        lock(&lives).values().for_each(stop);
        self.queue.stop();
        let deadline = Instant::now() + STOP_LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(answer) if answer.agent == self.agent => {
                    messages.push((answer.request, answer.message));
                }
                Ok(_) => {}
                // The thread has ended.
                Err(RecvTimeoutError::Disconnected) => return messages,
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        // The hub does not answer: the counters are those that are known without it.
        let active = lock(&lives);
        let active = active.values().filter_map(GroupLife::active);
        messages.extend(active.map(|common| {
            let report = common.known();
            let ended = HostMessage::Ended {
                group: report.group,
                epoch: common.epoch,
                reason: DETACHED.to_owned(),
                counters: report.counters,
            };
            (0, ended)
        }));
        messages
    }

    /// What `ringtap vm list` shows, for another thread.
    #[must_use]
    pub fn reporter(&self) -> Box<dyn Fn() -> VmReport + Send> {
        let (state, queue) = (Arc::clone(&self.state), Arc::clone(&self.queue));
        Box::new(move || {
            queue.refresh();
            lock(&state).full_report()
        })
    }

    /// The groups with their counters since the VM was attached.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupReport> {
        lock(&self.state).full_report().groups
    }

    fn new_agent(&mut self, is_here: bool) {
        self.agent += 1;
        self.queue.new_agent(self.agent, is_here);
        lock(&self.state).new_agent(is_here);
    }

    /// The refusal of a message, if the thread does not get it.
    fn request(&self, message: &ApplicationMessage) -> Option<String> {
        match unpack::<GuestRequest>(message) {
            Ok(what) => {
                let is_queued = self.queue.request(self.agent, message.request, what);
                (!is_queued).then(|| "too many requests wait: ask again after an answer".to_owned())
            }
            Err(error) => Some(error.to_string()),
        }
    }

    fn send(
        &mut self,
        vm: &mut GuestVm,
        request: u32,
        message: &HostMessage,
    ) -> Result<(), VmError> {
        let packed = pack(message, request).or_else(|error| {
            let text = error.to_string();
            pack(&HostMessage::Refused { text }, request)
        });
        let Ok(packed) = packed else { return Ok(()) };
        match vm.send(packed) {
            // The guest loses an answer: because it is gone, or does not take its messages.
            Err(VmError::NoAgent | VmError::Unsent(_)) => {
                lock(&self.state).report.lost_answers += 1;
                Ok(())
            }
            sent => sent,
        }
    }
}

impl BackEnd for HostGroups {
    fn application(&self) -> u32 {
        APPLICATION
    }

    fn handle(&mut self, vm: &mut GuestVm, event: &FromGuest) -> Result<(), VmError> {
        match event {
            FromGuest::Arrived => {
                self.new_agent(true);
                (self.report)("the agent in the guest has connected".to_owned());
            }
            FromGuest::Left => {
                self.new_agent(false);
                (self.report)("the agent in the guest has left".to_owned());
            }
            FromGuest::Incompatible(oldest, newest) => (self.report)(format!(
                "the agent in the guest has versions {oldest} to {newest} of vNPlug, this host another: \
                 install the same version of Ringtap on both"
            )),
            FromGuest::Ready {
                device,
                mapping,
                interrupts,
            } => {
                lock(&self.state).map(*device, *mapping, *interrupts);
                let (device, interrupts) = (device.0, *interrupts);
                self.send(vm, 0, &HostMessage::Mapped { device, interrupts })?;
            }
            FromGuest::Failed(_) => (self.report)(
                "the guest cannot map a device: see `ringtap guest --status` there".to_owned(),
            ),
            FromGuest::Message(message) => {
                if let Some(text) = self.request(message) {
                    self.send(vm, message.request, &HostMessage::Refused { text })?;
                }
            }
            FromGuest::Disconnected => (self.report)(
                "libvirt or QEMU's QMP socket does not answer: the VM runs on, and Ringtap connects again".to_owned(),
            ),
            FromGuest::Reconnected => (self.report)("connected with the VM's QEMU again".to_owned()),
            FromGuest::Gone => (self.report)("QEMU has ended".to_owned()),
            _ => {}
        }
        lock(&self.state).report.refused_messages = vm.refused_messages();
        Ok(())
    }

    fn tick(&mut self, vm: &mut GuestVm) -> Result<Option<Duration>, VmError> {
        let answers: Vec<_> = answers_of(&self.inbox, self.agent).collect();
        for answer in answers {
            self.send(vm, answer.request, &answer.message)?;
        }
        Ok(None)
    }
}

impl Drop for HostGroups {
    fn drop(&mut self) {
        let _nobody_is_told = self.end_subscriptions();
        let lives = Arc::clone(&lock(&self.state).lives);
        lock(&lives).values_mut().for_each(GroupLife::settle);
    }
}

/// Signals the guest that a part has new packets.
struct PacketsSignal(HostDevice);

impl Signal for PacketsSignal {
    fn signal(&self) {
        self.0.signal(PACKETS_VECTOR);
    }
}

/// Starts the thread that carries out requests.
fn start(
    options: &GroupOptions,
    parts: Vec<GroupPart>,
    guest: Arc<dyn Signal>,
    waker: ringtap_ipc::event::Event,
    lives: &GroupLives,
) -> io::Result<(Arc<CommandQueue>, Inbox<GuestAnswer>)> {
    let queue = Arc::new(CommandQueue::default());
    let (sender, inbox) = channel();
    let commands = Commands {
        vm: options.vm.clone(),
        socket: options.socket.clone(),
        parts,
        queue: Arc::clone(&queue),
        answers: Answers { sender, waker },
        guest,
        relays: BTreeMap::new(),
        lives: Arc::clone(lives),
        agent: 0,
        has_agent: false,
        epoch: 0,
        granted: None,
    };
    let builder = std::thread::Builder::new().name("commands".into());
    builder.spawn(move || commands.run())?;
    Ok((queue, inbox))
}

/// The largest power of two below a size, at most half of the largest number.
fn below(bytes: u64) -> u64 {
    1 << bytes.max(1).ilog2().min(62)
}

/// A size as options have it.
fn size(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let fits = |(_, unit): &(&str, u64)| bytes > 0 && bytes.is_multiple_of(*unit);
    let found = units.into_iter().find(fits);
    found.map_or_else(
        || bytes.to_string(),
        |(name, unit)| format!("{}{name}", bytes / unit),
    )
}

/// Part number `at` of a device that is divided into parts of `bytes` bytes.
fn device_part(device: &HostDevice, at: u64, bytes: u64) -> Option<(DevicePart, Region)> {
    let at = at.checked_mul(bytes)?;
    let region = device.memory().part(to_usize(at), to_usize(bytes))?;
    let device = device.id().0;
    Some((DevicePart { device, at, bytes }, region))
}

#[cfg(test)]
mod tests;
