// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the hash with independently computed values.

use proptest::prelude::*;

use super::*;
use crate::Headers;

const MACS: [u8; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

pub(super) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&MACS[..], &ethertype.to_be_bytes(), payload].concat()
}

pub(super) fn ipv4(protocol: u8, hosts: (u8, u8), fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    header.extend([10, 0, 0, hosts.0, 10, 0, 0, hosts.1]);
    [header, payload.to_vec()].concat()
}

pub(super) fn ipv6(next: u8, hosts: (u8, u8), payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    for host in [hosts.0, hosts.1] {
        header.extend([
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host,
        ]);
    }
    [header, payload.to_vec()].concat()
}

pub(super) fn transport(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (source.to_be_bytes(), destination.to_be_bytes());
    [&source[..], &destination, &[0, 8, 0, 0], payload].concat()
}

/// An Ethernet packet of one UDP connection, there or back.
pub(super) fn udp(is_there: bool) -> Vec<u8> {
    let (hosts, ports) = if is_there {
        ((1, 2), (1000, 53))
    } else {
        ((2, 1), (53, 1000))
    };
    ethernet(
        0x0800,
        &ipv4(17, hosts, 0, &transport(ports.0, ports.1, &[])),
    )
}

// Computed from the definition by a program in another language.
pub(super) const UDP_HASH: u32 = 0x51f2_7f4c;
const ADDRESSES_HASH: u32 = 0xa104_7c74;
pub(super) const TCP6_HASH: u32 = 0xfd96_963b;
const ARP_HASH: u32 = 0x5507_f19c;
const PORTLESS_HASH: u32 = 0x2f3c_f41d;

pub(super) const KEYS: HashKeys = HashKeys::new(HashSeed(0x0123_4567_89ab_cdef));

fn outer(data: &[u8]) -> u32 {
    KEYS.flow(data, Link::Ethernet, Headers::Outer)
}

fn inner(data: &[u8]) -> u32 {
    KEYS.flow(data, Link::Ethernet, Headers::Inner)
}

#[test]
fn hashes_are_those_of_the_definition() {
    assert_eq!(outer(&udp(true)), UDP_HASH);
    let found = KEYS.addresses(&udp(true), Link::Ethernet, Headers::Outer);
    assert_eq!(found, ADDRESSES_HASH);
    let tcp = ethernet(0x86dd, &ipv6(6, (2, 1), &transport(50000, 443, &[])));
    assert_eq!(outer(&tcp), TCP6_HASH);
    assert_eq!(outer(&ethernet(0x0806, &[])), ARP_HASH);
    assert_eq!(outer(&udp(true)[..13]), 0);
}

/// The UDP packet of a connection of which these are the addresses and the ports.
fn connection([source, destination, ports]: [u32; 3]) -> Vec<u8> {
    let mut packet = udp(true);
    packet[26..30].copy_from_slice(&source.to_be_bytes());
    packet[30..34].copy_from_slice(&destination.to_be_bytes());
    packet[34..38].copy_from_slice(&ports.to_be_bytes());
    packet
}

/// Connections for each of four members that divide the buckets in turn.
fn shares(connections: &[[u32; 3]], seed: u64) -> [usize; 4] {
    let keys = HashKeys::new(HashSeed(seed));
    let mut shares = [0; 4];
    for connection in connections {
        let hash = keys.flow(
            &self::connection(*connection),
            Link::Ethernet,
            Headers::Outer,
        );
        shares[hash as usize % 4] += 1;
    }
    shares
}

#[test]
fn flows_chosen_for_one_member_are_spread_by_another_seed() {
    let random = (0..).map(|number| [0x0a00_0000 + number, 0xc0a8_0001, number << 16 | 443]);
    let one_member = |connection: &[u32; 3]| shares(&[*connection], 1)[0] == 1;
    let chosen: Vec<_> = random.filter(one_member).take(5000).collect();
    assert_eq!(shares(&chosen, 1), [5000, 0, 0, 0]);
    let in_large_steps: Vec<_> = (0..5000)
        .map(|number| [number << 18, 0xc0a8_0001, 1000 << 16 | 443])
        .collect();
    for seed in [2, 3, 4] {
        for connections in [&chosen, &in_large_steps] {
            let shares = shares(connections, seed);
            assert!(
                shares.iter().all(|share| (1000..1500).contains(share)),
                "{shares:?}"
            );
        }
    }
}

#[test]
fn both_directions_meet() {
    assert_eq!(outer(&udp(true)), outer(&udp(false)));
    let same_host = |source, destination| {
        ethernet(
            0x0800,
            &ipv4(6, (1, 1), 0, &transport(source, destination, &[])),
        )
    };
    assert_eq!(outer(&same_host(1, 2)), outer(&same_host(2, 1)));
    assert_ne!(outer(&same_host(1, 2)), outer(&same_host(1, 3)));
}

