// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent: one thread that talks with the host, maps its devices, and passes on the chunks of all groups.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{
    AccessList, AdmissionOption, Group, Hub, HubError, HubOptions, Limits, MEMORY_TIME,
};
use ringtap_ipc::event::{Event, sleep_until_readable};
use ringtap_ipc::protocol::Delivery;
use ringtap_ipc::socket::{ListenError, Listener};
use ringtap_vnplug::ctrl::message::{ApplicationMessage, Message};
use ringtap_vnplug::device::{MappingKind, SharedId};
use ringtap_vnplug::guest::{GuestDevice, GuestError, HostLink, can_share_devices};

use super::claim::Claim;
use super::group::{HostGroup, MappedRange};
use super::status::{AgentPresence, is_agent_running, write_status};
use crate::messages::{
    APPLICATION, APPLICATION_NAME, DeviceRange, GrantedGroup, GuestRequest, HostMessage, pack,
    unpack,
};

/// Pause before the next attempt to open the host's port.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for an announced device to appear, which takes a tenth of a second on an idle machine.
const DEVICE_TIME: Duration = Duration::from_secs(60);
/// Time for which the thread still polls after the last packet, before it asks the host for signals.
const NAP: Duration = Duration::from_micros(250);
/// Interval between looks for chunks that readers have returned, and at what they have mapped.
const RETURN_LOOK: Duration = Duration::from_millis(10);
const READERS_LOOK: Duration = Duration::from_millis(2);
/// Most groups of a host.
const MAX_GROUPS: usize = 64;

/// Options of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Folder of the sockets, which exists.
    pub folder: PathBuf,
    /// Users that may read, beside root.
    pub access: AccessList,
    /// Limits of the hubs.
    pub limits: Limits,
}

