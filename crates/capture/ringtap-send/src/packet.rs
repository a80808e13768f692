// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends through AF_PACKET, which works on every device and copies each packet.
//!
//! Invariants
//! - A packet counts as sent if the system call accepted it, else as refused.

use std::{
    io::{ErrorKind, IoSlice},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use ringtap_net::packet_socket;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg},
};

use super::{batch::PacketBatch, counters::SendCounters, error::SendError};

/// Most packets of one system call.
const MAX_MESSAGES: usize = 64;
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
        packets
            .chunks(MAX_MESSAGES)
            .try_for_each(|part| self.send_part(part, stop))
    }

    fn send_part(&mut self, packets: &[&[u8]], stop: &AtomicBool) -> Result<(), Errno> {
        let slices: Vec<_> = packets
            .iter()
            .map(|packet| [IoSlice::new(packet)])
            .collect();
        let mut none: Vec<_> = packets.iter().map(|_| no_ancillary()).collect();
        let mut messages: Vec<_> = slices
            .iter()
            .zip(&mut none)
            .map(|(slice, none)| MMsgHdr::new(slice, none))
            .collect();
        let mut done = 0;
        while done < packets.len() && !stop.load(Relaxed) {
            match sendmmsg(&self.fd, &mut messages[done..], SendFlags::DONTWAIT) {
                Ok(count) => {
                    self.count(&packets[done..done + count]);
                    done += count;
                }
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(Errno::INTR) => {}
                Err(gone @ (Errno::NETDOWN | Errno::NXIO | Errno::NODEV)) => return Err(gone),
                Err(refusal) => {
                    self.counters.refused += 1;
                    self.counters.refusal_errno = refusal.raw_os_error();
                    done += 1;
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, packets: &[&[u8]]) {
        self.counters.sent += packets.len() as u64;
        self.counters.bytes += packets
            .iter()
            .map(|packet| packet.len() as u64)
            .sum::<u64>();
    }

    fn wait_for_room(&self) -> Result<(), Errno> {
        match poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], Some(&TICK)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn no_ancillary() -> SendAncillaryBuffer<'static, 'static, 'static> {
    SendAncillaryBuffer::new(&mut [] as &mut [MaybeUninit<u8>])
}
