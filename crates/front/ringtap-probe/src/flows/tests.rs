// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of flow metering, with packets made here.

mod ages;
mod batches;
mod community;
mod parts;
mod states;
mod tunnels;

use std::collections::HashMap;
use std::time::Duration;

use etherparse::{IpFragOffset, IpNumber, Ipv4Header, PacketBuilder};
use ringtap_filter::Headers;
use ringtap_filter::hash::Link;

use super::*;
use crate::packet::{FIN, RST};
use crate::record::{DirectionMarks, FlowRecord};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// Time of the first packet.
const START: u64 = 1_700_000_000 * SECOND;

/// An address and a port.
type End = ([u8; 4], u16);
const CLIENT: End = ([10, 0, 0, 1], 40_000);
const SERVER: End = ([10, 0, 0, 2], 443);

struct Metered {
    meter: FlowMeter,
    records: Vec<Record>,
}

impl Metered {
    fn new(options: FlowOptions) -> Self {
        Metered {
            meter: FlowMeter::new(options, Secret::random(), None),
            records: Vec::new(),
        }
    }

    fn frame(&mut self, time_ns: u64, frame: &[u8]) {
        let wire = u32::try_from(frame.len()).expect("small");
        let (link, secret) = (Link::Ethernet, &self.meter.secret);
        let packet = Dissected::new(time_ns, frame, wire, link, Headers::Inner, secret);
        let mut packet = packet.expect("IP");
        self.packet(&mut packet);
    }

    fn packet(&mut self, packet: &mut Dissected) {
        let packets = std::slice::from_mut(packet);
        self.meter.packets(packets, &mut self.records);
    }

    fn tcp(&mut self, time_ns: u64, from: End, to: End, flags: u8, sequence: u32, payload: usize) {
        self.frame(time_ns, &tcp(from, to, flags, sequence, payload));
    }

    fn flows(mut self) -> Vec<FlowRecord> {
        self.meter.finish(&mut self.records);
        let flow = |record| match record {
            Record::Flow(flow) => *flow,
            other => panic!("not a flow: {other:?}"),
        };
        self.records.into_iter().map(flow).collect()
    }
}

fn tcp(from: End, to: End, flags: u8, sequence: u32, payload: usize) -> Vec<u8> {
    let mut builder = PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4(from.0, to.0, 64)
        .tcp(from.1, to.1, sequence, 1000);
    builder = if flags & SYN != 0 {
        builder.syn()
    } else {
        builder
    };
    builder = if flags & ACK != 0 {
        builder.ack(1)
    } else {
        builder
    };
    builder = if flags & FIN != 0 {
        builder.fin()
    } else {
        builder
    };
    builder = if flags & RST != 0 {
        builder.rst()
    } else {
        builder
    };
    let mut frame = Vec::new();
    builder
        .write(&mut frame, &vec![7; payload])
        .expect("memory");
    frame
}

/// A connection: handshake in 30 ms, a request of 100 bytes, sent twice, an answer of 1000, FIN from both.
fn connection(metered: &mut Metered, at: u64, client: End) {
    connection_from(metered, at, client, 1);
}

/// The same with this first sequence number of the client.
fn connection_from(metered: &mut Metered, at: u64, client: End, first: u32) {
    metered.tcp(at, client, SERVER, SYN, first, 0);
    metered.tcp(at + 20 * MS, SERVER, client, SYN | ACK, 500, 0);
    metered.tcp(at + 30 * MS, client, SERVER, ACK, first + 1, 0);
    metered.tcp(at + 40 * MS, client, SERVER, ACK, first + 1, 100);
    metered.tcp(at + 50 * MS, client, SERVER, ACK, first + 1, 100);
    metered.tcp(at + 60 * MS, SERVER, client, ACK, 501, 1000);
    metered.tcp(at + 70 * MS, client, SERVER, FIN | ACK, first + 101, 0);
    metered.tcp(at + 80 * MS, SERVER, client, FIN | ACK, 1501, 0);
    metered.tcp(at + 90 * MS, client, SERVER, ACK, first + 102, 0);
}

#[test]
fn a_frame_has_at_least_its_captured_bytes() {
    let mut metered = Metered::new(FlowOptions::default());
    let frame = tcp(CLIENT, SERVER, ACK, 1, 100);
    let (link, secret) = (Link::Ethernet, &metered.meter.secret);
    let packet = Dissected::new(START, &frame, 60, link, Headers::Inner, secret);
    metered.packet(&mut packet.expect("IP"));
    let flows = metered.flows();
    assert_eq!(
        (flows[0].forward.bytes, flows[0].forward.frame_bytes),
        (140, 154)
    );
}

