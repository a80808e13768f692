// SPDX-License-Identifier: MIT OR Apache-2.0
//! The meter in private networks; needs root.

mod flows;
#[path = "../shared/multicast.rs"]
mod multicast;
#[path = "../shared/stack.rs"]
mod stack;
mod tcp;

use std::time::Duration;

use ringtap_capture::CaptureError;
use ringtap_capture::meter::{FlowCounts, KernelMeter, KeyFields, MAX_LOOPS, MeterWants};
use ringtap_capture::tap::{Direction, Mode, Taking, Tap, TapOptions};
use ringtap_filter::Headers;
use ringtap_testkit::{Namespace, require_root, require_tool, settle_everywhere, with};

const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

const WANTS: MeterWants = MeterWants {
    key: KeyFields {
        source: true,
        destination: true,
        ports: true,
        vlan: true,
    },
    headers: Headers::Inner,
    max_flows: 4096,
    loops: 0,
};

fn ethernet(tags: &[u8], kind: u16, packet: &[u8]) -> Vec<u8> {
    let macs = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let mut frame = [&macs[..], tags, &kind.to_be_bytes(), packet].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ipv4(protocol: u8, from: u8, to: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len())
        .expect("short")
        .to_be_bytes();
    let head = [
        0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0,
    ];
    [&head[..], &[10, 0, 0, from, 10, 0, 0, to], payload].concat()
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).expect("short");
    let words = [ports[0], ports[1], length, 0].map(u16::to_be_bytes);
    [&words.concat()[..], payload].concat()
}

fn tcp(ports: [u16; 2], sequence: u32, flags: u8, payload: u8) -> Vec<u8> {
    let mut segment = ports.map(u16::to_be_bytes).concat();
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 0, 0x50, flags, 4, 0, 0, 0, 0, 0]);
    segment.extend(vec![7; payload.into()]);
    segment
}

fn options(taking: Taking) -> TapOptions {
    with(TapOptions::new("rx0"), |it| {
        it.taking = taking;
        it.on.pool.bytes = Some(8 << 20);
    })
}

fn attach(
    net: &Namespace,
    taking: Taking,
    wants: &MeterWants,
) -> Result<KernelMeter, CaptureError> {
    net.enter(|| KernelMeter::attach(&options(taking), wants))
}

fn take(meter: &mut KernelMeter) -> Vec<FlowCounts> {
    let mut all = Vec::new();
    let taken = meter.take(|counts| all.push(counts));
    taken.expect("it is attached");
    all.sort_by_key(|counts| counts.first_ns);
    all
}

/// The sum of all packets, which the meter's own counters must confirm.
fn packets(meter: &KernelMeter, all: &[FlowCounts]) -> u64 {
    let packets = all.iter().map(|counts| counts.packets).sum();
    let counters = meter.counters();
    let skipped = counters.not_ip + counters.full + counters.nested;
    assert_eq!(counters.seen, counters.analysed + skipped, "{counters:?}");
    assert_eq!(packets, counters.analysed, "{counters:?}");
    packets
}

