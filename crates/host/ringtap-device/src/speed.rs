// SPDX-License-Identifier: MIT OR Apache-2.0
//! Speeds at which a file is read: top speed, as recorded, or a rate.

use std::fmt;
use std::str::FromStr;

use crate::rate::Rate;

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
