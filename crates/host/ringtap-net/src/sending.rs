// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet sockets that send frames out of one interface and receive nothing.
#![allow(unsafe_code, reason = "two system calls that rustix does not have")]

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// Opens a packet socket bound to an interface, without a protocol: it receives nothing.
///
/// # Errors
///
/// The kernel's; `PermissionDenied` without `CAP_NET_RAW`.
pub fn open(ifindex: u32) -> io::Result<OwnedFd> {
    let fd = socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    bind(&fd, ifindex)?;
    Ok(fd)
}

/// The same, for an interface by its name.
///
/// # Errors
///
/// As [`open`], and that there is no such interface.
pub fn open_by_name(interface: &str) -> io::Result<OwnedFd> {
    let any = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let ifindex = netdevice::name_to_index(any, interface).map_err(|errno| {
        let cause = io::Error::from(errno);
        io::Error::new(cause.kind(), format!("finding the interface: {cause}"))
    })?;
    open(ifindex)
}

fn bind(fd: &OwnedFd, ifindex: u32) -> io::Result<()> {
    let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
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
    let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    checked(result)
}

/// Lets the packets of a socket go straight to the driver, past the queueing discipline.
///
/// # Errors
///
/// The kernel's.
pub fn bypass_qdisc(fd: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let length = libc::socklen_t::try_from(size_of_val(&on)).map_err(too_large)?;
    // SAFETY: the option is an int of this length, and the call only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_QDISC_BYPASS,
            (&raw const on).cast(),
            length,
        )
    };
    checked(result)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
