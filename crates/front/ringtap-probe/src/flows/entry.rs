// SPDX-License-Identifier: MIT OR Apache-2.0
//! One flow in the table.

use std::mem::offset_of;

use ringtap_capture::meter::FlowCounts;

use super::ages::{FlowLinks, NOBODY};
use super::sequence::Sequence;
use super::update::FlowUpdate;
use crate::application::FlowTexts;
use crate::connection::{segment, segments};
use crate::outside::PacketOutside;
use crate::packet::{ACK, Dissected, FIN, PacketKey, RST, SYN, TCP, TcpHeader, low_half};
use crate::record::{
    DirectionCounts, DirectionMarks, EndReason, FlowRecord, Outside, Retransmissions, TcpEnd,
};

/// A time of the kernel's counts may be too early by this: a tick of the slowest timer that Linux has.
const PART_TIME_ERROR_NS: u64 = 10_000_000;
/// Unit of coarse times: 2 to this power, in nanoseconds.
const COARSE_BITS: u32 = 24;
/// Packets after which a flow of one direction counts as established.
const MANY_PACKETS: u64 = 16;

/// How a flow stands; decides which flows are evicted first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FlowState {
    /// Few packets, or no handshake: what floods consist of.
    #[default]
    Tentative,
    /// Both sides took part.
    Established,
    /// Both sides sent FIN, or one sent RST; late packets still belong to the flow.
    Closed,
}

/// Counts of one flow, its place in the table's lists, and what TCP needs.
///
/// Most packets need the first cache line and that of their direction.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct FlowEntry {
    pub(super) key: PacketKey,
    /// The next free entry, if this one is free.
    pub(super) next_free: u32,
    /// Time of the first packet of the record that grows, as [`coarse`] gives it.
    first_coarse: u32,
    pub(super) state: FlowState,
    /// True if no further payload can tell more of the flow.
    pub(super) is_inspected: bool,
    /// True if [`FlowChanges`](super::changes::FlowChanges) has the flow among those with packets.
    pub(super) is_changed: bool,
    /// True if `handshake_ns` is known.
    has_handshake: bool,
    /// From the originator and to it: all TCP flags seen, and the states of the ends.
    tcp_flags: [u8; 2],
    tcp_ends: [TcpEnd; 2],
    /// From and to the originator.
    pub(super) directions: [DirectionEntry; 2],
    pub(super) links: FlowLinks,
    part: u16,
    /// Of the kernel's counts: the processor of each direction's latest, and the originator's first ACK; 0: none.
    cpus: [u16; 2],
    /// TCP segments with RST.
    resets: [u16; 2],
    /// Of the first packet of each direction.
    marks: [DirectionMarks; 2],
    icmp_identifier: Option<u16>,
    /// Times of the earliest packets; `u64::MAX` without packets.
    first_ns: [u64; 2],
    handshake_ns: u64,
    first_payload_ns: u64,
    first_ack_ns: u64,
    /// Time of the packet after which both ends had sent FIN or RST; 0: none in this part.
    closed_ns: u64,
    pub(super) texts: FlowTexts,
    /// VLANs and tunnels; absent without.
    pub(super) outside: Option<Box<Outside>>,
}

/// Counts of one direction, with the meanings of [`DirectionCounts`], and its sequence numbers: a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct DirectionEntry {
    packets: u64,
    bytes: u64,
    frame_bytes: u64,
    payload_bytes: u64,
    stream_bytes: u64,
    last_ns: u64,
    sequence: Sequence,
    retransmissions: Retransmissions,
}

const LINE: usize = 64;
const _: () = assert!(size_of::<DirectionEntry>() == LINE);
const _: () = assert!(offset_of!(FlowEntry, directions) == LINE);
/// Five cache lines: docs/probe.md states the memory of a million flows.
const _: () = assert!(size_of::<FlowEntry>() == 5 * LINE);

impl FlowEntry {
    /// A flow without packets, whose first one has this key and these TCP flags.
    ///
    /// A first packet with SYN and ACK comes from the responder.
    pub(super) fn new(key: &PacketKey, flags: u8) -> Self {
        FlowEntry {
            key: if flags & (SYN | ACK) == SYN | ACK {
                key.reversed()
            } else {
                *key
            },
            next_free: NOBODY,
            first_coarse: 0,
            state: FlowState::Tentative,
            is_inspected: false,
            is_changed: false,
            has_handshake: false,
            tcp_flags: [0; 2],
            tcp_ends: [TcpEnd::Inactive; 2],
            directions: [DirectionEntry::default(); 2],
            links: FlowLinks::NONE,
            part: 0,
            cpus: [0; 2],
            resets: [0; 2],
            marks: [DirectionMarks::default(); 2],
            icmp_identifier: None,
            first_ns: [u64::MAX; 2],
            handshake_ns: 0,
            first_payload_ns: 0,
            first_ack_ns: 0,
            closed_ns: 0,
            texts: FlowTexts::default(),
            outside: None,
        }
    }