#[test]
fn service_direction_and_identifier_are_those_of_the_first_packet_of_each_direction() {
    let mut metered = Metered::new(FlowOptions::default());
    for (number, is_reply, service) in [
        (1, false, 0x28),
        (1, true, 0x48),
        (2, false, 0),
        (2, true, 0),
    ] {
        let (from, to) = if is_reply {
            (SERVER, CLIENT)
        } else {
            (CLIENT, SERVER)
        };
        let header = etherparse::IcmpEchoHeader {
            id: 770,
            seq: number,
        };
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(from.0, to.0, 64);
        let builder = if is_reply {
            builder.icmpv4_echo_reply(header.id, header.seq)
        } else {
            builder.icmpv4_echo_request(header.id, header.seq)
        };
        let mut frame = Vec::new();
        builder.write(&mut frame, &[]).expect("memory");
        frame[15] = service;
        let (link, secret) = (Link::Ethernet, &metered.meter.secret);
        let packet = Dissected::new(START, &frame, 60, link, Headers::Inner, secret);
        let mut packet = packet.expect("IP");
        packet.marks.is_sent = is_reply;
        metered.packet(&mut packet);
    }
    let mut ip6 = Vec::new();
    let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6([1; 16], [2; 16], 64);
    builder.udp(1, 2).write(&mut ip6, &[]).expect("memory");
    (ip6[14], ip6[15]) = (0x6b, 0x80);
    metered.frame(START, &ip6);
    let mut flows = metered.flows();
    flows.sort_by_key(|flow| flow.key.protocol);
    let marks = |traffic_class, is_sent| DirectionMarks {
        traffic_class,
        is_sent,
    };
    assert_eq!(flows[0].marks, [marks(0x28, false), marks(0x48, true)]);
    assert_eq!(flows[0].icmp_identifier, Some(770));
    assert_eq!(flows[1].marks[0], marks(0xb8, false));
    assert_eq!(flows[1].icmp_identifier, None);
}

#[test]
fn a_late_copy_of_the_syn_belongs_to_its_connection() {
    let mut metered = Metered::new(FlowOptions::default());
    connection(&mut metered, START, CLIENT);
    metered.tcp(START + 100 * MS, CLIENT, SERVER, SYN, 1, 0);
    let flows = metered.flows();
    let [flow] = &flows[..] else {
        panic!("{flows:?}")
    };
    assert_eq!((flow.forward.packets, flow.conn_state()), (7, "SF"));
    assert_eq!(flow.end, EndReason::Fin);
}

#[test]
fn a_reset_after_both_fins_changes_no_state() {
    let mut metered = Metered::new(FlowOptions::default());
    connection(&mut metered, START, CLIENT);
    metered.tcp(START + 100 * MS, CLIENT, SERVER, RST, 103, 0);
    let flows = metered.flows();
    assert_eq!(
        (flows[0].conn_state(), flows[0].end),
        ("SF", EndReason::Fin)
    );
}

#[test]
fn the_bytes_of_a_stream_are_counted_once_and_gaps_count() {
    let mut metered = Metered::new(FlowOptions::default());
    connection(&mut metered, START, CLIENT);
    let flows = metered.flows();
    assert_eq!(
        (
            flows[0].forward.payload_bytes,
            flows[0].forward.stream_bytes
        ),
        (200, 100)
    );
    let mut metered = Metered::new(FlowOptions::default());
    metered.tcp(START, CLIENT, SERVER, SYN, 1, 0);
    // The segment before this one comes later.
    metered.tcp(START + MS, CLIENT, SERVER, ACK, 102, 100);
    metered.tcp(START + 2 * MS, CLIENT, SERVER, ACK, 2, 100);
    metered.tcp(START + 3 * MS, CLIENT, SERVER, ACK | FIN, 202, 0);
    let flows = metered.flows();
    assert_eq!(
        (
            flows[0].forward.payload_bytes,
            flows[0].forward.stream_bytes
        ),
        (200, 200)
    );
}

