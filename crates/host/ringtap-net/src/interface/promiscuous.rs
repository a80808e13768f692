// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promiscuous mode that ends with its owner.
//!
//! Invariants
//! - The membership belongs to a packet socket: the kernel takes it back when the socket closes,
//!   whatever kills the process. Several owners do not disturb each other.
#![allow(
    unsafe_code,
    reason = "setsockopt(PACKET_ADD_MEMBERSHIP) has no safe binding"
)]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::InterfaceError;

/// An interface receives everything while this lives.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

impl Promiscuous {
    /// Makes the interface of this index receive packets for any address, until dropped.
    ///
    /// # Errors
    ///
    /// - [`InterfaceError::NoRights`]: without `CAP_NET_RAW`.
    pub fn enable(index: u32) -> Result<Self, InterfaceError> {
        // Protocol 0: the socket itself receives nothing.
        let socket = socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        );
        let socket = socket.map_err(|error| classify(error.into()))?;
        join(std::os::fd::AsFd::as_fd(&socket), index).map_err(classify)?;
        Ok(Self { _socket: socket })
    }
}

fn join(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let index = i32::try_from(index).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let request = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or_default(),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: the request lives until the call returns, and its size is given with it.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            u32::try_from(size_of::<libc::packet_mreq>()).unwrap_or_default(),
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn classify(error: io::Error) -> InterfaceError {
    let action = "promiscuous mode";
    match error.kind() {
        io::ErrorKind::PermissionDenied => InterfaceError::NoRights { action },
        _ => InterfaceError::kernel(action)(error),
    }
}
