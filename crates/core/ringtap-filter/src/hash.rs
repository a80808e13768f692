// SPDX-License-Identifier: MIT OR Apache-2.0
//! The symmetric flow hash: packets of both directions of a connection have the same hash.
//!
//! `bpf/headers.h`, `bpf/tunnel.h` and `bpf/flow.h` compute the same hashes in the kernel. All arithmetic wraps, after
//! 32 bits unless stated; packet fields are big-endian numbers; a field is present only if all of its bytes
//! were captured.
//!
//! # The hash
//!
//! A hub has a secret seed. SplitMix64 makes 64-bit keys `k0 … k10` of it, the first output first. The
//! words `w1 … w10` are those of the packet:
//!
//! ```text
//! s = k0 + k1 * w1 + … + k10 * w10              (64 bits)
//! h = s >> 32
//! h = (h ^ (h >> 16)) * 0x85ebca6b
//! h = (h ^ (h >> 13)) * 0xc2b2ae35
//! h =  h ^ (h >> 16)
//! ```
//!
//! The upper half of `s` is strongly universal (multilinear hashing; Lemire and Kaser 2014): without
//! the seed, nobody can choose packets whose hashes collide more often than by chance.
//!
//! # The words
//!
//! - IPv4 and IPv6: `w1`, `w3`, `w5` and `w7` are the lower address, `w2`, `w4`, `w6` and `w8` the
//!   higher one (as numbers, the first four bytes first; an IPv4 address is one word). For
//!   [`HashKeys::flow`] also `w9`, `port << 16 | port`, the port that belongs to the lower address first
//!   (the lower port first if the addresses are equal), and `w10`, the protocol.
//! - Anything else of at least 14 bytes: `w1` and `w3` are the lower MAC address (its upper 16 bits, its
//!   lower 32), `w2` and `w4` the higher one; `w10` is the ethertype.
//! - All other words are 0. Of a packet of less than 14 bytes the hash is 0.
//!
//! # The headers
//!
//! 1. *Ethernet*: two MAC addresses, then an ethertype. Up to three VLAN tags (0x8100,
//!    0x88a8, 0x9100) are passed over, if the ethertype that follows them was captured too. Other [link
//!    headers](Link) have no MAC addresses here: of packets without IP headers behind them the hash is 0.
//!    Behind the tags, two more headers are passed over if they lead to IP: up to four *MPLS* labels
//!    (0x8847, 0x8848) of 4 bytes, of which only the last has bit 0x01 in its third byte; then IPv4 or IPv6,
//!    by the version in the first byte. A *PPPoE* session header (0x8864): 0x11, 0, four bytes, then the
//!    protocol: 0x0021 IPv4, 0x0057 IPv6.
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
//! ports, like [`HashKeys::addresses`], avoids this.
//!
//! # Tunnels
//!
//! With [`Tunnels::All`] the key is that of the innermost packet, up to two levels deep, if each outer packet is IP, not
//! a fragment, and carries a tunnel of the table in `tunnels.rs` (lengths are of captured bytes). With
//! [`Tunnels::InKernel`] only those marked here with K are entered, one level deep: the kernel's programs do that.
//!
//! - K *VXLAN*: UDP to port 4789; 8 bytes behind the UDP header, of which the first has bit 0x08; then Ethernet.
//! - K *Geneve*: UDP to port 6081; 8 bytes of which the first has version 0 (0xc0) and the length of options in words
//!   (0x3f), the second without 0x80 (control); then by the type in bytes 2-3, as for GRE without ERSPAN and MPLS.
//! - K *GTP-U*: UDP to port 2152; 8 bytes behind the UDP header, the first with 0x30 in its upper
//!   four bits, the second 255; if the first has any of 0x07, 4 more bytes; if it has 0x04, the
//!   last of these is the type of the next extension, 0 for none: up to four extensions, each
//!   `4 * first byte` bytes (not 0) of which the last is the type of the next; a fifth is too
//!   many. Then IPv4 or IPv6, by the version in the first byte.
//! - K *GRE*: protocol 47; 4 bytes of which the first 16 bits (the flags) have neither 0x4000 nor a
//!   version (0x0007); 4 more bytes for each of 0x8000, 0x2000, 0x1000; by the type in bytes 2-3:
//!   0x6558 Ethernet, 0x0800 IPv4, 0x86dd IPv6, 0x8847 and 0x8848 MPLS labels as above.
//!   *ERSPAN* I: type 0x88be without flag 0x1000, then Ethernet. II: type 0x88be or 0x22eb, 8 bytes of which the first
//!   has 1 in its upper four bits, then Ethernet. III: the same types, 2 in these bits, 12 bytes, 8 more if the last
//!   has 0x01; byte 10 has in bits 2-6 the type: 0 Ethernet, 2 IP.
//! - K *IP in IP*: protocol 4 (IPv4) or 41 (IPv6).
//! - K *MPLS over UDP*: UDP to port 6635; labels as above. *MPLS in IP*: protocol 137.
//! - *L2TPv3*: protocol 115, or UDP from or to port 1701 with 4 bytes of which the first 16 bits have version 3 and no
//!   0x8000; a session of 4 bytes, not 0; then the first of 4, 0, 8, 12 bytes behind which Ethernet with IP lies.
//! - *Teredo*: UDP from or to port 3544; an authentication (0, 1, two lengths, that many bytes and 9 more), an origin
//!   (0, 0 and 6 bytes), both optional; then IPv6 from or to 2001::/32.
//!
//! If the inner packet is neither Ethernet of at least 14 bytes nor IP, the outer packet is hashed.

