// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection of an agent in a guest with the host process.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Release};
use std::time::{Duration, Instant};

use ringtap_ipc::event::Event;
use ringtap_ipc::mapping::Mapping;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

use super::pci::PciDevice;
use super::session::{FromHost, GuestSession};
use super::vfio::VfioEvents;
use crate::ctrl::message::{ApplicationMessage, MOST_PAYLOAD_BYTES, Message};
use crate::ctrl::{Channel, PORT_NAME, Port};
use crate::device::{
    ApplicationMemory, DeviceHeader, DeviceKind, MappingKind, Recognition, SharedId, doorbell_store,
};

const PORTS: &str = "/sys/class/virtio-ports";
/// Interval between two looks for the port, or for a device that the host has announced.
const LOOK: Duration = Duration::from_millis(50);
/// Most devices without a header.
const MOST_FOREIGN: usize = 64;
/// Most bytes of messages that the host has not taken yet.
const MOST_UNSENT: usize = 256 * 1024;

/// Why the host, or a device of it, cannot be had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuestError {
    /// No port, within the time.
    #[error(
        "no virtio-serial port {PORT_NAME}: attach this VM on the host; \
         the guest's kernel needs the module virtio_console"
    )]
    NoPort,
    /// Another agent.
    #[error("another process has the port {PORT_NAME}: end it first")]
    Busy,
    /// The host's versions are others.
    #[error("the host serves versions {0} to {1} of the protocol, this agent has version 1")]
    Refused(u8, u8),
    /// The host does not answer.
    #[error("the host does not answer on the port {PORT_NAME}")]
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
    #[error("a message needs an application other than 0 and at most {MOST_PAYLOAD_BYTES} bytes")]
    Message,
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An agent's connection with the host.
pub struct HostLink {
    channel: Channel,
    session: GuestSession,
    devices: BTreeMap<SharedId, MappedDevice>,
    /// Announced devices without a header.
    foreign: BTreeMap<SharedId, Recognition>,
    queue: VecDeque<FromHost>,
    /// Ends a wait of [`HostLink::next`].
    event: Option<Event>,
}

struct MappedDevice {
    /// Registers of the doorbell, or vfio instead; neither for a device without events.
    registers: Option<Arc<Mapping>>,
    vfio: Option<VfioEvents>,
}

/// A device that this process has mapped.
#[derive(Clone, Debug)]
pub struct GuestDevice {
    /// The header of the device.
    pub header: DeviceHeader,
    /// The application's memory.
    pub memory: ApplicationMemory,
    /// How it is mapped.
    pub mapping: MappingKind,
    /// Why the device does not interrupt, if it has events and does not.
    pub no_interrupts: Option<String>,
}

impl HostLink {
    /// Opens the command port and waits at most `limit` for the host.
    ///
    /// # Errors
    ///
    /// Names what is missing.
    pub fn connect(limit: Duration) -> Result<Self, GuestError> {
        let deadline = Instant::now() + limit;
        let mut failure = GuestError::NoPort;
        while Instant::now() < deadline {
            match HostLink::open(deadline) {
                // The port of an earlier host process, or one of which QEMU's end is not open yet.
                Err(error @ (GuestError::NoPort | GuestError::Left)) => failure = error,
                opened => return opened,
            }
            std::thread::sleep(LOOK);
        }
        Err(failure)
    }

    /// Opens the command port and waits for the host's welcome.
    fn open(deadline: Instant) -> Result<Self, GuestError> {
        let file = open_port()?;
        let instance = RandomState::new().hash_one(std::process::id());
        let mut link = HostLink {
            channel: Channel::new(Port::Device(file), MOST_UNSENT),
            session: GuestSession::new(instance),
            devices: BTreeMap::new(),
            foreign: BTreeMap::new(),
            queue: VecDeque::new(),
            event: None,
        };
        let hello = link.session.hello();
        link.say(&hello)?;
        while Instant::now() < deadline {
            match link.next(Some(LOOK))? {
                Some(FromHost::Welcome) => return Ok(link),
                Some(FromHost::Refused(oldest, newest)) => {
                    return Err(GuestError::Refused(oldest, newest));
                }
                Some(FromHost::Left) => return Err(GuestError::Left),
                _ => {}
            }
        }
        Err(GuestError::NoAnswer)
    }

    /// Lets this event end a wait of [`HostLink::next`], which clears it.
    pub fn listen(&mut self, event: Event) {
        self.event = Some(event);
    }

    /// The next thing that the host did; `None` after `timeout` (absent: no limit), or when the event of
    /// [`HostLink::listen`] was signalled.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<FromHost>, GuestError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(Some(event));
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
            Ok((mapped, found)) => {
                let interrupts = mapped.vfio.is_some();
                self.devices.insert(device, mapped);
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
        let mapped = self.devices.remove(&device);
        let was_mapped = mapped.is_some();
        // Closed before the host asks for the unplug: vfio takes more than a second to reset the device.
        drop(mapped);
        match was_mapped {
            true => self.say(&Message::DeviceReleased { device }),
            false => Ok(()),
        }
    }

