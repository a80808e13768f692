// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of built frames, from Ethernet to IP; lengths and checksums are etherparse's.

use std::net::IpAddr;

use etherparse::{IpHeaders, Ipv4Header, Ipv6Header, PacketBuilder, PacketBuilderStep, VlanId};

use crate::{MacAddress, TrafficError};

const TTL: u8 = 64;

/// One end of a path.
pub(crate) type End = (MacAddress, IpAddr);

/// Starts a frame with Ethernet, up to two VLAN tags (the outer one first) and an IP header.
pub(crate) fn ip_frame(
    from: End,
    to: End,
    vlans: &[u16],
) -> Result<PacketBuilderStep<IpHeaders>, TrafficError> {
    let ip = match (from.1, to.1) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = Ipv4Header {
                time_to_live: TTL,
                dont_fragment: true,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv4Header::default()
            };
            IpHeaders::Ipv4(header, Default::default())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6Header {
                hop_limit: TTL,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            IpHeaders::Ipv6(header, Default::default())
        }
        (from, to) => return Err(TrafficError::Families { from, to }),
    };
    let vlan = |id| VlanId::try_new(id).map_err(|_| TrafficError::Vlan { id });
    let ethernet = PacketBuilder::ethernet2(from.0.0, to.0.0);
    Ok(match *vlans {
        [] => ethernet.ip(ip),
        [only] => ethernet.single_vlan(vlan(only)?).ip(ip),
        [outer, inner] => ethernet.double_vlan(vlan(outer)?, vlan(inner)?).ip(ip),
        _ => {
            let count = vlans.len();
            return Err(TrafficError::VlanCount { count });
        }
    })
}
