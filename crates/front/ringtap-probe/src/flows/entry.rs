// SPDX-License-Identifier: MIT OR Apache-2.0
//! One flow in the table.

use ringtap_capture::meter::FlowCounts;

use super::FlowUpdate;
use super::sequence::Sequence;
use crate::application::FlowTexts;
use crate::connection::{segment, segments};
use crate::outside::PacketOutside;
use crate::packet::{ACK, Dissected, FIN, PacketKey, RST, SYN, TCP};
use crate::record::{DirectionCounts, DirectionMarks, EndReason, FlowRecord, Outside, TcpEnd};

/// A time of the kernel's counts may be too early by this: a tick of the slowest timer that Linux has.
const PART_TIME_ERROR_NS: u64 = 10_000_000;
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

/// Counts of one flow, its place in the table's lists, and what TCP needs: five cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct FlowEntry {
    pub(super) key: PacketKey,
    pub(super) hash: u32,
    /// Next flow in the same bucket, or next free entry.
    pub(super) next: u32,
    /// The next newer and the next older flow in the list of flows with this state.
    pub(super) newer: u32,
    pub(super) older: u32,
    /// The tick in which the flow was put into that list.
    pub(super) listed: u32,
    pub(super) state: FlowState,
    part: u16,
    /// From and to the originator; each is a cache line.
    pub(super) directions: [DirectionCounts; 2],
    sequences: [Sequence; 2],
    handshake_ns: Option<std::num::NonZeroU64>,
    pub(super) first_payload_ns: u64,
    pub(super) texts: FlowTexts,
    /// VLANs and tunnels; absent without.
    pub(super) outside: Option<Box<Outside>>,
    /// Of the first packet of each direction.
    marks: [DirectionMarks; 2],
    icmp_identifier: Option<u16>,
    /// Of the kernel's counts: the processor of each direction's latest, and the originator's first ACK; 0: none.
    cpus: [u16; 2],
    first_ack_ns: u64,
    /// Time of the packet after which both ends had sent FIN or RST; 0: none in this part.
    closed_ns: u64,
}

/// Five cache lines: docs/probe.md states the memory of a million flows.
const _: () = assert!(size_of::<FlowEntry>() == 5 * 64);

impl FlowEntry {
    /// A flow without packets, whose first one has this key and these TCP flags.
    ///
    /// A first packet with SYN and ACK comes from the responder.
    pub(super) fn new(key: &PacketKey, flags: u8, hash: u32, nobody: u32) -> Self {
        FlowEntry {
            key: if flags & (SYN | ACK) == SYN | ACK {
                key.reversed()
            } else {
                *key
            },
            hash,
            next: nobody,
            newer: nobody,
            older: nobody,
            listed: 0,
            state: FlowState::Tentative,
            part: 0,
            directions: [DirectionCounts::default(); 2],
            sequences: [Sequence::default(); 2],
            handshake_ns: None,
            first_payload_ns: 0,
            texts: FlowTexts::default(),
            outside: None,
            marks: [DirectionMarks::default(); 2],
            icmp_identifier: None,
            cpus: [0; 2],
            first_ack_ns: 0,
            closed_ns: 0,
        }
    }

    /// Time of the last packet.
    pub(super) fn last_ns(&self) -> u64 {
        self.directions[0].last_ns.max(self.directions[1].last_ns)
    }

    /// Time of the first packet of the record that grows.
    pub(super) fn first_ns(&self) -> u64 {
        self.directions[0].first_of_both(&self.directions[1])
    }

    /// 0 for packets of the originator, 1 for packets to it.
    pub(super) fn direction_of(&self, key: &PacketKey) -> usize {
        usize::from(self.key != *key)
    }

    /// Keeps what is around a packet of the flow.
    #[inline]
    pub(super) fn see_outside(&mut self, key: &PacketKey, outside: &PacketOutside<'_>) {
        if key.outside != 0 {
            let direction = self.direction_of(key);
            let own = self
                .outside
                .get_or_insert_with(|| Box::new(outside.for_flow(direction)));
            own.learn(direction, outside);
        }
    }

    /// Counts a packet and returns the flow's state after it.
    pub(super) fn count(&mut self, packet: &Dissected) -> FlowState {
        let direction = self.direction_of(&packet.key);
        let counts = &mut self.directions[direction];
        if counts.packets == 0 {
            self.marks[direction] = packet.marks;
            self.icmp_identifier = self.icmp_identifier.or_else(|| packet.icmp_identifier());
        }
        counts.first_ns = earliest(counts, packet.time_ns);
        counts.packets += 1;
        counts.bytes += u64::from(packet.ip_bytes);
        counts.frame_bytes += u64::from(packet.frame_bytes);
        counts.payload_bytes += u64::from(packet.payload_bytes);
        counts.last_ns = counts.last_ns.max(packet.time_ns);
        if packet.payload_bytes > 0 && self.first_payload_ns == 0 {
            self.first_payload_ns = packet.time_ns;
        }
        if packet.tcp.is_some() {
            self.count_tcp(packet, direction);
        } else {
            counts.stream_bytes += u64::from(packet.payload_bytes);
        }
        self.state_now()
    }

