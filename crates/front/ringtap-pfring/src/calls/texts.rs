// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that parse packets and make texts, which need no ring.
#![expect(
    clippy::missing_safety_doc,
    reason = "include/pfring.h and docs/pfring.md have the documentation"
)]

use std::ffi::{c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{ERROR_GENERIC, ERROR_INVALID_ARGUMENT, RingPacketHeader};
use crate::parse::{grouped, line, parse};

/// Writes as much of a text as there is room for, with NUL; returns the bytes without it.
unsafe fn write_text(text: &str, to: *mut c_char, room: c_uint) -> c_int {
    let Some(most) = ringtap_pool::number::to_usize(room).checked_sub(1) else {
        return 0;
    };
    let bytes = text.len().min(most);
    // SAFETY: there is room for `room` bytes, by the header of the caller.
    let place = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes + 1) };
    place[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
    place[bytes] = 0;
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

/// Parses the headers of a packet up to a layer, 2 to 4; returns the last layer that there is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_parse_pkt(
    packet: *mut u8,
    header: *mut RingPacketHeader,
    level: u8,
    _add_timestamp: u8,
    _add_hash: u8,
) -> c_int {
    if packet.is_null() || header.is_null() {
        return ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: not null; a header, perhaps not aligned.
    let mut own = unsafe { header.read_unaligned() };
    let length = ringtap_pool::number::to_usize(own.caplen);
    // SAFETY: not null; a packet of so many bytes, by the header.
    let data = unsafe { std::slice::from_raw_parts(packet, length) };
    let Ok((parsed, layer)) = catch_unwind(|| parse(data, level)) else {
        return ERROR_GENERIC;
    };
    own.parsed = parsed;
    // SAFETY: as above.
    unsafe { header.write_unaligned(own) };
    c_int::from(layer)
}

/// Writes a line about a parsed packet; returns its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_print_parsed_pkt(
    to: *mut c_char,
    room: c_uint,
    _packet: *const u8,
    header: *const RingPacketHeader,
) -> c_int {
    if to.is_null() || header.is_null() {
        return ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: not null; a header, perhaps not aligned.
    let header = unsafe { header.read_unaligned() };
    let (parsed, hash, caplen, len) = (header.parsed, header.pkt_hash, header.caplen, header.len);
    let made = catch_unwind(|| line(&parsed, hash, caplen, len));
    // SAFETY: not null; room for `room` bytes, by the header.
    made.map_or(ERROR_GENERIC, |text| unsafe { write_text(&text, to, room) })
}

/// Writes a line about a packet; returns its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_print_pkt(
    to: *mut c_char,
    room: c_uint,
    packet: *const u8,
    len: c_uint,
    caplen: c_uint,
) -> c_int {
    if to.is_null() || packet.is_null() {
        return ERROR_INVALID_ARGUMENT;
    }
    let length = ringtap_pool::number::to_usize(caplen);
    // SAFETY: not null; a packet of so many bytes, by the header.
    let data = unsafe { std::slice::from_raw_parts(packet, length) };
    let made = catch_unwind(|| line(&parse(data, 4).0, 0, caplen, len));
    // SAFETY: not null; room for `room` bytes, by the header.
    made.map_or(ERROR_GENERIC, |text| unsafe { write_text(&text, to, room) })
}

/// Writes a number with marks between thousands; returns the text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_format_numbers(
    value: f64,
    to: *mut c_char,
    room: c_uint,
    add_decimals: u8,
) -> *mut c_char {
    if !to.is_null() {
        let made = catch_unwind(AssertUnwindSafe(|| grouped(value, add_decimals != 0)));
        // SAFETY: not null; room for `room` bytes, by the header.
        let _bytes = made.map(|text| unsafe { write_text(&text, to, room) });
    }
    to
}
