// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's side: gives the groups of a hub to one guest.
//!
//! [`HostGroups`] is a back end of vNPlug. Its requests run on a thread of their own, and each
//! subscription on another, so that the thread of the guest waits for no hub.
//!
//! Invariants
//! - A guest can make only the process of its own virtual machine busy, and reach the hub only as a
//!   reader of the granted groups.

mod answers;
mod commands;
mod granted_memory;
mod life;
mod options;
mod queue;
mod relay;
mod report;
mod rules;
mod status;

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringtap_ipc::mutex::lock;
use ringtap_pool::memory::Region;
use ringtap_pool::number::to_usize;
use ringtap_pool::wake::Signal;
use ringtap_vnplug::ctrl::message::ApplicationMessage;
use ringtap_vnplug::device::DeviceKind;
use ringtap_vnplug::host::{BackEnd, FromGuest, GuestVm, HostDevice, VmError};

use crate::messages::{
    APPLICATION, DeviceRange, GuestRequest, HostMessage, PACKETS_VECTOR, pack, unpack,
};
use answers::{Answers, GuestAnswer, answers_of};
use commands::{Commands, DETACHED};
use granted_memory::GrantedMemory;
use life::{GroupLife, GroupLives};
pub use options::{GroupOptions, HostError};
use queue::CommandQueue;
pub use report::{DeviceReport, GroupReport, VmReport};
use status::VmState;
pub use status::{AttachedVms, StatusServer, standard_folder};

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

impl HostGroups {
    /// Plugs the devices into a virtual machine. `report` gets sentences for the user.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ringtap_vm::host::{GroupOptions, HostGroups};
    /// use ringtap_vnplug::host::{GuestVm, Monitor};
    ///
    /// # fn run(vm: &mut GuestVm) -> Result<(), ringtap_vm::host::HostError> {
    /// let options = GroupOptions {
    ///     vm: "vm1".into(),
    ///     monitor: Monitor::Qmp("/run/vm1.qmp".into()),
    ///     socket: "/run/ringtap/hub.sock".into(),
    ///     groups: vec!["dns".into()],
    ///     memory_bytes: 64 << 20,
    /// };
    /// options.check()?;
    /// let groups = HostGroups::plug(vm, &options, Box::new(|line| eprintln!("{line}")))?;
    /// // `ringtap_vnplug::host::serve` runs them until the virtual machine ends or lets them go.
    /// # drop(groups);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Every [`HostError`].
    pub fn plug(
        vm: &mut GuestVm,
        options: &GroupOptions,
        report: Box<dyn FnMut(String)>,
    ) -> Result<Self, HostError> {
        let bytes = options.group_bytes()?;
        let pool = vm.plug(APPLICATION, DeviceKind::Bulk, options.pool_bytes())?;
        let kind = DeviceKind::Control { vectors: 1 };
        let control = vm.plug(APPLICATION, kind, bytes.control * options.count())?;
        let memory = |(at, group): (u64, &String)| {
            let (pool_range, pool) = device_range(&pool, at, bytes.pool)?;
            let (control_range, control) = device_range(&control, at, bytes.control)?;
            Some(GrantedMemory {
                group: group.clone(),
                pool,
                pool_range,
                control,
                control_range,
            })
        };
        let memory = (0..)
            .zip(&options.groups)
            .map(memory)
            .collect::<Option<_>>();
        let memory: Vec<_> = memory.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let devices = [("pool", pool), ("control", control.clone())];
        let state = VmState::new(options, &devices);
        let waker = vm.waker();
        let guest = Arc::new(PacketsSignal(control));
        let (queue, inbox) = start(options, memory, guest, waker, &state.lives)?;
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
    memory: Vec<GrantedMemory>,
    guest: Arc<dyn Signal>,
    waker: ringtap_ipc::event::Event,
    lives: &GroupLives,
) -> io::Result<(Arc<CommandQueue>, Inbox<GuestAnswer>)> {
    let queue = Arc::new(CommandQueue::default());
    let (sender, inbox) = channel();
    let commands = Commands {
        vm: options.vm.clone(),
        socket: options.socket.clone(),
        memory,
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

/// Part number `at` of a device that is divided into parts of `bytes` bytes.
fn device_range(device: &HostDevice, at: u64, bytes: u64) -> Option<(DeviceRange, Region)> {
    let at = at.checked_mul(bytes)?;
    let region = device.memory().part(to_usize(at), to_usize(bytes))?;
    let device = device.id().0;
    Some((DeviceRange { device, at, bytes }, region))
}

#[cfg(test)]
mod tests;