    /// Bytes and packets of a direction in the record that grows.
    pub(super) fn totals(&self, direction: usize) -> (u64, u64) {
        let counts = &self.directions[direction];
        (counts.bytes, counts.packets)
    }

    /// Time of the last packet.
    pub(super) fn last_ns(&self) -> u64 {
        self.directions[0].last_ns.max(self.directions[1].last_ns)
    }

    /// Time of the first packet of the record that grows.
    fn first_ns(&self) -> u64 {
        self.first_ns[0].min(self.first_ns[1])
    }

    /// True if the first packet of the record that grows came at least `active_ns` before `now_ns`.
    pub(super) fn is_long(&self, now_ns: u64, active_ns: u64) -> bool {
        // Mostly this is enough. Of a packet before the first one, the difference is a very large number.
        let units = coarse(now_ns).wrapping_sub(self.first_coarse);
        let max_ns = (u64::from(units) + 1) << COARSE_BITS;
        max_ns > active_ns && now_ns.saturating_sub(self.first_ns()) >= active_ns
    }

    /// True if the last packet came at least `lasts_ns` before `now_ns`, that of a packet of this direction.
    pub(super) fn is_idle(&self, direction: usize, now_ns: u64, lasts_ns: u64) -> bool {
        let is_idle = |one: &DirectionEntry| now_ns.saturating_sub(one.last_ns) >= lasts_ns;
        is_idle(&self.directions[direction]) && is_idle(&self.directions[1 - direction])
    }

    /// 0 for packets of the originator, 1 for packets to it.
    pub(super) fn direction_of(&self, key: &PacketKey) -> usize {
        usize::from(self.key != *key)
    }

    /// Keeps what is around a packet of the flow.
    #[inline]
    pub(super) fn see_outside(&mut self, direction: usize, outside: &PacketOutside<'_>) {
        if self.key.outside != 0 {
            let own = self
                .outside
                .get_or_insert_with(|| Box::new(outside.for_flow(direction)));
            own.learn(direction, outside);
        }
    }

    /// Takes the time of a packet before it is counted.
    #[inline]
    fn see_time(&mut self, direction: usize, time_ns: u64) {
        let counts = &self.directions[direction];
        if counts.packets == 0 || time_ns < counts.last_ns {
            self.first_ns[direction] = self.first_ns[direction].min(time_ns);
            self.first_coarse = coarse(self.first_ns());
        }
    }

    /// Counts a packet and returns the flow's state after it.
    #[inline]
    pub(super) fn count(&mut self, packet: &Dissected, direction: usize) -> FlowState {
        self.see_time(direction, packet.time_ns);
        let counts = &mut self.directions[direction];
        if counts.packets == 0 {
            self.marks[direction] = packet.marks;
            self.icmp_identifier = self.icmp_identifier.or_else(|| packet.icmp_identifier());
        }
        let is_first_payload = packet.payload_bytes > 0 && counts.payload_bytes == 0;
        counts.packets += 1;
        counts.bytes += u64::from(packet.ip_bytes);
        counts.frame_bytes += u64::from(packet.frame_bytes);
        counts.payload_bytes += u64::from(packet.payload_bytes);
        counts.last_ns = counts.last_ns.max(packet.time_ns);
        if let Some(tcp) = packet.tcp {
            self.count_tcp(tcp, packet, direction);
        } else {
            counts.stream_bytes += u64::from(packet.payload_bytes);
        }
        if is_first_payload {
            self.see_payload(packet.time_ns);
        }
        self.state_now()
    }

    /// Takes the time of a direction's first payload. In a function of its own: the time is in a cache line that other
    /// packets do not need.
    #[cold]
    fn see_payload(&mut self, time_ns: u64) {
        if self.first_payload_ns == 0 {
            self.first_payload_ns = time_ns;
        }
    }

