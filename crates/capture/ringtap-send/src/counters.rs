// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a sender.

use std::fmt;
use std::time::Duration;

use ringtap_packet::WIRE_OVERHEAD_BYTES;
use serde::Serialize;

use super::error::error_name;

/// How packets leave the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// XDP live frames.
    #[default]
    Live,
    /// AF_PACKET.
    Packet,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Live => "live frames",
            Method::Packet => "AF_PACKET",
        })
    }
}

/// Counters of a sender at one moment; as JSON, by the names of their fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SendCounters {
    /// The method of the latest packet.
    pub method: Method,
    /// Time since the first packet.
    pub elapsed_ns: u64,
    /// Packets that the device took.
    pub sent: u64,
    /// Packets that the device did not take.
    pub refused: u64,
    /// Bytes of the packets sent, without frame check sequence.
    pub bytes: u64,
    /// Error number of the latest refusal; 0 if the device's queue was full.
    #[serde(skip)]
    pub refusal_errno: i32,
}

/// Rates of a sender between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SendRates {
    /// Packets per second.
    #[serde(rename = "rate_pps")]
    pub pps: f64,
    /// Bits per second at L1: with preamble, frame check sequence and gap.
    #[serde(rename = "rate_bps")]
    pub bps: f64,
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

    /// The rates since the moment of other counters; 0 where no time has passed.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact up to 2^53, more than a sender counts"
    )]
    pub fn rates_since(&self, before: &Self) -> SendRates {
        let elapsed = Duration::from_nanos(self.elapsed_ns.saturating_sub(before.elapsed_ns));
        let per_second = |now: u64, before: u64| match elapsed {
            Duration::ZERO => 0.0,
            _ => now.saturating_sub(before) as f64 / elapsed.as_secs_f64(),
        };
        SendRates {
            pps: per_second(self.sent, before.sent),
            bps: per_second(self.wire_bits(), before.wire_bits()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_two_moments() {
        let counters = |sent: u64, elapsed_ns| SendCounters {
            sent,
            bytes: sent * 60,
            elapsed_ns,
            ..SendCounters::default()
        };
        let now = counters(3000, 2_000_000_000);
        let rates = now.rates_since(&counters(1000, 1_000_000_000));
        assert_eq!((rates.pps, rates.bps), (2000.0, 2000.0 * 672.0));
        assert_eq!(now.rates_since(&now).pps, 0.0);
    }
}
