// SPDX-License-Identifier: MIT OR Apache-2.0
//! Key of a flow: VLANs, tunnel, addresses, ports and protocol; the same for both directions.
//!
//! Invariants
//! - Equal flows have equal words: parts that do not exist are 0.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::hash::{self, Ip, Link, TunnelKind, Tunnels};
use crate::protocol::protocol_name;

/// Words of a key: `struct rt_flow_key`.
pub const KEY_WORDS: usize = 12;

/// Number of marks: [`FlowId::mark`] is below.
pub const MARKS: usize = 1 << MARK_BITS;
const MARK_BITS: u32 = 23;
/// Odd random numbers: `rt_mark_of` in `bpf/flow_key.h`.
const MARK_FACTORS: [u64; KEY_WORDS / 2] = [
    0x2ad1_245c_9201_0b39,
    0x3bb4_27c1_a1da_059d,
    0xd73c_43fa_d127_2a25,
    0x7a9d_9691_46fc_8893,
    0xe158_fb57_a6e0_4b65,
    0x885d_6f33_e40c_2fc5,
];

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Key of a flow; `bpf/flow_key.h` has the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct FlowId {
    /// The lower address (of equal ones that with the lower port), in words, the first four bytes first; an IPv4
    /// address is one word.
    low: [u32; 4],
    high: [u32; 4],
    /// The port of the lower address in the upper half.
    ports: u32,
    /// The outermost VLAN number in the upper half, then the second.
    vlans: u32,
    /// Number of the tunnel, if both directions have the same.
    identifier: u32,
    /// Kind of tunnel (as in `bpf/tunnel.h`, 0 without) << 16 | protocol << 8 | IP version.
    rest: u32,
}

/// Why there is no such flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum FlowKeyError {
    /// One address is of IPv4, the other of IPv6.
    #[error(
        "{source_address} and {destination} are addresses of different IP versions: no packet has both"
    )]
    MixedVersions {
        source_address: IpAddr,
        destination: IpAddr,
    },
    /// A protocol without ports.
    #[error("protocol {protocol} has no ports: leave them out")]
    NoPorts { protocol: u8 },
    /// More than 12 bits.
    #[error("there is no VLAN {vlan}: the largest number is 4095")]
    Vlan { vlan: u16 },
}

/// One packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPacket {
    /// Its flow.
    pub key: FlowId,
    /// Its direction: 0 from the lower address, 1 from the higher.
    pub direction: usize,
    /// TCP flags; 0 for other protocols.
    pub flags: u8,
    /// Length on the wire, in bytes.
    pub wire_length: u32,
}

impl FlowId {
    /// The flow of packets from `source` to `destination` and back, outside of tunnels, with these ports (0 for
    /// protocols without) and VLAN numbers, the outermost first (0 without a tag).
    pub fn new(
        (source, source_port): (IpAddr, u16),
        (destination, destination_port): (IpAddr, u16),
        protocol: u8,
        vlans: [u16; 2],
    ) -> Result<Self, FlowKeyError> {
        if source.is_ipv4() != destination.is_ipv4() {
            return Err(FlowKeyError::MixedVersions {
                source_address: source,
                destination,
            });
        }
        let ports = (source_port, destination_port);
        if ports != (0, 0) && !has_ports(protocol) {
            return Err(FlowKeyError::NoPorts { protocol });
        }
        if let Some(&vlan) = vlans.iter().find(|vlan| **vlan > 0xfff) {
            return Err(FlowKeyError::Vlan { vlan });
        }
        let (from, to) = (octets(source), octets(destination));
        Ok(FlowId::assemble(&from, &to, ports, protocol, vlans, None).0)
    }

    fn assemble(
        source: &[u8],
        destination: &[u8],
        ports: (u16, u16),
        protocol: u8,
        vlans: [u16; 2],
        tunnel: Option<(TunnelKind, u32)>,
    ) -> (Self, usize) {
        let is_swapped = (destination, ports.1) < (source, ports.0);
        let (low, high, ports) = if is_swapped {
            (destination, source, (ports.1, ports.0))
        } else {
            (source, destination, ports)
        };
        let version: u32 = if source.len() == 4 { 4 } else { 6 };
        let (kind, identifier) = tunnel.map_or((0, 0), |(kind, number)| (kind.to_kernel(), number));
        let key = FlowId {
            low: words(low),
            high: words(high),
            ports: u32::from(ports.0) << 16 | u32::from(ports.1),
            vlans: u32::from(vlans[0]) << 16 | u32::from(vlans[1]),
            identifier,
            rest: u32::from(kind) << 16 | u32::from(protocol) << 8 | version,
        };
        (key, usize::from(is_swapped))
    }