/// Why an agent ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The host's link fails for good.
    #[error(transparent)]
    Link(#[from] GuestError),
    /// A socket cannot be made.
    #[error("{0}: choose another --folder")]
    Listen(#[from] ListenError),
    /// A hub cannot start.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// Another agent.
    #[error("{}: an agent runs already: end it first", .0.display())]
    Running(PathBuf),
    /// The system refused a descriptor or a thread.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The agent of a guest.
pub struct Agent {
    options: AgentOptions,
    groups: BTreeMap<String, ServedGroup>,
    event: Event,
    stop: Arc<AtomicBool>,
    _presence: AgentPresence,
}

/// A group and its hub. The group ends first, so that the hub does not wait for it.
struct ServedGroup {
    group: HostGroup,
    _server: Server,
    _hub: Hub,
}

/// What the agent has of one host process.
pub(super) struct HostProcess {
    link: HostLink,
    /// The host has answered. Until then there is no host process, or it is busy.
    pub(super) is_welcome: bool,
    pub(super) devices: BTreeMap<u64, GuestDevice>,
    /// Name of the group that awaits the answer to each request.
    requests: BTreeMap<u32, String>,
    last_request: u32,
    /// Devices that go when no reader needs them.
    leaving: Vec<SharedId>,
    /// Devices that readers of an earlier agent may still read.
    claims: Vec<Claim>,
}

impl Agent {
    /// An agent that does nothing yet.
    ///
    /// # Errors
    ///
    /// [`AgentError::Running`], [`AgentError::System`].
    pub fn new(options: AgentOptions) -> Result<Self, AgentError> {
        if is_agent_running(&options.folder) {
            return Err(AgentError::Running(options.folder));
        }
        Ok(Agent {
            _presence: AgentPresence::new(&options.folder)?,
            options,
            groups: BTreeMap::new(),
            event: Event::new()?,
            stop: Arc::default(),
        })
    }

    /// Ends [`Agent::run`], from any thread.
    pub fn stopper(&self) -> impl FnOnce() + Send + 'static {
        use ringtap_pool::wake::Signal as _;
        let (stop, event) = (Arc::clone(&self.stop), self.event.clone());
        move || {
            stop.store(true, SeqCst);
            event.signal();
        }
    }

    /// Serves the groups of the host, one host process after the other, until it is stopped.
    ///
    /// # Errors
    ///
    /// Every [`AgentError`]. A host that is not there, or leaves, is no error.
    pub fn run(&mut self) -> Result<(), AgentError> {
        self.run_on(|| HostLink::open(APPLICATION_NAME))
    }

    /// As [`Agent::run`], with links that `open` opens.
    pub(super) fn run_on(
        &mut self,
        mut open: impl FnMut() -> Result<HostLink, GuestError>,
    ) -> Result<(), AgentError> {
        self.report(None)?;
        while !self.is_stopped() {
            let was_served = match open() {
                Ok(link) => self.serve(link)?,
                Err(GuestError::NoPort | GuestError::Left) => false,
                Err(error) => return Err(error.into()),
            };
            if !was_served {
                let _woken = sleep_until_readable(&[self.event.as_fd()], Some(PAUSE))?;
                self.event.clear();
            }
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// Serves one host process until it leaves; returns whether there was one.
    fn serve(&mut self, mut link: HostLink) -> Result<bool, AgentError> {
        link.listen(self.event.clone());
        let mut host = HostProcess {
            link,
            is_welcome: false,
            devices: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_request: 0,
            leaving: Vec::new(),
            claims: Vec::new(),
        };
        let outcome = self.serve_host(&mut host);
        for served in self.groups.values_mut() {
            served.group.end();
        }
        self.report(None)?;
        self.wait_for_readers()?;
        match outcome {
            Err(AgentError::Link(GuestError::Left)) => {}
            Err(error @ AgentError::Link(GuestError::Refused(..))) => return Err(error),
            // The next host process may do better.
            Err(AgentError::Link(error)) => {
                tracing::warn!("the link to the host has ended: {error}");
            }
            other => other?,
        }
        Ok(host.is_welcome)
    }

    /// Waits until no reader needs memory of the host process that left. The next one unplugs it when this agent
    /// closes the link.
    fn wait_for_readers(&mut self) -> Result<(), AgentError> {
        let deadline = Instant::now() + MEMORY_TIME;
        while !self.are_settled() && !self.is_stopped() && Instant::now() < deadline {
            let _woken = sleep_until_readable(&[self.event.as_fd()], Some(READERS_LOOK))?;
            self.event.clear();
        }
        Ok(())
    }

    /// Whether no reader needs memory of a device that leaves.
    fn are_settled(&mut self) -> bool {
        let groups = self.groups.values_mut();
        groups
            .map(|served| &mut served.group)
            .all(HostGroup::is_settled)
    }

    fn serve_host(&mut self, host: &mut HostProcess) -> Result<(), AgentError> {
        let mut wait = Some(Duration::ZERO);
        while !self.is_stopped() {
            host.claims.retain(|claim| !claim.is_over());
            if host.claims.is_empty() {
                self.ask(host)?;
            }
            let found = self.step();
            let awaits_readers = !self.release(host)? || !host.claims.is_empty();
            wait = match (found, wait) {
                (true, _) => Some(Duration::ZERO),
                // Packets came a moment ago.
                (false, Some(Duration::ZERO)) => Some(NAP),
                (false, _) => None,
            };
            let mut is_armed = false;
            if wait.is_none() {
                self.groups.values().for_each(|one| one.group.arm());
                is_armed = true;
                if self.step() {
                    wait = Some(Duration::ZERO);
                }
            }
            let event = host.link.next(self.limit(wait, awaits_readers));
            if is_armed {
                self.groups.values().for_each(|one| one.group.disarm());
            }
            if let Some(message) = event? {
                self.take_in(host, message)?;
            }
        }
        Ok(())
    }

    /// Sends what the groups ask of the host.
    fn ask(&mut self, host: &mut HostProcess) -> Result<(), AgentError> {
        for (name, served) in &mut self.groups {
            while let Some(request) = served.group.request() {
                if !host.ask(name, &request)? {
                    served.group.answer(too_long(), |_| None);
                }
            }
        }
        Ok(())
    }

    /// The longest wait: readers neither signal returned chunks nor that they have left memory.
    fn limit(&self, wait: Option<Duration>, awaits_readers: bool) -> Option<Duration> {
        let returns = self.groups.values().any(|one| one.group.awaits_returns());
        let limits = [(awaits_readers, READERS_LOOK), (returns, RETURN_LOOK)];
        let limits = limits.into_iter().filter(|(applies, _)| *applies);
        limits.map(|(_, limit)| limit).chain(wait).min()
    }

    /// Lets devices go that no reader needs any more; returns whether nothing waits for readers.
    fn release(&mut self, host: &mut HostProcess) -> Result<bool, AgentError> {
        let is_settled = self.are_settled();
        if is_settled {
            for device in std::mem::take(&mut host.leaving) {
                host.devices.remove(&device.0);
                host.link.release(device)?;
                self.report(Some(host))?;
            }
        }
        Ok(is_settled)
    }

    /// Passes on what each group has; returns whether there was any.
    fn step(&mut self) -> bool {
        let mut found = false;
        for served in self.groups.values_mut() {
            found |= served.group.step();
        }
        found
    }

    fn take_in(&mut self, host: &mut HostProcess, message: Message) -> Result<(), AgentError> {
        match message {
            Message::Welcome { .. } => {
                host.is_welcome = true;
                self.report(Some(host))
            }
            Message::Refuse { oldest, newest, .. } => {
                Err(GuestError::Refused(oldest, newest).into())
            }
            Message::DeviceAdded {
                device,
                application: APPLICATION,
            } => {
                match host.link.map(device, DEVICE_TIME) {
                    Ok(mapped) => host.take(device, mapped),
                    Err(error) => tracing::error!("{error}"),
                }
                self.report(Some(host))
            }
            Message::DeviceLeaving { device } => {
                for served in self.groups.values_mut() {
                    served.group.leave(device.0);
                }
                host.leaving.push(device);
                Ok(())
            }
            Message::Application(message) if message.application == APPLICATION => {
                self.hear(host, &message)
            }
            _ => Ok(()),
        }
    }

    fn hear(
        &mut self,
        host: &mut HostProcess,
        message: &ApplicationMessage,
    ) -> Result<(), AgentError> {
        let asker = host.requests.remove(&message.request);
        match unpack(message) {
            Ok(HostMessage::Granted { groups, .. }) => self.take_grants(groups)?,
            Ok(HostMessage::Ended {
                group,
                reason,
                counters,
                ..
            }) => {
                // An answer to a request before concerns no subscription any more.
                host.requests.retain(|_, asker| *asker != group);
                if let Some(served) = self.groups.get_mut(&group) {
                    served.group.end_subscription(&reason, counters);
                }
            }
            Ok(HostMessage::Mapped { device, interrupts }) => {
                if let Some(device) = host.devices.get_mut(&device)
                    && !interrupts
                {
                    let reason = || "the host interrupts only guests that run with KVM".to_owned();
                    device.no_interrupts.get_or_insert_with(reason);
                }
            }
            Ok(answer) => {
                let served = asker.and_then(|name| self.groups.get_mut(&name));
                if let Some(served) = served {
                    served.group.answer(answer, |range| host.memory(range));
                }
            }
            Err(error) => {
                tracing::error!("the host sent a message that this agent cannot read: {error}");
                return Ok(());
            }
        }
        self.report(Some(host))
    }

    fn take_grants(&mut self, granted: Vec<GrantedGroup>) -> Result<(), AgentError> {
        for (name, served) in &mut self.groups {
            if !granted.iter().any(|one| one.name == *name) {
                served.group.end();
            }
        }
        // Readers of a pool that is larger than the part cannot go on.
        let fits = |served: &ServedGroup| {
            let mut same = granted
                .iter()
                .filter(|one| one.name == served.group.granted.name);
            same.all(|one| served.group.fits(one))
        };
        self.groups.retain(|_, served| fits(served));
        for one in granted {
            let is_full = self.groups.len() >= MAX_GROUPS;
            match self.groups.get_mut(&one.name) {
                Some(served) => served.group.begin(one),
                None if !is_full => {
                    let name = one.name.clone();
                    let served = self.open(one)?;
                    self.groups.insert(name, served);
                }
                None => tracing::error!("host:{}: more than {MAX_GROUPS} groups", one.name),
            }
        }
        Ok(())
    }

    /// Starts the hub of a group.
    fn open(&self, granted: GrantedGroup) -> Result<ServedGroup, AgentError> {
        let name = granted.name.clone();
        let (mut group, source) = HostGroup::new(granted.clone(), self.event.clone())?;
        group.begin(granted);
        let hub_group = Group {
            access: self.options.access.clone(),
            admission: AdmissionOption::Guest,
            delivery: if can_share_devices() {
                Delivery::Shared
            } else {
                Delivery::Private
            },
            ..Group::new(&name)
        };
        let options = HubOptions {
            limits: self.options.limits,
            ..HubOptions::default()
        };
        // Checks the name.
        let (hub, _) = Hub::start(vec![source], vec![hub_group], options, Vec::new())?;
        group.serve(hub.handle().clone());
        let listener = Listener::bind(&self.options.folder.join(format!("{name}.sock")))?;
        let server = Server::open(listener, &hub, ServerOptions::default())?;
        Ok(ServedGroup {
            group,
            _server: server,
            _hub: hub,
        })
    }

    fn report(&self, host: Option<&HostProcess>) -> Result<(), AgentError> {
        let groups = self.groups.values().map(|one| &one.group);
        Ok(write_status(&self.options.folder, host, groups)?)
    }
}

impl HostProcess {
    /// Sends a request of a group; `false` if it is too long.
    fn ask(&mut self, group: &str, request: &GuestRequest) -> Result<bool, GuestError> {
        self.last_request = self.last_request.wrapping_add(1).max(1);
        let Ok(message) = pack(request, self.last_request) else {
            return Ok(false);
        };
        self.requests.insert(self.last_request, group.to_owned());
        self.link.send(message)?;
        Ok(true)
    }

    /// Takes a mapped device, from readers of an earlier agent if there are any.
    fn take(&mut self, number: SharedId, device: GuestDevice) {
        // Where readers cannot map devices, none has an earlier agent's.
        if let Some((file, _)) = file_of(&device).filter(|_| can_share_devices()) {
            self.claims.push(Claim::new(Arc::clone(file)));
        }
        self.devices.insert(number.0, device);
    }

    /// A part of a mapped device.
    fn memory(&self, range: DeviceRange) -> Option<MappedRange> {
        let device = self.devices.get(&range.device)?;
        if self.leaving.contains(&SharedId(range.device)) {
            return None;
        }
        // Memory of a device that was unplugged meanwhile reads as anything.
        let is_plugged = device.memory.device() == Some(SharedId(range.device));
        let (at, bytes) = (range.at.try_into().ok()?, range.bytes.try_into().ok()?);
        let region = device.memory.part(at, bytes).filter(|_| is_plugged)?;
        let file = file_of(device).map(|(file, start)| (Arc::clone(file), start + range.at));
        Some(MappedRange { region, file })
    }
}

/// The file of a device's memory, unless readers must not have it.
fn file_of(device: &GuestDevice) -> Option<&(Arc<OwnedFd>, u64)> {
    let is_for_readers = device.mapping != MappingKind::WriteBack || !can_share_devices();
    device.file.as_ref().filter(|_| is_for_readers)
}

fn too_long() -> HostMessage {
    HostMessage::Refused {
        text: "the filters of all readers together are too long".to_owned(),
    }
}
