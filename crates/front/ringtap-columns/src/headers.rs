// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields of a packet's headers.
//!
//! Invariants
//! - Only captured bytes are read. A field that was not captured, or that the packet does not have, is absent.

use ringtap::{Capture, LaneId};
use ringtap_filter::LinkType;
use ringtap_filter::hash::{self, Fragment, Ip, Link, TunnelHeader, Tunnels};
use ringtap_packet::CommunityId;
use ringtap_pool::number::to_u32;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Offset of the flags in a TCP header.
const TCP_FLAGS: usize = 13;

/// The first header of the packets of each lane.
pub struct LaneLinks(Vec<Option<Link>>);

impl LaneLinks {
    /// Those of a capture.
    #[must_use]
    pub fn new(capture: &Capture) -> Self {
        let sources: Vec<_> = capture
            .sources()
            .map(|facts| Link::from_link_type(LinkType(facts.link_type)))
            .collect();
        let source_of = |lane| capture.source_of(LaneId(lane)) as usize;
        let lanes = 0..capture.lanes();
        LaneLinks(
            lanes
                .map(|lane| sources.get(source_of(lane)).copied().flatten())
                .collect(),
        )
    }

    /// Those of lanes with packets of these link types.
    #[must_use]
    pub fn from_link_types(types: impl IntoIterator<Item = LinkType>) -> Self {
        LaneLinks(types.into_iter().map(Link::from_link_type).collect())
    }

    /// That of a lane; absent if the link type has no known addresses.
    #[must_use]
    #[inline]
    pub fn of(&self, lane: LaneId) -> Option<Link> {
        self.0.get(lane.0 as usize).copied().flatten()
    }
}

/// Headers of a packet, and of the innermost packet in its tunnels.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketHeaders<'a> {
    /// Number of the outermost VLAN tag; absent without a tag.
    pub vlan: Option<u16>,
    /// Ethertype behind the VLAN tags.
    pub eth_type: Option<u16>,
    /// The outer IP headers.
    pub outer: Option<FlowHeaders<'a>>,
    /// The innermost tunnel, if [`PacketHeaders::read`] enters tunnels.
    pub tunnel: Option<TunnelHeader<'a>>,
    /// The IP headers in it.
    pub inner: Option<FlowHeaders<'a>>,
    /// Identifier of the innermost packet's flow, as in the probe's records, if a seed is given.
    pub community_id: Option<CommunityId>,
}

/// What the IP headers of a packet say of its flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowHeaders<'a> {
    /// Source address, 4 or 16 bytes.
    pub src: &'a [u8],
    /// Destination address, 4 or 16 bytes.
    pub dst: &'a [u8],
    /// Protocol that the last IP header names.
    pub protocol: u8,
    /// Ports of TCP, UDP and SCTP; absent in later fragments.
    pub ports: Option<(u16, u16)>,
    /// Flags of TCP.
    pub tcp_flags: Option<u8>,
    /// Offset behind the headers of IP, TCP and UDP in the captured bytes; absent if not all of them were captured.
    pub payload_offset: Option<u32>,
}

impl<'a> PacketHeaders<'a> {
    /// Reads the headers of a packet with captured bytes `data`; without a `link`, nothing is known of them. Enters
    /// tunnels if `inner`; computes the Community ID if there is a `seed`.
    #[must_use]
    #[inline]
    pub fn read(data: &'a [u8], link: Option<Link>, inner: bool, seed: Option<u16>) -> Self {
        let Some(link) = link else {
            return PacketHeaders::default();
        };
        let outer = hash::ip(data, link, Tunnels::None);
        let vlan = match &outer {
            Some(ip) => ip.vlans[0],
            None => u16::try_from(hash::vlan(data, link)).unwrap_or(0),
        };
        let mut headers = PacketHeaders {
            vlan: Some(vlan).filter(|vlan| *vlan > 0),
            eth_type: hash::ethertype(data, link),
            outer: outer.as_ref().map(|ip| FlowHeaders::new(data, ip)),
            ..PacketHeaders::default()
        };
        let innermost = outer
            .filter(|_| inner || seed.is_some())
            .and_then(|_| hash::ip(data, link, Tunnels::All));
        if let Some(ip) = &innermost {
            headers.community_id = seed.and_then(|seed| CommunityId::from_packet(ip, seed));
            if inner {
                headers.tunnel = ip.tunnels.iter().flatten().last().copied();
                headers.inner = headers.tunnel.map(|_| FlowHeaders::new(data, ip));
            }
        }
        headers
    }
}

impl<'a> FlowHeaders<'a> {
    #[inline]
    fn new(data: &[u8], ip: &Ip<'a>) -> Self {
        let is_later = ip
            .fragment
            .is_some_and(|Fragment { is_first, .. }| !is_first);
        let (header, tcp_flags) = match ip.protocol {
            _ if is_later => (Some(0), None),
            TCP => {
                let length = ip
                    .payload
                    .get(12)
                    .map(|byte| usize::from(byte >> 4).max(5) * 4);
                (length, ip.payload.get(TCP_FLAGS).copied())
            }
            UDP => (Some(8), None),
            _ => (Some(0), None),
        };
        // The payload ends where the captured bytes end, also inside a tunnel.
        let at = data.len() - ip.payload.len().min(data.len());
        let payload = header
            .map(|header| at + header)
            .filter(|at| *at <= data.len());
        FlowHeaders {
            src: ip.source,
            dst: ip.destination,
            protocol: ip.protocol,
            ports: ip.first_ports(),
            tcp_flags,
            payload_offset: payload.map(to_u32),
        }
    }
}
