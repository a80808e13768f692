// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of payload inspection, with packets made here.

mod later;

use etherparse::PacketBuilder;
use ringtap_filter::Headers;
use ringtap_filter::hash::Link;
use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Name, Packet, Question, RCODE, ResourceRecord, TYPE};

use super::*;
use crate::flows::FlowMeter;
use crate::packet::Secret;
use crate::record::{DnsRecord, FlowRecord};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const START: u64 = 1_700_000_000 * SECOND;

/// An address's last byte and a port.
type End = (u8, u16);
const CLIENT: End = (1, 40_000);
const WEB: End = (2, 443);
const RESOLVER: End = (3, 53);

struct Inspected {
    meter: FlowMeter,
    secret: Secret,
    records: Vec<Record>,
    now_ns: u64,
}

impl Inspected {
    fn new(options: FlowOptions) -> Self {
        let secret = Secret::random();
        Inspected {
            meter: FlowMeter::new(options, secret, None),
            secret,
            records: Vec::new(),
            now_ns: START,
        }
    }

    fn frame(&mut self, builder: etherparse::PacketBuilderStep<impl Final>, payload: &[u8]) {
        let frame = Final::finish(builder, payload);
        let wire = u32::try_from(frame.len()).expect("small");
        let (link, headers) = (Link::Ethernet, Headers::Inner);
        let packet = Dissected::new(self.now_ns, &frame, wire, link, headers, &self.secret);
        let packets = &mut [packet.expect("IP")];
        self.meter.packets(packets, &mut self.records);
        self.now_ns += MS;
    }

    fn tcp(&mut self, from: End, to: End, sequence: u32, payload: &[u8]) {
        self.frame(
            ip(from, to).tcp(from.1, to.1, sequence, 1000).ack(1),
            payload,
        );
    }

    fn udp(&mut self, from: End, to: End, payload: &[u8]) {
        self.frame(ip(from, to).udp(from.1, to.1), payload);
    }

    /// The flows and the DNS records of all packets.
    fn end(mut self) -> (Vec<FlowRecord>, Vec<DnsRecord>, FlowCounters) {
        self.meter.finish(&mut self.records);
        let (mut flows, mut dns) = (Vec::new(), Vec::new());
        for record in self.records {
            match record {
                Record::Flow(flow) => flows.push(*flow),
                Record::Dns(one) => dns.push(*one),
                Record::Measurement(other) => panic!("{other:?}"),
            }
        }
        (flows, dns, self.meter.counters())
    }
}

/// The last step of a packet.
trait Final: Sized {
    fn finish(step: etherparse::PacketBuilderStep<Self>, payload: &[u8]) -> Vec<u8>;
}

macro_rules! last_step {
    ($header:ty) => {
        impl Final for $header {
            fn finish(step: etherparse::PacketBuilderStep<Self>, payload: &[u8]) -> Vec<u8> {
                let mut frame = Vec::new();
                step.write(&mut frame, payload).expect("memory");
                frame
            }
        }
    };
}
last_step!(etherparse::TcpHeader);
last_step!(etherparse::UdpHeader);

fn ip(from: End, to: End) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, from.0], [10, 0, 0, to.0], 64)
}

/// A list after its length, a number of this many bytes.
fn list(length_bytes: usize, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    [&length[length.len() - length_bytes..], content].concat()
}

/// A record with a ClientHello for this server, which offers HTTP/2 and TLS 1.3.
fn client_hello(server: &str) -> Vec<u8> {
    padded_client_hello(server, 0)
}

/// As [`client_hello`], with a padding extension of this length.
fn padded_client_hello(server: &str, padding: usize) -> Vec<u8> {
    let name = list(2, &[&[0][..], &list(2, server.as_bytes())].concat());
    let extensions = [
        (0_u16, name),
        (16, list(2, &list(1, b"h2"))),
        (43, vec![2, 3, 4]),
        (21, vec![0; padding]),
    ];
    let extensions = extensions.into_iter().take(if padding > 0 { 4 } else { 3 });
    let extensions =
        extensions.map(|(kind, data)| [&kind.to_be_bytes()[..], &list(2, &data)].concat());
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &list(2, &[0x13, 0x01, 0x13, 0x02]),
        &[1, 0],
        &list(2, &extensions.collect::<Vec<_>>().concat()),
    ];
    let handshake = [&[1][..], &list(3, &body.concat())].concat();
    [&[22, 3, 1][..], &list(2, &handshake)].concat()
}

