// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes in bytes with units: `64KiB`, `1GiB`, `100MB`.

use std::{fmt, str::FromStr};

/// A number of bytes. `k`, `K` and `KiB` are 1024, `kB` is 1000, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// A text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{given}\" is not a size: use bytes, or a unit as in 512KiB, 64MiB or 1GiB (powers of 1024) \
     or 100MB (powers of 1000)"
)]
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

/// The factor of a unit, in upper or lower case; a letter alone is the binary unit.
fn factor(unit: &str) -> Option<u64> {
    let is_it = |name: &str| name.eq_ignore_ascii_case(unit);
    let is_letter = |name: &str| name.get(..1).is_some_and(is_it);
    let binary = BINARY
        .iter()
        .find(|(name, _)| is_it(name) || is_letter(name));
    let decimal = DECIMAL.iter().find(|(name, _)| is_it(name));
    match unit {
        "" | "B" => Some(1),
        _ => binary.or(decimal).map(|(_, factor)| *factor),
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(given: &str) -> Result<Self, SizeError> {
        let digits = given.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = given.split_at(digits);
        let factor = factor(unit.trim());
        let bytes = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
        bytes.map(Self).ok_or_else(|| SizeError {
            given: given.to_owned(),
        })
    }
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
