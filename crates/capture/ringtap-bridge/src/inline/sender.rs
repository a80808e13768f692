// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends packets that have waited, by a packet socket.
//!
//! Invariants
//! - No call waits: the kernel takes a packet at once, or the packet counts as refused.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use ringtap_net::packet_socket;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sockopt};

/// Most packets of one system call.
const MAX_MESSAGES: usize = 64;
/// Bytes of packets that the interface has taken and not sent.
const BUFFER_BYTES: usize = 8 << 20;

/// Outcome of packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentPackets {
    pub(super) sent: u64,
    pub(super) refused: u64,
}

/// A packet socket of one interface, and the packets that leave next.
pub(super) struct PacketSender {
    socket: OwnedFd,
    packets: Vec<Vec<u8>>,
}

impl PacketSender {
    pub(super) fn open(interface: u32) -> io::Result<Self> {
        let socket = packet_socket::open(interface)?;
        packet_socket::bypass_qdisc(&socket)?;
        // Without the right to exceed the system's limit, the limit is the size.
        let _limited = sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES);
        Ok(PacketSender {
            socket,
            packets: Vec::new(),
        })
    }

    /// Adds a packet to those that leave with [`PacketSender::flush`].
    pub(super) fn push(&mut self, packet: Vec<u8>) {
        self.packets.push(packet);
    }

    /// Sends the packets, in order.
    pub(super) fn flush(&mut self) -> SentPackets {
        let mut outcome = SentPackets::default();
        let packets = std::mem::take(&mut self.packets);
        for part in packets.chunks(MAX_MESSAGES) {
            self.send(part, &mut outcome);
        }
        outcome
    }

    fn send(&self, packets: &[Vec<u8>], outcome: &mut SentPackets) {
        let slices: Vec<_> = packets.iter().map(|it| [IoSlice::new(it)]).collect();
        let none = || SendAncillaryBuffer::new(&mut [] as &mut [MaybeUninit<u8>]);
        let mut none: Vec<_> = packets.iter().map(|_| none()).collect();
        let messages = slices.iter().zip(&mut none);
        let mut messages: Vec<_> = messages.map(|(it, none)| MMsgHdr::new(it, none)).collect();
        let mut done = 0;
        while done < messages.len() {
            match sendmmsg(&self.socket, &mut messages[done..], SendFlags::DONTWAIT) {
                Ok(count) => {
                    outcome.sent += u64::try_from(count).unwrap_or(0);
                    done += count;
                }
                Err(Errno::INTR) => {}
                Err(_) => {
                    outcome.refused += 1;
                    done += 1;
                }
            }
        }
    }
}