mod headers;
#[cfg(test)]
mod tests;
mod tunnels;

use crate::LinkType;
use headers::ParsedPacket;
pub use headers::{Fragment, Ip};
pub use tunnels::{MAX_LEVELS, TunnelHeader, TunnelKind, Tunnels};

/// First header of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    #[default]
    Ethernet,
    /// An IP header.
    Ip,
    /// 16 bytes of Linux's "any" device, the last two an ethertype.
    LinuxCooked,
    /// 20 bytes of Linux's "any" device, the first two an ethertype.
    LinuxCooked2,
    /// An address family of BSD in four bytes: a loopback interface.
    Loopback,
    /// A PPP protocol, behind `ff 03` or not.
    Ppp,
}

impl Link {
    /// First header of packets of a link type; `None` if the link type has no known addresses.
    #[must_use]
    pub fn from_link_type(link_type: LinkType) -> Option<Self> {
        /// `LINKTYPE_IPV4` and `LINKTYPE_IPV6`.
        const ONE_VERSION: [u16; 2] = [228, 229];
        /// `LINKTYPE_NULL` and `LINKTYPE_LOOP`.
        const LOOPBACK: [u16; 2] = [0, 108];
        const PPP: LinkType = LinkType(9);
        match link_type {
            LinkType::ETHERNET => Some(Link::Ethernet),
            LinkType::RAW_IP => Some(Link::Ip),
            LinkType(number) if ONE_VERSION.contains(&number) => Some(Link::Ip),
            LinkType::LINUX_SLL => Some(Link::LinuxCooked),
            LinkType::LINUX_SLL2 => Some(Link::LinuxCooked2),
            LinkType(number) if LOOPBACK.contains(&number) => Some(Link::Loopback),
            PPP => Some(Link::Ppp),
            _ => None,
        }
    }
}

/// Outermost VLAN number of a packet, unhashed; 0 without a tag.
#[must_use]
pub fn vlan(data: &[u8], link: Link) -> u32 {
    headers::vlan(data, link).unwrap_or(0)
}

/// Ethertype of a packet behind its VLAN tags; `None` if it was not captured, or the link header names none.
#[must_use]
pub fn ethertype(data: &[u8], link: Link) -> Option<u16> {
    headers::ethertype(data, link)
}

/// IP headers of a packet, or of the innermost packet in its tunnels, by the rules of [the hash](self); `None` for
/// other packets. A tunnel without an IP packet inside is not entered.
#[must_use]
pub fn ip(data: &[u8], link: Link, tunnels: impl Into<Tunnels>) -> Option<Ip<'_>> {
    headers::innermost_ip(data, link, tunnels.into())
}

/// Secret from which the keys of the hash are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashSeed(pub u64);

