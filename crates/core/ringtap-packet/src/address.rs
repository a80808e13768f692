// SPDX-License-Identifier: MIT OR Apache-2.0
//! A MAC address, as people write it.

use std::{fmt, str::FromStr};

/// Six bytes, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MacAddress(pub [u8; 6]);

/// Text that is no MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{given}\" is not a MAC address: write six hexadecimal bytes, like 02:00:00:00:00:01")]
pub struct MacAddressError {
    given: String,
}

impl FromStr for MacAddress {
    type Err = MacAddressError;

    fn from_str(given: &str) -> Result<Self, MacAddressError> {
        parsed(given).map(Self).ok_or_else(|| MacAddressError {
            given: given.to_owned(),
        })
    }
}

fn parsed(given: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = given.split([':', '-']);
    for byte in &mut bytes {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 2 || part.starts_with('+') {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let address = MacAddress([2, 0, 0xab, 0, 0, 1]);
        assert_eq!(address.to_string().parse(), Ok(address));
        assert_eq!("2-0-ab-0-0-1".parse(), Ok(address));
    }

    #[test]
    fn anything_else_is_refused() {
        for given in [
            "",
            "1:2:3:4:5",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:100",
            "1:2:3:4:5:+6",
            "g:0:0:0:0:0",
        ] {
            assert!(given.parse::<MacAddress>().is_err(), "{given:?}");
        }
    }
}