    /// Adds counts of one direction and returns the flow's state after it.
    pub(super) fn add(&mut self, part: &FlowUpdate, direction: usize) -> FlowState {
        let more = &part.counts;
        let repeated = self.repeated_segments(direction, more);
        if more.first_ns < self.first_ns[direction] {
            self.marks[direction] = DirectionMarks {
                traffic_class: more.traffic_class,
                is_sent: more.is_sent,
            };
        }
        self.see_time(direction, more.first_ns);
        let counts = &mut self.directions[direction];
        counts.packets += more.packets;
        counts.bytes += more.bytes;
        counts.frame_bytes += more.frame_bytes;
        counts.payload_bytes += more.payload_bytes;
        counts.stream_bytes += more.payload_bytes;
        counts.last_ns = counts.last_ns.max(more.last_ns);
        counts.sequence.move_to(more.expected);
        counts.retransmissions.add(repeated);
        let resets = u16::try_from(more.resets).unwrap_or(u16::MAX);
        self.resets[direction] = self.resets[direction].saturating_add(resets);
        self.tcp_flags[direction] |= more.tcp_flags;
        if let Some(first) = more.first_payload_ns
            && (self.first_payload_ns == 0 || first < self.first_payload_ns)
        {
            self.first_payload_ns = first;
        }
        if self.key.protocol == TCP {
            self.change_state(more.last_ns, |ends| {
                segments(ends, direction, more.tcp_flags, more.payload_bytes > 0);
            });
        }
        self.cpus[direction] = more.cpu;
        if let Some(ack_ns) = more.first_ack_ns.filter(|_| direction == 0) {
            self.first_ack_ns = match self.first_ack_ns {
                0 => ack_ns,
                earlier => earlier.min(ack_ns),
            };
        }
        self.state_now()
    }

    /// The segments of further counts that repeat earlier ones of their direction; `None` if that cannot be told.
    ///
    /// The kernel compares a segment with those that the same processor took since its counts were last taken. That is
    /// enough if the counts begin after all earlier ones, and with new data: a retransmission of older data is behind
    /// its first segment.
    fn repeated_segments(&self, direction: usize, more: &FlowCounts) -> Option<u32> {
        let counts = &self.directions[direction];
        let sequence = &counts.sequence;
        if self.key.protocol != TCP || sequence.first().is_none() {
            return Some(more.retransmissions);
        }
        let is_same_cpu = self.cpus[direction] == more.cpu && more.first_ns >= counts.last_ns;
        let is_later = more.first_ns > counts.last_ns + PART_TIME_ERROR_NS;
        if !is_same_cpu && !is_later {
            return None;
        }
        match sequence.distance(more.first_end) {
            1.. => Some(more.retransmissions),
            0 => Some(more.retransmissions + u32::from(more.first_may_repeat)),
            _ if more.packets == 1 => {
                let has_data = more.payload_bytes > 0 || more.tcp_flags & (SYN | FIN) != 0;
                Some(u32::from(has_data))
            }
            _ => None,
        }
    }

    /// The originator's ACK completes the handshake, once both sides have sent SYN.
    fn acknowledged(&mut self, direction: usize, ack_ns: u64) {
        let both_synchronised = self.tcp_flags.iter().all(|flags| flags & SYN != 0);
        if direction == 0 && both_synchronised && !self.has_handshake {
            self.handshake_ns = ack_ns.saturating_sub(self.record_ns(0)).max(1);
            self.has_handshake = true;
        }
    }

    fn count_tcp(&mut self, tcp: TcpHeader, packet: &Dissected, direction: usize) {
        let counts = &mut self.directions[direction];
        let (flags, end) = (&mut self.tcp_flags[direction], self.tcp_ends[direction]);
        let has_fin = *flags & FIN != 0 || end == TcpEnd::Closed;
        *flags |= tcp.flags;
        if tcp.flags & RST != 0 {
            self.resets[direction] = self.resets[direction].saturating_add(1);
        }
        let added = counts.sequence.add(tcp, packet.payload_bytes, end, has_fin);
        counts.stream_bytes = counts.stream_bytes.saturating_add_signed(added.bytes);
        if added.is_repeated {
            counts.retransmissions.add(Some(1));
        }
        self.change_state(packet.time_ns, |ends| {
            segment(ends, direction, tcp.flags, packet.payload_bytes > 0);
        });
        if tcp.flags & (SYN | ACK | RST) == ACK {
            self.acknowledged(direction, packet.time_ns);
        }
    }

    /// Changes the states of originator and responder after segments, the last of which came at `time_ns`.
    fn change_state(&mut self, time_ns: u64, change: impl FnOnce([&mut TcpEnd; 2])) {
        let was_over = self.is_over();
        let [from, to] = &mut self.tcp_ends;
        change([from, to]);
        if !was_over && self.is_over() {
            self.closed_ns = time_ns;
        }
    }

