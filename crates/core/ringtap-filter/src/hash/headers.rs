// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds addresses, ports and protocol of a packet; [`super`] specifies the rules.
//!
//! Invariants
//! - No byte outside the captured bytes is read, whatever lengths the packet claims.
//! - Every walk is bounded: three tags, four labels, four extension headers, two tunnels.

use super::Link;
use super::tunnels::{self, MAX_LEVELS, TunnelHeader, Tunnels};

const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const MPLS: [u16; 2] = [0x8847, 0x8848];
const PPPOE_SESSION: u16 = 0x8864;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const GRE: u8 = 47;
const SCTP: u8 = 132;

pub(super) const MAX_TAGS: usize = 3;
const MAX_LABELS: usize = 4;
pub(super) const MAX_EXTENSIONS: usize = 4;

/// Upper 16 and lower 32 bits.
pub(super) type Mac = (u16, u32);

pub(super) enum ParsedPacket<'a> {
    Ip(Ip<'a>),
    Ethernet { macs: (Mac, Mac), ethertype: u16 },
    TooShort,
}

/// IP headers of a packet, and the ports behind them.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    /// Source address, 4 or 16 bytes.
    pub source: &'a [u8],
    /// Destination address, 4 or 16 bytes.
    pub destination: &'a [u8],
    /// Protocol that the last IP header names.
    pub protocol: u8,
    /// Source and destination port; 0 for fragments and for protocols without ports.
    pub ports: (u16, u16),
    /// Captured bytes behind the IP headers, with padding of the frame.
    pub payload: &'a [u8],
    /// Length of the packet from the IP header on, in bytes, as the header claims; 0 if the sender left
    /// that to its network card.
    pub length: usize,
    /// Length of the IP headers in bytes.
    pub header_length: usize,
    /// Place in a datagram, for a fragment.
    pub fragment: Option<Fragment>,
    /// VLAN numbers of the frame, the outermost first; 0 without a tag.
    pub vlans: [u16; MAX_TAGS],
    /// Tunnels around the packet, the outermost first.
    pub tunnels: [Option<TunnelHeader<'a>>; MAX_LEVELS],
    /// The octet "type of service" of IPv4, or "traffic class" of IPv6.
    pub traffic_class: u8,
}

/// Place of a fragment in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Number of the datagram.
    pub id: u32,
    /// Whether the fragment is the first, which carries the ports.
    pub is_first: bool,
}

impl Ip<'_> {
    /// The ports of TCP, UDP and SCTP, also those in the first fragment of a datagram.
    #[must_use]
    pub fn first_ports(&self) -> Option<(u16, u16)> {
        match (self.protocol, self.fragment) {
            (TCP | UDP | SCTP, None | Some(Fragment { is_first: true, .. })) => {
                first_ports(self.payload)
            }
            _ => None,
        }
    }
}

/// The innermost packet that can be reached.
pub(super) fn dissect(data: &[u8], link: Link, tunnels: Tunnels) -> ParsedPacket<'_> {
    let mut packet = outer(data, link);
    for _ in 0..tunnels.levels() {
        let ParsedPacket::Ip(ip) = &packet else { break };
        match tunnels::enter(ip, tunnels) {
            Some(inner) => packet = inner,
            None => break,
        }
    }
    packet
}

/// The innermost IP packet that can be reached.
pub(super) fn innermost_ip(data: &[u8], link: Link, tunnels: Tunnels) -> Option<Ip<'_>> {
    let outermost = without_macs(data, link);
    if let Some(ip) = &outermost
        && tunnels.levels() > 0
        && let Some(ParsedPacket::Ip(inner)) = tunnels::enter(ip, tunnels)
    {
        return Some(below(inner, tunnels));
    }
    outermost
}

/// The innermost IP packet in one that is in a tunnel.
#[inline(never)]
fn below(mut ip: Ip<'_>, tunnels: Tunnels) -> Ip<'_> {
    for _ in 1..tunnels.levels() {
        let Some(ParsedPacket::Ip(inner)) = tunnels::enter(&ip, tunnels) else {
            break;
        };
        ip = inner;
    }
    ip
}

fn outer(data: &[u8], link: Link) -> ParsedPacket<'_> {
    match link {
        Link::Ethernet => ethernet(data),
        other => without_macs(data, other).map_or(ParsedPacket::TooShort, ParsedPacket::Ip),
    }
}

