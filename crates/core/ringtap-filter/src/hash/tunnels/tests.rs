// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of tunnels as their specifications draw them; what is inside is found and named.

use super::super::tests::{KEYS, TCP6_HASH, UDP_HASH, ethernet, ipv4, ipv6, transport, udp};
use super::super::{Link, ip};
use super::*;

/// A datagram to a port, between the ends 8 and 9 of a tunnel.
fn over_udp(port: u16, data: &[u8]) -> Vec<u8> {
    let datagram = transport(9, port, data);
    ethernet(0x0800, &ipv4(17, (8, 9), 0, &datagram))
}

/// An IP packet between the same ends.
fn over_ip(protocol: u8, data: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &ipv4(protocol, (8, 9), 0, data))
}

fn over_ip6(protocol: u8, data: &[u8]) -> Vec<u8> {
    ethernet(0x86dd, &ipv6(protocol, (8, 9), data))
}

/// The packet inside: UDP over IPv4, whose hash is [`UDP_HASH`].
fn inner4() -> Vec<u8> {
    ipv4(17, (1, 2), 0, &transport(1000, 53, &[]))
}

/// The same between addresses of which one is Teredo's.
fn teredo6() -> Vec<u8> {
    let mut packet = inner6();
    packet[24..28].copy_from_slice(&[0x20, 1, 0, 0]);
    packet
}

/// TCP over IPv6, whose hash is [`TCP6_HASH`].
fn inner6() -> Vec<u8> {
    ipv6(6, (2, 1), &transport(50000, 443, &[]))
}

struct Case {
    packet: Vec<u8>,
    kind: TunnelKind,
    identifier: Option<u32>,
    in_kernel: bool,
    hash: u32,
}

fn case(kind: TunnelKind, identifier: Option<u32>, in_kernel: bool, packet: Vec<u8>) -> Case {
    Case {
        packet,
        kind,
        identifier,
        in_kernel,
        hash: UDP_HASH,
    }
}

fn with_teredo6(case: Case) -> Case {
    let hash = KEYS.flow(&teredo6(), Link::Ip, Tunnels::None);
    Case { hash, ..case }
}

fn with_tcp6(case: Case) -> Case {
    let hash = TCP6_HASH;
    Case { hash, ..case }
}

fn cases() -> Vec<Case> {
    use TunnelKind::*;
    let join = |parts: &[&[u8]]| parts.concat();
    let (four, six, frame) = (&inner4()[..], &inner6()[..], &udp(true)[..]);
    let labels = [0, 1, 0, 64, 0, 2, 1, 64];
    let erspan2 = [0x10, 9, 0x20, 0x07, 0, 0, 0, 3];
    let erspan3 =
        |frame_type: u8, flags: u8| [0x20, 9, 0x20, 8, 0, 0, 0, 1, 0, 0, frame_type << 2, flags];
    let teredo_client = [0, 1, 2, 1, b'i', b'd', b'v', 1, 2, 3, 4, 5, 6, 7, 8, 0];
    let origin = [0, 0, 1, 2, 3, 4, 5, 6];
    vec![
        case(Ip, None, true, over_ip(4, four)),
        case(Ip, None, true, over_ip6(4, four)),
        with_tcp6(case(Ip, None, true, over_ip(41, six))),
        with_tcp6(case(Ip, None, true, over_ip6(41, six))),
        case(
            Vxlan,
            Some(0x1_0203),
            true,
            over_udp(4789, &join(&[&[8, 0, 0, 0, 1, 2, 3, 0], frame])),
        ),
        case(
            Geneve,
            Some(0x1_0203),
            true,
            over_udp(6081, &join(&[&[0, 0, 0x65, 0x58, 1, 2, 3, 0], frame])),
        ),
        case(
            Geneve,
            Some(5),
            true,
            over_udp(6081, &join(&[&[2, 0, 8, 0, 0, 0, 5, 0], &[7; 8], four])),
        ),
        case(
            Gtp,
            Some(0x0102_0304),
            true,
            over_udp(2152, &join(&[&[0x30, 255, 0, 0, 1, 2, 3, 4], four])),
        ),
        case(Gre, None, true, over_ip(47, &join(&[&[0, 0, 8, 0], four]))),
        case(
            Gre,
            Some(0x0a00_0001),
            true,
            over_ip(
                47,
                &join(&[&[0xb0, 0, 8, 0, 9, 9, 9, 9, 10, 0, 0, 1, 9, 9, 9, 9], four]),
            ),
        ),
        case(
            Gre,
            Some(7),
            true,
            over_ip6(47, &join(&[&[0x20, 0, 0x65, 0x58, 0, 0, 0, 7], frame])),
        ),
        case(
            Nvgre,
            Some(0x1_0203),
            true,
            over_ip(47, &join(&[&[0x20, 0, 0x65, 0x58, 1, 2, 3, 0x99], frame])),
        ),
        case(
            Erspan,
            None,
            true,
            over_ip(47, &join(&[&[0, 0, 0x88, 0xbe], frame])),
        ),
        case(
            Erspan,
            Some(7),
            true,
            over_ip(
                47,
                &join(&[&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1], &erspan2, frame]),
            ),
        ),
        case(
            Erspan,
            Some(8),
            true,
            over_ip(
                47,
                &join(&[&[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1], &erspan3(0, 0), frame]),
            ),
        ),
        case(
            Erspan,
            Some(8),
            true,
            over_ip(
                47,
                &join(&[
                    &[0x10, 0, 0x22, 0xeb, 0, 0, 0, 1],
                    &erspan3(2, 1),
                    &[0; 8],
                    four,
                ]),
            ),
        ),
        case(
            Mpls,
            Some(0x20),
            true,
            over_ip(47, &join(&[&[0, 0, 0x88, 0x47], &labels, four])),
        ),
        case(
            Mpls,
            Some(0x20),
            true,
            over_udp(6635, &join(&[&labels, four])),
        ),
        case(
            Mpls,
            Some(0x20),
            false,
            over_ip(137, &join(&[&labels, four])),
        ),
        case(
            L2tp,
            Some(0x0102_0304),
            false,
            over_ip(115, &join(&[&[1, 2, 3, 4], &[0; 4], frame])),
        ),
        case(
            L2tp,
            Some(9),
            false,
            over_ip(115, &join(&[&[0, 0, 0, 9], frame])),
        ),
        case(
            L2tp,
            Some(9),
            false,
            over_udp(
                1701,
                &join(&[&[0, 3, 0, 0, 0, 0, 0, 9], &[0x5a; 12], frame]),
            ),
        ),
        with_teredo6(case(Teredo, None, false, over_udp(3544, &teredo6()))),
        with_teredo6(case(
            Teredo,
            None,
            false,
            over_udp(3544, &join(&[&teredo_client, &origin, &teredo6()])),
        )),
    ]
}