    /// Signals the host on a vector of a mapped device.
    ///
    /// # Errors
    ///
    /// [`GuestError::Map`] for a device that is not mapped or has no events.
    pub fn signal(&self, device: SharedId, vector: u16) -> Result<(), GuestError> {
        let (at, value) = doorbell_store(vector);
        let mapped = self.devices.get(&device);
        match mapped.map(|mapped| (&mapped.vfio, &mapped.registers)) {
            Some((Some(vfio), _)) => vfio.store(at, value),
            Some((None, Some(registers))) => {
                let word = usize::try_from(at)
                    .ok()
                    .and_then(|at| registers.words(at, 1));
                let word: ringtap_pool::memory::Words<AtomicU32> =
                    word.ok_or(GuestError::Map("no registers".to_owned()))?;
                for one in word.iter() {
                    // Release: what this guest stored before is in memory when the host wakes.
                    one.store(value.to_le(), Release);
                }
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
        if message.application == 0 || message.payload.len() > MOST_PAYLOAD_BYTES {
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
    ) -> io::Result<(MappedDevice, GuestDevice)> {
        let deadline = Instant::now() + limit;
        let foreign = self.foreign.get(&device).copied();
        let vfio = self.devices.values().filter_map(|one| one.vfio.as_ref());
        let used: Vec<PathBuf> = vfio.map(|vfio| vfio.folder.clone()).collect();
        let pci = loop {
            if let Some(pci) = PciDevice::find(device, foreign, &used)? {
                break pci;
            }
            let ends = [FromHost::DeviceLeaving(device), FromHost::Left];
            if self.queue.iter().any(|event| ends.contains(event)) {
                return Err(io::Error::other("the host has taken it away"));
            }
            if Instant::now() >= deadline {
                return Err(io::Error::other("it does not appear: see the kernel's log"));
            }
            self.round(Some(LOOK)).map_err(io::Error::other)?;
        };
        let mut mapped = MappedDevice {
            registers: None,
            vfio: None,
        };
        let mut no_interrupts = None;
        let (mapping, kind) = if pci.header.kind.vectors() == 0 {
            pci.map()?
        } else {
            match VfioEvents::open(&pci) {
                Ok((vfio, mapping, kind)) if pci.recognition.is_at(&mapping) => {
                    mapped.vfio = Some(vfio);
                    (mapping, kind)
                }
                refused => {
                    let reason = refused.err().map(|error| error.to_string());
                    no_interrupts = Some(reason.unwrap_or_default());
                    // Takes the device back from vfio if that has it.
                    let pci =
                        PciDevice::find(device, foreign, &used)?.ok_or(io::ErrorKind::NotFound)?;
                    mapped.registers = Some(pci.map_registers()?);
                    pci.map()?
                }
            }
        };
        let bytes = usize::try_from(pci.header.bytes).map_err(io::Error::other)?;
        let found = GuestDevice {
            header: pci.header,
            memory: ApplicationMemory::new(mapping, pci.recognition, bytes),
            mapping: kind,
            no_interrupts,
        };
        Ok((mapped, found))
    }

    /// Sleeps, then takes in what has happened; returns whether the event was signalled.
    fn round(&mut self, timeout: Option<Duration>) -> Result<bool, GuestError> {
        let mut flags = PollFlags::IN;
        if self.channel.has_unsent() {
            flags |= PollFlags::OUT;
        }
        let mut fds = vec![PollFd::from_borrowed_fd(self.channel.as_fd(), flags)];
        let own = self.event.clone();
        fds.extend(own.iter().map(|event| PollFd::new(event, PollFlags::IN)));
        let mut vectors = Vec::new();
        for (id, mapped) in &self.devices {
            for (index, fd) in mapped.vfio.iter().flat_map(VfioEvents::fds).enumerate() {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                vectors.push((*id, index));
            }
        }
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(io::Error::from(error).into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let port_is_ready = ready.next() == Some(true);
        let is_signalled = own.is_some() && ready.next() == Some(true);
        let rang = vectors.into_iter().zip(ready).filter(|(_, is)| *is);
        for ((id, index), _) in rang {
            let vfio = self.devices.get(&id).and_then(|one| one.vfio.as_ref());
            let event = match vfio.map(|vfio| vfio.clear(index)) {
                Some(Some(vector)) => FromHost::Signal(id, vector),
                Some(None) => FromHost::DeviceLeaving(id),
                None => continue,
            };
            self.queue.push_back(event);
        }
        if port_is_ready {
            let mut messages = Vec::new();
            let is_open = self.channel.flush().is_ok()
                && self.channel.receive(&mut messages).unwrap_or(false);
            for message in messages {
                self.note_foreign(&message);
                self.queue.extend(self.session.receive(message));
            }
            if !is_open {
                self.queue.push_back(FromHost::Left);
            }
        }
        if let Some(event) = own.filter(|_| is_signalled) {
            event.clear();
        }
        Ok(is_signalled)
    }
}

impl HostLink {
    /// Remembers how a device without a header is recognized.
    fn note_foreign(&mut self, message: &Message) {
        match message {
            Message::DeviceAdded {
                device,
                application,
                foreign: Some(memory),
            } if self.foreign.len() < MOST_FOREIGN => {
                let header = DeviceHeader {
                    device: *device,
                    application: *application,
                    kind: DeviceKind::Bulk,
                    bytes: memory.bytes,
                };
                let known = Recognition::Foreign(header, *memory);
                self.foreign.insert(*device, known);
            }
            Message::DeviceLeaving { device } => drop(self.foreign.remove(device)),
            _ => {}
        }
    }
}

fn open_port() -> Result<OwnedFd, GuestError> {
    let entries = fs::read_dir(PORTS).map_err(|_| GuestError::NoPort)?;
    let named = |folder: &PathBuf| {
        fs::read_to_string(folder.join("name")).is_ok_and(|name| name.trim() == PORT_NAME)
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
