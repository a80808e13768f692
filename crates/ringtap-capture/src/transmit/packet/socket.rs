// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system calls for a packet socket that the system-call crate does not know.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::{super::error::SendError, Qdisc};

/// Opens a packet socket bound to an interface, without a protocol: it receives nothing.
pub(super) fn open(ifindex: u32, qdisc: Qdisc) -> Result<OwnedFd, SendError> {
    let fd = socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    );
    let fd = fd.map_err(|errno| match io::Error::from(errno) {
        error if error.kind() == io::ErrorKind::PermissionDenied => SendError::NoRights,
        error => SendError::kernel("opening a packet socket")(error),
    })?;
    bind(&fd, ifindex).map_err(SendError::kernel("binding the packet socket"))?;
    if qdisc == Qdisc::Bypass {
        bypass_qdisc(&fd).map_err(SendError::kernel("bypassing the queueing discipline"))?;
    }
    Ok(fd)
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

fn bypass_qdisc(fd: &OwnedFd) -> io::Result<()> {
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
