// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes pairs of virtual Ethernet interfaces.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
};

use super::InterfaceError;
use crate::netlink;

/// Adds a veth pair to this network namespace; both ends are up, neither answers ARP.
///
/// # Errors
///
/// - [`InterfaceError::Kernel`]: a name is taken, or the process lacks `CAP_NET_ADMIN` here.
pub fn add_veth(one: &str, other: &str) -> Result<(), InterfaceError> {
    let mut message = end(one, LinkFlags::Up);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(end(
            other,
            LinkFlags::empty(),
        )))),
    ]));
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    netlink::command(RouteNetlinkMessage::NewLink(message), flags)
        .map_err(InterfaceError::kernel("adding a pair of veth interfaces"))?;
    // The kernel refuses to set up a veth without a peer.
    let up = end(other, LinkFlags::Up);
    netlink::command(RouteNetlinkMessage::SetLink(up), NLM_F_ACK)
        .map_err(InterfaceError::kernel("setting a veth interface up"))
}

fn end(name: &str, up: LinkFlags) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.flags = LinkFlags::Noarp | up;
    message.header.change_mask = message.header.flags;
    message
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    message
}
