// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends packets that have waited, by a packet socket.
//!
//! Invariants
//! - No call waits: the kernel takes a packet at once, or the packet counts as refused.

use std::io;
use std::os::fd::OwnedFd;

use ringtap_net::packet_socket;
use ringtap_pool::number::to_u64;
use rustix::io::Errno;
use rustix::net::sockopt;

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
        let step = |result: Result<usize, Errno>| {
            match result {
                Ok(count) => outcome.sent += to_u64(count),
                Err(_) => outcome.refused += 1,
            }
            Ok(result.unwrap_or(1))
        };
        // The step returns no error, so all packets are offered.
        let _all = packet_socket::send_each(&self.socket, &packets, step);
        outcome
    }
}