#[test]
fn a_further_part_keeps_the_state_of_the_connection() {
    let mut metered = Metered::new(FlowOptions {
        active: Duration::from_secs(10),
        ..FlowOptions::default()
    });
    metered.tcp(START, CLIENT, SERVER, SYN, 1, 0);
    metered.tcp(START + MS, SERVER, CLIENT, SYN | ACK, 500, 0);
    metered.tcp(START + 2 * MS, CLIENT, SERVER, ACK, 2, 0);
    metered.tcp(START + 11 * SECOND, CLIENT, SERVER, ACK, 2, 100);
    let states: Vec<_> = metered.flows().iter().map(FlowRecord::conn_state).collect();
    assert_eq!(states, ["S1", "S1"]);
}

#[test]
fn the_first_time_is_that_of_the_earliest_packet() {
    let mut metered = Metered::new(FlowOptions::default());
    metered.tcp(START + 5 * MS, CLIENT, SERVER, ACK, 1, 0);
    metered.tcp(START, CLIENT, SERVER, ACK, 1, 0);
    metered.tcp(START + 9 * MS, CLIENT, SERVER, ACK, 1, 0);
    let flows = metered.flows();
    assert_eq!(
        (flows[0].first_ns(), flows[0].last_ns()),
        (START, START + 9 * MS)
    );
}

#[test]
fn a_connection_is_one_record_with_both_directions() {
    let mut metered = Metered::new(FlowOptions::default());
    connection(&mut metered, START, CLIENT);
    let flows = metered.flows();
    let [flow] = &flows[..] else {
        panic!("{flows:?}")
    };
    assert_eq!(flow.key.source, std::net::IpAddr::from(CLIENT.0));
    assert_eq!(
        (flow.key.source_port, flow.key.destination_port),
        (40_000, 443)
    );
    assert_eq!((flow.forward.packets, flow.backward.packets), (6, 3));
    assert_eq!(
        (flow.forward.bytes, flow.backward.bytes),
        (6 * 40 + 200, 3 * 40 + 1000)
    );
    assert_eq!(flow.forward.frame_bytes, 6 * 54 + 200);
    assert_eq!(
        (flow.forward.payload_bytes, flow.backward.payload_bytes),
        (200, 1000)
    );
    assert_eq!(flow.handshake_ns, Some(30 * MS));
    assert_eq!(flow.first_payload_ns, Some(START + 40 * MS));
    assert_eq!(
        [flow.forward, flow.backward].map(|direction| direction.retransmissions.count()),
        [Some(1), Some(0)]
    );
    assert_eq!((flow.first_ns(), flow.last_ns()), (START, START + 90 * MS));
    assert_eq!(
        (flow.forward.tcp_flags, flow.end),
        (SYN | ACK | FIN, EndReason::Fin)
    );
}

#[test]
fn the_sender_of_the_syn_is_the_originator_though_the_answer_is_seen_first() {
    let mut metered = Metered::new(FlowOptions::default());
    metered.tcp(START, SERVER, CLIENT, SYN | ACK, 500, 0);
    metered.tcp(START + MS, CLIENT, SERVER, ACK, 2, 0);
    let flows = metered.flows();
    assert_eq!(flows[0].key.source, std::net::IpAddr::from(CLIENT.0));
    assert_eq!(
        (flows[0].forward.packets, flows[0].backward.packets),
        (1, 1)
    );
}

#[test]
fn a_closed_connection_ends_soon_and_its_ports_may_be_used_again() {
    let mut metered = Metered::new(FlowOptions::default());
    connection(&mut metered, START, CLIENT);
    connection_from(&mut metered, START + SECOND, CLIENT, 5000);
    assert_eq!(metered.records.len(), 1);
    assert!(
        metered
            .meter
            .tick(START + 4 * SECOND, 10, &mut metered.records)
    );
    assert_eq!(
        (metered.records.len(), metered.meter.counters().flows),
        (2, 0)
    );
    metered.tcp(START + 5 * SECOND, CLIENT, SERVER, SYN, 1, 0);
    metered.tcp(START + 5 * SECOND, SERVER, CLIENT, RST | ACK, 0, 0);
    let flows = metered.flows();
    assert_eq!(
        (flows[2].end, flows[2].backward.resets),
        (EndReason::Reset, 1)
    );
}

