// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generated packets: checks every varying field without the plan that wrote it.
use super::*;
use crate::{stamp, traffic::Sizes};

/// Every combination of family, transport, tags, stamp and size.
fn all_traffic() -> Vec<Traffic> {
    let mut all = Vec::new();
    for bits in 0..16 {
        let (source, destination) = Traffic::benchmark_addresses(bits & 1 != 0);
        let transport =
            [TransportProtocol::Udp, TransportProtocol::Tcp][usize::from(bits & 2 != 0)];
        for vlans in [vec![], vec![7], vec![4094, 3]] {
            let traffic = Traffic {
                flows: 1000,
                stamp: bits & 4 != 0,
                sizes: Sizes::Imix,
                source_port: if bits & 8 != 0 { 65_000 } else { 10_000 },
                transport,
                vlans,
                source,
                destination,
                ..Traffic::default()
            };
            let odd = Sizes::Fixed(traffic.min_size_bytes() + 37);
            all.push(Traffic {
                sizes: odd,
                ..traffic.clone()
            });
            all.push(traffic);
        }
    }
    all
}

fn field(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// Checks lengths and checksums independently of the plan.
fn check(frame: &[u8]) {
    let mut ip = 14;
    while [0x8100, 0x88a8].contains(&field(frame, ip - 2)) {
        ip += 4;
    }
    let (addresses, protocol, transport) = match field(frame, ip - 2) {
        0x0800 => {
            assert_eq!(usize::from(field(frame, ip + 2)), frame.len() - ip);
            assert_eq!(checksum::sum(&frame[ip..ip + 20]), 0xffff);
            (&frame[ip + 12..ip + 20], frame[ip + 9], ip + 20)
        }
        0x86dd => {
            assert_eq!(usize::from(field(frame, ip + 4)), frame.len() - ip - 40);
            (&frame[ip + 8..ip + 40], frame[ip + 6], ip + 40)
        }
        other => panic!("ethertype {other:#x}"),
    };
    let segment = &frame[transport..];
    if protocol == 17 {
        assert_eq!(usize::from(field(segment, 4)), segment.len());
        assert_ne!(field(segment, 6), 0, "UDP without a checksum");
    }
    let mut pseudo = addresses.to_vec();
    pseudo.extend_from_slice(&u32::try_from(segment.len()).unwrap().to_be_bytes());
    pseudo.extend_from_slice(&[0, protocol]);
    let sum = checksum::sum(&pseudo) + checksum::sum(segment);
    assert_eq!(checksum::finish(sum), 0);
}

#[test]
fn lengths_and_checksums_are_right_whatever_varies() {
    for traffic in all_traffic() {
        let plan = Plan::new(&traffic, MacAddress::default()).unwrap();
        for sequence in (0..30).chain([999, 1000, 65_535, 65_536, u64::MAX]) {
            let mut frame = Vec::new();
            let length = plan.write(sequence, sequence.wrapping_mul(77), &mut frame);
            assert_eq!(length, frame.len());
            check(&frame);
        }
    }
}

#[test]
fn a_stamp_is_read_back_wherever_it_stands() {
    for traffic in all_traffic() {
        let plan = Plan::new(&traffic, MacAddress::default()).unwrap();
        let mut frame = Vec::new();
        plan.write(77, 123_456_789, &mut frame);
        let expected = traffic.stamp.then_some(Stamp {
            sequence: 77,
            time_ns: 123_456_789,
        });
        assert_eq!(stamp::parse(&frame), expected, "{traffic:?}");
    }
}

#[test]
fn the_first_packet_has_the_addresses_and_ports_that_were_asked_for() {
    for traffic in all_traffic() {
        let plan = Plan::new(&traffic, MacAddress::default()).unwrap();
        let mut frame = Vec::new();
        plan.write(0, 0, &mut frame);
        let ip = 14 + 4 * traffic.vlans.len();
        let (at, ends) = match (traffic.source, traffic.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => (ip + 12, [from.octets(), to.octets()].concat()),
            (IpAddr::V6(from), IpAddr::V6(to)) => (ip + 8, [from.octets(), to.octets()].concat()),
            families => panic!("{families:?}"),
        };
        let transport = at + ends.len();
        assert_eq!(frame[at..transport], ends, "{traffic:?}");
        let ports = (field(&frame, transport), field(&frame, transport + 2));
        assert_eq!(ports, (traffic.source_port, traffic.destination_port));
    }
}

#[test]
fn flows_take_turns_and_are_all_different() {
    let traffic = Traffic {
        flows: 5,
        source_port: 65_534,
        ..Traffic::default()
    };
    let plan = Plan::new(&traffic, MacAddress::default()).unwrap();
    let flow = |sequence| {
        let mut frame = Vec::new();
        plan.write(sequence, 0, &mut frame);
        frame[26..36].to_vec()
    };
    let mut distinct: Vec<_> = (0..5).map(flow).collect();
    assert_eq!(flow(7), distinct[2]);
    distinct.dedup();
    assert_eq!(distinct.len(), 5);
    assert_eq!(distinct[1][3], 2, "source address 198.18.0.2");
    assert_eq!(distinct[2][8..], 65_534_u16.to_be_bytes());
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    let plan = Plan::new(
        &Traffic {
            stamp: true,
            ..Traffic::default()
        },
        MacAddress::default(),
    )
    .unwrap();
    let mut frame = Vec::new();
    plan.write(0, 0, &mut frame);
    // A time whose words make the sum all ones, so that the field would be zero.
    let time_ns = u64::from(field(&frame, 40));
    frame.clear();
    plan.write(0, time_ns, &mut frame);
    assert_eq!(field(&frame, 40), 0xffff);
    check(&frame);
}

#[test]
fn sizes_are_those_of_the_wire() {
    let plan = Plan::new(&Traffic::default(), MacAddress::default()).unwrap();
    assert_eq!(plan.longest(), 60);
    let (packets, bits) = plan.cycle();
    assert_eq!((packets.get(), bits.get()), (1, 672));
}
