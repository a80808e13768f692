// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of an ivshmem-doorbell device.
//!
//! QEMU expects a server that hands out the memory and one eventfd per vector and peer. All that the
//! server would ever send is known before: it waits in a socket when QEMU gets the other end. So there
//! is no server and no path, and QEMU never waits for this process.
#![forbid(unsafe_code)]

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringtap_ipc::event::Event;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};

use crate::device::{GUEST_PEER, HOST_PEER};

/// Version of QEMU's ivshmem protocol.
const PROTOCOL: i64 = 0;

/// The host's end of a device's events.
///
/// QEMU shares the eventfds, and could make a write to them wait. So only the thread of this guest
/// writes them.
pub(super) struct DeviceEvents {
    pub(super) to_guest: Vec<Event>,
    pub(super) from_guest: Vec<Event>,
    /// QEMU would report the peer as gone if this closed.
    _server: OwnedFd,
}

/// Makes the events, and the socket for QEMU. A device that cannot interrupt has no events to the guest.
pub(super) fn make(
    memory: BorrowedFd<'_>,
    vectors: u16,
    can_interrupt: bool,
) -> io::Result<(DeviceEvents, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (server, for_qemu) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let events = |count| (0..count).map(|_| Event::new()).collect();
    let from_guest: io::Result<Vec<Event>> = events(vectors);
    let to_guest: io::Result<Vec<Event>> = events(if can_interrupt { vectors } else { 0 });
    let (from_guest, to_guest) = (from_guest?, to_guest?);
    say(&server, PROTOCOL, None)?;
    say(&server, i64::from(GUEST_PEER), None)?;
    say(&server, -1, Some(memory))?;
    for event in &from_guest {
        say(&server, i64::from(HOST_PEER), Some(event.as_fd()))?;
    }
    for event in &to_guest {
        say(&server, i64::from(GUEST_PEER), Some(event.as_fd()))?;
    }
    let events = DeviceEvents {
        to_guest,
        from_guest,
        _server: server,
    };
    Ok((events, for_qemu))
}

fn say(server: &OwnedFd, number: i64, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = number.to_le_bytes();
    send_with(server.as_fd(), &bytes, fd)
}

/// Sends bytes with at most one descriptor, without waiting.
pub(super) fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let fds: Vec<_> = fd.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, flags)?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WouldBlock.into())
    }
}
