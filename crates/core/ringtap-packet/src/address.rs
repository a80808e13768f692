// SPDX-License-Identifier: MIT OR Apache-2.0
//! MAC and IP addresses, as people write them.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::str::FromStr;

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

/// Appends an IP address as text; the formatter of the standard library takes five times as long for IPv4.
pub fn push_address(address: IpAddr, to: &mut String) {
    let IpAddr::V4(address) = address else {
        let _infallible = write!(to, "{address}");
        return;
    };
    let digit = |number: u8| char::from(b'0' + number % 10);
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            to.push('.');
        }
        if octet >= 100 {
            to.push(digit(octet / 100));
        }
        if octet >= 10 {
            to.push(digit(octet / 10));
        }
        to.push(digit(octet));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use crate::*;

    #[test]
    fn addresses_are_those_of_the_standard_library() {
        let octets = [0_u8, 1, 9, 10, 99, 100, 109, 110, 255];
        for (at, first) in octets.into_iter().enumerate() {
            let next = |step: usize| octets[(at + step) % octets.len()];
            let v4 = Ipv4Addr::new(first, next(1), next(2), next(3));
            for address in [IpAddr::from(v4), v4.to_ipv6_mapped().into()] {
                let mut text = String::new();
                push_address(address, &mut text);
                assert_eq!(text, address.to_string());
            }
        }
    }

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
