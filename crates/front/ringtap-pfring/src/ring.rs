// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring: a reader of a group, from `pfring_enable_ring` on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ringtap::{
    CaptureHub, Cursor, CursorPacket, Deadline, DeviceOptions, DeviceSpec, Facts, FlowAction,
    FlowId, FlowRule, Look, OpenOptions, ReaderRules,
};
use ringtap_client::{Connection, HubBeside, default_socket, host_socket};
use ringtap_device::kinds;
use ringtap_filter::hash::Link;
use ringtap_filter::{LinkType, MAX_SNAP_LENGTH, text};
use ringtap_net::interface::Interface;
use ringtap_net::packet_socket;
use ringtap_pool::counters::Counters;
use ringtap_pool::format::flag;
use ringtap_pool::number::to_usize;

use crate::abi::RingStatistics;
use crate::error::RingError;
use crate::rules::FlowNames;

/// Longest wait before the ring looks whether `pfring_breakloop` was called, from a signal handler too.
const STEP: Duration = Duration::from_millis(100);

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
    stops: Arc<AtomicBool>,
    reader: Option<RingReader>,
    /// Packets of the other direction.
    left_out: u64,
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
            let socket = if device.kind.is_of_host {
                host_socket(&device.name)
            } else {
                default_socket()
            };
            let _hub = Connection::open(&socket, &name)?;
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
            stops: Arc::default(),
            reader: None,
            left_out: 0,
            senders: HashMap::new(),
            sends_through: None,
            numbered: HashMap::new(),
            names: numbers_flows.then(FlowNames::new),
            last: None,
        })
    }

    /// Begins to receive.
    pub(crate) fn enable(&mut self) -> Result<(), RingError> {
        if self.reader.is_some() {
            return Ok(());
        }
        let is_interface = self.device.kind.names_an_interface();
        let options = DeviceOptions {
            watermark: Some(u32::from(self.watermark)).filter(|packets| *packets > 1),
            snap_length: Some(self.caplen)
                .filter(|bytes| is_interface && (1..MAX_SNAP_LENGTH).contains(bytes)),
            ..DeviceOptions::default()
        };
        let options = OpenOptions::new().device_options(options);
        let options = options.name(&self.name).filter(&self.filter);
        let capture = options.open_device(&self.device)?;
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

    /// The flag that ends waits and `pfring_loop`; a signal handler may set it.
    pub(crate) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stops)
    }

    /// Whether the flag is set.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stops.load(Relaxed)
    }

    /// Waits for packets, until the deadline, the end or a stop.
    pub(crate) fn wait(&mut self, deadline: Deadline) -> Result<Look, RingError> {
        self.last = None;
        loop {
            if self.has_stopped() {
                return Ok(Look::Empty);
            }
            let step = Instant::now() + STEP;
            let until = match deadline {
                Deadline::Now => Deadline::Now,
                Deadline::Never => Deadline::At(step),
                Deadline::At(time) => Deadline::At(time.min(step)),
            };
            let look = self.cursor()?.look(until)?;
            let is_over = match deadline {
                Deadline::Now => true,
                Deadline::Never => false,
                Deadline::At(time) => Instant::now() >= time,
            };
            if look != Look::Empty || is_over {
                return Ok(look);
            }
        }
    }

    /// The next packet of the ring's direction.
    pub(crate) fn next(&mut self, deadline: Deadline) -> Result<Option<CursorPacket>, RingError> {
        loop {
            match self.wait(deadline)? {
                Look::Packets => {}
                Look::Empty => return Ok(None),
                Look::Ended => return Err(RingError::Ended),
            }
            if let Some(packet) = self.take() {
                return Ok(Some(packet));
            }
        }
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
                return Some(packet);
            }
            self.left_out += 1;
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

    /// Sets a rule that withholds the further packets of a flow.
    pub(crate) fn ignore(&mut self, number: Option<u16>, flow: FlowId) -> Result<(), RingError> {
        let rule = FlowRule {
            flow,
            action: FlowAction::Ignore,
            lasts_ns: None,
        };
        let control = Arc::clone(self.cursor()?.receiver().control());
        ReaderRules::new(&*control).set(&[rule])?;
        if let Some(number) = number {
            // A later rule with the number is the one that it means.
            self.numbered.insert(number, flow);
        }
        Ok(())
    }

    /// Removes the rule for a flow; `false` if there is none.
    pub(crate) fn heed(&mut self, flow: &FlowId) -> Result<bool, RingError> {
        let control = Arc::clone(self.cursor()?.receiver().control());
        self.numbered.retain(|_, one| one != flow);
        Ok(ReaderRules::new(&*control).remove(&[*flow])? > 0)
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

    /// The counters; of a hub that has left, those that the reader knows.
    pub(crate) fn statistics(&mut self) -> Result<RingStatistics, RingError> {
        let left_out = self.left_out;
        let cursor = self.cursor()?;
        let counters: Counters = match cursor.receiver().snapshot() {
            Ok(snapshot) => cursor.tally().total(&snapshot),
            Err(_) => cursor.tally().alone(),
        };
        Ok(RingStatistics {
            recv: counters.delivered.saturating_sub(left_out),
            drop: counters.dropped.total(),
            shunt: counters.shunted,
        })
    }
}
