// SPDX-License-Identifier: MIT OR Apache-2.0
//! The meter: counts packets by flow, by keys and by length in the kernel, and sends none to user space.
//!
//! Invariants
//! - Programs are attached by links only: the kernel detaches them when the process ends.
//! - Each packet that the programs saw is in one flow's counts, or counted as skipped.
//! - Counts are read only once no program runs that could still change them.

mod layout;
mod object;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::time::Duration;

use libbpf_rs::{Object, RingBuffer};
use ringtap_bpf::attach::{self, Binding, Variants};
use ringtap_bpf::conflict::{self, Effect};
use ringtap_bpf::link::{self, Hook};
use ringtap_device::{Direction, Mode, Queues};
use ringtap_filter::Headers;
use ringtap_filter::hash::TunnelKind;
use ringtap_net::interface::{Interface, Promiscuous};
use ringtap_pool::memory::Words;

use crate::CaptureError;
use crate::clock;
use crate::fallback::first_accepted;
use crate::tap::{Taking, TapOptions, online_cpus};
use layout::{FlowWords, KEY_WORDS, MeterConfig, MeterControl, MeterLaneWords, OUTSIDE_WORDS};

/// Most loops for each packet: more would hold up the CPU that receives packets, and above 2^23 the kernel runs
/// none.
pub const MAX_LOOPS: u32 = 100_000;
/// Ranges of frame lengths: to 64, 127, 255, 511, 1023, 1518 bytes, and longer.
pub const SIZE_RANGES: usize = 7;
/// In the version of a key: it has an `rt_meter_outside`.
const OUTSIDE: u8 = 0x80;
/// In `retransmissions`: the first segment may be a retransmission, too.
const FIRST_MAY_REPEAT: u32 = 1 << 31;

/// Fields of a packet's key that count; flows that differ in others are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyFields {
    /// Source address.
    pub source: bool,
    /// Destination address.
    pub destination: bool,
    /// Ports and protocol.
    pub ports: bool,
    /// VLAN number.
    pub vlan: bool,
}

/// Quantities that a meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterWants {
    /// The key of flows; without any field, only lengths are counted.
    pub key: KeyFields,
    /// Of tunnelled packets, the headers that count.
    pub headers: Headers,
    /// Most flows, each direction by itself, between two calls of [`KernelMeter::take`], of all CPUs together.
    pub max_flows: u32,
    /// Loops for each packet, to measure what analyses may cost; at most [`MAX_LOOPS`].
    pub loops: u32,
}

/// Counts of one direction of a flow since the last [`KernelMeter::take`]. Times are nanoseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct FlowCounts {
    /// Addresses in words, the first four bytes first; an IPv4 address is the first word.
    pub source: [u32; 4],
    pub destination: [u32; 4],
    pub is_ipv6: bool,
    /// Source and destination port; of ICMP type and code, then 1. 0 for fragments.
    pub ports: (u16, u16),
    pub protocol: u8,
    pub vlan: u16,
    /// Numbers of the second and the third VLAN tag; 0 without.
    pub inner_vlans: [u16; 2],
    /// The tunnel around the packets, if its packet was entered.
    pub tunnel: Option<TunnelCounts>,
    pub packets: u64,
    /// From the IP header on.
    pub bytes: u64,
    pub frame_bytes: u64,
    /// Of TCP, UDP and ICMP.
    pub payload_bytes: u64,
    pub first_ns: u64,
    /// May be too early by a tick of the kernel's timer.
    pub last_ns: u64,
    pub first_payload_ns: Option<u64>,
    /// The first segment with ACK, and without SYN and RST.
    pub first_ack_ns: Option<u64>,
    /// All TCP flags, and those of the first segment.
    pub tcp_flags: u8,
    pub first_flags: u8,
    /// Type of service of the first packet, and whether the host sent that packet.
    pub traffic_class: u8,
    pub is_sent: bool,
    pub retransmissions: u32,
    pub resets: u32,
    /// Sequence number after the first segment, and after the latest.
    pub first_end: u32,
    pub expected: u32,
    /// Whether the first segment has data, SYN or FIN, and is no keep-alive: it may be a retransmission.
    pub first_may_repeat: bool,
    /// The processor that counted.
    pub cpu: u16,
}