pub(super) fn vlan(data: &[u8], link: Link) -> Option<u32> {
    let (ethertype, at) = link_header(data, link)?;
    let is_tagged = TAGS.contains(&ethertype);
    let tag = u16_at(data, at)?;
    is_tagged.then_some(u32::from(tag & 0x0fff))
}

pub(super) fn ethertype(data: &[u8], link: Link) -> Option<u16> {
    let (ethertype, at) = link_header(data, link)?;
    Some(after_tags(data, ethertype, at).0)
}

/// The ethertype that a link header names, and the offset behind it.
#[inline]
fn link_header(data: &[u8], link: Link) -> Option<(u16, usize)> {
    match link {
        Link::Ethernet => Some((u16_at(data, 12)?, 14)),
        Link::Ip => Some((ethertype_of_version(data)?, 0)),
        Link::LinuxCooked => Some((u16_at(data, 14)?, 16)),
        Link::LinuxCooked2 => Some((u16_at(data, 0)?, 20)),
        Link::Loopback => Some((ethertype_of_family(data)?, 4)),
        Link::Ppp => match *data {
            [0xff, 3, high, low, ..] => Some((ethertype_of_ppp([high, low])?, 4)),
            [high, low, ..] => Some((ethertype_of_ppp([high, low])?, 2)),
            _ => None,
        },
    }
}

/// The ethertype of an IP packet, by its first byte.
pub(super) fn ethertype_of_version(data: &[u8]) -> Option<u16> {
    match data.first()? >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

/// The ethertype of a BSD address family, in the byte order of any machine.
fn ethertype_of_family(data: &[u8]) -> Option<u16> {
    match *data.first_chunk()? {
        [2, 0, 0, 0] | [0, 0, 0, 2] => Some(IPV4),
        [24 | 28 | 30, 0, 0, 0] | [0, 0, 0, 24 | 28 | 30] => Some(IPV6),
        _ => None,
    }
}

fn ethertype_of_ppp(protocol: [u8; 2]) -> Option<u16> {
    match u16::from_be_bytes(protocol) {
        0x0021 => Some(IPV4),
        0x0057 => Some(IPV6),
        0x0281 => Some(MPLS[0]),
        _ => None,
    }
}

pub(super) fn ethernet(data: &[u8]) -> ParsedPacket<'_> {
    let Some((macs, ethertype)) = macs(data).zip(u16_at(data, 12)) else {
        return ParsedPacket::TooShort;
    };
    let (ethertype, at, vlans) = after_tags(data, ethertype, 14);
    let ip = ip_or_labels(data, ethertype, at, vlans);
    ip.map_or(ParsedPacket::Ethernet { macs, ethertype }, ParsedPacket::Ip)
}

/// The outermost IP packet, as [`outer`] finds it. It stays where it is made: a copy costs as much as the headers.
#[inline]
fn without_macs(data: &[u8], link: Link) -> Option<Ip<'_>> {
    let (ethertype, at) = link_header(data, link)?;
    let (ethertype, at, vlans) = after_tags(data, ethertype, at);
    ip_or_labels(data, ethertype, at, vlans)
}

/// The IP packet at an offset, or behind MPLS labels or a PPPoE header there.
#[inline]
fn ip_or_labels(data: &[u8], ethertype: u16, at: usize, vlans: [u16; MAX_TAGS]) -> Option<Ip<'_>> {
    let rest = data.get(at..)?;
    let (ethertype, length) = match ethertype {
        PPPOE_SESSION => after_pppoe(rest)?,
        kind if MPLS.contains(&kind) => after_labels(rest)?,
        kind => (kind, 0),
    };
    ip(&rest[length..], ethertype, vlans)
}

/// The ethertype of the packet behind MPLS labels, and their length.
pub(super) fn after_labels(data: &[u8]) -> Option<(u16, usize)> {
    let is_last = |label: &[u8; 4]| label[2] & 1 != 0;
    let mut labels = data.as_chunks().0.iter().take(MAX_LABELS);
    let length = 4 * (1 + labels.position(is_last)?);
    Some((ethertype_of_version(&data[length..])?, length))
}