fn question(id: u16, name: &str) -> Vec<u8> {
    let mut packet = Packet::new_query(id);
    let name = Name::new(name).expect("a name").into_owned();
    packet
        .questions
        .push(Question::new(name, TYPE::A.into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().expect("memory")
}

fn answer(id: u16, name: &str, code: RCODE) -> Vec<u8> {
    let question = question(id, name);
    let mut packet = Packet::parse(&question).expect("our own").into_reply();
    *packet.rcode_mut() = code;
    if code == RCODE::NoError {
        let name = Name::new(name).expect("a name");
        let address = RData::A(A {
            address: 0xc000_0201,
        });
        packet
            .answers
            .push(ResourceRecord::new(name, CLASS::IN, 60, address));
    }
    packet.build_bytes_vec_compressed().expect("memory")
}

#[test]
fn a_hello_in_any_two_segments_gives_the_same_texts() {
    let hello = client_hello("www.example.org");
    for cut in 2..hello.len() {
        let mut inspected = Inspected::new(FlowOptions::default());
        let (first, second) = hello.split_at(cut);
        inspected.tcp(CLIENT, WEB, u32::MAX - 9, first);
        // Sent twice, with some bytes of the first.
        let second_at = (u32::MAX - 9).wrapping_add(u32::try_from(cut).expect("small"));
        let overlapping = [&first[first.len() - 1..], second].concat();
        inspected.tcp(CLIENT, WEB, second_at.wrapping_sub(1), &overlapping);
        inspected.tcp(CLIENT, WEB, second_at, second);
        let (flows, _, counters) = inspected.end();
        let details = flows[0].details.as_ref().expect("texts");
        assert_eq!(details.server_name.as_deref(), Some("www.example.org"));
        assert_eq!(details.alpn.as_deref(), Some("h2"));
        assert_eq!(details.tls_version.as_deref(), Some("TLSv13"));
        let ja4 = details.ja4.as_deref().expect("a client");
        assert!(ja4.starts_with("t13d0203h2_"), "{ja4}");
        assert_eq!((counters.payload_unread, counters.payload_no_room), (0, 0));
    }
}

#[test]
fn a_missing_segment_and_tiny_segments_are_counted_and_cost_no_packet() {
    let hello = client_hello("www.example.org");
    let mut inspected = Inspected::new(FlowOptions::default());
    inspected.tcp(CLIENT, WEB, 1, &hello[..40]);
    inspected.tcp(CLIENT, WEB, 61, &hello[60..]);
    for (at, byte) in (1..).zip(&hello) {
        inspected.tcp(
            (1, 40_001),
            WEB,
            at,
            &[22, 3, *byte][..if at == 1 { 2 } else { 1 }],
        );
    }
    let (flows, _, counters) = inspected.end();
    assert!(flows.iter().all(|flow| flow.details.is_none()), "{flows:?}");
    let packets: u64 = flows.iter().map(FlowRecord::packets).sum();
    assert_eq!(packets, 2 + u64::try_from(hello.len()).expect("small"));
    assert_eq!((counters.payload_unread, counters.payload_no_room), (2, 0));
}

#[test]
fn unfinished_hellos_take_no_more_memory_than_allowed_and_are_counted() {
    let options = FlowOptions {
        payload_memory: 64 << 10,
        ..FlowOptions::default()
    };
    let mut inspected = Inspected::new(options);
    let hello = client_hello(&"a".repeat(200));
    for port in 1..1000 {
        inspected.tcp((1, port), WEB, 1, &hello[..hello.len() - 1]);
    }
    let memory = inspected.meter.payload_memory();
    assert!(memory <= 64 << 10, "{memory} bytes");
    let (flows, _, counters) = inspected.end();
    assert_eq!(flows.len(), 999);
    assert!(
        (500..999).contains(&counters.payload_no_room),
        "{counters:?}"
    );
}

#[test]
fn an_answer_belongs_to_the_question_with_its_addresses_identifier_and_name() {
    let mut inspected = Inspected::new(FlowOptions::default());
    inspected.udp(CLIENT, RESOLVER, &question(7, "One.example"));
    inspected.udp(CLIENT, RESOLVER, &question(8, "two.example"));
    inspected.udp((4, 40_000), RESOLVER, &question(7, "silent.example"));
    inspected.udp(
        RESOLVER,
        CLIENT,
        &answer(8, "two.example", RCODE::NameError),
    );
    inspected.udp(
        RESOLVER,
        CLIENT,
        &answer(7, "other.example", RCODE::NoError),
    );
    inspected.udp(RESOLVER, CLIENT, &answer(7, "one.example", RCODE::NoError));
    let (flows, dns, counters) = inspected.end();
    assert_eq!((counters.payload_unread, counters.payload_no_room), (0, 0));
    let told: Vec<_> = dns
        .iter()
        .map(|one| {
            (
                &*one.query,
                one.response.as_deref(),
                one.rtt_ns,
                one.key.source_port,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("two.example", Some("NXDOMAIN"), Some(2 * MS), 40_000),
            ("other.example", Some("NOERROR"), None, 40_000),
            ("one.example", Some("NOERROR"), Some(5 * MS), 40_000),
            ("silent.example", None, None, 40_000),
        ]
    );
    assert_eq!(dns[2].answers, ["192.0.2.1"]);
    let of_client = flows
        .iter()
        .find(|flow| flow.packets() == 5)
        .expect("a flow");
    let details = of_client.details.as_ref().expect("texts");
    assert_eq!(details.dns_query.as_deref(), Some("one.example"));
    assert_eq!(details.dns_response.as_deref(), Some("NOERROR"));
    assert_eq!(details.dns_latency_ns, Some(5 * MS));
}

#[test]
fn a_question_without_an_answer_becomes_a_record_after_ten_seconds() {
    let mut inspected = Inspected::new(FlowOptions::default());
    inspected.udp(CLIENT, RESOLVER, &question(7, "silent.example"));
    let Inspected { meter, records, .. } = &mut inspected;
    meter.tick(START + 9 * SECOND, 10, records);
    assert!(records.is_empty());
    meter.tick(START + 10 * SECOND, 10, records);
    assert!(matches!(&records[..], [Record::Dns(_)]), "{records:?}");
}

#[test]
fn a_flood_of_questions_takes_bounded_memory_and_each_is_in_one_record() {
    let options = FlowOptions {
        payload_memory: 1 << 20,
        ..FlowOptions::default()
    };
    let mut inspected = Inspected::new(options);
    for id in 0..5000 {
        inspected.udp(CLIENT, RESOLVER, &question(id, "flood.example"));
    }
    // A quarter of the memory is for questions.
    assert!(inspected.meter.payload_memory() <= 1 << 20);
    let (_, dns, counters) = inspected.end();
    assert_eq!(dns.len(), 5000);
    assert_eq!(counters.payload_no_room, 5000 - (1 << 18) / 512);
}

#[test]
fn messages_that_would_cost_more_than_their_length_are_refused() {
    let mut inspected = Inspected::new(FlowOptions::default());
    let mut many = question(1, "a.example");
    many[6..8].copy_from_slice(&[0xff, 0xff]);
    // Correct, but the data of 60 records lead through 600 pointers each, which are the data of the first record.
    let mut chain = vec![0, 1, 0x80, 0, 0, 1, 0, 61, 0, 0, 0, 0];
    chain.extend([0, 0, 1, 0, 1]);
    let null_record = [0, 10, 0, 1, 0, 0, 0, 0];
    chain.extend([&[0], &null_record[..], &1200_u16.to_be_bytes()].concat());
    let first = u16::try_from(chain.len()).expect("small");
    chain.extend([0xc0, 12]);
    let last = first + 2 * 599;
    for target in (first..last).step_by(2) {
        chain.extend((0xc000 | target).to_be_bytes());
    }
    let alias_record = [0, 5, 0, 1, 0, 0, 0, 0];
    for _ in 0..60 {
        chain.extend([&[0], &alias_record[..], &[0, 2]].concat());
        chain.extend((0xc000 | last).to_be_bytes());
    }
    inspected.udp(CLIENT, RESOLVER, &many);
    inspected.udp(CLIENT, RESOLVER, &chain);
    inspected.udp(CLIENT, RESOLVER, &[1, 2, 3]);
    let (flows, dns, counters) = inspected.end();
    assert!(dns.is_empty() && flows[0].details.is_none(), "{dns:?}");
    assert_eq!(counters.payload_unread, 3);
}

#[test]
fn a_request_has_its_host_and_a_message_over_tcp_its_question() {
    let mut inspected = Inspected::new(FlowOptions::default());
    inspected.tcp(CLIENT, (2, 80), 1, b"GET / HTTP/1.1\r\nhost: www.exam");
    inspected.tcp(CLIENT, (2, 80), 31, b"ple.org\r\nX: y\r\n\r\n");
    inspected.tcp(
        (1, 41_000),
        RESOLVER,
        1,
        &list(2, &question(3, "long.example")),
    );
    inspected.tcp(
        RESOLVER,
        (1, 41_000),
        1,
        &list(2, &answer(3, "long.example", RCODE::NoError)),
    );
    inspected.tcp((1, 42_000), (2, 22), 1, b"SSH-2.0-x\r\n");
    let (flows, dns, counters) = inspected.end();
    assert_eq!((counters.payload_unread, counters.payload_no_room), (0, 0));
    let name = |port| {
        let flow = flows.iter().find(|flow| flow.key.destination_port == port);
        flow.expect("a flow").details.clone().unwrap_or_default()
    };
    assert_eq!(name(80).server_name.as_deref(), Some("www.example.org"));
    assert_eq!(name(53).dns_query.as_deref(), Some("long.example"));
    assert_eq!(*name(22), Details::default());
    assert_eq!((dns.len(), dns[0].rtt_ns), (1, Some(MS)));
}

#[test]
fn without_payload_bytes_no_payload_is_read() {
    let options = FlowOptions {
        payload_bytes: 0,
        ..FlowOptions::default()
    };
    let mut inspected = Inspected::new(options);
    inspected.tcp(CLIENT, WEB, 1, &client_hello("www.example.org"));
    inspected.udp(CLIENT, RESOLVER, &question(7, "one.example"));
    let (flows, dns, _) = inspected.end();
    assert!(dns.is_empty() && flows.iter().all(|flow| flow.details.is_none()));
}

#[test]
fn damaged_messages_end_in_one_record_with_bounded_memory() {
    let hello = client_hello("www.example.org");
    let (asked, answered) = (
        question(7, "www.example.org"),
        answer(7, "www.example.org", RCODE::NoError),
    );
    let request = b"GET / HTTP/1.1\r\nHost: www.example.org\r\n\r\n".to_vec();
    // The mode of `meter`, then packets with their lengths in front.
    let inputs = [
        (3, vec![hello]),
        (3, vec![request]),
        (2, vec![asked.clone(), answered.clone()]),
        (7, vec![list(2, &asked), list(2, &answered)]),
    ];
    let inputs = inputs.map(|(mode, packets)| {
        let packets = packets.iter().map(|packet| list(1, packet));
        [vec![mode], packets.collect::<Vec<_>>().concat()].concat()
    });
    let mut state = 1_u32;
    let mut random = |most: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        usize::try_from(state).expect("32 bits") % most
    };
    for number in 0..20_000 {
        let mut input = inputs[number % inputs.len()].clone();
        for _ in 0..random(4) {
            let at = 1 + random(input.len() - 1);
            input[at] = [0, 0xc0, 0xff, input[at] ^ 1, input[at].wrapping_add(1)][random(5)];
        }
        input.truncate(1 + random(2 * input.len()));
        crate::fuzzing::meter(&input);
    }
}
