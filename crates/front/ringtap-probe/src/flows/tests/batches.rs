// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches of packets give the records of the same packets one at a time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A packet of few hosts, after a pause.
#[derive(Clone, Copy, Debug)]
struct Step {
    pause_ms: u64,
    is_back: bool,
    client: u8,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Tcp {
        flags: u8,
        sequence: u8,
        payload: u8,
    },
    Udp {
        payload: u8,
    },
    /// First or later fragment of a UDP datagram with this number.
    Fragment {
        id: u8,
        is_first: bool,
    },
    /// A UDP datagram in a GRE tunnel with this key.
    Tunnel {
        key: u8,
    },
}

/// Mostly short pauses, some of the length of the time-outs.
fn pauses() -> impl Strategy<Value = u64> {
    prop_oneof![
        20 => 0..3_u64,
        4 => 10..200_u64,
        1 => 900..1100_u64,
        1 => 2000..2500_u64,
        1 => Just(100_000_u64),
    ]
}

fn kinds() -> impl Strategy<Value = Kind> {
    let flags = prop::sample::select(vec![SYN, SYN | ACK, ACK, ACK, FIN | ACK, RST, RST | ACK]);
    prop_oneof![
        6 => (flags, 0..4_u8, 0..3_u8)
            .prop_map(|(flags, sequence, payload)| Kind::Tcp { flags, sequence, payload }),
        3 => (0..3_u8).prop_map(|payload| Kind::Udp { payload }),
        2 => (0..3_u8, any::<bool>()).prop_map(|(id, is_first)| Kind::Fragment { id, is_first }),
        1 => (0..3_u8).prop_map(|key| Kind::Tunnel { key }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let clients = prop_oneof![3 => 0..8_u8, 1 => any::<u8>()];
    let step = (pauses(), any::<bool>(), clients, kinds());
    let step = step.prop_map(|(pause_ms, is_back, client, kind)| Step {
        pause_ms,
        is_back,
        client,
        kind,
    });
    prop::collection::vec(step, 1..400)
}

fn frame(step: Step) -> Vec<u8> {
    let (client, server) = (([10, 0, 0, step.client], 1000), ([10, 0, 1, 1], 2000));
    let (from, to) = if step.is_back {
        (server, client)
    } else {
        (client, server)
    };
    let udp = |payload: u8| {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(from.0, to.0, 64);
        let mut frame = Vec::new();
        let bytes = vec![7; payload.into()];
        builder
            .udp(from.1, to.1)
            .write(&mut frame, &bytes)
            .expect("memory");
        frame
    };
    match step.kind {
        Kind::Tcp {
            flags,
            sequence,
            payload,
        } => tcp(from, to, flags, sequence.into(), payload.into()),
        Kind::Udp { payload } => udp(payload),
        Kind::Fragment { id, is_first } => {
            let mut frame = udp(32);
            frame[18..20].copy_from_slice(&[0, id]);
            // More fragments follow, or the offset is not 0.
            frame[20..22].copy_from_slice(&if is_first { [0x20, 0] } else { [0, 5] });
            frame
        }
        Kind::Tunnel { key } => {
            let inner = udp(1);
            let mut gre = vec![0x20, 0, 8, 0, 0, 0, 0, key];
            gre.extend_from_slice(&inner[14..]);
            let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([9; 4], [8; 4], 64);
            let mut frame = Vec::new();
            builder
                .write(&mut frame, IpNumber::GRE, &gre)
                .expect("memory");
            frame
        }
    }
}

/// Packets and bytes by both addresses, the lower one first.
type Sums = BTreeMap<[std::net::IpAddr; 2], (u64, u64)>;

fn add(sums: &mut Sums, ends: [std::net::IpAddr; 2], packets: u64, bytes: u64) {
    let [a, b] = ends;
    let sum = sums.entry([a.min(b), a.max(b)]).or_default();
    *sum = (sum.0 + packets, sum.1 + bytes);
}

/// Records and counters of frames that come in batches of these lengths, in turn. Between batches, the clock moves on.
fn metered(
    options: FlowOptions,
    secret: Secret,
    frames: &[(u64, Vec<u8>)],
    lengths: &[usize],
    is_single: bool,
) -> (Vec<Record>, FlowCounters, Sums) {
    let mut meter = FlowMeter::new(options, secret, None);
    meter.keep_changes();
    let (mut records, mut sums) = (Vec::new(), Sums::new());
    let mut rest = frames;
    for &length in lengths.iter().cycle() {
        let (batch, later) = rest.split_at(length.min(rest.len()));
        rest = later;
        let dissected = batch.iter().map(|(time_ns, frame)| {
            let wire = u32::try_from(frame.len()).expect("small");
            let (link, headers) = (Link::Ethernet, Headers::Inner);
            let packet = Dissected::new(*time_ns, frame, wire, link, headers, &secret);
            packet.expect("IP")
        });
        let mut packets: Vec<_> = dissected.collect();
        for packet in &packets {
            let key = packet.key.flow_key();
            add(
                &mut sums,
                [key.source, key.destination],
                1,
                packet.ip_bytes.into(),
            );
        }
        let (mut wanted, mut brought) = (Sums::new(), Sums::new());
        let count = |sums: &mut Sums, key: &PacketKey, packets, bytes| {
            let key = key.flow_key();
            let sum = sums.entry([key.source, key.destination]).or_default();
            *sum = (sum.0 + packets, sum.1 + bytes);
        };
        if is_single {
            for packet in &mut packets {
                meter.packets(std::slice::from_mut(packet), &mut records);
                meter.take_some_changes(|one| {
                    count(&mut brought, &one.key, one.packets, one.bytes);
                });
            }
        } else {
            meter.packets(&mut packets, &mut records);
        }
        // What the flows brought is what the packets of the batch have, in each direction.
        for packet in &packets {
            count(&mut wanted, &packet.key, 1, packet.ip_bytes.into());
        }
        meter.take_changes(|one| count(&mut brought, &one.key, one.packets, one.bytes));
        assert_eq!(brought, wanted);
        let Some((last_ns, _)) = batch.last() else {
            break;
        };
        meter.tick(last_ns + 50 * MS, length, &mut records);
    }
    let counters = meter.counters();
    meter.finish(&mut records);
    (records, counters, sums)
}

proptest! {
    #[test]
    fn batches_give_the_records_of_single_packets(
        steps in steps(),
        lengths in prop::collection::vec(1_usize..80, 1..6),
        max_flows in 1_u32..60,
        set_back in prop::option::of(0_usize..400),
    ) {
        let options = FlowOptions {
            max_flows,
            active: Duration::from_secs(3),
            idle: Duration::from_secs(1),
            ..FlowOptions::default()
        };
        let mut now_ns = START;
        let frames: Vec<_> = steps.iter().enumerate().map(|(number, step)| {
            now_ns += step.pause_ms * MS;
            if set_back == Some(number) {
                now_ns -= 3600 * SECOND;
            }
            (now_ns, frame(*step))
        }).collect();
        let secret = Secret::random();
        let (records, counters, sums) = metered(options, secret, &frames, &lengths, false);
        let single = metered(options, secret, &frames, &lengths, true);
        prop_assert_eq!((&records, counters), (&single.0, single.1));
        let mut got = Sums::new();
        for record in &records {
            if let Record::Flow(flow) = record {
                let ends = [flow.key.source, flow.key.destination];
                add(&mut got, ends, flow.packets(), flow.bytes());
            }
        }
        prop_assert_eq!(got, sums);
    }
}
