// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows in tunnels and VLANs: what makes two flows of packets with the same addresses.

use super::*;
use crate::record::{Tunnel, TunnelKind};

/// Ends of a tunnel.
const ENDS: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 2]];

/// A datagram between the ends of a tunnel; back if `is_back`.
fn over_udp(is_back: bool, port: u16, data: &[u8]) -> Vec<u8> {
    let [from, to] = if is_back { [ENDS[1], ENDS[0]] } else { ENDS };
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(from, to, 64);
    builder
        .udp(5000, port)
        .write(&mut frame, data)
        .expect("memory");
    frame
}

fn over_ip(is_back: bool, protocol: u8, data: &[u8]) -> Vec<u8> {
    let [from, to] = if is_back { [ENDS[1], ENDS[0]] } else { ENDS };
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4(from, to, 64);
    builder
        .write(&mut frame, IpNumber(protocol), data)
        .expect("memory");
    frame
}

/// Inner frames of one connection, there and back.
fn inner(is_back: bool) -> Vec<u8> {
    if is_back {
        tcp(SERVER, CLIENT, ACK, 1, 20)
    } else {
        tcp(CLIENT, SERVER, ACK, 1, 10)
    }
}

fn vxlan(is_back: bool, number: u8, frame: &[u8]) -> Vec<u8> {
    let header = [8, 0, 0, 0, 0, 0, number, 0];
    over_udp(is_back, 4789, &[&header, frame].concat())
}

fn gtp(is_back: bool, teid: u8) -> Vec<u8> {
    let header = [0x30, 255, 0, 0, 0, 0, 0, teid];
    over_udp(is_back, 2152, &[&header, &inner(is_back)[14..]].concat())
}

fn gre(is_back: bool, key: u8) -> Vec<u8> {
    let header = [0x20, 0, 8, 0, 10, 0, 0, key];
    over_ip(is_back, 47, &[&header, &inner(is_back)[14..]].concat())
}

fn tagged(tags: &[u8]) -> Vec<u8> {
    let mut frame = inner(false);
    for tag in tags.iter().rev() {
        frame.splice(12..12, [0x81, 0, 0, *tag]);
    }
    frame
}

fn metered(frames: &[Vec<u8>]) -> Vec<FlowRecord> {
    let mut metered = Metered::new(FlowOptions::default());
    for (at, frame) in (0..).zip(frames) {
        metered.frame(START + at * MS, frame);
    }
    let mut flows = metered.flows();
    flows.sort_by_key(FlowRecord::first_ns);
    flows
}

fn tunnel(flow: &FlowRecord) -> Tunnel {
    let outside = flow.outside.as_ref().expect("a tunnel");
    outside.tunnels[0].expect("a tunnel")
}

#[test]
fn the_same_addresses_under_two_identifiers_are_two_flows_and_both_directions_are_one() {
    for (kind, frame) in [
        (
            TunnelKind::Vxlan,
            (|back, number| vxlan(back, number, &inner(back))) as fn(bool, u8) -> Vec<u8>,
        ),
        (TunnelKind::Gre, gre),
    ] {
        let sent = [(false, 1), (false, 2), (true, 1), (true, 2), (true, 2)];
        let frames = sent.map(|(back, number)| frame(back, number));
        let flows = metered(&frames);
        let [one, two] = &flows[..] else {
            panic!("{kind:?} {flows:?}")
        };
        let packets = |flow: &FlowRecord| [flow.forward.packets, flow.backward.packets];
        assert_eq!((packets(one), packets(two)), ([1, 1], [1, 2]), "{kind:?}");
        let ids = |flow| tunnel(flow).identifiers.map(|id| id.map(|id| id & 0xff));
        assert_eq!(
            (ids(one), ids(two)),
            ([Some(1); 2], [Some(2); 2]),
            "{kind:?}"
        );
        assert_eq!(
            (tunnel(one).kind, tunnel(one).source),
            (kind, ENDS[0].into())
        );
        assert_eq!(one.key.source, std::net::IpAddr::from(CLIENT.0), "{kind:?}");
    }
}

#[test]
fn each_end_of_gtp_chooses_its_identifiers() {
    let flows = metered(&[
        gtp(false, 1),
        gtp(true, 71),
        gtp(false, 2),
        gtp(true, 72),
        gtp(true, 71),
        gtp(false, 2),
    ]);
    let [one, two] = &flows[..] else {
        panic!("{flows:?}")
    };
    assert_eq!(tunnel(one).identifiers, [Some(1), Some(71)]);
    assert_eq!(tunnel(two).identifiers, [Some(2), Some(72)]);
    assert_eq!((one.packets(), two.packets()), (3, 3));
    // A connection that a SYN and ACK begins: its originator is the other end.
    let reply = tcp(SERVER, CLIENT, SYN | ACK, 1, 0);
    let header = [0x30, 255, 0, 0, 0, 0, 0, 71];
    let flows = metered(&[
        over_udp(true, 2152, &[&header, &reply[14..]].concat()),
        gtp(false, 1),
    ]);
    let [flow] = &flows[..] else {
        panic!("{flows:?}")
    };
    assert_eq!(tunnel(flow).identifiers, [Some(1), Some(71)]);
    assert_eq!(tunnel(flow).source, std::net::IpAddr::from(ENDS[0]));
}

#[test]
fn a_sender_that_tries_all_identifiers_makes_no_search_long() {
    let frames: Vec<_> = (1..=100).map(|teid| gtp(false, teid)).collect();
    let flows = metered(&frames);
    assert_eq!(flows.len(), 32);
    assert_eq!(flows.iter().map(FlowRecord::packets).sum::<u64>(), 100);
}

#[test]
fn other_ends_of_a_tunnel_are_another_flow() {
    let mut other = vxlan(false, 1, &inner(false));
    other[29] = 77;
    let flows = metered(&[vxlan(false, 1, &inner(false)), other]);
    assert_eq!(flows.len(), 2, "{flows:?}");
}

#[test]
fn each_of_three_vlans_is_part_of_the_key() {
    let frames: Vec<_> = [&[][..], &[1], &[1, 2], &[1, 3], &[1, 2, 4], &[1, 2]]
        .map(tagged)
        .into();
    let flows = metered(&frames);
    let vlans = |flow: &FlowRecord| {
        let [second, third] = flow.outside.as_ref().map_or([0; 2], |one| one.inner_vlans);
        ([flow.key.vlan, second, third], flow.packets())
    };
    let got: Vec<_> = flows.iter().map(vlans).collect();
    assert_eq!(
        got,
        [
            ([0, 0, 0], 1),
            ([1, 0, 0], 1),
            ([1, 2, 0], 2),
            ([1, 3, 0], 1),
            ([1, 2, 4], 1)
        ]
    );
}

#[test]
fn two_levels_of_tunnels_are_in_the_record_and_a_frame_without_ip_is_its_outer_flow() {
    let two = vxlan(false, 1, &gtp(false, 9));
    let mut arp = vec![0; 42];
    arp[12..14].copy_from_slice(&[8, 6]);
    let flows = metered(&[two, vxlan(false, 1, &arp)]);
    let [both, outer] = &flows[..] else {
        panic!("{flows:?}")
    };
    let outside = both.outside.as_ref().expect("tunnels");
    let kinds = outside.tunnels.map(|one| one.map(|one| one.kind));
    assert_eq!(kinds, [Some(TunnelKind::Vxlan), Some(TunnelKind::Gtp)]);
    assert_eq!(both.forward.bytes, 50, "bytes of the innermost packet");
    assert_eq!(
        (outer.key.destination_port, outer.outside.is_none()),
        (4789, true)
    );
}
