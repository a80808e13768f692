// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes in bytes with units: `64KiB`, `1GiB`, `100MB`. The one parser for every flag, option and key.

use std::{fmt, str::FromStr};

use serde::Deserialize;

/// A number of bytes. `64M` and `64MiB` are powers of 1024; `64MB` is a power of 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

/// A text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{given}\" is not a size: use bytes, units of 1024 (512K, 64MiB, 1G) or of 1000 (500kB, 100MB)"
)]
pub struct SizeError {
    given: String,
}

const UNITS: [&str; 4] = ["TiB", "GiB", "MiB", "KiB"];

impl TryFrom<String> for Size {
    type Error = SizeError;

    fn try_from(text: String) -> Result<Self, SizeError> {
        text.parse()
    }
}

impl FromStr for Size {
    type Err = SizeError;

    /// Units in upper or lower case, with or without a space before them.
    fn from_str(given: &str) -> Result<Self, SizeError> {
        let digits = given.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = given.split_at(digits);
        let unit = unit.trim_start().to_ascii_lowercase();
        let (prefix, step) = match unit.strip_suffix('b') {
            Some(unit) => match unit.strip_suffix('i') {
                Some(prefix) if !prefix.is_empty() => (prefix, 1024),
                Some(_) => ("?", 0),
                None => (unit, 1000),
            },
            None => (&*unit, 1024),
        };
        let power = ["", "k", "m", "g", "t"].iter().zip(0..);
        let power = power.into_iter().find(|(name, _)| **name == prefix);
        let bytes = power.and_then(|(_, power)| {
            let number = number.parse::<u64>().ok()?;
            number.checked_mul(u64::pow(step, power))
        });
        bytes.map(Size).ok_or_else(|| SizeError {
            given: given.to_owned(),
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let factors = UNITS.iter().zip([40, 30, 20, 10].map(|bits| 1 << bits));
        let mut fitting =
            factors.filter(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor));
        match fitting.next() {
            Some((name, factor)) => write!(f, "{}{name}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_1024_and_of_1000_are_understood_everywhere() {
        for (given, bytes) in [
            ("20000", 20_000),
            ("20 B", 20),
            ("512k", 512 << 10),
            ("64M", 64 << 20),
            ("64MiB", 64 << 20),
            ("1 gib", 1 << 30),
            ("500kB", 500_000),
            ("100MB", 100_000_000),
            ("100mb", 100_000_000),
            ("2TB", 2_000_000_000_000),
        ] {
            assert_eq!(given.parse(), Ok(Size(bytes)), "{given}");
        }
        for given in [
            "",
            "MB",
            "1.5MB",
            "-1MB",
            "1iB",
            "1MiBB",
            "10 parsecs",
            "99999999999TB",
        ] {
            assert!(given.parse::<Size>().is_err(), "{given}");
        }
    }
}
