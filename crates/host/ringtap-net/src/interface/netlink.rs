// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queries of one link or all links, and commands that change links.

use std::io;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::{RouteNetlinkMessage, link::LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::InterfaceError;
use crate::netlink::{open, request};

/// All links of this namespace, in the order of their indexes.
pub(super) fn links() -> Result<Vec<LinkMessage>, InterfaceError> {
    let mut links = Vec::new();
    let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
    ask(all, NLM_F_DUMP, |link| {
        links.push(link);
        None::<()>
    })
    .map_err(InterfaceError::kernel("listing the network interfaces"))?;
    links.sort_by_key(|link| link.header.index);
    Ok(links)
}

/// The link of this index, if there is one.
pub(super) fn link(index: u32) -> Result<Option<LinkMessage>, InterfaceError> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    match ask(RouteNetlinkMessage::GetLink(message), 0, Some) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        found => found.map_err(InterfaceError::kernel("asking for a network interface")),
    }
}

/// Sends a command; `flags` must ask for an acknowledgement.
pub(super) fn command(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    ask(message, flags, |_| None::<()>).map(drop)
}

fn ask<V>(
    message: RouteNetlinkMessage,
    flags: u16,
    mut take: impl FnMut(LinkMessage) -> Option<V>,
) -> io::Result<Option<V>> {
    let socket = open(NETLINK_ROUTE)?;
    request(&socket, message, flags, |answer| match answer {
        RouteNetlinkMessage::NewLink(link) => take(link),
        _ => None,
    })
}