/// A tunnel around the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelCounts {
    /// Kind.
    pub kind: TunnelKind,
    /// Number in its header.
    pub identifier: Option<u32>,
    /// Address of the end that sends, then of the one that receives; 16 bytes each, of IPv4 the first four.
    pub ends: [[u8; 16]; 2],
    /// Whether these are of IPv6.
    pub is_ipv6: bool,
    /// Protocol that the outer IP header names, and its destination port.
    pub carrier: (u8, u16),
    /// Outermost VLAN number of the frame inside; 0 without a tag.
    pub vlan: u16,
}

/// Packets that the programs saw: `seen = analysed + not_ip + full + nested`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterCounters {
    /// Packets, on the wire, that the programs saw.
    pub seen: u64,
    /// Packets in the counts of flows.
    pub analysed: u64,
    /// Packets without an IP header.
    pub not_ip: u64,
    /// Packets of new flows without room; their lengths are counted.
    pub full: u64,
    /// Packets that met a program that had not ended.
    pub nested: u64,
    /// Packets with counts of their own, because too many flows have the same hash.
    pub chained: u64,
    /// Bytes of the frames of all packets but `nested`.
    pub bytes: u64,
    /// Packets and bytes of IP packets' frames by length.
    pub sizes: [(u64, u64); SIZE_RANGES],
}

/// A meter on one interface.
pub struct KernelMeter {
    interface: Interface,
    links: Vec<OwnedFd>,
    lanes: Words<MeterLaneWords>,
    halves: Words<MeterControl>,
    buckets: Words<AtomicU32>,
    flows: Words<FlowWords>,
    wakes: RingBuffer<'static>,
    shape: MeterShape,
    /// The half that packets count in.
    half: usize,
    notes: Vec<String>,
    ending: Arc<AtomicBool>,
    _promiscuous: Option<Promiscuous>,
    _object: Object,
}

/// Sizes of the maps.
#[derive(Clone, Copy, Debug)]
struct MeterShape {
    /// CPUs that may run programs.
    lanes: u32,
    /// CPUs with room for flows.
    cpus: u32,
    /// Flows and buckets of one CPU in one half.
    flows: u32,
    buckets: u32,
}

impl KernelMeter {
    /// Attaches a meter; packets are counted when the function returns.
    ///
    /// A meter that lets packets go on counts them at traffic control, beside any capture; an exclusive
    /// one in XDP.
    ///
    /// # Errors
    ///
    /// Every [`CaptureError`]; nothing is attached then.
    pub fn attach(options: &TapOptions, wants: &MeterWants) -> Result<Self, CaptureError> {
        let interface = Interface::find(&options.on.interface)?;
        interface.require_up()?;
        if !interface.link_type.is_ethernet() {
            return Err(CaptureError::NotEthernet {
                kind: "a meter in the kernel",
                link_type: interface.link_type.0,
                interface: interface.name,
            });
        }
        if options.on.queues != Queues::All {
            return Err(CaptureError::MeterQueues {
                interface: interface.name,
            });
        }
        if wants.loops > MAX_LOOPS {
            return Err(CaptureError::MeterLoops {
                interface: interface.name,
                loops: wants.loops,
                most: MAX_LOOPS,
            });
        }
        let shape = MeterShape::new(wants.max_flows)
            .map_err(CaptureError::system(&interface.name, "counting CPUs"))?;
        let (mode, effect) = match (options.on.mode, options.taking) {
            (Mode::Auto, Taking::Pass) => (Mode::Tc, Effect::Looks),
            (mode, Taking::Pass) => (mode, Effect::Looks),
            (mode, Taking::Exclusive) => (mode, Effect::Takes),
        };
        let mut notes = options.on.notes.clone();
        let (variants, free) = (Variants::XdpAndTc, Binding::Free);
        let hooks = match options.on.direction {
            Direction::Out => vec![Hook::Tc],
            _ => attach::hooks(mode, variants, free, &interface, &mut notes),
        };
        conflict::refuse_another_ringtap(&interface, effect, &[])?;
        let config = shape.config(effect, wants);
        let (mut meter, programs) = first_accepted(&hooks, &mut notes, |hook, _| {
            KernelMeter::at(hook, options.on.direction, &interface, shape, &config)
        })?;
        // Again, for another one that attached meanwhile; both may be refused then.
        let ids = programs
            .iter()
            .map(|program| link::program_id(program.as_fd()));
        let ids: io::Result<Vec<_>> = ids.collect();
        let action = "asking for the programs' ids";
        let ids = ids.map_err(CaptureError::system(&interface.name, action))?;
        conflict::refuse_another_ringtap(&interface, effect, &ids)?;
        let wants_all = options.on.promiscuous && options.on.direction.arriving();
        if wants_all && !interface.is_loopback {
            meter._promiscuous = Some(Promiscuous::enable(interface.index)?);
        }
        meter.notes = notes;
        Ok(meter)
    }

