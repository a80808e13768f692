// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encapsulation of a flow's packets beside the outermost VLAN: further tags, and tunnels.
//!
//! Invariants
//! - Two flows that differ in it are two flows. Identifiers that each receiver chooses count for each direction by itself:
//!   a flow takes that of its first packet in a direction.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringtap_capture::meter::{FlowCounts, TunnelCounts};
use ringtap_filter::hash::{Ip, MAX_LEVELS, TunnelHeader, TunnelKind};

/// Tags and tunnels around a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketOutside<'a> {
    /// Numbers of the second and the third VLAN tag; 0 without.
    pub(crate) inner_vlans: [u16; 2],
    /// The outermost first.
    pub(crate) tunnels: [Option<TunnelHeader<'a>>; MAX_LEVELS],
}

impl<'a> PacketOutside<'a> {
    pub(crate) fn new(ip: &Ip<'a>) -> Self {
        let [_, second, third] = ip.vlans;
        PacketOutside {
            inner_vlans: [second, third],
            tunnels: ip.tunnels,
        }
    }

    /// Of the kernel's counts.
    pub(crate) fn from_counts(counts: &'a FlowCounts) -> Self {
        let header = |own: &'a TunnelCounts| {
            let length = if own.is_ipv6 { 16 } else { 4 };
            TunnelHeader {
                kind: own.kind,
                identifier: own.identifier,
                source: &own.ends[0][..length],
                destination: &own.ends[1][..length],
                carrier: own.carrier,
                vlan: own.vlan,
            }
        };
        PacketOutside {
            inner_vlans: counts.inner_vlans,
            tunnels: [counts.tunnel.as_ref().map(header), None],
        }
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner_vlans == [0; 2] && self.tunnels[0].is_none()
    }

    /// As a flow keeps it whose originator (direction 0) or responder (direction 1) sent the packet.
    pub(crate) fn for_flow(&self, direction: usize) -> Outside {
        let tunnel = |header: TunnelHeader<'_>| {
            let ends = [header.source, header.destination].map(ip_address);
            let [source, destination] = if direction == 0 {
                ends
            } else {
                [ends[1], ends[0]]
            };
            Tunnel {
                kind: header.kind,
                identifiers: if header.kind.has_identifier_of_receiver() {
                    [None; 2]
                } else {
                    [header.identifier; 2]
                },
                source,
                destination,
                protocol: header.carrier.0,
                port: header.carrier.1,
                vlan: header.vlan,
            }
        };
        Outside {
            inner_vlans: self.inner_vlans,
            tunnels: self.tunnels.map(|header| header.map(tunnel)),
        }
    }
}

/// VLANs and tunnels around a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    /// Numbers of the second and the third VLAN tag; 0 without.
    pub inner_vlans: [u16; 2],
    /// The outermost first.
    pub tunnels: [Option<Tunnel>; MAX_LEVELS],
}

/// A tunnel around a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Kind.
    pub kind: TunnelKind,
    /// Identifier of the packets from the originator, and of those to it; absent without packets, and where the kind or
    /// the packet has none.
    pub identifiers: [Option<u32>; 2],
    /// Address of the tunnel's end that sent the originator's packets.
    pub source: IpAddr,
    /// Address of the other end.
    pub destination: IpAddr,
    /// Protocol that the outer IP header of the flow's first packet names, and its destination port; 0: no port.
    pub protocol: u8,
    /// Destination port.
    pub port: u16,
    /// Outermost VLAN number of the frames inside; 0 without a tag.
    pub vlan: u16,
}

impl Outside {
    /// Whether the packet of this direction may be one of the flow, whose key it has.
    pub(crate) fn fits(&self, direction: usize, packet: &PacketOutside<'_>) -> bool {
        let mut levels = self
            .tunnels
            .iter()
            .flatten()
            .zip(packet.tunnels.iter().flatten());
        levels.all(|(own, header)| {
            let own = own.identifiers[direction];
            own.is_none() || own == header.identifier
        })
    }

    /// Takes the identifiers of the first packet of a direction.
    pub(crate) fn learn(&mut self, direction: usize, packet: &PacketOutside<'_>) {
        let levels = self
            .tunnels
            .iter_mut()
            .flatten()
            .zip(packet.tunnels.iter().flatten());
        for (own, header) in levels {
            own.identifiers[direction] = own.identifiers[direction].or(header.identifier);
        }
    }
}

/// An address of 4 or 16 bytes.
pub(crate) fn ip_address(bytes: &[u8]) -> IpAddr {
    match bytes.first_chunk::<16>() {
        Some(six) => Ipv6Addr::from(*six).into(),
        None => Ipv4Addr::from(bytes.first_chunk().copied().unwrap_or_default()).into(),
    }
}