#[test]
fn time_outs_count_the_time_of_packets() {
    let mut metered = Metered::new(FlowOptions {
        active: Duration::from_secs(10),
        idle: Duration::from_secs(5),
        ..FlowOptions::default()
    });
    for second in 0..25 {
        metered.tcp(START + second * SECOND, CLIENT, SERVER, ACK, 0, 0);
    }
    metered.tcp(START + 40 * SECOND, CLIENT, SERVER, ACK, 0, 0);
    let got: Vec<_> = metered
        .flows()
        .iter()
        .map(|flow| (flow.end, flow.part, flow.packets()))
        .collect();
    let want = [
        (EndReason::Active, 0, 10),
        (EndReason::Active, 1, 10),
        (EndReason::Idle, 2, 5),
        (EndReason::End, 0, 1),
    ];
    assert_eq!(got, want);
}

#[test]
fn fragments_belong_to_the_flow_of_their_datagram() {
    let mut metered = Metered::new(FlowOptions::default());
    let whole = PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4(CLIENT.0, SERVER.0, 64)
        .udp(CLIENT.1, SERVER.1);
    let mut frame = Vec::new();
    whole.write(&mut frame, &[0; 1472]).expect("memory");
    let payload = frame[34..].to_vec();
    for (index, part) in payload.chunks(800).enumerate() {
        let length = u16::try_from(part.len()).expect("small");
        let mut ip = Ipv4Header::new(length, 64, IpNumber::UDP, CLIENT.0, SERVER.0).expect("fits");
        ip.identification = 77;
        ip.more_fragments = index == 0;
        ip.dont_fragment = false;
        let offset = u16::try_from(index * 100).expect("small");
        ip.fragment_offset = IpFragOffset::try_new(offset).expect("small");
        let mut fragment = frame[..14].to_vec();
        ip.write(&mut fragment).expect("memory");
        fragment.extend_from_slice(part);
        metered.frame(START, &fragment);
    }
    let flows = metered.flows();
    let [flow] = &flows[..] else {
        panic!("{flows:?}")
    };
    assert_eq!((flow.key.source_port, flow.forward.packets), (40_000, 2));
    assert_eq!(
        (flow.forward.bytes, flow.forward.payload_bytes),
        (1480 + 40, 1472)
    );
}

#[test]
fn request_and_reply_of_a_ping_are_one_flow() {
    let mut metered = Metered::new(FlowOptions::default());
    let base = |from: End, to: End| PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(from.0, to.0, 64);
    let mut frame = Vec::new();
    let request = base(CLIENT, SERVER).icmpv4_echo_request(1, 1);
    request.write(&mut frame, &[0; 56]).expect("memory");
    metered.frame(START, &frame);
    frame.clear();
    let reply = base(SERVER, CLIENT).icmpv4_echo_reply(1, 1);
    reply.write(&mut frame, &[0; 56]).expect("memory");
    metered.frame(START + MS, &frame);
    let flows = metered.flows();
    let [flow] = &flows[..] else {
        panic!("{flows:?}")
    };
    assert_eq!((flow.forward.packets, flow.backward.packets), (1, 1));
    assert_eq!(
        (flow.key.source_port, flow.key.destination_port),
        (8 << 8, 0)
    );
}

#[test]
fn a_reply_without_its_request_has_its_own_type() {
    let mut metered = Metered::new(FlowOptions::default());
    let base = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(SERVER.0, CLIENT.0, 64);
    let mut frame = Vec::new();
    let reply = base.icmpv4_echo_reply(1, 1);
    reply.write(&mut frame, &[0; 56]).expect("memory");
    metered.frame(START, &frame);
    let flows = metered.flows();
    let [flow] = &flows[..] else {
        panic!("{flows:?}")
    };
    assert_eq!(
        (flow.key.source_port, flow.key.destination_port),
        (0, 8 << 8)
    );
}

#[test]
fn a_step_back_of_the_clock_ends_all_flows_and_metering_goes_on() {
    let mut metered = Metered::new(FlowOptions::default());
    metered.tcp(START, CLIENT, SERVER, ACK, 0, 0);
    for second in 0..10 {
        let time_ns = START - 3600 * SECOND + second * SECOND;
        metered.tcp(time_ns, CLIENT, SERVER, ACK, 0, 0);
    }
    let packets: Vec<_> = metered.flows().iter().map(FlowRecord::packets).collect();
    assert_eq!(packets, [1, 10]);
}

#[test]
fn a_busy_flow_holds_up_no_idle_one() {
    let mut metered = Metered::new(FlowOptions::default());
    let connections = [CLIENT, (CLIENT.0, 40_001)];
    for client in connections {
        metered.tcp(START, client, SERVER, ACK, 1, 1);
        metered.tcp(START, SERVER, client, ACK, 1, 1);
    }
    for number in 1..=6100 {
        metered.tcp(START + number * 10 * MS, CLIENT, SERVER, ACK, 1, 1);
    }
    // 61 seconds: the idle time-out, and less than two ticks.
    assert_eq!(metered.records.len(), 1);
    let packets: Vec<_> = metered.flows().iter().map(FlowRecord::packets).collect();
    assert_eq!(packets, [2, 6102]);
}