    /// True if both ends sent FIN or RST.
    fn is_over(&self) -> bool {
        let is_over = |end: &TcpEnd| *end == TcpEnd::Closed || end.is_reset();
        self.tcp_ends.iter().all(is_over)
    }

    fn is_reset(&self) -> bool {
        self.tcp_ends.iter().any(|end| end.is_reset())
    }

    /// Whether both ends sent FIN.
    fn is_finished(&self) -> bool {
        self.tcp_ends == [TcpEnd::Closed; 2]
    }

    /// True if a SYN without ACK, with this number, begins another connection: its number is not that of the first
    /// SYN, or the connection was reset.
    pub(super) fn begins_anew(&self, direction: usize, sequence: u32) -> bool {
        let peer = self.tcp_ends[1 - direction];
        match self.directions[direction].sequence.first() {
            _ if self.is_reset() => true,
            Some(first) => sequence != first,
            // Both ends may open, and the first SYN may come after its answer.
            None => !matches!(peer, TcpEnd::SynSent | TcpEnd::Established),
        }
    }

    fn state_now(&self) -> FlowState {
        if self.is_finished() || self.is_reset() {
            return FlowState::Closed;
        }
        if self.state != FlowState::Tentative {
            return self.state;
        }
        let [forward, backward] = &self.directions;
        let packets = forward.packets + backward.packets;
        let answered = match self.key.protocol {
            TCP => self.tcp_flags[0] & self.tcp_flags[1] & ACK != 0,
            _ => forward.packets > 0 && backward.packets > 0 && packets > 2,
        };
        if answered || packets >= MANY_PACKETS {
            FlowState::Established
        } else {
            FlowState::Tentative
        }
    }

    /// Why a flow that was not needed longer ended.
    pub(super) fn reason(&self) -> EndReason {
        match self.state {
            FlowState::Closed if self.is_finished() => EndReason::Fin,
            FlowState::Closed => EndReason::Reset,
            _ => EndReason::Idle,
        }
    }

    /// Takes the time of the handshake from the counts of all processors.
    fn complete_handshake(&mut self) {
        if self.first_ack_ns > 0 {
            self.acknowledged(0, self.first_ack_ns);
        }
    }

    /// The record up to now, of all interfaces and without sampling.
    pub(super) fn record(&mut self, end: EndReason) -> FlowRecord {
        self.complete_handshake();
        FlowRecord {
            key: self.key.flow_key(),
            outside: self.outside.clone(),
            forward: self.direction(0),
            backward: self.direction(1),
            marks: self.marks,
            interface: None,
            icmp_identifier: self.icmp_identifier,
            handshake_ns: self.has_handshake.then_some(self.handshake_ns),
            first_payload_ns: Some(self.first_payload_ns).filter(|time| *time > 0),
            closed_ns: Some(self.closed_ns).filter(|time| *time > 0),
            end,
            part: self.part.into(),
            sampling: 1,
            community_id_seed: 0,
            details: self.texts.details(),
        }
    }

    fn direction(&self, direction: usize) -> DirectionCounts {
        let counts = &self.directions[direction];
        DirectionCounts {
            packets: counts.packets,
            bytes: counts.bytes,
            frame_bytes: counts.frame_bytes,
            payload_bytes: counts.payload_bytes,
            stream_bytes: counts.stream_bytes,
            first_ns: self.record_ns(direction),
            last_ns: counts.last_ns,
            retransmissions: counts.retransmissions,
            resets: self.resets[direction],
            tcp_flags: self.tcp_flags[direction],
            tcp_end: self.tcp_ends[direction],
        }
    }

    /// Time of the earliest packet of a direction; 0 without packets.
    fn record_ns(&self, direction: usize) -> u64 {
        match self.first_ns[direction] {
            u64::MAX => 0,
            first_ns => first_ns,
        }
    }

    /// Starts the next part of a lasting flow, with counts of 0.
    pub(super) fn next_part(&mut self) {
        self.directions = self.directions.map(|direction| DirectionEntry {
            sequence: direction.sequence,
            ..DirectionEntry::default()
        });
        self.tcp_flags = [0; 2];
        self.resets = [0; 2];
        self.marks = [DirectionMarks::default(); 2];
        self.first_ns = [u64::MAX; 2];
        (self.first_payload_ns, self.first_ack_ns, self.closed_ns) = (0, 0, 0);
        self.part = self.part.saturating_add(1);
    }
}

/// A time in units of 17 ms that begins anew every two years: enough to tell that a record is not long.
fn coarse(time_ns: u64) -> u32 {
    low_half(time_ns >> COARSE_BITS)
}