#[test]
fn each_tunnel_is_entered_and_named() {
    for Case {
        packet,
        kind,
        identifier,
        in_kernel,
        hash,
    } in cases()
    {
        let context = format!("{kind:?} {packet:02x?}");
        let flow = |tunnels| KEYS.flow(&packet, Link::Ethernet, tunnels);
        assert_eq!(flow(Tunnels::All), hash, "{context}");
        let outer = flow(Tunnels::None);
        let expected = if in_kernel { hash } else { outer };
        assert_eq!(flow(Tunnels::InKernel), expected, "{context}");
        let ip = ip(&packet, Link::Ethernet, Tunnels::All).expect("IP");
        let [Some(tunnel), None] = ip.tunnels else {
            panic!("{context}: {:?}", ip.tunnels);
        };
        assert_eq!(
            (tunnel.kind, tunnel.identifier),
            (kind, identifier),
            "{context}"
        );
        let end = |address: &[u8]| address.last().copied();
        let ends = (end(tunnel.source), end(tunnel.destination));
        assert_eq!(ends, (Some(8), Some(9)), "{context}");
        // The outer headers count for each cut of the packet before the inner IP header ends, and none panics.
        for length in 0..packet.len() {
            let cut = &packet[..length];
            let _hash = KEYS.flow(cut, Link::Ethernet, Tunnels::All);
            let inner = super::super::ip(cut, Link::Ethernet, Tunnels::All);
            assert!(inner.is_some() || length < 54, "{context} {length}");
        }
    }
}

#[test]
fn two_tunnels_are_entered_and_a_third_is_not() {
    let vxlan = |number: u8, frame: &[u8]| {
        over_udp(4789, &[&[8, 0, 0, 0, 0, 0, number, 0], frame].concat())
    };
    let two = vxlan(1, &vxlan(2, &udp(true)));
    let inner = ip(&two, Link::Ethernet, Tunnels::All).expect("IP");
    let numbers = inner.tunnels.map(|one| one.and_then(|one| one.identifier));
    assert_eq!((numbers, inner.ports), ([Some(1), Some(2)], (1000, 53)));
    assert_eq!(KEYS.flow(&two, Link::Ethernet, Tunnels::All), UDP_HASH);
    assert_ne!(KEYS.flow(&two, Link::Ethernet, Tunnels::InKernel), UDP_HASH);
    let three = vxlan(3, &two);
    let inner = ip(&three, Link::Ethernet, Tunnels::All).expect("IP");
    assert_eq!(inner.ports, (9, 4789));
}

#[test]
fn a_tunnel_without_ip_inside_is_its_outer_packet() {
    let arp = ethernet(0x0806, &[0; 28]);
    let mut tagged = arp.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    for data in [
        over_udp(4789, &[&[8, 0, 0, 0, 0, 0, 1, 0], &arp[..]].concat()),
        over_udp(
            6081,
            &[&[0, 0, 0x65, 0x58, 0, 0, 1, 0], &tagged[..]].concat(),
        ),
        over_udp(
            6081,
            &[&[0, 0x80, 8, 0, 0, 0, 1, 0], &inner4()[..]].concat(),
        ),
        over_udp(2152, &[0x30, 254, 0, 0, 0, 0, 0, 1]),
        over_udp(3544, &inner6()),
        over_udp(1701, &[0x80, 3, 0, 0, 0, 0, 0, 9]),
        over_ip(115, &[0; 60]),
        over_ip(4, &inner6()),
        over_ip(41, &inner4()),
        over_ip(
            47,
            &[&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x30], &[0; 40][..]].concat(),
        ),
    ] {
        let ip = ip(&data, Link::Ethernet, Tunnels::All).expect("the outer packet");
        assert_eq!(ip.tunnels, [None, None], "{data:02x?}");
        assert_eq!(ip.source, [10, 0, 0, 8], "{data:02x?}");
    }
}

#[test]
fn tags_of_both_frames_are_kept() {
    let mut inside = udp(true);
    inside.splice(12..12, [0x81, 0, 0, 77]);
    let mut packet = over_udp(4789, &[&[8, 0, 0, 0, 0, 0, 1, 0], &inside[..]].concat());
    packet.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
    let ip = ip(&packet, Link::Ethernet, Tunnels::All).expect("IP");
    assert_eq!(ip.vlans, [5, 6, 0]);
    assert_eq!(ip.tunnels[0].map(|tunnel| tunnel.vlan), Some(77));
}
