// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection of an agent in a guest with the host process.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Release};
use std::time::{Duration, Instant};

use ringtap_ipc::event::{Event, sleep_on};
use ringtap_ipc::mapping::Mapping;
use ringtap_pool::memory::Words;
use ringtap_pool::number::to_usize;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use super::pci::{DeviceLock, PciDevice};
use super::session::GuestSession;
use super::vfio::VfioEvents;
use crate::ctrl::message::{ApplicationMessage, MAX_PAYLOAD_BYTES, Message};
use crate::ctrl::{Channel, port_name};
use crate::device::{ApplicationMemory, MappingKind, SharedId, doorbell_store};

const PORTS: &str = "/sys/class/virtio-ports";
/// Interval between two looks for the port, or for a device that the host has announced.
const LOOK: Duration = Duration::from_millis(50);
/// Most bytes of messages that the host has not taken yet.
const MAX_UNSENT: usize = 256 * 1024;

/// Why the host, or a device of it, cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuestError {
    /// No port, within the time.
    #[error(
        "no virtio-serial port of this application: attach this VM on the host; \
         the guest's kernel needs the module virtio_console"
    )]
    NoPort,
    /// Another agent.
    #[error("another process has the application's virtio-serial port: end it first")]
    Busy,
    /// The host's versions are others.
    #[error("the host serves versions {0} to {1} of the protocol, this agent has version 1")]
    Refused(u8, u8),
    /// The host does not answer.
    #[error("the host does not answer on the application's virtio-serial port")]
    NoAnswer,
    /// The host process is gone.
    #[error("the host process has left")]
    Left,
    /// The device did not appear, or cannot be mapped.
    #[error("the device cannot be mapped: {0}")]
    Map(String),
    /// The host takes no messages.
    #[error("the host does not take the guest's messages")]
    Unsent,
    /// A message without an application, or too long for one.
    #[error("a message needs an application other than 0 and at most {MAX_PAYLOAD_BYTES} bytes")]
    Message,
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An agent's connection with the host.
pub struct HostLink {
    channel: Channel,
    session: GuestSession,
    /// The mapped devices.
    devices: BTreeMap<SharedId, MappedEvents>,
    queue: VecDeque<Message>,
    has_left: bool,
    /// Ends a wait of [`HostLink::next`].
    event: Option<Event>,
}

/// The events of a mapped device.
enum MappedEvents {
    None,
    /// The doorbell's registers; signals of the host are messages.
    Registers(Arc<Mapping>),
    Vfio(VfioEvents),
}

/// A device that this process has mapped.
#[derive(Clone, Debug)]
pub struct GuestDevice {
    /// The application's memory.
    pub memory: ApplicationMemory,
    /// How it is mapped.
    pub mapping: MappingKind,
    /// The file that is mapped, and where in it the application's memory begins; absent for vfio. Only files of sysfs may be
    /// given to other processes.
    pub file: Option<(Arc<OwnedFd>, u64)>,
    /// Why the device does not interrupt, if it has events and does not.
    pub no_interrupts: Option<String>,
}

impl HostLink {
    /// Opens the command port of an application and waits at most `limit` for the port and the host's welcome.
    ///
    /// # Errors
    ///
    /// Names what is missing.
    pub fn connect(application: &str, limit: Duration) -> Result<Self, GuestError> {
        let deadline = Instant::now() + limit;
        let mut failure = GuestError::NoPort;
        while Instant::now() < deadline {
            match HostLink::open(application).and_then(|link| link.welcomed(deadline)) {
                // The port of an earlier host process, or one of which QEMU's end is not open yet.
                Err(error @ (GuestError::NoPort | GuestError::Left)) => failure = error,
                opened => return opened,
            }
            std::thread::sleep(LOOK);
        }
        Err(failure)
    }

    /// Opens the command port of an application, and waits for nothing: [`HostLink::next`] gives the host's answer, a
    /// [`Message::Welcome`] or [`Message::Refuse`]. A busy host may take its time: each new attempt would make it
    /// begin anew. The link ends with the host process ([`GuestError::Left`]).
    ///
    /// # Errors
    ///
    /// [`GuestError::NoPort`], [`GuestError::Busy`], [`GuestError::Left`].
    pub fn open(application: &str) -> Result<Self, GuestError> {
        HostLink::over(open_port(&port_name(application))?)
    }

    /// As [`HostLink::open`], with a port that is open already.
    ///
    /// # Errors
    ///
    /// [`GuestError::Left`].
    pub fn over(port: OwnedFd) -> Result<Self, GuestError> {
        let instance = RandomState::new().hash_one(std::process::id());
        let mut link = HostLink {
            channel: Channel::new(port, MAX_UNSENT),
            session: GuestSession::new(instance),
            devices: BTreeMap::new(),
            queue: VecDeque::new(),
            has_left: false,
            event: None,
        };
        let hello = link.session.hello();
        link.say(&hello)?;
        Ok(link)
    }

