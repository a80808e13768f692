// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a sender.

use ringtap_packet::WIRE_OVERHEAD_BYTES;

use super::error::error_name;

/// How packets leave the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// XDP live frames.
    #[default]
    Live,
    /// AF_PACKET.
    Packet,
}

/// Counters of a sender at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendCounters {
    /// Packets that the device took.
    pub sent: u64,
    /// Packets that the device did not take.
    pub refused: u64,
    /// Bytes of the packets sent, without frame check sequence.
    pub bytes: u64,
    /// Time since the first packet.
    pub elapsed_ns: u64,
    /// The method of the latest packet.
    pub method: Method,
    /// Error number of the latest refusal; 0 if the device's queue was full.
    pub refusal_errno: i32,
}

impl SendCounters {
    pub(super) fn attempted(&self) -> u64 {
        self.sent + self.refused
    }

    /// The sum with the counters of the packets after these.
    pub(super) fn and(self, later: Self) -> Self {
        Self {
            sent: self.sent + later.sent,
            refused: self.refused + later.refused,
            bytes: self.bytes + later.bytes,
            refusal_errno: match later.refused {
                0 => self.refusal_errno,
                _ => later.refusal_errno,
            },
            ..later
        }
    }

    /// Bits that the packets sent take on the wire: with preamble, check sequence and gap.
    #[must_use]
    pub fn wire_bits(&self) -> u64 {
        (self.bytes + self.sent * WIRE_OVERHEAD_BYTES) * 8
    }

    /// Reason of the latest refusal, if there was one.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match (self.refused, self.refusal_errno) {
            (0, _) => None,
            (_, 0) => Some("its queue was full".to_owned()),
            (_, errno) => Some(error_name(errno)),
        }
    }
}