/// Keys of the hash, for all packets of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKeys([u64; KEYS]);

const KEYS: usize = 11;
const KEY_OF_PORTS: usize = 9;
const KEY_OF_LAST: usize = 10;

impl HashKeys {
    /// The keys of a seed: the first outputs of SplitMix64.
    #[must_use]
    pub const fn new(HashSeed(seed): HashSeed) -> Self {
        let (mut keys, mut state, mut at) = ([0; KEYS], seed, 0);
        while at < KEYS {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            keys[at] = mixed ^ mixed >> 31;
            at += 1;
        }
        HashKeys(keys)
    }

    /// The keys, `k0` first.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0.into_iter()
    }

    /// Hash over addresses, ports and protocol of a packet with captured bytes `data`.
    #[must_use]
    pub fn flow(&self, data: &[u8], link: Link, tunnels: impl Into<Tunnels>) -> u32 {
        match headers::dissect(data, link, tunnels.into()) {
            ParsedPacket::Ip(ip) => {
                let (sum, is_swapped) = self.sum_of_addresses(&ip);
                let (first, second) = match is_swapped {
                    Some(true) => (ip.ports.1, ip.ports.0),
                    Some(false) => ip.ports,
                    None => (ip.ports.0.min(ip.ports.1), ip.ports.0.max(ip.ports.1)),
                };
                let ports = u32::from(first) << 16 | u32::from(second);
                let sum = sum.wrapping_add(self.term(KEY_OF_PORTS, ports));
                finish(sum.wrapping_add(self.term(KEY_OF_LAST, ip.protocol.into())))
            }
            other => self.without_ip(&other),
        }
    }

    /// Hash over the two addresses of a packet with captured bytes `data`.
    #[must_use]
    pub fn addresses(&self, data: &[u8], link: Link, tunnels: impl Into<Tunnels>) -> u32 {
        match headers::dissect(data, link, tunnels.into()) {
            ParsedPacket::Ip(ip) => finish(self.sum_of_addresses(&ip).0),
            other => self.without_ip(&other),
        }
    }

    fn without_ip(&self, packet: &ParsedPacket) -> u32 {
        let ParsedPacket::Ethernet { macs, ethertype } = *packet else {
            return 0;
        };
        let (low, high) = (macs.0.min(macs.1), macs.0.max(macs.1));
        let pairs = [(low.0.into(), high.0.into()), (low.1, high.1)];
        let sum = self.sum(pairs.into_iter());
        finish(sum.wrapping_add(self.term(KEY_OF_LAST, ethertype.into())))
    }

    /// Sum of both addresses, and whether the destination is lower; `None` if they are equal.
    fn sum_of_addresses(&self, ip: &Ip<'_>) -> (u64, Option<bool>) {
        let (low, high, is_swapped) = match ip.source.cmp(ip.destination) {
            std::cmp::Ordering::Less => (ip.source, ip.destination, Some(false)),
            std::cmp::Ordering::Equal => (ip.source, ip.destination, None),
            std::cmp::Ordering::Greater => (ip.destination, ip.source, Some(true)),
        };
        fn words(address: &[u8]) -> impl Iterator<Item = u32> {
            let words = address.as_chunks().0.iter();
            words.map(|word| u32::from_be_bytes(*word))
        }
        (self.sum(words(low).zip(words(high))), is_swapped)
    }

    /// Sum of `k0` and the words of the lower and the higher address.
    fn sum(&self, pairs: impl Iterator<Item = (u32, u32)>) -> u64 {
        let add = |sum: u64, (key, (low, high)): (usize, (u32, u32))| {
            let sum = sum.wrapping_add(self.term(key, low));
            sum.wrapping_add(self.term(key + 1, high))
        };
        (1..KEY_OF_PORTS).step_by(2).zip(pairs).fold(self.0[0], add)
    }

    fn term(&self, key: usize, word: u32) -> u64 {
        self.0[key].wrapping_mul(word.into())
    }
}

fn finish(sum: u64) -> u32 {
    let [.., a, b, c, d] = sum.to_le_bytes();
    let hash = u32::from_le_bytes([a, b, c, d]);
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}
