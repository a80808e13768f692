// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet sockets that receive nothing: for sending, and for promiscuous mode.
#![allow(unsafe_code, reason = "two system calls that rustix does not have")]

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::net::if_::if_nametoindex;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sendmmsg,
    socket_with,
};

use crate::interface::InterfaceError;

/// Most packets of one system call.
const MAX_MESSAGES: usize = 64;

/// Opens a packet socket that sends out of an interface.
///
/// # Errors
///
/// The kernel's; `PermissionDenied` without `CAP_NET_RAW`.
pub fn open(ifindex: u32) -> io::Result<OwnedFd> {
    let socket = unbound()?;
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).map_err(too_large)?,
        sll_protocol: 0,
        sll_ifindex: i32::try_from(ifindex).map_err(too_large)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(too_large)?;
    // SAFETY: the address is a whole sockaddr_ll of this length, and the call only reads it.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// As [`open`], for an interface by its name.
///
/// # Errors
///
/// As [`open`], and if there is no such interface.
pub fn open_by_name(interface: &str) -> io::Result<OwnedFd> {
    let ifindex = if_nametoindex(interface).map_err(|errno| {
        let cause = io::Error::from(errno);
        io::Error::new(cause.kind(), format!("finding the interface: {cause}"))
    })?;
    open(ifindex)
}

/// Lets the packets of a socket bypass the queueing discipline.
pub fn bypass_qdisc(socket: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    set(socket, libc::PACKET_QDISC_BYPASS, &on)
}

/// Offers packets to the kernel in order, without waiting. `step` learns how many packets the kernel took, or why it
/// did not take the next one, and returns the number of packets that are done; an error ends the sending.
///
/// # Errors
///
/// Those of `step`.
pub fn send_each<P: AsRef<[u8]>>(
    socket: &OwnedFd,
    packets: &[P],
    mut step: impl FnMut(Result<usize, Errno>) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    for part in packets.chunks(MAX_MESSAGES) {
        let slices: Vec<_> = part.iter().map(|it| [IoSlice::new(it.as_ref())]).collect();
        let none = || SendAncillaryBuffer::new(&mut [] as &mut [MaybeUninit<u8>]);
        let mut none: Vec<_> = part.iter().map(|_| none()).collect();
        let messages = slices.iter().zip(&mut none);
        let mut messages: Vec<_> = messages.map(|(it, none)| MMsgHdr::new(it, none)).collect();
        let mut done = 0;
        while done < messages.len() {
            match sendmmsg(socket, &mut messages[done..], SendFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                result => done += step(result)?,
            }
        }
    }
    Ok(())
}

/// Promiscuous mode of an interface until dropped.
///
/// The mode belongs to a packet socket: the kernel ends it when the socket closes, also after a
/// kill. Several owners do not disturb each other.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

impl Promiscuous {
    /// Makes the interface with this index receive packets for any address.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::NoRights`]: without `CAP_NET_RAW`.
    pub fn enable(ifindex: u32) -> Result<Self, InterfaceError> {
        let action = "promiscuous mode";
        let join = || -> io::Result<Self> {
            let socket = unbound()?;
            let request = libc::packet_mreq {
                mr_ifindex: i32::try_from(ifindex).map_err(too_large)?,
                mr_type: u16::try_from(libc::PACKET_MR_PROMISC).map_err(too_large)?,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            set(&socket, libc::PACKET_ADD_MEMBERSHIP, &request)?;
            Ok(Promiscuous { _socket: socket })
        };
        join().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => InterfaceError::NoRights { action },
            _ => InterfaceError::kernel(action)(error),
        })
    }
}

/// A socket without protocol: it receives nothing.
fn unbound() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(too_large)?;
    // SAFETY: the value has this length, and the call only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    checked(result)
}

fn too_large(_: std::num::TryFromIntError) -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

fn checked(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