#[test]
fn each_packet_is_in_the_counts_of_its_flow() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_flows");
    let mut meter = attach(&net, Taking::Pass, &WANTS).unwrap();
    let (there, back) = ([1000, 443], [443, 1000]);
    let tunnelled = ethernet(&[], 0x0800, &ipv4(UDP, 7, 8, &udp([5, 6], b"inner")));
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &tunnelled].concat();
    let inner_v6 = [&[0x60, 0, 0, 0, 0, 8, UDP, 64][..], &[1; 16], &[2; 16]].concat();
    let fragment = {
        let mut packet = ipv4(UDP, 1, 2, &udp([9, 9], b"first"));
        packet[6] = 0x20;
        packet
    };
    let labels = [0, 1, 0, 64, 0, 2, 1, 64];
    let labelled = [&labels[..], &ipv4(UDP, 1, 2, &udp([3, 4], b"mpls"))].concat();
    let frames = [
        ethernet(&[], 0x0800, &ipv4(TCP, 1, 2, &tcp(there, 10, SYN, 0))),
        ethernet(&[], 0x0800, &ipv4(TCP, 2, 1, &tcp(back, 90, SYN | ACK, 0))),
        ethernet(&[], 0x0800, &ipv4(TCP, 1, 2, &tcp(there, 11, ACK, 0))),
        ethernet(&[], 0x0800, &ipv4(TCP, 1, 2, &tcp(there, 11, ACK, 100))),
        ethernet(&[], 0x0800, &ipv4(TCP, 1, 2, &tcp(there, 11, ACK, 100))),
        ethernet(
            &[],
            0x0800,
            &ipv4(TCP, 1, 2, &tcp(there, 111, ACK | FIN, 0)),
        ),
        ethernet(
            &[0x81, 0, 0, 5],
            0x0800,
            &ipv4(UDP, 1, 2, &udp([53, 9], b"tag")),
        ),
        ethernet(&[], 0x86dd, &[&inner_v6[..], &udp([7, 8], b"")].concat()),
        ethernet(&[], 0x0800, &ipv4(UDP, 1, 2, &udp([9, 4789], &vxlan))),
        ethernet(&[], 0x0800, &ipv4(1, 1, 2, &[0; 12])),
        ethernet(&[], 0x0800, &fragment),
        ethernet(&[], 0x8847, &labelled),
        ethernet(&[], 0x0806, &[0; 28]),
    ];
    net.inject("tx0", &frames);
    let all = take(&mut meter);
    assert_eq!(packets(&meter, &all), 12);
    assert_eq!((meter.counters().seen, meter.counters().not_ip), (13, 1));
    let [one, other, tagged, six, inner, echo, part, mpls] = &all[..] else {
        panic!("{all:#?}")
    };
    let v4 = |last: u32| [10 << 24 | last, 0, 0, 0];
    assert_eq!(
        (one.source, one.destination, one.ports),
        (v4(1), v4(2), (1000, 443))
    );
    assert_eq!((one.packets, one.bytes, one.payload_bytes), (5, 400, 200));
    assert_eq!(one.frame_bytes, 60 + 60 + 154 + 154 + 60);
    assert_eq!((one.tcp_flags, one.first_flags), (SYN | ACK | FIN, SYN));
    assert_eq!((one.retransmissions, one.expected), (1, 112));
    assert!(one.first_ack_ns > Some(one.first_ns) && one.first_payload_ns >= one.first_ack_ns);
    assert_eq!(
        (other.source, other.first_flags, other.packets),
        (v4(2), SYN | ACK, 1)
    );
    assert_eq!(
        (tagged.vlan, tagged.ports, tagged.payload_bytes),
        (5, (53, 9), 3)
    );
    assert!(six.is_ipv6 && six.source == [0x0101_0101; 4] && six.ports == (7, 8));
    assert_eq!((six.bytes, six.payload_bytes), (48, 0));
    assert_eq!(
        (inner.source, inner.ports, inner.bytes),
        (v4(7), (5, 6), 33)
    );
    assert_eq!(
        (echo.protocol, echo.ports, echo.payload_bytes),
        (1, (0, 1), 4),
        "type and code of a reply, then 1"
    );
    assert_eq!((part.protocol, part.ports), (UDP, (0, 0)));
    assert_eq!(
        (mpls.ports, mpls.bytes, mpls.payload_bytes),
        ((3, 4), 32, 4)
    );
    assert_eq!(
        meter.counters().sizes.map(|(packets, _)| packets)[..4],
        [9, 1, 2, 0]
    );
    assert!(take(&mut meter).is_empty());
}

#[test]
fn packets_of_flows_without_room_are_counted() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_full");
    let wants = MeterWants {
        max_flows: 16,
        ..WANTS
    };
    let mut meter = attach(&net, Taking::Pass, &wants).unwrap();
    let frame = |port| ethernet(&[], 0x0800, &ipv4(UDP, 1, 2, &udp([port, 9], b"")));
    let frames: Vec<_> = (1000..2000).map(frame).collect();
    (0..3).for_each(|_| net.inject("tx0", &frames));
    assert!(meter.wait(Duration::ZERO), "the room is full");
    let mut all = take(&mut meter);
    assert!(!all.is_empty() && all.len() <= 16);
    let full = meter.counters().full;
    assert_eq!(packets(&meter, &all) + full, 3000);
    // The room is free again, for flows that had none.
    net.inject("tx0", &frames[900..904]);
    all.extend(take(&mut meter));
    assert_eq!(meter.counters().full, full);
    assert_eq!(packets(&meter, &all) + full, 3004);
}

#[test]
fn frames_at_the_borders_of_the_lengths_are_in_the_right_range() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_sizes");
    for name in ["tx0", "rx0"] {
        net.ip(&["link", "set", name, "mtu", "9000"]);
    }
    let mut meter = attach(&net, Taking::Pass, &WANTS).unwrap();
    let frame = |length: usize| {
        let payload = vec![7; length - 14 - 20 - 8];
        ethernet(&[], 0x0800, &ipv4(UDP, 1, 2, &udp([1, 2], &payload)))
    };
    // The last of each range of RFC 2819, and the first of the next.
    let borders = [64, 127, 255, 511, 1023, 1518];
    let frames = borders.map(|last| [frame(last), frame(last + 1)]).concat();
    net.inject("tx0", &frames);
    let all = take(&mut meter);
    assert_eq!(packets(&meter, &all), 12);
    let found = meter.counters().sizes.map(|(packets, _)| packets);
    assert_eq!(found[..7], [1, 2, 2, 2, 2, 2, 1]);
}

