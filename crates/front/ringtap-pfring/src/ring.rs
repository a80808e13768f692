// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring: a reader of a group, from `pfring_enable_ring` on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ringtap::{
    CaptureHub, Cursor, CursorPacket, Deadline, DeviceOptions, DeviceSpec, Facts, FlowId, Look,
    ORDER_WINDOW, OpenOptions,
};
use ringtap_client::{
    Connection, Control, HubBeside, LookStep, OutsideWait, default_socket, host_socket,
};
use ringtap_device::kinds;
use ringtap_filter::hash::Link;
use ringtap_filter::{LinkType, MAX_SNAP_LENGTH, text};
use ringtap_ipc::protocol::Division;
use ringtap_net::interface::Interface;
use ringtap_net::packet_socket;
use ringtap_pool::format::flag;
use ringtap_pool::number::to_usize;

use crate::cluster::ClusterPlace;
use crate::error::RingError;
use crate::rules::FlowNames;
use crate::shared::{RingSignals, SignalsBlocked};

/// Time for which the hub's counters are not asked again: some programs call `pfring_stats` after each packet.
const COUNTERS_AGE: Duration = Duration::from_millis(10);

/// Directions of packets that a ring receives, as PF_RING numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RingDirection {
    #[default]
    Both,
    Received,
    Sent,
}

impl RingDirection {
    fn has(self, packet: &CursorPacket) -> bool {
        let is_sent = packet.flags & u16::from(flag::OUT) != 0;
        match self {
            RingDirection::Both => true,
            RingDirection::Received => !is_sent,
            RingDirection::Sent => is_sent,
        }
    }
}

/// What a ring is for, as PF_RING numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RingMode {
    #[default]
    SendAndReceive,
    Send,
    Receive,
}

/// The result of [`RingState::step`].
pub(crate) enum RingStep {
    /// Packets can be taken.
    Packets,
    /// No packet came in time, or the ring was stopped.
    Empty,
    /// The caller waits without the ring's lock, then takes another step.
    Wait(OutsideWait),
}

/// A ring's settings, and its reader once it is enabled.
pub(crate) struct RingState {
    device: DeviceSpec,
    pub(crate) name: String,
    pub(crate) watermark: u16,
    pub(crate) direction: RingDirection,
    filter: String,
    pub(crate) caplen: u32,
    /// Whether headers of packets are parsed.
    parses: bool,
    signals: Arc<RingSignals>,
    pub(crate) mode: RingMode,
    reader: Option<RingReader>,
    /// Packets of the ring's direction.
    received: u64,
    /// When the hub was asked for its counters.
    asked: Option<Instant>,
    /// The ring's place in a cluster that Ringtap does not divide.
    cluster: Option<ClusterPlace>,
    /// Sockets that send, by the number of their interface.
    senders: HashMap<u32, OwnedFd>,
    sends_through: Option<u32>,
    /// Flows of rules that have a number.
    numbered: HashMap<u16, FlowId>,
    /// Numbers of flows, if the program asked for them.
    names: Option<FlowNames>,
    /// The packet that was received last, readable until the next look.
    last: Option<(*const u8, u32)>,
}

/// The reader of an enabled ring. The cursor ends before its hub.
struct RingReader {
    cursor: Cursor,
    facts: Facts,
    _hub: CaptureHub,
}

/// The socket of a group's hub, or of the agent that has the host's group.
fn socket_of(device: &DeviceSpec) -> PathBuf {
    match &device.options.socket {
        Some(socket) => socket.into(),
        None if device.kind.is_of_host => host_socket(&device.name),
        None => default_socket(),
    }
}

// SAFETY: `last` points into the reader's memory, which moves with the ring.
unsafe impl Send for RingState {}

