// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet as analyses need it: its key, its lengths, its TCP header, its payload.
//!
//! Invariants
//! - Only captured bytes are read, whatever lengths the packet claims.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringtap_filter::Headers;
use ringtap_filter::hash::{self, Fragment, Ip, Link};
use ringtap_pool::number::to_u32;

use crate::outside::PacketOutside;
use crate::record::{DirectionMarks, FlowKey};

/// IP protocol numbers.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const SCTP: u8 = 132;

/// Length of the header that ICMP and ICMPv6 have before their payload, in bytes.
const ICMP_HEADER: usize = 8;

/// TCP flags.
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// One IP packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dissected<'a> {
    pub(crate) time_ns: u64,
    pub(crate) key: PacketKey,
    /// Hash of the key.
    pub(crate) hash: u64,
    /// Length of the frame on the wire.
    pub(crate) frame_bytes: u32,
    /// Length of the IP headers and all behind them.
    pub(crate) ip_bytes: u32,
    /// Length of the payload of TCP, UDP or ICMP; 0 for other protocols.
    pub(crate) payload_bytes: u32,
    pub(crate) tcp: Option<TcpHeader>,
    pub(crate) fragment: Option<Fragment>,
    pub(crate) marks: DirectionMarks,
    pub(crate) outside: PacketOutside<'a>,
    /// Captured bytes from the IP header on, without the frame's padding.
    pub(crate) packet: &'a [u8],
    /// Offset of the payload in `packet`.
    pub(crate) payload_at: usize,
}

/// Fields of a TCP header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpHeader {
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
}

/// Addresses, ports, protocol, VLANs and tunnels of a packet; [`FlowKey`] in fewer bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PacketKey {
    pub(crate) source: [u64; 2],
    pub(crate) destination: [u64; 2],
    pub(crate) ports: (u16, u16),
    pub(crate) vlan: u16,
    pub(crate) protocol: u8,
    pub(crate) is_ipv6: bool,
    /// Keyed hash of further VLANs and of tunnels, without identifiers that a receiver chooses; 0 without.
    pub(crate) outside: u64,
}

impl<'a> Dissected<'a> {
    /// Reads the headers of a packet; `None` if it is not IP.
    pub(crate) fn new(
        time_ns: u64,
        data: &'a [u8],
        frame_bytes: u32,
        link: Link,
        headers: Headers,
        secret: &Secret,
    ) -> Option<Self> {
        let ip = hash::ip(data, link, headers)?;
        // Files exist whose packets are longer than they claim.
        let frame_bytes = frame_bytes.max(to_u32(data.len()));
        // Of a frame that was cut, the captured bytes before the IP header are all there.
        let before = data.len() - (ip.header_length + ip.payload.len()).min(data.len());
        let ip_bytes = match ip.length {
            0 => frame_bytes.saturating_sub(to_u32(before)),
            length => to_u32(length),
        };
        let (header_bytes, tcp) = transport(&ip);
        let headers_bytes = ip.header_length + header_bytes;
        let without_payload = match ip.protocol {
            TCP | UDP => headers_bytes,
            ICMP | ICMPV6 if ip.fragment.is_none_or(|fragment| fragment.is_first) => {
                ip.header_length + ICMP_HEADER
            }
            ICMP | ICMPV6 => ip.header_length,
            _ => usize::MAX,
        };
        let outside = PacketOutside::new(&ip);
        let key = PacketKey::new(&ip, secret.hash_outside(&outside));
        Some(Dissected {
            time_ns,
            key,
            hash: secret.hash(&key),
            frame_bytes,
            ip_bytes,
            payload_bytes: ip_bytes.saturating_sub(to_u32(without_payload)),
            tcp,
            fragment: ip.fragment,
            marks: DirectionMarks {
                traffic_class: ip.traffic_class,
                is_sent: false,
            },
            outside,
            packet: cut(data.get(before..).unwrap_or_default(), ip_bytes),
            payload_at: headers_bytes,
        })
    }

    /// Identifier of an ICMP query or reply.
    pub(crate) fn icmp_identifier(&self) -> Option<u16> {
        let kind = u8::try_from(self.key.ports.0 >> 8).unwrap_or_default();
        let has_identifier = match self.key.protocol {
            // Echo, timestamp, information and address mask (RFC 792, 950).
            ICMP => matches!(kind, 0 | 8 | 13..=18),
            // Echo (RFC 4443).
            ICMPV6 => matches!(kind, 128 | 129),
            _ => false,
        };
        let at = self.payload_at;
        let bytes = self.packet.get(at + 4..)?.first_chunk()?;
        let is_whole = self.fragment.is_none();
        (has_identifier && is_whole).then(|| u16::from_be_bytes(*bytes))
    }

    /// Captured payload of TCP or UDP.
    pub(crate) fn payload(&self) -> &'a [u8] {
        self.packet.get(self.payload_at..).unwrap_or_default()
    }
}

/// At most the first `most` bytes.
fn cut(bytes: &[u8], most: u32) -> &[u8] {
    bytes.get(..most as usize).unwrap_or(bytes)
}

/// Length of the header of TCP or UDP, and the TCP header's fields; nothing for later fragments.
fn transport(ip: &Ip<'_>) -> (usize, Option<TcpHeader>) {
    match (ip.protocol, ip.fragment) {
        (
            _,
            Some(Fragment {
                is_first: false, ..
            }),
        ) => (0, None),
        (UDP, _) => (8, None),
        (TCP, _) => match ip.payload.first_chunk::<14>() {
            Some(&[_, _, _, _, a, b, c, d, _, _, _, _, offset, flags]) => {
                let sequence = u32::from_be_bytes([a, b, c, d]);
                let header = usize::from(offset >> 4).max(5) * 4;
                (header, Some(TcpHeader { sequence, flags }))
            }
            None => (20, None),
        },
        _ => (0, None),
    }
}