#[test]
fn a_looped_multicast_packet_is_counted_once() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("meter_multicast");
    let options = with(TapOptions::new("tx0"), |it| {
        it.on.pool.bytes = Some(8 << 20);
        it.on.mode = Mode::Tc;
        it.on.direction = Direction::InOut;
    });
    let mut meter = net.enter(|| KernelMeter::attach(&options, &WANTS)).unwrap();
    multicast::send_to_own_group(&net, 9999);
    let all = take(&mut meter);
    let ours = all.iter().filter(|one| one.ports.1 == 9999);
    assert_eq!(ours.map(|one| one.packets).sum::<u64>(), 1, "{all:#?}");
    // The local copy has no Ethernet header: if the meter counted it, it would not be IP.
    assert_eq!(meter.counters().not_ip, 0, "{:?}", meter.counters());
}

/// A loop waits for a multiplication: 4 cycles at no more than 8 GHz.
const NS_OF_MAX_LOOPS: u64 = MAX_LOOPS as u64 * 4 / 8;

#[test]
fn the_loops_for_a_packet_have_a_limit() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_loops");
    let wants = |loops| MeterWants { loops, ..WANTS };
    // Above this number the kernel runs none.
    for loops in [MAX_LOOPS + 1, (1 << 23) + 1] {
        let refused = attach(&net, Taking::Pass, &wants(loops)).err();
        let refused = refused.expect("too many loops").to_string();
        assert!(refused.contains("at most 100000"), "{refused}");
    }
    let frame =
        |port, payload: &[u8]| ethernet(&[], 0x0800, &ipv4(UDP, 1, 2, &udp([port, 2], payload)));
    // The times of a flow's first packet and of its first payload are exact. The loops of the second lie between.
    let pairs = (1..=100).flat_map(|port| [frame(port, b""), frame(port, b"x")]);
    let frames: Vec<_> = pairs.collect();
    for (loops, at_least_ns) in [(0, 0), (MAX_LOOPS, NS_OF_MAX_LOOPS)] {
        let mut meter = attach(&net, Taking::Pass, &wants(loops)).unwrap();
        net.inject("tx0", &frames);
        settle_everywhere();
        let all = take(&mut meter);
        assert_eq!((packets(&meter, &all), all.len()), (200, 100));
        for one in &all {
            let took_ns = one.first_payload_ns.unwrap() - one.first_ns;
            assert!(took_ns >= at_least_ns, "{loops} loops: {one:?}");
        }
    }
}

#[test]
fn only_the_parts_of_a_key_that_are_wanted_make_flows() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_parts");
    let key = KeyFields {
        source: true,
        ..KeyFields::default()
    };
    let mut meter = attach(&net, Taking::Pass, &MeterWants { key, ..WANTS }).unwrap();
    let frame = |n: u8| ipv4(UDP, 1 + n % 2, 9, &udp([n.into(), n.into()], b""));
    let frames: Vec<_> = (0..100).map(|n| ethernet(&[], 0x0800, &frame(n))).collect();
    net.inject("tx0", &frames);
    let all = take(&mut meter);
    let seen: Vec<_> = all
        .iter()
        .map(|one| (one.source[0] & 0xff, one.destination[0], one.packets))
        .collect();
    assert_eq!(seen, [(1, 0, 50), (2, 0, 50)]);
}

#[test]
fn a_meter_counts_beside_a_tap_and_an_exclusive_one_alone() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("meter_beside");
    let frame = ethernet(&[], 0x0800, &ipv4(UDP, 1, 2, &udp([1, 2], b"")));
    let frames = vec![frame; 100];
    {
        let mut tap = net.enter(|| Tap::attach(&options(Taking::Pass))).unwrap();
        let mut meter = attach(&net, Taking::Pass, &WANTS).unwrap();
        net.inject("tx0", &frames);
        let all = take(&mut meter);
        assert_eq!(packets(&meter, &all), 100);
        let captured: u64 = tap.counts().lanes.iter().map(|lane| lane.delivered).sum();
        assert_eq!(captured, 100);
        let refused = attach(&net, Taking::Exclusive, &WANTS)
            .map(drop)
            .unwrap_err();
        assert!(
            refused.to_string().contains("would see no packet"),
            "{refused}"
        );
    }
    let exclusive = with(options(Taking::Exclusive), |it| {
        it.on.mode = Mode::Native;
        it.on.direction = Direction::In;
    });
    let mut meter = net
        .enter(|| KernelMeter::attach(&exclusive, &WANTS))
        .unwrap();
    assert!(net.has_xdp("rx0"));
    net.inject("tx0", &frames);
    settle_everywhere();
    let all = take(&mut meter);
    assert_eq!((packets(&meter, &all), all.len()), (100, 1));
    let refused = net
        .enter(|| Tap::attach(&options(Taking::Pass)))
        .map(drop)
        .unwrap_err();
    assert!(
        refused.to_string().contains("takes the packets"),
        "{refused}"
    );
    net.ip(&["link", "delete", "rx0"]);
    let removed = meter.take(|_| ()).unwrap_err();
    assert!(removed.to_string().contains("removed"), "{removed}");
}
