// SPDX-License-Identifier: MIT OR Apache-2.0
//! Community ID, version 1: the public identifier of a flow that Zeek, Suricata, Arkime and Wireshark compute, too.
//!
//! SHA-1 over a seed, both addresses, the protocol, a zero byte and both ports, with the lower end first, so both
//! directions have one identifier. Queries and replies of ICMP have the two types as ports. A message of ICMP without
//! an answer has type and code, and keeps its direction. VLANs and tunnels do not count.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringtap_filter::hash::{Fragment, Ip};
use sha1::{Digest as _, Sha1};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// What the text begins with.
const VERSION: &str = "1:";
/// Length of the text in bytes.
const TEXT_BYTES: usize = 30;

/// Types of ICMP that answer each other (RFC 792, 950, 1256).
const V4_PAIRS: [[u8; 2]; 5] = [[8, 0], [13, 14], [15, 16], [10, 9], [17, 18]];
/// The same of ICMPv6 (RFC 2710, 4443, 4620, 4861, 6275).
const V6_PAIRS: [[u8; 2]; 6] = [
    [128, 129],
    [133, 134],
    [135, 136],
    [130, 131],
    [139, 140],
    [144, 145],
];

/// Identifier of a flow, in order of its bytes.
///
/// # Examples
///
/// ```
/// use ringtap_packet::CommunityId;
///
/// let [client, server] = ["128.232.110.120", "66.35.250.204"].map(|one| one.parse().unwrap());
/// let there = CommunityId::from_flow(6, client, server, (34855, 80), 0);
/// let back = CommunityId::from_flow(6, server, client, (80, 34855), 0);
/// assert_eq!(there.to_string(), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
/// assert_eq!(there, back);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommunityId(pub [u8; 20]);

/// A text is no Community ID of version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a Community ID of version 1, like 1:LQU9qZlK+B5F3KDmev6m5PMibrg=")]
pub struct CommunityIdError;

/// Numbers of a flow beside its addresses and protocol.
enum Numbers {
    /// None: the protocol has no ports.
    Absent,
    /// They change places with the addresses.
    Paired(u16, u16),
    /// The message has no answer.
    OneWay(u16, u16),
}

impl CommunityId {
    /// The identifier of a flow. `numbers`: ports of source and destination for TCP, UDP and SCTP, type and code for
    /// ICMP and ICMPv6, ignored for other protocols. Programs agree on identifiers if they use one `seed`, usually 0.
    #[must_use]
    pub fn from_flow(
        protocol: u8,
        source: IpAddr,
        destination: IpAddr,
        numbers: (u16, u16),
        seed: u16,
    ) -> Self {
        let (mut from, mut to) = ([0; 16], [0; 16]);
        let ends = [octets(source, &mut from), octets(destination, &mut to)];
        CommunityFlow::new(protocol, ends, numbers).id(seed)
    }

    /// The identifier of a packet's flow; `None` if its ports, or its type of ICMP, are in an earlier fragment or
    /// were not captured.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringtap_filter::hash::{self, Link, Tunnels};
    /// use ringtap_packet::CommunityId;
    ///
    /// let frame = [0; 60];
    /// let ip = hash::ip(&frame, Link::Ethernet, Tunnels::None);
    /// assert_eq!(ip.and_then(|ip| CommunityId::from_packet(&ip, 0)), None);
    /// ```
    #[must_use]
    pub fn from_packet(ip: &Ip<'_>, seed: u16) -> Option<Self> {
        Some(CommunityFlow::from_packet(ip)?.id(seed))
    }

    /// As text, in ASCII: what [`Display`](fmt::Display) writes.
    #[must_use]
    pub fn to_text(&self) -> [u8; TEXT_BYTES] {
        let mut text = [0; TEXT_BYTES];
        let (version, digest) = text.split_at_mut(VERSION.len());
        version.copy_from_slice(VERSION.as_bytes());
        // 20 bytes have 28 letters, so there is room.
        let _written = STANDARD.encode_slice(self.0, digest);
        text
    }
}