    /// Adds counts of one direction and returns the flow's state after it.
    pub(super) fn add(&mut self, part: &FlowUpdate) -> FlowState {
        let direction = self.direction_of(&part.key);
        let more = &part.counts;
        let repeated = self.repeated_segments(direction, more);
        let counts = &mut self.directions[direction];
        if counts.packets == 0 || more.first_ns < counts.first_ns {
            self.marks[direction] = DirectionMarks {
                traffic_class: more.traffic_class,
                is_sent: more.is_sent,
            };
        }
        counts.first_ns = earliest(counts, more.first_ns);
        counts.packets += more.packets;
        counts.bytes += more.bytes;
        counts.frame_bytes += more.frame_bytes;
        counts.payload_bytes += more.payload_bytes;
        counts.stream_bytes += more.payload_bytes;
        counts.last_ns = counts.last_ns.max(more.last_ns);
        self.sequences[direction].move_to(more.expected);
        counts.retransmissions.add(repeated);
        let resets = u16::try_from(more.resets).unwrap_or(u16::MAX);
        counts.resets = counts.resets.saturating_add(resets);
        counts.tcp_flags |= more.tcp_flags;
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
        let sequence = &self.sequences[direction];
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
        let both_synchronised = self.directions.iter().all(|one| one.tcp_flags & SYN != 0);
        if direction == 0 && both_synchronised && self.handshake_ns.is_none() {
            let took = ack_ns.saturating_sub(self.directions[0].first_ns);
            self.handshake_ns = std::num::NonZeroU64::new(took.max(1));
        }
    }

    fn count_tcp(&mut self, packet: &Dissected, direction: usize) {
        let Some(tcp) = packet.tcp else { return };
        let counts = &mut self.directions[direction];
        let has_fin = counts.tcp_flags & FIN != 0 || counts.tcp_end == TcpEnd::Closed;
        counts.tcp_flags |= tcp.flags;
        counts.resets = counts
            .resets
            .saturating_add(u16::from(tcp.flags & RST != 0));
        let added =
            self.sequences[direction].add(tcp, packet.payload_bytes, counts.tcp_end, has_fin);
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
        let [from, to] = &mut self.directions;
        change([&mut from.tcp_end, &mut to.tcp_end]);
        if !was_over && self.is_over() {
            self.closed_ns = time_ns;
        }
    }

    /// True if both ends sent FIN or RST.
    fn is_over(&self) -> bool {
        let is_over = |end: TcpEnd| end == TcpEnd::Closed || end.is_reset();
        self.directions
            .iter()
            .all(|direction| is_over(direction.tcp_end))
    }

    fn is_reset(&self) -> bool {
        self.directions
            .iter()
            .any(|direction| direction.tcp_end.is_reset())
    }

    /// Whether both ends sent FIN.
    fn is_finished(&self) -> bool {
        self.directions
            .iter()
            .all(|direction| direction.tcp_end == TcpEnd::Closed)
    }

    /// True if a SYN without ACK, with this number, begins another connection: its number is not that of the first
    /// SYN, or the connection was reset.
    pub(super) fn begins_anew(&self, direction: usize, sequence: u32) -> bool {
        let peer = self.directions[1 - direction].tcp_end;
        match self.sequences[direction].first() {
            _ if self.is_reset() => true,
            Some(first) => sequence != first,
            // Both ends may open, and the first SYN may come after its answer.
            None => !matches!(peer, TcpEnd::SynSent | TcpEnd::Established),
        }
    }

    fn state_now(&self) -> FlowState {
        let [forward, backward] = &self.directions;
        let flags = (forward.tcp_flags, backward.tcp_flags);
        if self.is_finished() || self.is_reset() {
            return FlowState::Closed;
        }
        if self.state != FlowState::Tentative {
            return self.state;
        }
        let packets = forward.packets + backward.packets;
        let answered = match self.key.protocol {
            TCP => flags.0 & flags.1 & ACK != 0,
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
            forward: self.directions[0],
            backward: self.directions[1],
            marks: self.marks,
            interface: None,
            icmp_identifier: self.icmp_identifier,
            handshake_ns: self.handshake_ns.map(Into::into),
            first_payload_ns: Some(self.first_payload_ns).filter(|time| *time > 0),
            closed_ns: Some(self.closed_ns).filter(|time| *time > 0),
            end,
            part: self.part.into(),
            sampling: 1,
            community_id_seed: 0,
            details: self.texts.details(),
        }
    }

    /// Starts the next part of a lasting flow, with counts of 0.
    pub(super) fn next_part(&mut self) {
        self.directions = self.directions.map(|direction| DirectionCounts {
            tcp_end: direction.tcp_end,
            ..DirectionCounts::default()
        });
        self.marks = [DirectionMarks::default(); 2];
        (self.first_payload_ns, self.first_ack_ns, self.closed_ns) = (0, 0, 0);
        self.part = self.part.saturating_add(1);
    }
}

/// Time of the earliest packet after a further one.
fn earliest(counts: &DirectionCounts, time_ns: u64) -> u64 {
    match counts.packets {
        0 => time_ns,
        _ => counts.first_ns.min(time_ns),
    }
}