    /// Flag by which other threads ask the meter's user to end; the meter only keeps it.
    #[must_use]
    pub fn ending(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ending)
    }

    /// Messages for the user about the hook.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Index of the interface.
    #[must_use]
    pub fn interface_index(&self) -> u32 {
        self.interface.index
    }

    /// Waits until a CPU's room for flows is nearly full, at most for `timeout`; returns whether it is.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> bool {
        // A failure is an interruption by a signal.
        self.wakes.poll_raw(timeout) > 0
    }

    /// Gives the counts of all flows with packets since the last call.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Detached`], or the interface was removed: no more packets are counted.
    pub fn take(&mut self, each: impl FnMut(FlowCounts)) -> Result<(), CaptureError> {
        self.take_half(each);
        let is_attached = |link: &OwnedFd| link::is_attached(link.as_fd());
        if self.links.iter().all(is_attached) {
            return Ok(());
        }
        match Interface::find(&self.interface.name) {
            Ok(same) if same.index == self.interface.index => Err(CaptureError::Detached {
                interface: self.interface.name.clone(),
                reason: "the meter's program is no longer attached".to_owned(),
            }),
            _ => Err(self.interface.removed().into()),
        }
    }

    /// Ends counting; what was counted last can still be taken.
    pub fn stop(&mut self) {
        self.links.drain(..).for_each(link::detach);
    }

    /// The counters now.
    #[must_use]
    pub fn counters(&self) -> MeterCounters {
        let mut sum = MeterCounters::default();
        for lane in self.lanes.iter() {
            let nested = lane.nested.load(Acquire);
            sum.analysed += lane.analysed.load(Acquire);
            sum.full += lane.full.load(Acquire);
            sum.chained += lane.chained.load(Acquire);
            sum.nested += nested;
            let mut no_ip = (0, 0);
            let ranges = sum.sizes.iter_mut().chain([&mut no_ip]);
            for (range, words) in ranges.zip(&lane.sizes) {
                let (packets, bytes) = (words.packets.load(Acquire), words.bytes.load(Acquire));
                *range = (range.0 + packets, range.1 + bytes);
                sum.bytes += bytes;
            }
            sum.not_ip += no_ip.0;
            // Last, so that it is never behind the others.
            sum.seen += lane.seen.load(Acquire) + nested;
        }
        sum
    }

    fn take_half(&mut self, mut each: impl FnMut(FlowCounts)) {
        let _all = self.wakes.consume();
        let full = self.half;
        let counts = || self.lanes.iter().map(|lane| lane.count[full].load(Acquire));
        if counts().all(|count| count == 0) {
            return;
        }
        self.half = 1 - full;
        if let Some([half, _]) = self.halves.first() {
            // The other half was emptied when it was taken.
            half.store(u32::from(self.half == 1), Release);
        }
        ringtap_bpf::wait_for_running_programs();
        let since_boot = clock::wall_minus_boot_ns();
        let (flows, buckets) = (self.shape.flows as usize, self.shape.buckets as usize);
        for (cpu, lane) in (0..).zip(self.lanes.iter()).take(self.shape.cpus as usize) {
            let area = 2 * usize::from(cpu) + full;
            let count = (lane.count[full].load(Acquire) as usize).min(flows);
            let taken = self.flows.get(area * flows..area * flows + count);
            taken
                .into_iter()
                .flatten()
                .for_each(|flow| each(flow_counts(flow, since_boot, cpu)));
            if count > 0 {
                let chains = self.buckets.get(area * buckets..(area + 1) * buckets);
                chains
                    .into_iter()
                    .flatten()
                    .for_each(|chain| chain.store(0, Relaxed));
                lane.count[full].store(0, Release);
            }
        }
    }
}

impl Drop for KernelMeter {
    fn drop(&mut self) {
        self.stop();
    }
}

impl MeterShape {
    fn new(max_flows: u32) -> io::Result<Self> {
        let lanes = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
        let lanes = u32::try_from(lanes).map_err(io::Error::other)?;
        let cpus = online_cpus().unwrap_or(lanes).clamp(1, lanes);
        let flows = max_flows.min(1 << 24).div_ceil(cpus).max(1);
        Ok(MeterShape {
            lanes,
            cpus,
            flows,
            // One to two flows in a bucket when all room is taken: more buckets would not stay in the caches.
            buckets: flows.next_power_of_two(),
        })
    }