/// The ethertype of the packet behind a PPPoE session header, and the header's length.
fn after_pppoe(data: &[u8]) -> Option<(u16, usize)> {
    match *data {
        [0x11, 0, _, _, _, _, high, low, ..] => Some((ethertype_of_ppp([high, low])?, 8)),
        _ => None,
    }
}

/// The ethertype behind VLAN tags, the offset behind it, and the numbers of the VLANs.
fn after_tags(data: &[u8], mut ethertype: u16, mut at: usize) -> (u16, usize, [u16; MAX_TAGS]) {
    let mut vlans = [0; MAX_TAGS];
    for vlan in &mut vlans {
        if !TAGS.contains(&ethertype) {
            break;
        }
        let Some((tag, next)) = u16_at(data, at).zip(u16_at(data, at + 2)) else {
            break;
        };
        (*vlan, ethertype) = (tag & 0x0fff, next);
        at += 4;
    }
    (ethertype, at, vlans)
}

fn macs(data: &[u8]) -> Option<(Mac, Mac)> {
    let mac = |at| Some((u16_at(data, at)?, u32_at(data, at + 2)?));
    Some((mac(0)?, mac(6)?))
}

#[inline]
pub(super) fn ip(data: &[u8], ethertype: u16, vlans: [u16; MAX_TAGS]) -> Option<Ip<'_>> {
    match ethertype {
        IPV4 => ipv4(data, vlans),
        IPV6 => ipv6(data, vlans),
        _ => None,
    }
}

#[inline]
fn ipv4(data: &[u8], vlans: [u16; MAX_TAGS]) -> Option<Ip<'_>> {
    let header: &[u8; 20] = data.first_chunk()?;
    let length = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || length < header.len() {
        return None;
    }
    let place = u16_at(header, 6)? & 0x3fff;
    let fragment = (place != 0).then_some(Fragment {
        id: u16_at(header, 4)?.into(),
        is_first: place & 0x1fff == 0,
    });
    let payload = data.get(length..).unwrap_or_default();
    Some(Ip {
        source: &header[12..16],
        destination: &header[16..20],
        protocol: header[9],
        ports: ports(header[9], payload, fragment),
        payload,
        length: u16_at(header, 2)?.into(),
        header_length: length,
        fragment,
        vlans,
        tunnels: [None; MAX_LEVELS],
        traffic_class: header[1],
    })
}

fn ipv6(data: &[u8], vlans: [u16; MAX_TAGS]) -> Option<Ip<'_>> {
    let header: &[u8; 40] = data.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let (protocol, at, fragment) = after_extensions(header[6], data);
    let payload = data.get(at..).unwrap_or_default();
    let length = usize::from(u16_at(header, 4)?);
    Some(Ip {
        source: &header[8..24],
        destination: &header[24..40],
        protocol,
        ports: ports(protocol, payload, fragment),
        payload,
        length: if length == 0 { 0 } else { 40 + length },
        header_length: at,
        fragment,
        vlans,
        tunnels: [None; MAX_LEVELS],
        traffic_class: header[0] << 4 | header[1] >> 4,
    })
}

/// The protocol, the offset behind the headers, and the fragment header if there is one.
fn after_extensions(first: u8, data: &[u8]) -> (u8, usize, Option<Fragment>) {
    let (mut protocol, mut at) = (first, 40);
    for _ in 0..MAX_EXTENSIONS {
        let Some(header) = data.get(at..).and_then(<[u8]>::first_chunk::<8>) else {
            break;
        };
        match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => {}
            FRAGMENT => {
                let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                let is_first = u16::from_be_bytes([header[2], header[3]]) & 0xfff8 == 0;
                return (header[0], at + 8, Some(Fragment { id, is_first }));
            }
            _ => break,
        }
        protocol = header[0];
        at += 8 + 8 * usize::from(header[1]);
    }
    (protocol, at, None)
}

fn ports(protocol: u8, payload: &[u8], fragment: Option<Fragment>) -> (u16, u16) {
    match (protocol, fragment) {
        (TCP | UDP | SCTP, None) => first_ports(payload).unwrap_or_default(),
        _ => (0, 0),
    }
}

fn first_ports(payload: &[u8]) -> Option<(u16, u16)> {
    Some((u16_at(payload, 0)?, u16_at(payload, 2)?))
}

pub(super) fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?
        .first_chunk()
        .map(|bytes| u16::from_be_bytes(*bytes))
}

pub(super) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes))
}