impl PacketKey {
    fn new(ip: &Ip<'_>, outside: u64) -> Self {
        let ports = match ip.protocol {
            ICMP | ICMPV6 if ip.fragment.is_none() => {
                let head = ip.payload.first_chunk().copied().unwrap_or_default();
                icmp_ports(ip.protocol, u16::from_be_bytes(head))
            }
            _ => ip.first_ports().unwrap_or_default(),
        };
        PacketKey {
            source: words(ip.source),
            destination: words(ip.destination),
            ports,
            vlan: ip.vlans[0],
            protocol: ip.protocol,
            is_ipv6: ip.source.len() == 16,
            outside,
        }
    }

    /// The key of packets in the other direction.
    pub(crate) fn reversed(self) -> Self {
        PacketKey {
            source: self.destination,
            destination: self.source,
            ports: (self.ports.1, self.ports.0),
            ..self
        }
    }

    /// The key in full.
    pub(crate) fn flow_key(&self) -> FlowKey {
        FlowKey {
            source: self.address(self.source),
            destination: self.address(self.destination),
            source_port: self.ports.0,
            destination_port: self.ports.1,
            protocol: self.protocol,
            vlan: self.vlan,
        }
    }

    /// One of the addresses.
    pub(crate) fn address(&self, words: [u64; 2]) -> IpAddr {
        let bits = u128::from(words[0]) << 64 | u128::from(words[1]);
        if self.is_ipv6 {
            Ipv6Addr::from_bits(bits).into()
        } else {
            Ipv4Addr::from_bits(low_half(words[1])).into()
        }
    }
}

/// Ports of an ICMP packet with this `type * 256 + code`: its own number, then that of the packets that
/// answer it.
///
/// So a request and its answer have the same key in opposite directions. A message that has no answer has its
/// own number twice. Pairs: RFC 792, 950, 1256, 4443, 4620, 4861.
pub(crate) fn icmp_ports(protocol: u8, number: u16) -> (u16, u16) {
    const V4: [[u8; 2]; 5] = [[8, 0], [10, 9], [13, 14], [15, 16], [17, 18]];
    const V6: [[u8; 2]; 4] = [[128, 129], [133, 134], [135, 136], [139, 140]];
    let [kind, code] = number.to_be_bytes();
    let pairs = if protocol == ICMP { &V4[..] } else { &V6[..] };
    let answer = pairs.iter().find_map(|pair| match *pair {
        [request, answer] if request == kind => Some(answer),
        [request, answer] if answer == kind => Some(request),
        _ => None,
    });
    let answer = answer.map_or(number, |kind| u16::from_be_bytes([kind, code]));
    (number, answer)
}

/// An address as a number, upper half first.
fn words(address: &[u8]) -> [u64; 2] {
    match address.as_chunks().0 {
        [upper, lower] => [u64::from_be_bytes(*upper), u64::from_be_bytes(*lower)],
        _ => {
            let four = address.first_chunk().copied().unwrap_or_default();
            [0, u32::from_be_bytes(four).into()]
        }
    }
}

/// Secret numbers of the hash, so that nobody can choose packets whose hashes collide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secret([u64; 4]);

impl Secret {
    /// Numbers by the system's random generator.
    pub(crate) fn random() -> Self {
        let state = RandomState::new();
        Secret([0, 1, 2, 3].map(|word: u64| state.hash_one(word) | 1))
    }

    /// Hash of a key; the same for both directions.
    #[inline]
    pub(crate) fn hash(&self, key: &PacketKey) -> u64 {
        let end = |address: [u64; 2], port: u16| {
            let upper = fold(address[0] ^ self.0[0], u64::from(port) ^ self.0[1]);
            fold(upper ^ address[1], self.0[2])
        };
        let ends = end(key.source, key.ports.0).wrapping_add(end(key.destination, key.ports.1));
        let rest = u64::from(key.vlan) << 8 | u64::from(key.protocol);
        fold(ends ^ rest ^ key.outside, self.0[3])
    }

    /// Hash of VLANs and tunnels, the same for both directions; 0 without.
    pub(crate) fn hash_outside(&self, outside: &PacketOutside<'_>) -> u64 {
        if outside.is_empty() {
            return 0;
        }
        let [second, third] = outside.inner_vlans.map(u64::from);
        let mut sum = fold(second << 16 ^ third ^ self.0[1], self.0[2]);
        for tunnel in outside.tunnels.iter().flatten() {
            let end = |address: &[u8]| {
                let [upper, lower] = words(address);
                fold(fold(upper ^ self.0[0], self.0[3]) ^ lower, self.0[1])
            };
            let ends = end(tunnel.source).wrapping_add(end(tunnel.destination));
            let identifier = if tunnel.kind.has_identifier_of_receiver() {
                0
            } else {
                1 + u64::from(tunnel.identifier.unwrap_or_default())
            };
            let kind = tunnel.kind as u64;
            let number = identifier << 24 ^ u64::from(tunnel.vlan) << 8 ^ kind;
            sum = fold(fold(sum ^ number, self.0[0]) ^ ends, self.0[2]);
        }
        sum.max(1)
    }
}

/// Upper and lower half of the product, mixed.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    low_word(product) ^ low_word(product >> 64)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "taking the low half is the point"
)]
const fn low_word(number: u128) -> u64 {
    number as u64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "taking the low half is the point"
)]
pub(crate) const fn low_half(number: u64) -> u32 {
    number as u32
}
