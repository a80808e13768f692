// SPDX-License-Identifier: MIT OR Apache-2.0
//! The symmetric flow hash: packets of both directions of a connection have the same hash.
//!
//! `bpf/flow.h` computes the same hashes in the kernel. All arithmetic uses 32 bits and wraps;
//! packet fields are big-endian numbers; a field is present only if all of its bytes were captured.
//!
//! # The hash
//!
//! A key is a sequence of words `w1 … wn`:
//!
//! ```text
//! h = 0
//! for each word w:  h = (h ^ w) * 0x9e3779b1;  h = h ^ (h >> 15)
//! finally:          h = (h ^ (h >> 16)) * 0x85ebca6b
//!                   h = (h ^ (h >> 13)) * 0xc2b2ae35
//!                   h =  h ^ (h >> 16)
//! ```
//!
//! # The key
//!
//! - IPv4 and IPv6: the lower address, the higher address (as numbers; an IPv6 address is four
//!   words, the first four bytes first); for [`flow()`] also `port << 16 | port`, the port that
//!   belongs to the lower address first (the lower port first if the addresses are equal), and
//!   the protocol as the last word.
//! - Anything else of at least 14 bytes: the lower and the higher MAC address (each two words,
//!   first its upper 16 bits, then its lower 32), and the ethertype.
//! - Less than 14 bytes: the hash is 0.
//!
//! # The headers
//!
//! 1. *Ethernet*: two MAC addresses, then an ethertype. Up to two VLAN tags (0x8100, 0x88a8,
//!    0x9100) are passed over, if the ethertype that follows them was captured too.
//! 2. *IPv4* (ethertype 0x0800): 20 bytes captured, version 4, header length at least 20.
//!    *IPv6* (0x86dd): 40 bytes captured, version 6. What breaks these rules is not IP.
//! 3. *Extension headers of IPv6*: up to four hop-by-hop (0), routing (43) and destination (60)
//!    headers are passed over, each `8 + 8 * second byte` bytes, as long as the first 8 are
//!    captured; the protocol is what the last one names. A fragment header (44, counted among the
//!    four) ends the walk: the protocol is what it names. A header that cannot be passed over is
//!    itself the protocol.
//! 4. *Fragments*: IPv4 with "more fragments" or an offset, IPv6 with a fragment header.
//! 5. *Ports*: of TCP (6), UDP (17) and SCTP (132), if the 4 bytes are captured; 0 for fragments
//!    and other protocols.
//!
//! Later fragments carry no ports. The fragments of one datagram have the same hash (addresses and
//! protocol), but a different one than unfragmented packets of the connection. Only a hash without
//! ports, like [`addresses`], avoids this.
//!
//! # Tunnels
//!
//! With [`Headers::Inner`] the key is that of the inner packet, one level deep, if the outer packet
//! is IP, not a fragment, and carries one of these tunnels (lengths are of captured bytes):
//!
//! - *VXLAN*: UDP to port 4789; 8 bytes behind the UDP header, of which the first has bit 0x08;
//!   then Ethernet.
//! - *GRE*: protocol 47; 4 bytes of which the first 16 bits (the flags) have neither 0x4000 nor a
//!   version (0x0007); 4 more bytes for each of 0x8000, 0x2000, 0x1000; by the type in bytes 2-3:
//!   0x6558 Ethernet, 0x0800 IPv4, 0x86dd IPv6.
//! - *GTP-U*: UDP to port 2152; 8 bytes behind the UDP header, the first with 0x30 in its upper
//!   four bits, the second 255; if the first has any of 0x07, 4 more bytes; if it has 0x04, the
//!   last of these is the type of the next extension, 0 for none: up to four extensions, each
//!   `4 * first byte` bytes (not 0) of which the last is the type of the next; a fifth is too
//!   many. Then IPv4 or IPv6, by the version in the first byte.
//!
//! If the inner packet is neither Ethernet of at least 14 bytes nor IP, the outer packet is hashed.

