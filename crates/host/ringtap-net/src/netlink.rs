// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two questions over netlink: what XDP the driver can do, and what the NIC lost.
#![forbid(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// The family of links and routes is number 0, which needs no name.
const ROUTE: Option<Protocol> = None;
const REQUEST: u16 = 1;
const MESSAGE_ERROR: u16 = 2;
const HEADER: usize = 16;

/// What the driver says about XDP (kernel 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    act: u64,
    metadata: u64,
}

impl XdpFeatures {
    /// XDP in the driver.
    pub fn native(self) -> bool {
        self.act & 1 != 0
    }

    /// It sends packets that XDP redirects to it.
    pub fn takes_redirected(self) -> bool {
        self.act & 4 != 0
    }

    /// Also those that lie in several buffers.
    pub fn takes_redirected_pieces(self) -> bool {
        self.act & 64 != 0
    }

    /// The driver tells a program which VLAN tag it stripped.
    pub fn tells_vlan(self) -> bool {
        self.metadata & 4 != 0
    }
}

fn open(family: Option<Protocol>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        flags,
        family,
    )?)
}

/// Sends one request; gives the answer without its netlink header.
fn ask(socket: &OwnedFd, kind: u16, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    send(socket, &message, SendFlags::empty())?;
    let mut answer = vec![0; 16 << 10];
    let (received, _) = recv(socket, answer.as_mut_slice(), RecvFlags::empty())?;
    answer.truncate(received);
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let kind = u16_at(&answer, 4).ok_or_else(cut)?;
    if kind == MESSAGE_ERROR {
        let code = u32_at(&answer, HEADER).map_or(0, u32::cast_signed);
        return Err(io::Error::from_raw_os_error(-code));
    }
    answer.get(HEADER..).map(<[u8]>::to_vec).ok_or_else(cut)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The value of the first attribute of this kind.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(attributes, 0)?);
        let kind = u16_at(attributes, 2)? & 0x3fff;
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// What the driver says about XDP; `None` if the kernel does not know (before 6.3).
pub fn xdp_features(interface: u32) -> Option<XdpFeatures> {
    const FAMILY_CONTROL: u16 = 16;
    let socket = open(Some(netlink::GENERIC)).ok()?;
    // CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME; the answer has CTRL_ATTR_FAMILY_ID.
    let question = [vec![3, 1, 0, 0], attribute(2, b"netdev\0")].concat();
    let answer = ask(&socket, FAMILY_CONTROL, &question).ok()?;
    let family = u16_at(find(answer.get(4..)?, 1)?, 0)?;
    // NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX.
    let question = [vec![1, 1, 0, 0], attribute(1, &interface.to_ne_bytes())].concat();
    let answer = ask(&socket, family, &question).ok()?;
    let attributes = answer.get(4..)?;
    let number = |kind| find(attributes, kind).and_then(|value| u64_at(value, 0));
    Some(XdpFeatures {
        act: number(3)?,
        metadata: number(5).unwrap_or(0),
    })
}

/// Asks what the NIC lost, in the network namespace where it was made, whatever thread asks.
#[derive(Debug)]
pub struct Losses {
    socket: OwnedFd,
    interface: u32,
}

impl Losses {
    /// Opens the netlink socket.
    ///
    /// # Errors
    ///
    /// No descriptor is free.
    pub fn of(interface: u32) -> io::Result<Self> {
        Ok(Losses {
            socket: open(ROUTE)?,
            interface,
        })
    }

    /// Packets that the NIC lost since it came up, as
    /// [`InterfaceCounters::lost_by_nic`](crate::interface::InterfaceCounters::lost_by_nic) understands it.
    pub fn now(&self) -> Option<u64> {
        const FIFO: usize = 14;
        const MISSED: usize = 15;
        let [fifo, missed] = self.counters([FIFO, MISSED])?;
        Some(missed.max(fifo))
    }

    /// Packets that were to be sent and were dropped.
    pub fn not_sent(&self) -> Option<u64> {
        const TX_DROPPED: usize = 7;
        self.counters([TX_DROPPED]).map(|[dropped]| dropped)
    }

    /// Counters by their place in `struct rtnl_link_stats64`.
    fn counters<const N: usize>(&self, places: [usize; N]) -> Option<[u64; N]> {
        const GET_STATS: u16 = 94;
        // struct if_stats_msg: family, padding, ifindex, filter IFLA_STATS_LINK_64.
        let body = [[0; 4], self.interface.to_ne_bytes(), 1_u32.to_ne_bytes()].concat();
        let answer = ask(&self.socket, GET_STATS, &body).ok()?;
        let stats = find(answer.get(12..)?, 1)?;
        let mut found = [0; N];
        for (value, place) in found.iter_mut().zip(places) {
            *value = u64_at(stats, place * 8)?;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_behind_an_unaligned_one() {
        let bytes = [attribute(1, b"abcde"), attribute(7, &9_u64.to_ne_bytes())].concat();
        assert_eq!(find(&bytes, 7).and_then(|value| u64_at(value, 0)), Some(9));
        assert_eq!(find(&bytes, 8), None);
    }

    #[test]
    fn a_cut_or_endless_attribute_ends_the_search() {
        assert_eq!(find(&[0, 0, 1, 0], 1), None);
        assert_eq!(find(&[200, 0, 1, 0, 1], 1), None);
        assert_eq!(find(&[], 1), None);
    }
}