#[test]
fn the_pieces_of_a_datagram_stay_together() {
    let piece = |fragment, payload: &[u8]| ethernet(0x0800, &ipv4(17, (1, 2), fragment, payload));
    let first = piece(0x2000, &transport(1000, 53, &[]));
    assert_eq!(outer(&first), PORTLESS_HASH);
    assert_eq!(outer(&piece(0x0010, b"anything")), PORTLESS_HASH);
    let piece6 = |payload: &[u8]| {
        let header = [17, 0, 0, 1, 0, 0, 0, 7];
        ethernet(0x86dd, &ipv6(44, (1, 2), &[&header, payload].concat()))
    };
    let ports = transport(1000, 53, &[]);
    assert_eq!(outer(&piece6(&ports)), outer(&piece6(b"anything")));
}

#[test]
fn tags_are_seen_through_and_named_by_vlan() {
    let tagged = |tag: &[u8]| [&udp(true)[..12], tag, &udp(true)[12..]].concat();
    assert_eq!(outer(&tagged(&[0x81, 0, 0xe0, 7])), UDP_HASH);
    let double = tagged(&[0x88, 0xa8, 0x30, 9, 0x81, 0, 0, 7]);
    assert_eq!(outer(&double), UDP_HASH);
    assert_eq!(vlan(&double, Link::Ethernet), 9);
    assert_eq!(vlan(&udp(true), Link::Ethernet), 0);
    let three = tagged(&[0x81, 0, 0, 1, 0x81, 0, 0x20, 2, 0x91, 0, 0, 3]);
    assert_eq!(outer(&three), UDP_HASH);
    let ip = ip(&three, Link::Ethernet, Headers::Outer).expect("IP");
    assert_eq!(ip.vlans, [1, 2, 3]);
    let four = tagged(&[0x81, 0, 0, 1].repeat(4));
    assert_ne!(outer(&four), UDP_HASH);
}

#[test]
fn ip_is_found_behind_mpls_labels_and_pppoe_headers() {
    let ip = ipv4(17, (1, 2), 0, &transport(1000, 53, &[]));
    let ip6 = ipv6(6, (2, 1), &transport(50000, 443, &[]));
    let behind = |ethertype, header: &[u8], ip: &[u8]| ethernet(ethertype, &[header, ip].concat());
    let (label, last) = ([0, 1, 0, 64], [0, 2, 1, 64]);
    let labels = |count: usize| [label.repeat(count - 1), last.to_vec()].concat();
    let pppoe = |protocol| [0x11, 0, 0, 5, 0, 30, 0, protocol];
    assert_eq!(outer(&behind(0x8847, &last, &ip)), UDP_HASH);
    assert_eq!(outer(&behind(0x8848, &labels(4), &ip6)), TCP6_HASH);
    assert_eq!(outer(&behind(0x8864, &pppoe(0x21), &ip)), UDP_HASH);
    assert_eq!(outer(&behind(0x8864, &pppoe(0x57), &ip6)), TCP6_HASH);
    let tag = [0, 7, 0x88, 0x47];
    let tagged = behind(0x8100, &[&tag[..], &last].concat(), &ip);
    assert_eq!(
        (outer(&tagged), vlan(&tagged, Link::Ethernet)),
        (UDP_HASH, 7)
    );
    // Without IP, MAC addresses and ethertype are hashed.
    for (ethertype, header, inside) in [
        (0x8847, &labels(5)[..], &ip[..]),
        (0x8847, &last, &[0; 60]),
        (0x8847, &last, &ip[..19]),
        (0x8864, &pppoe(0xc0), &ip),
        (0x8864, &[0x12, 0, 0, 5, 0, 30, 0, 0x21], &ip),
    ] {
        let packet = behind(ethertype, header, inside);
        assert_eq!(
            outer(&packet),
            outer(&ethernet(ethertype, &[])),
            "{packet:x?}"
        );
    }
}

#[test]
fn extension_headers_are_passed_over() {
    let ports = transport(443, 50000, &[]);
    let plain = ethernet(0x86dd, &ipv6(6, (1, 2), &ports));
    let hop_by_hop = [43, 0, 0, 0, 0, 0, 0, 0];
    let routing = [[6, 1, 0, 0, 0, 0, 0, 0], [0; 8]].concat();
    let extended = [&hop_by_hop[..], &routing, &ports].concat();
    let extended = ethernet(0x86dd, &ipv6(0, (1, 2), &extended));
    assert_eq!(outer(&plain), TCP6_HASH);
    assert_eq!(outer(&extended), TCP6_HASH);
}