mod headers;
#[cfg(test)]
mod tests;

use crate::{Headers, LinkType};
use headers::{Ip, Packet};

/// First header of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    #[default]
    Ethernet,
    /// An IP header.
    Ip,
}

impl Link {
    /// First header of packets of a link type; `None` if the link type has no known addresses.
    #[must_use]
    pub fn of(link_type: LinkType) -> Option<Self> {
        /// `LINKTYPE_IPV4` and `LINKTYPE_IPV6`.
        const ONE_VERSION: [u16; 2] = [228, 229];
        match link_type {
            LinkType::ETHERNET => Some(Link::Ethernet),
            LinkType::RAW_IP => Some(Link::Ip),
            LinkType(number) if ONE_VERSION.contains(&number) => Some(Link::Ip),
            _ => None,
        }
    }
}

/// Hash over addresses, ports and protocol of an Ethernet packet with captured bytes `data`.
#[must_use]
pub fn flow(data: &[u8], headers: Headers) -> u32 {
    flow_of(data, Link::Ethernet, headers)
}

/// Hash over the two addresses of an Ethernet packet with captured bytes `data`.
#[must_use]
pub fn addresses(data: &[u8], headers: Headers) -> u32 {
    addresses_of(data, Link::Ethernet, headers)
}

/// Outermost VLAN number of an Ethernet packet, unhashed; 0 without a tag.
#[must_use]
pub fn vlan(data: &[u8]) -> u32 {
    headers::vlan(data).unwrap_or(0)
}

/// Like [`flow()`], for any first header.
#[must_use]
pub fn flow_of(data: &[u8], link: Link, headers: Headers) -> u32 {
    match headers::dissect(data, link, headers) {
        Packet::Ip(ip) => {
            let (hash, is_swapped) = mix_addresses(&ip);
            let (first, second) = match is_swapped {
                Some(true) => (ip.ports.1, ip.ports.0),
                Some(false) => ip.ports,
                None => (ip.ports.0.min(ip.ports.1), ip.ports.0.max(ip.ports.1)),
            };
            let ports = u32::from(first) << 16 | u32::from(second);
            finish(step(step(hash, ports), ip.protocol.into()))
        }
        other => without_ip(&other),
    }
}

/// Like [`addresses`], for any first header.
#[must_use]
pub fn addresses_of(data: &[u8], link: Link, headers: Headers) -> u32 {
    match headers::dissect(data, link, headers) {
        Packet::Ip(ip) => finish(mix_addresses(&ip).0),
        other => without_ip(&other),
    }
}

fn without_ip(packet: &Packet) -> u32 {
    let Packet::Ethernet { macs, ethertype } = *packet else {
        return 0;
    };
    let (low, high) = (macs.0.min(macs.1), macs.0.max(macs.1));
    let words = [low.0.into(), low.1, high.0.into(), high.1, ethertype.into()];
    finish(words.into_iter().fold(0, step))
}

/// Hash of both addresses, and whether the destination is lower; `None` if they are equal.
fn mix_addresses(ip: &Ip<'_>) -> (u32, Option<bool>) {
    let (low, high, is_swapped) = match ip.source.cmp(ip.destination) {
        std::cmp::Ordering::Less => (ip.source, ip.destination, Some(false)),
        std::cmp::Ordering::Equal => (ip.source, ip.destination, None),
        std::cmp::Ordering::Greater => (ip.destination, ip.source, Some(true)),
    };
    let words = low.chunks_exact(4).chain(high.chunks_exact(4));
    let words = words.map(|bytes| {
        bytes
            .iter()
            .fold(0, |word, &byte| word << 8 | u32::from(byte))
    });
    (words.fold(0, step), is_swapped)
}

fn step(hash: u32, word: u32) -> u32 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b1);
    hash ^ hash >> 15
}

fn finish(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}