/// What an identifier is computed from, in one direction: a key for programs that keep the identifiers they computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommunityFlow {
    /// Source and destination; of IPv4 addresses, only the first four bytes count.
    ends: [[u8; 16]; 2],
    is_ipv4: bool,
    protocol: u8,
    numbers: (u16, u16),
}

impl CommunityFlow {
    /// The flow of a packet; `None` if its ports, or its type of ICMP, are in an earlier fragment or were not captured.
    #[must_use]
    #[inline]
    pub fn from_packet(ip: &Ip<'_>) -> Option<Self> {
        let numbers = match (ip.protocol, ip.fragment) {
            (TCP | UDP | SCTP, _) => ip.first_ports()?,
            (ICMP | ICMPV6, None | Some(Fragment { is_first: true, .. })) => {
                let [kind, code] = *ip.payload.first_chunk()?;
                (kind.into(), code.into())
            }
            (ICMP | ICMPV6, Some(_)) => return None,
            _ => (0, 0),
        };
        let ends = [ip.source, ip.destination];
        Some(CommunityFlow::new(ip.protocol, ends, numbers))
    }

    #[inline]
    fn new(protocol: u8, addresses: [&[u8]; 2], numbers: (u16, u16)) -> Self {
        let end = |address: &[u8]| {
            let mut end = [0; 16];
            end.iter_mut()
                .zip(address)
                .for_each(|(to, from)| *to = *from);
            end
        };
        CommunityFlow {
            ends: addresses.map(end),
            is_ipv4: addresses[0].len() == 4,
            protocol,
            numbers,
        }
    }

    /// The identifier of the flow.
    #[must_use]
    pub fn id(&self, seed: u16) -> CommunityId {
        let bytes = if self.is_ipv4 { 4 } else { 16 };
        let [source, destination] = self.ends.each_ref().map(|end| &end[..bytes]);
        let (from, to, ports) = match Numbers::new(self.protocol, self.numbers) {
            Numbers::OneWay(kind, code) => (source, destination, Some((kind, code))),
            Numbers::Paired(a, b) if (source, a) <= (destination, b) => {
                (source, destination, Some((a, b)))
            }
            Numbers::Paired(a, b) => (destination, source, Some((b, a))),
            Numbers::Absent => (source.min(destination), source.max(destination), None),
        };
        let mut hash = Sha1::new();
        hash.update(seed.to_be_bytes());
        hash.update(from);
        hash.update(to);
        hash.update([self.protocol, 0]);
        if let Some((from, to)) = ports {
            hash.update(from.to_be_bytes());
            hash.update(to.to_be_bytes());
        }
        CommunityId(hash.finalize().into())
    }
}

impl Numbers {
    fn new(protocol: u8, (first, second): (u16, u16)) -> Self {
        let pairs = match protocol {
            TCP | UDP | SCTP => return Numbers::Paired(first, second),
            ICMP => &V4_PAIRS[..],
            ICMPV6 => &V6_PAIRS[..],
            _ => return Numbers::Absent,
        };
        let answer = pairs.iter().find_map(|pair| match pair.map(u16::from) {
            [request, answer] if request == first => Some(answer),
            [request, answer] if answer == first => Some(request),
            _ => None,
        });
        answer.map_or(Numbers::OneWay(first, second), |answer| {
            Numbers::Paired(first, answer)
        })
    }
}

/// The bytes of an address, in `room`.
fn octets(address: IpAddr, room: &mut [u8; 16]) -> &[u8] {
    match address {
        IpAddr::V4(address) => {
            room[..4].copy_from_slice(&address.octets());
            &room[..4]
        }
        IpAddr::V6(address) => {
            *room = address.octets();
            room
        }
    }
}

impl fmt::Display for CommunityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(str::from_utf8(&self.to_text()).unwrap_or_default())
    }
}

impl FromStr for CommunityId {
    type Err = CommunityIdError;

    fn from_str(text: &str) -> Result<Self, CommunityIdError> {
        let digest = text.strip_prefix(VERSION).ok_or(CommunityIdError)?;
        let digest = STANDARD.decode(digest).map_err(|_| CommunityIdError)?;
        let digest = digest.try_into().map_err(|_| CommunityIdError)?;
        Ok(CommunityId(digest))
    }
}

#[cfg(test)]
mod tests;