    /// The key's words, in the order of `struct rt_flow_key`.
    #[must_use]
    pub fn to_words(&self) -> [u32; KEY_WORDS] {
        let [a, b, c, d] = self.low;
        let [e, f, g, h] = self.high;
        let rest = [self.ports, self.vlans, self.identifier, self.rest];
        let [i, j, k, l] = rest;
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// A hash of the key, below [`MARKS`].
    #[must_use]
    pub fn mark(&self) -> usize {
        let words = self.to_words();
        let pairs = words.as_chunks::<2>().0.iter().zip(MARK_FACTORS);
        let terms = pairs.map(|([low, high], factor)| {
            (u64::from(*high) << 32 | u64::from(*low)).wrapping_mul(factor)
        });
        let sum = terms.fold(0_u64, u64::wrapping_add);
        usize::try_from(sum >> (64 - MARK_BITS)).unwrap_or(0)
    }

    /// The key of these words.
    #[must_use]
    pub fn from_words(words: [u32; KEY_WORDS]) -> Self {
        let [a, b, c, d, e, f, g, h, ports, vlans, identifier, rest] = words;
        FlowId {
            low: [a, b, c, d],
            high: [e, f, g, h],
            ports,
            vlans,
            identifier,
            rest,
        }
    }

    /// Address and port of the lower end, and of the higher.
    #[must_use]
    pub fn ends(&self) -> [(IpAddr, u16); 2] {
        let [a, b, c, d] = self.ports.to_be_bytes();
        let ports = [[a, b], [c, d]].map(u16::from_be_bytes);
        let is_ipv4 = self.rest & 0xff == 4;
        [(self.low, ports[0]), (self.high, ports[1])]
            .map(|(words, port)| (address(words, is_ipv4), port))
    }

    /// Address words and port of the lower end, and of the higher.
    pub(super) fn end_words(&self) -> [(&[u32; 4], u16); 2] {
        let [a, b, c, d] = self.ports.to_be_bytes();
        let [low, high] = [[a, b], [c, d]].map(u16::from_be_bytes);
        [(&self.low, low), (&self.high, high)]
    }

    pub(super) fn version(&self) -> u8 {
        self.rest.to_be_bytes()[3]
    }

    /// Whether an end lacks the port that ends of its protocol have: a text may leave ports out.
    #[must_use]
    pub fn lacks_port(&self) -> bool {
        has_ports(self.protocol()) && self.ends().iter().any(|(_, port)| *port == 0)
    }

    /// The protocol that the IP header names.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.rest.to_be_bytes()[2]
    }

    /// VLAN numbers, the outermost first; 0 without a tag.
    #[must_use]
    pub fn vlans(&self) -> [u16; 2] {
        let [a, b, c, d] = self.vlans.to_be_bytes();
        [[a, b], [c, d]].map(u16::from_be_bytes)
    }

    /// Kind of the tunnel, and its number if both directions have the same.
    #[must_use]
    pub fn tunnel(&self) -> Option<(TunnelKind, u32)> {
        let kind = TunnelKind::from_kernel(self.rest.to_be_bytes()[1])?;
        Some((kind, self.identifier))
    }
}

impl FlowPacket {
    /// The flow of a packet with captured bytes `data`; `None` if it belongs to none.
    #[must_use]
    pub fn from_bytes(data: &[u8], wire_length: u32, link: Link) -> Option<Self> {
        let ip = hash::ip(data, link, Tunnels::InKernel)?;
        if ip.fragment.is_some() {
            return None;
        }
        let vlans = [ip.vlans[0], ip.vlans[1]];
        let tunnel = tunnel_of(&ip);
        let (key, direction) = FlowId::assemble(
            ip.source,
            ip.destination,
            ip.ports,
            ip.protocol,
            vlans,
            tunnel,
        );
        let flags = match ip.protocol {
            TCP => ip.payload.get(13).copied().unwrap_or(0),
            _ => 0,
        };
        Some(FlowPacket {
            key,
            direction,
            flags,
            wire_length,
        })
    }
}

fn tunnel_of(ip: &Ip<'_>) -> Option<(TunnelKind, u32)> {
    let tunnel = ip.tunnels[0].as_ref()?;
    let number = tunnel.identifier.unwrap_or(0);
    let is_shared = !tunnel.kind.has_identifier_of_receiver();
    Some((tunnel.kind, if is_shared { number } else { 0 }))
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(super) fn words(address: &[u8]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(address.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    words
}

fn address(words: [u32; 4], is_ipv4: bool) -> IpAddr {
    if is_ipv4 {
        return Ipv4Addr::from(words[0]).into();
    }
    let number = words
        .iter()
        .fold(0, |sum, word| sum << 32 | u128::from(*word));
    Ipv6Addr::from(number).into()
}

/// Whether packets of a protocol have ports that a flow has.
#[must_use]
pub fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP)
}

/// Writes a protocol as it parses.
pub(crate) fn write_protocol(f: &mut fmt::Formatter<'_>, protocol: u8) -> fmt::Result {
    match protocol_name(protocol) {
        Some(name) => f.write_str(name),
        None => write!(f, "protocol {protocol}"),
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_protocol(f, self.protocol())?;
        for (address, port) in self.ends() {
            match (address, port) {
                (address, 0) => write!(f, " {address}")?,
                (IpAddr::V4(address), port) => write!(f, " {address}:{port}")?,
                (IpAddr::V6(address), port) => write!(f, " [{address}]:{port}")?,
            }
        }
        for vlan in self.vlans().into_iter().filter(|vlan| *vlan != 0) {
            write!(f, " vlan {vlan}")?;
        }
        match self.tunnel() {
            Some((kind, 0)) => write!(f, " in {}", kind.word()),
            Some((kind, number)) => write!(f, " in {} {number}", kind.word()),
            None => Ok(()),
        }
    }
}