    fn config(self, effect: Effect, wants: &MeterWants) -> MeterConfig {
        let fields = [
            (wants.key.source, 1),
            (wants.key.destination, 2),
            (wants.key.ports, 4),
            (wants.key.vlan, 8),
        ];
        let random = RandomState::new();
        MeterConfig {
            exclusive: u32::from(effect == Effect::Takes),
            parts: fields
                .iter()
                .map(|(is_wanted, bit)| u32::from(*is_wanted) * bit)
                .sum(),
            inner: u32::from(wants.headers == Headers::Inner),
            flows: self.flows,
            buckets: self.buckets,
            // Time to take the flows before the room is full.
            signal_at: (self.flows / 4 * 3).max(1),
            loops: wants.loops,
            keys: std::array::from_fn(|key| random.hash_one(key)),
        }
    }
}

fn flow_counts(flow: &FlowWords, wall_minus_boot_ns: i64, cpu: u16) -> FlowCounts {
    let mut words = [0; KEY_WORDS];
    for (word, own) in words.iter_mut().zip(&flow.key) {
        *word = own.load(Relaxed);
    }
    let [a, b, c, d, e, f, g, h, ports, rest] = words;
    let halves = |word: u32| -> (u16, u16) {
        let [a, b, c, d] = word.to_be_bytes();
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    };
    let [is_sent, traffic_class, first_flags, tcp_flags] = flow.flags.load(Relaxed).to_be_bytes();
    let wall = |time: &AtomicU64| time.load(Relaxed).saturating_add_signed(wall_minus_boot_ns);
    let optional = |time: &AtomicU64| (time.load(Relaxed) > 0).then(|| wall(time));
    let retransmissions = flow.retransmissions.load(Relaxed);
    let [_, _, protocol, version] = rest.to_be_bytes();
    let (inner_vlans, tunnel) = match version & OUTSIDE {
        0 => ([0; 2], None),
        _ => outside(flow),
    };
    FlowCounts {
        source: [a, b, c, d],
        destination: [e, f, g, h],
        is_ipv6: version & !OUTSIDE == 6,
        ports: halves(ports),
        protocol,
        vlan: halves(rest).0,
        inner_vlans,
        tunnel,
        packets: flow.packets.load(Relaxed),
        bytes: flow.bytes.load(Relaxed),
        frame_bytes: flow.frame_bytes.load(Relaxed),
        payload_bytes: flow.payload_bytes.load(Relaxed),
        first_ns: wall(&flow.first_ns),
        last_ns: wall(&flow.last_ns),
        first_payload_ns: optional(&flow.first_payload_ns),
        first_ack_ns: optional(&flow.first_ack_ns),
        tcp_flags,
        first_flags,
        traffic_class,
        is_sent: is_sent != 0,
        retransmissions: retransmissions & !FIRST_MAY_REPEAT,
        resets: flow.resets.load(Relaxed),
        first_end: flow.first_end.load(Relaxed),
        expected: flow.expected.load(Relaxed),
        first_may_repeat: retransmissions & FIRST_MAY_REPEAT != 0,
        cpu,
    }
}

/// The further part of a key: VLANs behind the first, and the tunnel.
fn outside(flow: &FlowWords) -> ([u16; 2], Option<TunnelCounts>) {
    let mut words = [0; OUTSIDE_WORDS];
    for (word, own) in words.iter_mut().zip(&flow.outside) {
        *word = own.load(Relaxed);
    }
    let [a, b, c, d, e, f, g, h, number, kind, vlans, inside] = words;
    let [is_ipv6, protocol, has_number, kind] = kind.to_be_bytes();
    let end = |words: [u32; 4]| {
        let mut bytes = [0; 16];
        for (four, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *four = word.to_be_bytes();
        }
        bytes
    };
    let halves = |word: u32| {
        let [a, b, c, d] = word.to_be_bytes();
        [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
    };
    let [vlan, port] = halves(inside);
    let tunnel = TunnelKind::from_kernel(kind).map(|kind| TunnelCounts {
        kind,
        identifier: (has_number != 0).then_some(number),
        ends: [end([a, b, c, d]), end([e, f, g, h])],
        is_ipv6: is_ipv6 != 0,
        carrier: (protocol, port),
        vlan,
    });
    (halves(vlans), tunnel)
}