/// A sequence of numbers without pattern, the same in every run.
fn scramble(number: u32) -> u32 {
    let mixed = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35)
}

#[test]
fn real_flows_survive_a_syn_flood_and_memory_stays_bounded() {
    let mut metered = Metered::new(FlowOptions {
        max_flows: 1000,
        ..FlowOptions::default()
    });
    let client = |number: u16| ([10, 0, 1, 1], 50_000 + number);
    for number in 0..500 {
        metered.tcp(START, client(number), SERVER, SYN, 1, 0);
        metered.tcp(START, SERVER, client(number), SYN | ACK, 1, 0);
        metered.tcp(START, client(number), SERVER, ACK, 2, 0);
    }
    for number in 0..100_000 {
        let spoofed = (scramble(number).to_be_bytes(), 1024);
        metered.tcp(START + MS, spoofed, SERVER, SYN, 1, 0);
        // As the server answers each.
        metered.tcp(START + MS, SERVER, spoofed, SYN | ACK, 1, 0);
    }
    assert_eq!(metered.meter.counters().flows, 1000);
    assert!(metered.meter.counters().evicted > 90_000);
    for number in 0..500 {
        metered.tcp(START + 2 * MS, client(number), SERVER, ACK, 2, 10);
    }
    let flows = metered.flows();
    let real = flows.iter().filter(|flow| flow.packets() == 4);
    assert_eq!(real.count(), 500);
    let packets: u64 = flows.iter().map(FlowRecord::packets).sum();
    assert_eq!(packets, 500 * 4 + 200_000);
}

#[test]
fn one_million_flows_fit_in_320_mebibytes() {
    let buckets = 1_u64 << 20;
    let flows = 1_000_000 * size_of::<super::entry::FlowEntry>() as u64;
    assert!(flows + 4 * buckets <= 320 << 20, "{flows}");
}

#[test]
fn every_packet_is_in_one_record() {
    let mut metered = Metered::new(FlowOptions {
        max_flows: 200,
        active: Duration::from_secs(3),
        idle: Duration::from_secs(1),
        sampling: 1,
        ..FlowOptions::default()
    });
    let mut oracle: HashMap<(u8, u8), (u64, u64)> = HashMap::new();
    for number in 0..50_000 {
        let [a, b, flags, size] = scramble(number).to_be_bytes();
        let (from, to) = (([10, 0, 0, a % 30], 1), ([10, 0, 0, b % 30], 1));
        let flags = flags & (SYN | ACK | FIN | RST);
        metered.tcp(
            START + u64::from(number) * MS,
            from,
            to,
            flags,
            number,
            size.into(),
        );
        let ends = ((a % 30).min(b % 30), (a % 30).max(b % 30));
        let sum = oracle.entry(ends).or_default();
        *sum = (sum.0 + 1, sum.1 + 40 + u64::from(size));
    }
    let mut got: HashMap<(u8, u8), (u64, u64)> = HashMap::new();
    for flow in metered.flows() {
        let last = |address| match address {
            std::net::IpAddr::V4(address) => address.octets()[3],
            std::net::IpAddr::V6(_) => panic!("no IPv6 here"),
        };
        let (a, b) = (last(flow.key.source), last(flow.key.destination));
        let sum = got.entry((a.min(b), a.max(b))).or_default();
        *sum = (sum.0 + flow.packets(), sum.1 + flow.bytes());
    }
    assert_eq!(got, oracle);
}

#[test]
fn sampling_keeps_or_leaves_whole_flows() {
    let mut metered = Metered::new(FlowOptions {
        sampling: 4,
        ..FlowOptions::default()
    });
    for port in 0..4000 {
        let client = (CLIENT.0, 1000 + port);
        connection(&mut metered, START, client);
    }
    let left_out = metered.meter.counters().not_sampled;
    let flows = metered.flows();
    assert!((700..1300).contains(&flows.len()), "{}", flows.len());
    assert!(
        flows
            .iter()
            .all(|flow| flow.packets() == 9 && flow.sampling == 4)
    );
    assert_eq!(left_out + 9 * flows.len() as u64, 4000 * 9);
}
