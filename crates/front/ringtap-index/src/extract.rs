// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terms of a packet.
//!
//! Invariants
//! - Fields lie where filters look for them, whether the packet is well formed or not: [`crate::narrow`] relies
//!   on each "Filters" comment here.
//! - A field counts if all of its bytes were captured.

use ringtap_filter::LinkType;
use ringtap_filter::flow::has_ports;
use ringtap_filter::hash::{self, Ip, Link, Tunnels};
use ringtap_packet::CommunityFlow;
use ringtap_pool::number::to_usize;

use crate::term::{FIRST_ETHER_TYPE, TermKind};

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
/// ARP and RARP.
pub(crate) const ARP: [u16; 2] = [0x0806, 0x8035];
/// Ethertypes of VLAN tags.
pub(crate) const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Most VLAN tags that are read.
pub(crate) const MAX_TAGS: usize = 4;
/// "Next header" of an IPv6 fragment.
pub(crate) const FRAGMENT: u8 = 44;

/// Protocols that carry no tunnel: ICMP, TCP, ICMPv6.
const NEVER_TUNNELS: [u8; 3] = [1, 6, 58];

/// Receives terms.
pub(crate) trait Terms {
    /// A term, perhaps a second time.
    fn term(&mut self, kind: TermKind, value: u16);
    /// An IPv4 address.
    fn ipv4(&mut self, address: u32);
    /// An IPv6 address.
    fn ipv6(&mut self, address: u128);
    /// The flow of the innermost packet.
    fn flow(&mut self, flow: CommunityFlow);
}

/// Where the network protocol of a packet stands, and where its header begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkHeader {
    /// An ethertype at the first offset, the network header at the second.
    Typed {
        ether_type: u32,
        network: u32,
        has_tags: bool,
    },
    /// An IP header, whose first byte has the version.
    Ip,
}

impl LinkHeader {
    /// The header of a link type; `None` if its filters are not understood.
    pub(crate) fn from_link_type(link_type: LinkType) -> Option<Self> {
        let typed = |ether_type, network, has_tags| {
            Some(LinkHeader::Typed {
                ether_type,
                network,
                has_tags,
            })
        };
        match link_type {
            LinkType::ETHERNET => typed(12, 14, true),
            LinkType::LINUX_SLL => typed(14, 16, false),
            LinkType::LINUX_SLL2 => typed(0, 20, false),
            LinkType::RAW_IP => Some(LinkHeader::Ip),
            _ => None,
        }
    }
}

/// Passes on all terms of a packet: of its outer headers, and of the packets in its tunnels.
pub(crate) fn packet(data: &[u8], link_type: LinkType, terms: &mut impl Terms) {
    let inside = match LinkHeader::from_link_type(link_type) {
        Some(header) => outer(data, header, terms),
        None => InnerHeaders::Unknown,
    };
    let Some(ip) = innermost_ip(data, link_type) else {
        return;
    };
    if let Some(flow) = CommunityFlow::from_packet(&ip) {
        terms.flow(flow);
    }
    if inside == InnerHeaders::Nothing {
        return;
    }
    if inside == InnerHeaders::Unknown || ip.tunnels[0].is_some() {
        raw_ip(inner_packet(data, &ip), terms);
    }
    inner(&ip, terms);
}

/// The IP headers of the packet inside all tunnels.
pub(crate) fn innermost_ip(data: &[u8], link_type: LinkType) -> Option<Ip<'_>> {
    let link = Link::from_link_type(link_type)?;
    hash::ip(data, link, Tunnels::All)
}

/// What may be inside of headers whose terms are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InnerHeaders {
    Nothing,
    /// Extension headers, or a tunnel.
    Tunnel,
    /// Perhaps an IP packet behind other headers.
    Unknown,
}

/// The outer headers.
fn outer(data: &[u8], header: LinkHeader, terms: &mut impl Terms) -> InnerHeaders {
    let LinkHeader::Typed {
        ether_type,
        network,
        has_tags,
    } = header
    else {
        return raw_ip(data, terms);
    };
    let (mut type_at, mut at) = (to_usize(ether_type), to_usize(network));
    // Filters: the ethertype behind each tag counts as the first one does.
    for _ in 0..=MAX_TAGS {
        let Some(ether_type) = u16_at(data, type_at) else {
            return InnerHeaders::Nothing;
        };
        terms.term(TermKind::EtherType, known_type(ether_type));
        if !has_tags || !TAGS.contains(&ether_type) {
            return network_header(data, ether_type, at, terms);
        }
        if let Some(tag) = u16_at(data, type_at + 2) {
            terms.term(TermKind::Vlan, tag & 0x0fff);
        }
        (type_at, at) = (type_at + 4, at + 4);
    }
    InnerHeaders::Unknown
}

/// The ethertype in the index.
pub(crate) fn known_type(ether_type: u16) -> u16 {
    if ether_type < FIRST_ETHER_TYPE {
        0
    } else {
        ether_type
    }
}

