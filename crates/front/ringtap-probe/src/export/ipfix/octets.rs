// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values as octets of a message.

use std::net::IpAddr;

/// Appends the lowest `length` bytes of a number, most significant first.
pub(super) fn put(out: &mut Vec<u8>, length: u16, value: u64) {
    let bytes = value.to_be_bytes();
    out.extend(bytes.iter().skip(8_usize.saturating_sub(length.into())));
}

/// Appends an address.
pub(super) fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => out.extend(address.octets()),
        IpAddr::V6(address) => out.extend(address.octets()),
    }
}
