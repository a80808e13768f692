// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates: packets per second, bits per second at layer 1, or as fast as possible. Speeds of reading files:
//! a rate, or as recorded.

use std::{fmt, str::FromStr};

use ringtap_packet::WIRE_OVERHEAD_BYTES;

/// A rate that the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As fast as the machine can.
    Max,
    /// Packets per second, at least 1.
    PacketsPerSecond(u64),
    /// Bits per second at layer 1, at least 1: frames with preamble, checksum and gap, so that
    /// 64-byte packets at 1 Gbit/s are 1.488 million a second, as on a real link.
    BitsPerSecond(u64),
}

impl Rate {
    /// When the next packet or bit is due after the first one, in nanoseconds, behind `given` others.
    #[must_use]
    pub fn due_ns(self, given: u64) -> u64 {
        match self {
            Self::Max => 0,
            Self::PacketsPerSecond(rate) | Self::BitsPerSecond(rate) => {
                due_ns(given.into(), rate.into())
            }
        }
    }

    /// Units that a frame of `bytes` bytes, without check sequence, counts for: 1 packet, or its bits.
    #[must_use]
    pub fn units(self, bytes: u64) -> u64 {
        match self {
            Self::BitsPerSecond(_) => (bytes + WIRE_OVERHEAD_BYTES) * 8,
            Self::PacketsPerSecond(_) | Self::Max => 1,
        }
    }
}

/// When a unit is due after the first one, in nanoseconds, given the number of units before it.
#[must_use]
pub fn due_ns(number: u128, per_second: u128) -> u64 {
    let ns = (number * 1_000_000_000).div_ceil(per_second.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// A text that is not a rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{given}\" is not a rate: {why}")]
pub struct RateError {
    given: String,
    why: &'static str,
}

const FORMS: &str = "use packets per second (100000, 100kpps, 1Mpps), bits per second at \
                     layer 1 (500Mbps, 1Gbit/s), or max";

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(given: &str) -> Result<Self, RateError> {
        let refuse = |why| RateError {
            given: given.to_owned(),
            why,
        };
        let text = given.to_ascii_lowercase();
        if text == "max" {
            return Ok(Self::Max);
        }
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (prefix, kind) = split_unit(unit.trim_start()).ok_or_else(|| refuse(FORMS))?;
        let power = match prefix {
            "" => 0,
            "k" => 3,
            "m" => 6,
            "g" => 9,
            "t" => 12,
            _ => return Err(refuse(FORMS)),
        };
        let value = scaled(number, power).ok_or_else(|| refuse(FORMS))?;
        match (value, kind) {
            (0, _) => Err(refuse("it must be at least 1 a second")),
            (_, RateUnit::Bare) if power > 0 => {
                Err(refuse("add pps or bps to say what is counted"))
            }
            (value, RateUnit::Bare | RateUnit::Packets) => Ok(Self::PacketsPerSecond(value)),
            (value, RateUnit::Bits) => Ok(Self::BitsPerSecond(value)),
        }
    }
}

enum RateUnit {
    Bare,
    Packets,
    Bits,
}

/// Splits a unit: `mbps` is `m` and bits; `None` if unknown.
fn split_unit(unit: &str) -> Option<(&str, RateUnit)> {
    if let Some(prefix) = unit.strip_suffix("pps") {
        return Some((prefix, RateUnit::Packets));
    }
    for bits in ["bps", "bit/s"] {
        if let Some(prefix) = unit.strip_suffix(bits) {
            return Some((prefix, RateUnit::Bits));
        }
    }
    (unit.len() <= 1).then_some((unit, RateUnit::Bare))
}

/// A decimal number times a power of ten, exactly; `None` if not an integer or too large.
fn scaled(number: &str, power: u32) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    let places = u32::try_from(fraction.len()).ok()?;
    let zeros = power.checked_sub(places)?;
    let digits = format!("{whole}{fraction}");
    digits
        .parse::<u64>()
        .ok()?
        .checked_mul(10_u64.checked_pow(zeros)?)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::PacketsPerSecond(rate) => write!(f, "{rate}pps"),
            Self::BitsPerSecond(rate) => write!(f, "{rate}bps"),
        }
    }
}

/// Speed at which a file is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// As recorded, `factor` times as fast.
    Recorded {
        /// 1 is the recorded speed, 10 is ten times as fast.
        factor: f64,
    },
    /// At a steady rate, without regard to recorded times.
    Rate(Rate),
}

impl Speed {
    /// As fast as the machine can.
    pub const TOP: Self = Self::Rate(Rate::Max);
}

/// A text that is not a speed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not a speed: use top, a factor like 1x or 0.5x, or a rate like 1000pps or 2Mpps"
)]
pub struct SpeedError {
    given: String,
}

impl FromStr for Speed {
    type Err = SpeedError;

    fn from_str(given: &str) -> Result<Self, SpeedError> {
        let parsed = match (given, given.strip_suffix(['x', 'X']), given.parse()) {
            ("top", ..) => Some(Self::TOP),
            (_, Some(number), _) => positive(number).map(|factor| Self::Recorded { factor }),
            (_, None, Ok(rate @ Rate::PacketsPerSecond(_))) if given.ends_with("pps") => {
                Some(Self::Rate(rate))
            }
            _ => None,
        };
        parsed.ok_or_else(|| SpeedError {
            given: given.to_owned(),
        })
    }
}

impl fmt::Display for Speed {
    /// The text that parses to the same speed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            &Self::TOP => f.write_str("top"),
            Self::Recorded { factor } => write!(f, "{factor}x"),
            Self::Rate(rate) => rate.fmt(f),
        }
    }
}

fn positive(number: &str) -> Option<f64> {
    let value = number.parse::<f64>().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_bits_and_max_are_understood() {
        for (given, rate) in [
            ("max", Rate::Max),
            ("100000", Rate::PacketsPerSecond(100_000)),
            ("10kpps", Rate::PacketsPerSecond(10_000)),
            ("1.488Mpps", Rate::PacketsPerSecond(1_488_000)),
            ("1 Mpps", Rate::PacketsPerSecond(1_000_000)),
            ("1Gbps", Rate::BitsPerSecond(1_000_000_000)),
            ("500Mbps", Rate::BitsPerSecond(500_000_000)),
            ("2.50Gbit/s", Rate::BitsPerSecond(2_500_000_000)),
        ] {
            assert_eq!(given.parse(), Ok(rate), "{given}");
            assert_eq!(rate.to_string().parse(), Ok(rate), "{given}");
        }
    }

    #[test]
    fn what_is_ambiguous_or_not_a_rate_is_refused() {
        for given in [
            "",
            "0",
            "0pps",
            "-1",
            "1M",
            "1G",
            "fast",
            "1.5",
            "1.2.3kpps",
            "5xpps",
            "pps",
            "1e6",
            "99999999999999999999",
            "20000000Tbps",
        ] {
            assert!(given.parse::<Rate>().is_err(), "{given:?}");
        }
    }
}