    /// Waits for the host's welcome.
    fn welcomed(mut self, deadline: Instant) -> Result<Self, GuestError> {
        while Instant::now() < deadline {
            match self.next(Some(LOOK))? {
                Some(Message::Welcome { .. }) => return Ok(self),
                Some(Message::Refuse { oldest, newest, .. }) => {
                    return Err(GuestError::Refused(oldest, newest));
                }
                _ => {}
            }
        }
        Err(GuestError::NoAnswer)
    }

    /// Lets this event end a wait of [`HostLink::next`], which clears it.
    pub fn listen(&mut self, event: Event) {
        self.event = Some(event);
    }

    /// The next message of the host: a [`Message::DeviceAdded`], `DeviceLeaving`, `Signal` (also by
    /// interrupt) or `Application`. The first message after [`HostLink::open`] is the host's answer. `None` after
    /// `timeout` (absent: no limit), or when the event of
    /// [`HostLink::listen`] was signalled.
    ///
    /// # Errors
    ///
    /// [`GuestError::Left`]: the host process is gone, and with it the link; the system's.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Message>, GuestError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(message) = self.queue.pop_front() {
                return Ok(Some(message));
            }
            if self.has_left {
                return Err(GuestError::Left);
            }
            let left = deadline.map(|one| one.saturating_duration_since(Instant::now()));
            let is_interrupted = self.round(left)?;
            let is_late = deadline.is_some_and(|one| Instant::now() >= one);
            if self.queue.is_empty() && (is_interrupted || is_late) {
                return Ok(None);
            }
        }
    }

    /// Maps a device that the host has announced, waiting at most `limit` for it to appear. The host
    /// learns how it was mapped.
    ///
    /// # Errors
    ///
    /// [`GuestError::Map`], which the host learns of as well.
    pub fn map(&mut self, device: SharedId, limit: Duration) -> Result<GuestDevice, GuestError> {
        match self.try_map(device, limit) {
            Ok((events, found)) => {
                let interrupts = matches!(events, MappedEvents::Vfio(_));
                self.devices.insert(device, events);
                self.say(&Message::DeviceReady {
                    device,
                    mapping: found.mapping,
                    interrupts,
                })?;
                Ok(found)
            }
            Err(error) => {
                self.say(&Message::DeviceFailed { device })?;
                Err(GuestError::Map(error.to_string()))
            }
        }
    }

    /// Tells the host that the device is not used any more. All that holds its memory must be dropped
    /// before: the kernel unplugs no device that a process has mapped by vfio.
    ///
    /// # Errors
    ///
    /// [`GuestError::Unsent`]
    pub fn release(&mut self, device: SharedId) -> Result<(), GuestError> {
        let Some(events) = self.devices.remove(&device) else {
            return Ok(());
        };
        // Closed before the host asks for the unplug: vfio takes more than a second to reset the device.
        drop(events);
        self.say(&Message::DeviceReleased { device })
    }

    /// Signals the host on a vector of a mapped device.
    ///
    /// # Errors
    ///
    /// [`GuestError::Map`] for a device that is not mapped or has no events.
    pub fn signal(&self, device: SharedId, vector: u16) -> Result<(), GuestError> {
        let (at, value) = doorbell_store(vector);
        match self.devices.get(&device) {
            Some(MappedEvents::Vfio(vfio)) => vfio.store(at, value),
            Some(MappedEvents::Registers(registers)) => {
                let word: Option<Words<AtomicU32>> = registers.words(to_usize(at), 1);
                let word = word.ok_or(GuestError::Map("no registers".to_owned()))?;
                // Release: what this guest stored before is in memory when the host wakes.
                word[0].store(value.to_le(), Release);
            }
            _ => return Err(GuestError::Map("not mapped, or without events".to_owned())),
        }
        Ok(())
    }

    /// Sends a message to an application's back end.
    ///
    /// # Errors
    ///
    /// [`GuestError::Unsent`] if the host does not take the guest's messages, [`GuestError::Message`].
    pub fn send(&mut self, message: ApplicationMessage) -> Result<(), GuestError> {
        if message.application == 0 || message.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(GuestError::Message);
        }
        self.say(&Message::Application(message))
    }

    fn say(&mut self, message: &Message) -> Result<(), GuestError> {
        match self.channel.send(message) {
            Ok(true) => Ok(()),
            Ok(false) => Err(GuestError::Unsent),
            Err(_) => Err(GuestError::Left),
        }
    }

    fn try_map(
        &mut self,
        device: SharedId,
        limit: Duration,
    ) -> io::Result<(MappedEvents, GuestDevice)> {
        let deadline = Instant::now() + limit;
        let leaving = Message::DeviceLeaving { device };
        let (pci, lock) = loop {
            if let Some(lock) = DeviceLock::take()
                && let Some(pci) = PciDevice::find(device, &lock)?
            {
                break (pci, lock);
            }
            if self.has_left || self.queue.contains(&leaving) {
                return Err(io::Error::other("the host has taken it away"));
            }
            if Instant::now() >= deadline {
                return Err(io::Error::other("it does not appear: see the kernel's log"));
            }
            self.round(Some(LOOK)).map_err(io::Error::other)?;
        };
        let mut no_interrupts = None;
        let mut whole = None;
        let (events, mapping, kind) = if pci.header.kind.vectors() == 0 {
            let (mapping, kind, file) = pci.map()?;
            whole = Some(file);
            (MappedEvents::None, mapping, kind)
        } else {
            match VfioEvents::open(&pci) {
                Ok((vfio, mapping)) if pci.header.is_at(&mapping) => {
                    (MappedEvents::Vfio(vfio), mapping, MappingKind::Vfio)
                }
                refused => {
                    let reason = refused.err().map(|error| error.to_string());
                    no_interrupts = Some(reason.unwrap_or_default());
                    // Takes the device back from vfio if that has it.
                    let pci = PciDevice::find(device, &lock)?.ok_or(io::ErrorKind::NotFound)?;
                    let registers = pci.map_registers()?;
                    let (mapping, kind, _) = pci.map()?;
                    (MappedEvents::Registers(registers), mapping, kind)
                }
            }
        };
        let found = GuestDevice {
            memory: ApplicationMemory::new(mapping, pci.header),
            mapping: kind,
            file: whole.map(|(file, offset)| (Arc::new(file), offset)),
            no_interrupts,
        };
        Ok((events, found))
    }

    /// Sleeps, then takes in what has happened; returns whether the event was signalled.
    fn round(&mut self, timeout: Option<Duration>) -> Result<bool, GuestError> {
        let mut fds = vec![self.channel.poll()];
        let own = self.event.clone();
        fds.extend(own.iter().map(|event| PollFd::new(event, PollFlags::IN)));
        let mut vectors = Vec::new();
        for (id, events) in &self.devices {
            for (index, fd) in events.vfio().iter().flat_map(|vfio| vfio.fds()).enumerate() {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                vectors.push((*id, index));
            }
        }
        let mut ready = sleep_on(fds, timeout)?.into_iter();
        let port_is_ready = ready.next() == Some(true);
        let is_signalled = own.is_some() && ready.next() == Some(true);
        for ((device, index), _) in vectors.into_iter().zip(ready).filter(|(_, is)| *is) {
            let vfio = self.devices.get(&device).and_then(MappedEvents::vfio);
            let message = match vfio.map(|vfio| vfio.clear(index)) {
                Some(Some(vector)) => Message::Signal { device, vector },
                Some(None) => Message::DeviceLeaving { device },
                None => continue,
            };
            self.queue.push_back(message);
        }
        if port_is_ready {
            let mut messages = Vec::new();
            self.has_left = !self.channel.exchange(&mut messages);
            let session = &mut self.session;
            let new = messages.into_iter().filter_map(|one| session.receive(one));
            self.queue.extend(new);
        }
        if let Some(event) = own.filter(|_| is_signalled) {
            event.clear();
        }
        Ok(is_signalled)
    }
}

impl MappedEvents {
    fn vfio(&self) -> Option<&VfioEvents> {
        match self {
            MappedEvents::Vfio(vfio) => Some(vfio),
            _ => None,
        }
    }
}

fn open_port(port: &str) -> Result<OwnedFd, GuestError> {
    let entries = fs::read_dir(PORTS).map_err(|_| GuestError::NoPort)?;
    let named = |folder: &PathBuf| {
        fs::read_to_string(folder.join("name")).is_ok_and(|name| name.trim() == port)
    };
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let Some(folder) = folders.into_iter().find(named) else {
        return Err(GuestError::NoPort);
    };
    let device = Path::new("/dev").join(folder.file_name().unwrap_or_default());
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(&device, flags, Mode::empty()) {
        Ok(file) => Ok(file),
        Err(Errno::BUSY) => Err(GuestError::Busy),
        Err(Errno::NOENT | Errno::NXIO | Errno::NODEV) => Err(GuestError::NoPort),
        Err(error) => Err(io::Error::from(error).into()),
    }
}
