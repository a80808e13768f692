// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of a sender.

use std::time::Duration;

use ringtap_device::{Rate, Speed};
use ringtap_packet::Traffic;

use super::counters::Method;
use super::packet::Qdisc;

/// Packets to send.
#[derive(Clone, Debug)]
pub enum Load {
    /// Generated packets.
    Made {
        /// Their headers, sizes and flows.
        traffic: Traffic,
        /// Rate.
        rate: Rate,
    },
    /// The packets of a pcap or pcapng file.
    File {
        /// Path; `-` is standard input.
        path: String,
        /// Read the file again at its end.
        repeat: bool,
        /// Times at which its packets are sent.
        speed: Speed,
    },
}

/// The settings of a sender.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SenderOptions {
    /// Interface to send out of; its name in the calling thread's network namespace.
    pub interface: String,
    /// Packets to send, and their rate.
    pub load: Load,
    /// Stop after this many packets, sent or refused.
    pub count: Option<u64>,
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// CPU for the sending thread.
    pub cpu: Option<usize>,
    /// How to send; `None`: live frames where they work, else AF_PACKET, with a note.
    pub method: Option<Method>,
    /// Whether AF_PACKET goes through the queueing discipline.
    pub qdisc: Qdisc,
}

impl SenderOptions {
    /// Sends `load` out of `interface` without limits, by the best method.
    #[must_use]
    pub fn new(interface: &str, load: Load) -> Self {
        Self {
            interface: interface.to_owned(),
            load,
            count: None,
            duration: None,
            cpu: None,
            method: None,
            qdisc: Qdisc::default(),
        }
    }
}
