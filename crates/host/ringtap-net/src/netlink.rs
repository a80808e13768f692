// SPDX-License-Identifier: MIT OR Apache-2.0
//! Netlink requests: the socket, links, a driver's XDP features, and losses of a NIC.

mod generic;

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkMessage, Stats64},
    stats::{StatsAttribute, StatsFilterMask, StatsMessage},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::interface::InterfaceError;
pub use generic::{XdpFeatures, xdp_features};

/// Opens a netlink socket of the current network namespace.
pub(crate) fn open(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

/// Sends one request and passes the messages of the answer to `take` until `take` returns a value.
///
/// `None`: the answer, or the acknowledgement, ended without a value.
pub(crate) fn request<M, V>(
    socket: &Socket,
    message: M,
    flags: u16,
    mut take: impl FnMut(M) -> Option<V>,
) -> io::Result<Option<V>>
where
    M: NetlinkSerializable + NetlinkDeserializable,
{
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    loop {
        for answer in parse(&receive(socket)?) {
            match answer? {
                NetlinkPayload::InnerMessage(message) => match take(message) {
                    None => {}
                    found => return Ok(found),
                },
                NetlinkPayload::Done(_) => return Ok(None),
                NetlinkPayload::Error(error) => match error.code {
                    None => return Ok(None),
                    Some(_) => return Err(error.to_io()),
                },
                NetlinkPayload::Overrun(_) => return Err(io::Error::other("netlink overrun")),
                _ => {}
            }
        }
    }
}

/// Receives the next datagram that the kernel sent.
pub(crate) fn receive(socket: &Socket) -> io::Result<Vec<u8>> {
    loop {
        match socket.recv_from_full() {
            Ok((datagram, sender)) if sender.port_number() == 0 => return Ok(datagram),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
}

/// The messages of one datagram.
pub(crate) fn parse<M: NetlinkDeserializable>(
    datagram: &[u8],
) -> impl Iterator<Item = io::Result<NetlinkPayload<M>>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let parsed = NetlinkMessage::<M>::deserialize(rest);
        let (length, payload) = match parsed {
            Ok(message) => (message.header.length, Ok(message.payload)),
            Err(error) => (0, Err(io::Error::other(format!("netlink: {error}")))),
        };
        // Messages are aligned to 4 bytes; a length of 0 would never end.
        rest = match (length as usize).next_multiple_of(4) {
            0 => &[],
            step => rest.get(step..).unwrap_or(&[]),
        };
        Some(payload)
    })
}

/// All links of this namespace, in the order of their indexes.
pub(crate) fn links() -> Result<Vec<LinkMessage>, InterfaceError> {
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
pub(crate) fn link(index: u32) -> Result<Option<LinkMessage>, InterfaceError> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    match ask(RouteNetlinkMessage::GetLink(message), 0, Some) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        found => found.map_err(InterfaceError::kernel("asking for a network interface")),
    }
}

/// Sends a command; `flags` must ask for an acknowledgement.
pub(crate) fn command(message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
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

/// Reads the losses of a NIC, in the network namespace where it was made, from any thread.
#[derive(Debug)]
pub struct Losses {
    socket: Socket,
    interface: u32,
}

impl Losses {
    /// Opens the netlink socket.
    ///
    /// # Errors
    ///
    /// No descriptor is free.
    pub fn for_interface(interface: u32) -> io::Result<Self> {
        let socket = open(NETLINK_ROUTE)?;
        Ok(Losses { socket, interface })
    }

    /// Packets that the NIC lost since it came up, before the kernel got them: `dropped.nic`.
    ///
    /// `rx_dropped` is not part of it: it also counts packets that capture has already seen.
    /// Drivers may report one loss as missed and as FIFO overrun, so the larger one counts.
    pub fn now(&self) -> Option<u64> {
        let counters = self.counters()?;
        Some(counters.rx_missed_errors.max(counters.rx_fifo_errors))
    }

    /// Packets that the interface received.
    pub fn received(&self) -> Option<u64> {
        Some(self.counters()?.rx_packets)
    }

    /// Packets that were to be sent and were dropped.
    pub fn not_sent(&self) -> Option<u64> {
        Some(self.counters()?.tx_dropped)
    }

    fn counters(&self) -> Option<Stats64> {
        let mut message = StatsMessage::default();
        message.header.ifindex = self.interface;
        message.header.filter_mask = StatsFilterMask::Link64;
        let message = RouteNetlinkMessage::GetStats(message);
        let link_stats = |attribute| match attribute {
            StatsAttribute::Link64(stats) => Some(stats),
            _ => None,
        };
        let counters = request(&self.socket, message, 0, |answer| match answer {
            RouteNetlinkMessage::NewStats(answer) => {
                answer.attributes.into_iter().find_map(link_stats)
            }
            _ => None,
        });
        counters.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_the_loopback_interface_can_be_read_again_and_again() {
        const LOOPBACK: u32 = 1;
        let losses = Losses::for_interface(LOOPBACK).unwrap();
        for _ in 0..3 {
            assert!(losses.now().is_some() && losses.not_sent().is_some());
        }
        assert_eq!(Losses::for_interface(u32::MAX).unwrap().now(), None);
    }

    #[test]
    fn the_kernel_knows_the_xdp_features_of_the_loopback_interface_from_6_3_on() {
        let release = rustix::system::uname();
        let release = release.release().to_str().unwrap();
        let mut numbers = release
            .split('.')
            .map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        assert_eq!(xdp_features(1).is_some(), version >= (6, 3), "{release}");
        assert_eq!(xdp_features(u32::MAX), None);
    }

    #[test]
    fn a_dump_lists_all_links_and_a_watch_of_one_starts_without_a_change() {
        let all = crate::interface::Interface::list().unwrap();
        let loopback = all.iter().find(|one| one.index == 1).unwrap();
        let mut watch = crate::interface::Watch::new(loopback).unwrap();
        assert_eq!(watch.take().unwrap(), None);
    }
}