#[test]
fn packets_in_tunnels_are_found_when_asked_for() {
    let ip = ipv4(17, (1, 2), 0, &transport(1000, 53, &[]));
    let over_udp = |port, header: &[u8], payload: &[u8]| {
        let datagram = transport(9, port, &[header, payload].concat());
        ethernet(0x0800, &ipv4(17, (8, 9), 0, &datagram))
    };
    let over_gre = |header: &[u8], payload: &[u8]| {
        ethernet(0x86dd, &ipv6(47, (8, 9), &[header, payload].concat()))
    };
    let vxlan = over_udp(4789, &[8, 0, 0, 0, 0, 0, 1, 0], &udp(true));
    let gtp = over_udp(2152, &[0x30, 255, 0, 0, 0, 0, 0, 1], &ip);
    let extended = [0x36, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 0, 0];
    let gtp_extended = over_udp(2152, &extended, &ip);
    // Without the flag E, the type of the next extension does not count.
    let numbered = [0x32, 255, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0x85];
    let gtp_numbered = over_udp(2152, &numbered, &ip);
    let gre = over_gre(&[0, 0, 8, 0], &ip);
    let keyed = over_gre(
        &[0xb0, 0, 0x65, 0x58, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3],
        &udp(true),
    );
    for tunnel in [vxlan, gtp, gtp_extended, gtp_numbered, gre, keyed] {
        assert_eq!(inner(&tunnel), UDP_HASH, "{tunnel:?}");
        assert_ne!(outer(&tunnel), UDP_HASH, "{tunnel:?}");
    }
}

#[test]
fn a_tunnel_without_a_packet_counts_as_itself() {
    for (port, payload) in [
        (4789, &[0; 40][..]),
        (2152, &[0x30, 255, 0, 0]),
        (80, &udp(true)),
    ] {
        let datagram = transport(9, port, payload);
        let packet = ethernet(0x0800, &ipv4(17, (8, 9), 0, &datagram));
        assert_eq!(inner(&packet), outer(&packet), "{port}");
    }
}

#[test]
fn packets_without_ethernet_have_the_same_hash() {
    let ip = ipv4(17, (1, 2), 0, &transport(1000, 53, &[]));
    let flow = |data: &[u8]| KEYS.flow(data, Link::Ip, Headers::Outer);
    assert_eq!((flow(&ip), flow(&[])), (UDP_HASH, 0));
    let addresses = KEYS.addresses(&ip, Link::Ip, Headers::Outer);
    assert_eq!(addresses, ADDRESSES_HASH);
}

/// All link headers but those of Ethernet and IP.
const LINKS: [Link; 4] = [
    Link::LinuxCooked,
    Link::LinuxCooked2,
    Link::Loopback,
    Link::Ppp,
];

#[test]
fn each_link_header_leads_to_the_same_ip_packet() {
    let four = ipv4(17, (1, 2), 0, &transport(1000, 53, &[]));
    let six = ipv6(17, (1, 2), &transport(1000, 53, &[]));
    let hash = |link: u16, data: &[u8]| {
        let link = Link::from_link_type(LinkType(link)).expect("a link with known addresses");
        (KEYS.flow(data, link, Headers::Outer), vlan(data, link))
    };
    let (hash4, hash6) = (hash(101, &four).0, hash(101, &six).0);
    let cooked = |protocol: [u8; 2]| [&[0; 14][..], &protocol].concat();
    let cooked2 = |protocol: [u8; 2]| [&protocol[..], &[0; 18]].concat();
    let tag = [0x81, 0, 0x20, 7, 8, 0];
    for (link, header, packet, expected) in [
        (113, cooked([8, 0]), &four, (hash4, 0)),
        (113, cooked([0x86, 0xdd]), &six, (hash6, 0)),
        (113, [&[0; 14][..], &tag].concat(), &four, (hash4, 7)),
        (113, cooked([8, 6]), &four, (0, 0)),
        (276, cooked2([8, 0]), &four, (hash4, 0)),
        (276, cooked2([0x86, 0xdd]), &six, (hash6, 0)),
        (276, cooked2([8, 6]), &four, (0, 0)),
        (0, vec![2, 0, 0, 0], &four, (hash4, 0)),
        (0, vec![0, 0, 0, 2], &four, (hash4, 0)),
        (0, vec![30, 0, 0, 0], &six, (hash6, 0)),
        (0, vec![7, 0, 0, 0], &four, (0, 0)),
        (108, vec![0, 0, 0, 24], &six, (hash6, 0)),
        (9, vec![0xff, 3, 0, 0x21], &four, (hash4, 0)),
        (9, vec![0, 0x57], &six, (hash6, 0)),
        (9, vec![2, 0x81, 0, 2, 1, 64], &six, (hash6, 0)),
        (9, vec![0xc0, 0x21], &four, (0, 0)),
        (228, vec![], &four, (hash4, 0)),
    ] {
        let data = [&header[..], packet].concat();
        assert_eq!(hash(link, &data), expected, "{link} {header:?}");
        for short in 0..header.len() + 20 {
            assert_eq!(hash(link, &data[..short]).0, 0, "{link} {header:?}");
        }
    }
    assert_eq!(Link::from_link_type(LinkType(105)), None);
}

proptest! {
    #[test]
    fn no_packet_panics(
        start in prop::sample::select(vec![vec![], udp(true), ethernet(0x86dd, &ipv6(0, (1, 2), &[]))]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0_usize..200,
    ) {
        let data = [start, rest].concat();
        let data = &data[..cut.min(data.len())];
        let _hash = (inner(data), KEYS.addresses(data, Link::Ip, Headers::Inner));
        for link in LINKS {
            let _hash = KEYS.flow(data, link, Headers::Inner);
            prop_assert!(vlan(data, link) < 4096);
        }
    }
}
