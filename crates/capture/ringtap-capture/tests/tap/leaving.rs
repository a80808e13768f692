// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outgoing packets, and interfaces on which they come back.

use ringtap_capture::tap::{Direction, Mode, TapOptions};
use ringtap_pool::format::flag;
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::multicast;
use crate::support::{Captured, Tagging, attach, finish, frame, options, own, python, tagged};

fn directed(direction: Direction) -> TapOptions {
    with(options("rx0"), |it| it.on.direction = direction)
}

fn is_out(packet: &Captured) -> bool {
    packet.slot.flags & flag::OUT != 0
}

#[test]
fn each_direction_has_its_packets_and_both_have_all() {
    require_root!();
    require_tool!("ip", "python3");
    let (arriving, leaving) = (frame(1, 80), frame(2, 90));
    for (direction, expected) in [
        (Direction::In, vec![(0, arriving.clone())]),
        (Direction::Out, vec![(flag::OUT, leaving.clone())]),
        (
            Direction::InOut,
            vec![(0, arriving.clone()), (flag::OUT, leaving.clone())],
        ),
    ] {
        for mode in [Mode::Native, Mode::Generic, Mode::Tc] {
            let net = Namespace::with_veth("direction");
            let tap = attach(&net, &with(directed(direction), |it| it.on.mode = mode));
            net.inject("tx0", std::slice::from_ref(&arriving));
            net.inject("rx0", std::slice::from_ref(&leaving));
            let (captured, _) = finish(tap);
            let mut found: Vec<_> = captured
                .iter()
                .map(|packet| (packet.slot.flags, packet.data.clone()))
                .collect();
            found.sort();
            // No other flag: these packets have no tag, no hash, and a complete checksum.
            assert_eq!(found, expected, "{direction:?} by {mode:?}");
        }
    }
}

#[test]
fn a_tag_that_the_host_hands_over_beside_the_packet_is_put_in() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("vlan_out");
    let tap = attach(&net, &directed(Direction::Out));
    let _tagging = Tagging::on(&net, "rx0");
    net.inject("rx0", &[frame(1, 100)]);
    let (captured, _) = finish(tap);
    assert_eq!(own(&captured), [tagged(&frame(1, 100), 5)]);
    assert!(
        captured
            .iter()
            .all(|packet| packet.slot.flags & flag::VLAN_RESTORED != 0)
    );
}

/// Sends one UDP packet of 100 bytes to its own socket.
const TO_OURSELVES: &str = "import socket\n\
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
    s.sendto(bytes(100), ('127.0.0.1', 9))\n";

#[test]
fn a_looped_packet_is_captured_once() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = Namespace::new("loop");
    for (direction, out) in [
        (Direction::InOut, false),
        (Direction::In, false),
        (Direction::Out, true),
    ] {
        let tap = attach(&net, &with(options("lo"), |it| it.on.direction = direction));
        let notes = tap.facts().notes.clone();
        assert!(
            notes.iter().any(|note| note.contains("no native XDP")) || out,
            "{notes:?}"
        );
        python(&net, "0", TO_OURSELVES);
        let (captured, _) = finish(tap);
        let udp: Vec<_> = captured
            .iter()
            .filter(|packet| packet.slot.wire_length == 142)
            .collect();
        assert_eq!(udp.len(), 1, "{direction:?}: {captured:?}");
        assert_eq!(is_out(udp[0]), out);
        assert_ne!(
            udp[0].slot.flags & flag::PARTIAL_CHECKSUM,
            0,
            "nobody computed it"
        );
    }
}

#[test]
fn a_multicast_packet_that_the_host_receives_itself_is_captured_once() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("multicast");
    let tap = attach(
        &net,
        &with(options("tx0"), |it| {
            it.on.mode = Mode::Tc;
            it.on.direction = Direction::InOut;
        }),
    );
    multicast::send_to_own_group(&net, 9999);
    let (captured, _) = finish(tap);
    let ours = captured
        .iter()
        .filter(|packet| packet.data.ends_with(multicast::PAYLOAD));
    let ours: Vec<_> = ours.map(is_out).collect();
    assert_eq!(ours, [true], "{captured:?}");
}

#[test]
fn generic_xdp_captures_where_there_is_no_native() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = Namespace::new("generic");
    let tap = attach(&net, &with(options("lo"), |it| it.on.mode = Mode::Generic));
    python(&net, "0", TO_OURSELVES);
    let (captured, _) = finish(tap);
    let udp = captured
        .iter()
        .filter(|packet| packet.slot.wire_length == 142);
    assert_eq!(udp.count(), 1);
}

#[test]
fn the_largest_packet_of_the_loopback_is_captured_whole() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = Namespace::new("largest");
    for mode in [Mode::Generic, Mode::Tc] {
        let tap = attach(&net, &with(options("lo"), |it| it.on.mode = mode));
        let payload = "bytes(n % 251 for n in range(65507))";
        python(&net, "0", &TO_OURSELVES.replace("bytes(100)", payload));
        let (captured, _) = finish(tap);
        let largest = captured.iter().find(|it| it.slot.wire_length == 65_549);
        let largest = largest.unwrap_or_else(|| panic!("{mode:?}: it was not captured"));
        let sent: Vec<_> = (0..65_507_u32)
            .map(|n| (n % 251).to_le_bytes()[0])
            .collect();
        assert!(largest.data[42..] == sent, "{mode:?}: other bytes");
    }
}

#[test]
fn a_packet_larger_than_the_wire_is_marked_and_whole() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = Namespace::new("super");
    let tap = attach(
        &net,
        &with(options("lo"), |it| it.on.pool.chunk_bytes = Some(128 << 10)),
    );
    python(
        &net,
        "0",
        "import socket\n\
         l = socket.create_server(('127.0.0.1', 7777))\n\
         s = socket.create_connection(('127.0.0.1', 7777))\n\
         c, _ = l.accept()\n\
         s.sendall(bytes(range(256)) * 1024)\n\
         got = 0\n\
         while got < 256 * 1024: got += len(c.recv(65536))\n",
    );
    let (captured, _) = finish(tap);
    let large: Vec<_> = captured
        .iter()
        .filter(|packet| packet.slot.flags & flag::SUPER != 0)
        .collect();
    assert!(!large.is_empty(), "TCP over loopback sends super-packets");
    for packet in large {
        assert_eq!(u64::from(packet.slot.wire_length), packet.data.len() as u64);
    }
}
