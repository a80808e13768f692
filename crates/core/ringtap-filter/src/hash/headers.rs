// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds addresses, ports and protocol of a packet; [`super`] specifies the rules.
//!
//! Invariants
//! - No byte outside the captured bytes is read, whatever lengths the packet claims.
//! - Every walk is bounded: two tags, four extension headers, one tunnel.

use super::Link;
use crate::Headers;

const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TRANSPARENT_ETHERNET: u16 = 0x6558;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const SCTP: u8 = 132;

const VXLAN_PORT: u16 = 4789;
const GTP_PORT: u16 = 2152;

const MOST_TAGS: usize = 2;
const MOST_EXTENSIONS: usize = 4;

/// Upper 16 and lower 32 bits.
pub(super) type Mac = (u16, u32);

pub(super) enum Packet<'a> {
    Ip(Ip<'a>),
    Ethernet { macs: (Mac, Mac), ethertype: u16 },
    TooShort,
}

pub(super) struct Ip<'a> {
    pub(super) source: &'a [u8],
    pub(super) destination: &'a [u8],
    pub(super) protocol: u8,
    pub(super) ports: (u16, u16),
    /// Bytes behind the IP headers; `None` for a fragment.
    payload: Option<&'a [u8]>,
}

pub(super) fn dissect(data: &[u8], link: Link, headers: Headers) -> Packet<'_> {
    let outer = match link {
        Link::Ethernet => ethernet(data),
        Link::Ip => ip_by_version(data).map_or(Packet::TooShort, Packet::Ip),
    };
    match &outer {
        Packet::Ip(ip) if headers == Headers::Inner => inner(ip).unwrap_or(outer),
        _ => outer,
    }
}

pub(super) fn vlan(data: &[u8]) -> Option<u32> {
    let is_tagged = TAGS.contains(&u16_at(data, 12)?);
    let tag = u16_at(data, 14)?;
    is_tagged.then_some(u32::from(tag & 0x0fff))
}

fn ethernet(data: &[u8]) -> Packet<'_> {
    let Some((macs, mut ethertype)) = macs(data).zip(u16_at(data, 12)) else {
        return Packet::TooShort;
    };
    let mut at = 14;
    for _ in 0..MOST_TAGS {
        match u16_at(data, at + 2) {
            Some(next) if TAGS.contains(&ethertype) => ethertype = next,
            _ => break,
        }
        at += 4;
    }
    let ip = data.get(at..).and_then(|rest| ip(rest, ethertype));
    ip.map_or(Packet::Ethernet { macs, ethertype }, Packet::Ip)
}

fn macs(data: &[u8]) -> Option<(Mac, Mac)> {
    let mac = |at| Some((u16_at(data, at)?, u32_at(data, at + 2)?));
    Some((mac(0)?, mac(6)?))
}

fn ip(data: &[u8], ethertype: u16) -> Option<Ip<'_>> {
    match ethertype {
        IPV4 => ipv4(data),
        IPV6 => ipv6(data),
        _ => None,
    }
}

fn ip_by_version(data: &[u8]) -> Option<Ip<'_>> {
    match data.first()? >> 4 {
        4 => ipv4(data),
        6 => ipv6(data),
        _ => None,
    }
}

fn ipv4(data: &[u8]) -> Option<Ip<'_>> {
    let header: &[u8; 20] = data.first_chunk()?;
    let length = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || length < header.len() {
        return None;
    }
    let is_fragment = u16_at(header, 6)? & 0x3fff != 0;
    let payload = (!is_fragment).then(|| data.get(length..).unwrap_or_default());
    Some(Ip {
        source: &header[12..16],
        destination: &header[16..20],
        protocol: header[9],
        ports: ports(header[9], payload),
        payload,
    })
}

fn ipv6(data: &[u8]) -> Option<Ip<'_>> {
    let header: &[u8; 40] = data.first_chunk()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let (protocol, payload) = after_extensions(header[6], &data[40..]);
    Some(Ip {
        source: &header[8..24],
        destination: &header[24..40],
        protocol,
        ports: ports(protocol, payload),
        payload,
    })
}

/// The protocol and the bytes behind the headers; `None` for a fragment.
fn after_extensions(first: u8, mut data: &[u8]) -> (u8, Option<&[u8]>) {
    let mut protocol = first;
    for _ in 0..MOST_EXTENSIONS {
        let Some(header) = data.first_chunk::<8>() else {
            break;
        };
        match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => {}
            FRAGMENT => return (header[0], None),
            _ => break,
        }
        protocol = header[0];
        let length = 8 + 8 * usize::from(header[1]);
        data = data.get(length..).unwrap_or_default();
    }
    (protocol, Some(data))
}

fn ports(protocol: u8, payload: Option<&[u8]>) -> (u16, u16) {
    let ports = payload.and_then(|data| Some((u16_at(data, 0)?, u16_at(data, 2)?)));
    match protocol {
        TCP | UDP | SCTP => ports.unwrap_or_default(),
        _ => (0, 0),
    }
}

/// The packet inside a tunnel.
fn inner<'a>(outer: &Ip<'a>) -> Option<Packet<'a>> {
    let payload = outer.payload?;
    match (outer.protocol, outer.ports.1) {
        (GRE, _) => gre(payload),
        (UDP, VXLAN_PORT) => vxlan(payload.get(8..)?),
        (UDP, GTP_PORT) => gtp(payload.get(8..)?),
        _ => None,
    }
}

fn inner_ethernet(data: &[u8]) -> Option<Packet<'_>> {
    match ethernet(data) {
        Packet::TooShort => None,
        packet => Some(packet),
    }
}

fn vxlan(data: &[u8]) -> Option<Packet<'_>> {
    let header: &[u8; 8] = data.first_chunk()?;
    if header[0] & 0x08 == 0 {
        return None;
    }
    inner_ethernet(&data[8..])
}

fn gre(data: &[u8]) -> Option<Packet<'_>> {
    let (flags, kind) = (u16_at(data, 0)?, u16_at(data, 2)?);
    if flags & 0x4007 != 0 {
        return None;
    }
    let options = [0x8000, 0x2000, 0x1000]
        .iter()
        .filter(|&&bit| flags & bit != 0);
    let payload = data.get(4 + 4 * options.count()..)?;
    match kind {
        TRANSPARENT_ETHERNET => inner_ethernet(payload),
        kind => ip(payload, kind).map(Packet::Ip),
    }
}

fn gtp(data: &[u8]) -> Option<Packet<'_>> {
    let header: &[u8; 8] = data.first_chunk()?;
    if header[0] & 0xf0 != 0x30 || header[1] != 255 {
        return None;
    }
    let mut rest = &data[8..];
    if header[0] & 0x07 != 0 {
        let options: &[u8; 4] = rest.first_chunk()?;
        rest = &rest[4..];
        if header[0] & 0x04 != 0 {
            rest = after_gtp_extensions(options[3], rest)?;
        }
    }
    ip_by_version(rest).map(Packet::Ip)
}

fn after_gtp_extensions(first: u8, mut data: &[u8]) -> Option<&[u8]> {
    let mut next = first;
    for _ in 0..MOST_EXTENSIONS {
        if next == 0 {
            return Some(data);
        }
        let length = 4 * usize::from(*data.first()?);
        next = *data.get(..length)?.last()?;
        data = &data[length..];
    }
    (next == 0).then_some(data)
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?
        .first_chunk()
        .map(|bytes| u16::from_be_bytes(*bytes))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes))
}
