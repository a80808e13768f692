// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes in bytes with units: `64KiB`, `1GiB`, `100MB`.

use std::{fmt, str::FromStr};

use serde::Deserialize;

/// A number of bytes. `k`, `K` and `KiB` are 1024, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

/// A text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{given}\" is not a size: use bytes, or units of 1024 such as 512KiB, 64MiB or 1GiB")]
pub struct SizeError {
    given: String,
}

const BINARY: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];
const DECIMAL: [(&str, u64); 4] = [
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

impl TryFrom<String> for Size {
    type Error = SizeError;

    fn try_from(text: String) -> Result<Self, SizeError> {
        text.parse()
    }
}

impl Size {
    /// Parses a size whose unit may also be a power of 1000, in upper or lower case: `100MB`.
    #[must_use]
    pub fn with_any_unit(given: &str) -> Option<Self> {
        let mut units = BINARY.iter().chain(&DECIMAL);
        scaled(given, |unit| match unit.trim() {
            "" | "B" | "b" => Some(1),
            unit => {
                let found = units.find(|(name, _)| name.eq_ignore_ascii_case(unit));
                found.map(|(_, factor)| *factor)
            }
        })
    }
}

impl FromStr for Size {
    type Err = SizeError;

    /// Takes units of 1024 only: `MB` means 1024 to some and 1000 to others.
    fn from_str(given: &str) -> Result<Self, SizeError> {
        let factor = |unit: &str| match unit {
            "" | "B" => Some(1),
            "k" => Some(1 << 10),
            _ => BINARY.iter().find_map(|(name, factor)| {
                (*name == unit || name.get(..1) == Some(unit)).then_some(*factor)
            }),
        };
        scaled(given, factor).ok_or_else(|| SizeError {
            given: given.to_owned(),
        })
    }
}

/// The number at the start of a text times the factor of the unit after it.
fn scaled(given: &str, factor: impl FnOnce(&str) -> Option<u64>) -> Option<Size> {
    let digits = given.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = given.split_at(digits);
    let bytes = number.parse::<u64>().ok()?.checked_mul(factor(unit)?);
    bytes.map(Size)
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |(_, factor): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*factor);
        match BINARY.iter().find(divides) {
            Some((name, factor)) => write!(f, "{}{name}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}
