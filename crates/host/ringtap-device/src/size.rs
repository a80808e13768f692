// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes in bytes with binary units: `64KiB`, `1GiB`.

use std::{fmt, str::FromStr};

/// A number of bytes. `k`, `K` and `KiB` are 1024, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A text that is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{given}\" is not a size: use bytes, or units of 1024 such as 512KiB, 64MiB or 1GiB")]
pub struct SizeError {
    given: String,
}

const UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(given: &str) -> Result<Self, SizeError> {
        let digits = given.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = given.split_at(digits);
        let factor = match unit {
            "" | "B" => Some(1),
            "k" => Some(1 << 10),
            _ => UNITS.iter().find_map(|(name, factor)| {
                (*name == unit || name.get(..1) == Some(unit)).then_some(*factor)
            }),
        };
        let bytes = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
        bytes.map(Self).ok_or_else(|| SizeError {
            given: given.to_owned(),
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |(_, factor): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*factor);
        match UNITS.iter().find(divides) {
            Some((name, factor)) => write!(f, "{}{name}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}