impl RingState {
    /// A ring of a device, which must be there.
    pub(crate) fn open(
        device: &str,
        caplen: u32,
        parses: bool,
        numbers_flows: bool,
    ) -> Result<Self, RingError> {
        let mut device: DeviceSpec = device.parse()?;
        let name = std::fs::read_to_string("/proc/self/comm");
        let name = name.map_or_else(|_| "libpfring".to_owned(), |name| name.trim().to_owned());
        if device.kind.names_a_group() {
            let _hub = Connection::open(&socket_of(&device), &name)?;
        } else if device.kind.names_an_interface() {
            let _interface = Interface::find(&device.name)?;
            // A hub that captures the whole interface already has its packets.
            if device == DeviceSpec::interface(&device.name)
                && let Ok(Some(hub)) = HubBeside::find(&device.name, &name)
                && let Some(group) = hub.whole()
            {
                device = DeviceSpec::new(&kinds::HUB, group);
            }
        }
        Ok(RingState {
            device,
            name,
            watermark: 0,
            direction: RingDirection::default(),
            filter: String::new(),
            caplen,
            parses,
            signals: Arc::default(),
            mode: RingMode::default(),
            reader: None,
            received: 0,
            asked: None,
            cluster: None,
            senders: HashMap::new(),
            sends_through: None,
            numbered: HashMap::new(),
            names: numbers_flows.then(FlowNames::new),
            last: None,
        })
    }

    /// Begins to receive, unless the ring only sends.
    pub(crate) fn enable(&mut self) -> Result<(), RingError> {
        if self.reader.is_some() || self.mode == RingMode::Send {
            return Ok(());
        }
        let is_interface = self.device.kind.names_an_interface();
        let options = DeviceOptions {
            // Captures of the program's own have no watermark.
            watermark: Some(u32::from(self.watermark))
                .filter(|packets| *packets > 1 && self.device.kind.names_a_group()),
            snap_length: Some(self.caplen)
                .filter(|bytes| is_interface && (1..MAX_SNAP_LENGTH).contains(bytes)),
            ..DeviceOptions::default()
        };
        let options = OpenOptions::new().device_options(options);
        // PF_RING gives the packets of all queues in the order of their arrival, on which programs that follow
        // connections rely.
        let options = options
            .name(&self.name)
            .filter(&self.filter)
            .in_order(ORDER_WINDOW);
        let signals = SignalsBlocked::begin();
        let capture = options.open_device(&self.device)?;
        drop(signals);
        let facts = capture.facts().clone();
        let (cursor, hub) = capture.into_cursor();
        self.reader = Some(RingReader {
            cursor,
            facts,
            _hub: hub,
        });
        Ok(())
    }

    pub(crate) fn cursor(&mut self) -> Result<&mut Cursor, RingError> {
        let reader = self.reader.as_mut();
        Ok(&mut reader.ok_or(RingError::NotEnabled)?.cursor)
    }

    /// The last layer that is parsed.
    pub(crate) fn level(&self) -> u8 {
        if self.parses { 4 } else { 0 }
    }

    /// The values that are read without the ring's lock.
    pub(crate) fn signals(&self) -> Arc<RingSignals> {
        Arc::clone(&self.signals)
    }

    /// Looks for packets; never waits.
    pub(crate) fn step(&mut self, deadline: Deadline) -> Result<RingStep, RingError> {
        if self.signals.stops.load(Relaxed) {
            return Ok(RingStep::Empty);
        }
        let cursor = self.cursor()?;
        if !cursor.rest().is_empty() {
            return Ok(RingStep::Packets);
        }
        self.last = None;
        if self.signals.take_stale() {
            self.count()?;
        }
        Ok(match self.cursor()?.look_or_wait(deadline)? {
            LookStep::Found(Look::Packets) => RingStep::Packets,
            LookStep::Found(Look::Empty) => RingStep::Empty,
            LookStep::Found(Look::Ended) => return Err(RingError::Ended),
            LookStep::Wait(wait) => RingStep::Wait(wait),
        })
    }

    /// The next packet of the ring's direction among those that were found.
    pub(crate) fn take(&mut self) -> Option<CursorPacket> {
        let direction = self.direction;
        let cursor = &mut self.reader.as_mut()?.cursor;
        loop {
            let mut packet = *cursor.take_one()?;
            if direction.has(&packet) {
                if let Some(names) = &mut self.names {
                    let bytes = to_usize(packet.captured_bytes);
                    // SAFETY: the packet has so many bytes until the next look.
                    let data = unsafe { std::slice::from_raw_parts(packet.data, bytes) };
                    packet.hash = names.name(data, packet.wire_bytes, packet.hash, Link::Ethernet);
                }
                self.last = Some((packet.data, packet.captured_bytes));
                self.received += 1;
                self.signals.set_received(self.received);
                return Some(packet);
            }
        }
    }

    pub(crate) fn fd(&mut self) -> Result<RawFd, RingError> {
        Ok(self.cursor()?.descriptor()?)
    }

