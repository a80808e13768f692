// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends through AF_PACKET, which works on every device and copies each packet.
//!
//! Invariants
//! - A packet counts as sent if the system call accepted it, else as refused.

use std::{
    io::ErrorKind,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use ringtap_net::packet_socket;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{batch::PacketBatch, counters::SendCounters, error::SendError};

/// Longest wait for room in the socket's buffer between two looks at the stop flag.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// A packet socket that sends out of one interface.
pub(super) struct SendSocket {
    fd: OwnedFd,
    counters: SendCounters,
}

/// Whether packets pass the interface's queueing discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Qdisc {
    /// Packets pass the discipline, as those of any program.
    #[default]
    Use,
    /// Packets go straight to the driver, which refuses them while its queue is full.
    Bypass,
}

impl SendSocket {
    /// Opens a socket that receives nothing.
    ///
    /// # Errors
    ///
    /// [`SendError::NoRights`], or the kernel's reason.
    pub(super) fn open(ifindex: u32, qdisc: Qdisc) -> Result<Self, SendError> {
        let fd = packet_socket::open(ifindex).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => SendError::NoRights,
            _ => SendError::kernel("opening a packet socket")(error),
        })?;
        if qdisc == Qdisc::Bypass {
            packet_socket::bypass_qdisc(&fd)
                .map_err(SendError::kernel("bypassing the queueing discipline"))?;
        }
        Ok(Self {
            fd,
            counters: SendCounters::default(),
        })
    }

    /// Counters of all packets so far.
    pub(super) fn counters(&self) -> SendCounters {
        self.counters
    }

    /// Sends the packets of a batch after the first `skip`, waiting for room; ends early once `stop`
    /// is set.
    ///
    /// # Errors
    ///
    /// The interface went down or was removed. All other refusals are counted.
    pub(super) fn send(
        &mut self,
        batch: &PacketBatch,
        skip: usize,
        stop: &AtomicBool,
    ) -> Result<(), Errno> {
        let packets: Vec<&[u8]> = batch.packets().skip(skip).collect();
        let Self { fd, counters } = self;
        let mut next = 0;
        let stopped = || {
            if stop.load(Relaxed) {
                Err(Errno::CANCELED)
            } else {
                Ok(())
            }
        };
        let step = |result| {
            let count = match result {
                Ok(count) => {
                    counters.count(&packets[next..next + count]);
                    count
                }
                Err(Errno::AGAIN) => {
                    wait_for_room(fd)?;
                    0
                }
                Err(gone @ (Errno::NETDOWN | Errno::NXIO | Errno::NODEV)) => return Err(gone),
                Err(refusal) => {
                    counters.refused += 1;
                    counters.refusal_errno = refusal.raw_os_error();
                    1
                }
            };
            next += count;
            stopped().map(|()| count)
        };
        let sent = stopped().and_then(|()| packet_socket::send_each(fd, &packets, step));
        match sent {
            Err(Errno::CANCELED) => Ok(()),
            sent => sent,
        }
    }
}

impl SendCounters {
    fn count(&mut self, packets: &[&[u8]]) {
        self.sent += packets.len() as u64;
        self.bytes += packets
            .iter()
            .map(|packet| packet.len() as u64)
            .sum::<u64>();
    }
}

fn wait_for_room(socket: &OwnedFd) -> Result<(), Errno> {
    match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&TICK)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}