/// Filters: an IP packet without link header has its version in the upper half of its first byte.
fn raw_ip(data: &[u8], terms: &mut impl Terms) -> InnerHeaders {
    let ether_type = match data.first().map(|byte| byte >> 4) {
        Some(4) => IPV4,
        Some(6) => IPV6,
        _ => return InnerHeaders::Nothing,
    };
    terms.term(TermKind::EtherType, ether_type);
    network_header(data, ether_type, 0, terms)
}

/// The header at an offset.
fn network_header(data: &[u8], ether_type: u16, at: usize, terms: &mut impl Terms) -> InnerHeaders {
    match ether_type {
        IPV4 => ipv4(data, at, terms),
        IPV6 => ipv6(data, at, terms),
        // Filters: addresses at 14 and 24.
        kind if ARP.contains(&kind) => {
            for place in [14, 24] {
                if let Some(address) = u32_at(data, at + place) {
                    terms.ipv4(address);
                }
            }
            InnerHeaders::Nothing
        }
        // MPLS and PPPoE among others.
        _ => InnerHeaders::Unknown,
    }
}

/// Filters: protocol at 9, addresses at 12 and 16; ports behind the header if the lower 13 bits of the place of a
/// fragment are 0.
fn ipv4(data: &[u8], at: usize, terms: &mut impl Terms) -> InnerHeaders {
    for place in [12, 16] {
        if let Some(address) = u32_at(data, at + place) {
            terms.ipv4(address);
        }
    }
    let Some(&protocol) = data.get(at + 9) else {
        return InnerHeaders::Nothing;
    };
    terms.term(TermKind::Protocol, protocol.into());
    let is_first = u16_at(data, at + 6).is_some_and(|place| place & 0x1fff == 0);
    if is_first && has_ports(protocol) {
        ports(data, at + 4 * usize::from(data[at] & 0x0f), terms);
    }
    inside(protocol)
}

/// Filters: protocol at 6, or at 40 behind a fragment header; addresses at 8 and 24, compared word by word from the
/// first one; ports at 40.
fn ipv6(data: &[u8], at: usize, terms: &mut impl Terms) -> InnerHeaders {
    for place in [8, 24] {
        let captured = data.get(at + place..).unwrap_or_default();
        let mut words = captured.as_chunks::<4>().0.iter();
        if !words.as_slice().is_empty() {
            let word = |_| words.next().map_or(0, |word| u32::from_be_bytes(*word));
            let address = [0; 4].map(word);
            let address = address
                .iter()
                .fold(0, |sum, word| sum << 32 | u128::from(*word));
            terms.ipv6(address);
        }
    }
    let Some(&protocol) = data.get(at + 6) else {
        return InnerHeaders::Nothing;
    };
    terms.term(TermKind::Protocol, protocol.into());
    if protocol == FRAGMENT
        && let Some(&protocol) = data.get(at + 40)
    {
        terms.term(TermKind::Protocol, protocol.into());
    }
    if has_ports(protocol) {
        ports(data, at + 40, terms);
    }
    inside(protocol)
}

fn inside(protocol: u8) -> InnerHeaders {
    if NEVER_TUNNELS.contains(&protocol) {
        InnerHeaders::Nothing
    } else {
        InnerHeaders::Tunnel
    }
}

fn ports(data: &[u8], at: usize, terms: &mut impl Terms) {
    for place in [0, 2] {
        if let Some(port) = u16_at(data, at + place) {
            terms.term(TermKind::Port, port);
        }
    }
}

/// What else the innermost packet has: protocol and ports behind extension headers, tunnels and their VLANs.
fn inner(ip: &Ip<'_>, terms: &mut impl Terms) {
    terms.term(TermKind::Protocol, ip.protocol.into());
    for port in ip.first_ports().into_iter().flat_map(<[u16; 2]>::from) {
        terms.term(TermKind::Port, port);
    }
    let tunnels = ip.tunnels.iter().flatten();
    for address in tunnels.clone().flat_map(|it| [it.source, it.destination]) {
        match *address {
            [a, b, c, d] => terms.ipv4(u32::from_be_bytes([a, b, c, d])),
            _ => {
                if let Some(address) = address.first_chunk() {
                    terms.ipv6(u128::from_be_bytes(*address));
                }
            }
        }
    }
    let vlans = ip.vlans.iter().copied().chain(tunnels.map(|it| it.vlan));
    for vlan in vlans.filter(|vlan| *vlan != 0) {
        terms.term(TermKind::Vlan, vlan);
    }
}

/// The bytes of `data` from the IP header of `ip` on, which was found in `data`.
pub(crate) fn inner_packet<'a>(data: &'a [u8], ip: &Ip<'_>) -> &'a [u8] {
    let before_source = if ip.source.len() == 4 { 12 } else { 8 };
    let source = ip.source.as_ptr().addr();
    let start = source
        .checked_sub(data.as_ptr().addr())
        .and_then(|offset| offset.checked_sub(before_source));
    start
        .and_then(|start| data.get(start..))
        .unwrap_or_default()
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}