    pub(crate) fn set_filter(&mut self, filter: &str) -> Result<(), RingError> {
        match &mut self.reader {
            None => drop(text::compile(filter, LinkType::ETHERNET, MAX_SNAP_LENGTH)?),
            Some(reader) => {
                let program = ringtap::compile(filter, &reader.facts)?;
                reader.cursor.set_filter(&program)?;
            }
        }
        filter.clone_into(&mut self.filter);
        Ok(())
    }

    /// Sends the ring's commands to its hub.
    pub(crate) fn control(&mut self) -> Result<Arc<dyn Control>, RingError> {
        Ok(Arc::clone(self.cursor()?.receiver().control()))
    }

    /// Remembers the flow of a rule with a number: a later rule with the number is the one that it means.
    pub(crate) fn set_number(&mut self, number: u16, flow: FlowId) {
        self.numbered.insert(number, flow);
    }

    /// Forgets the numbers of a flow.
    pub(crate) fn forget(&mut self, flow: &FlowId) {
        self.numbered.retain(|_, one| one != flow);
    }

    /// The flow of the rule with this number.
    pub(crate) fn numbered(&self, number: u16) -> Option<FlowId> {
        self.numbered.get(&number).copied()
    }

    pub(crate) fn flow_names(&self) -> Option<&FlowNames> {
        self.names.as_ref()
    }

    /// The interface of the ring, in this namespace: of a group, that of the hub's first source.
    pub(crate) fn interface(&self) -> Result<Interface, RingError> {
        let of_reader = self
            .reader
            .as_ref()
            .and_then(|reader| reader.facts.interface.as_ref());
        let name = match of_reader {
            Some(name) => name,
            None if self.device.kind.names_an_interface() => &self.device.name,
            None => return Err(RingError::NoInterface),
        };
        Ok(Interface::find(name)?)
    }

    /// The number of the interface that the ring sends through.
    pub(crate) fn sends_through(&mut self) -> Result<u32, RingError> {
        if let Some(interface) = self.sends_through {
            return Ok(interface);
        }
        let index = self.interface()?.index;
        self.sends_through = Some(index);
        Ok(index)
    }

    /// Sends a frame with its Ethernet header.
    pub(crate) fn send(&mut self, interface: u32, frame: &[u8]) -> Result<(), RingError> {
        let socket = match self.senders.entry(interface) {
            Entry::Occupied(socket) => socket.into_mut(),
            Entry::Vacant(place) => place.insert(packet_socket::open(interface)?),
        };
        let sent = rustix::io::retry_on_intr(|| rustix::io::write(&*socket, frame))
            .map_err(std::io::Error::from)?;
        if sent == frame.len() {
            Ok(())
        } else {
            Err(RingError::Argument)
        }
    }

    /// The packet that was received last.
    pub(crate) fn last(&self) -> Option<(*const u8, u32)> {
        self.last
    }

    /// Joins a cluster that Ringtap does not divide.
    ///
    /// # Errors
    ///
    /// Another ring has joined it: each would receive all packets.
    pub(crate) fn join(&mut self, cluster: u32) -> Result<(), RingError> {
        if !self.is_divided() {
            self.cluster = None;
            self.cluster = Some(ClusterPlace::take(&self.device.to_string(), cluster)?);
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.cluster = None;
    }

    /// Whether the group divides its packets among its members.
    fn is_divided(&self) -> bool {
        if !self.device.kind.names_a_group() {
            return false;
        }
        let hub = Connection::open(&socket_of(&self.device), &self.name).ok();
        let Some(status) = hub.and_then(|hub| hub.status().ok()) else {
            return false;
        };
        let mut groups = status.groups.iter();
        let group = groups.find(|group| group.name == self.device.name);
        group.is_some_and(|group| group.division != Division::BROADCAST)
    }

    /// Reads the counters from the hub, unless they were just read; of a hub that has left, those that the reader
    /// knows.
    pub(crate) fn count(&mut self) -> Result<(), RingError> {
        let now = Instant::now();
        let is_new = |asked| now.duration_since(asked) < COUNTERS_AGE;
        if self.mode == RingMode::Send || self.asked.is_some_and(is_new) {
            return Ok(());
        }
        let cursor = self.cursor()?;
        let counters = match cursor.receiver().snapshot() {
            Ok(snapshot) => cursor.tally().total(&snapshot),
            Err(_) => cursor.tally().alone(),
        };
        self.signals
            .set_lost(counters.dropped.total(), counters.shunted);
        self.asked = Some(now);
        Ok(())
    }
}
