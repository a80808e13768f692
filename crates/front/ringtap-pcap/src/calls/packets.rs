// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads packets, one by one or by a callback (in `border.c`), and sends packets.

use std::ffi::{c_int, c_void};
use std::fmt::Display;

use super::on_handle;
use crate::abi::{Callback, PacketHeader, Pcap};
use crate::error::LibpcapError;
use crate::list::jumps;

/// libpcap's error texts for impossible packet sizes.
const NO_BYTES: &str = "The number of bytes to be injected must not be zero";
const NOT_POSITIVE: &str = "The number of bytes to be sent must be positive";

jumps! {
    fn pcap_dispatch(p: *mut Pcap, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int;
    fn pcap_loop(p: *mut Pcap, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int;
    fn pcap_next_ex(p: *mut Pcap, header: *mut *mut PacketHeader, packet: *mut *const u8) -> c_int;
    fn pcap_next(p: *mut Pcap, header: *mut PacketHeader) -> *const u8;
}

on_handle! {
    fn pcap_inject(p, packet: *const c_void, size: usize) -> c_int => |handle| {
        handle.with_capture(|capture| {
            let size = match c_int::try_from(size) {
                Ok(0) => Err(invalid(NO_BYTES)),
                Ok(_) => Ok(size),
                Err(_) => Err(invalid(format_args!(
                    "More than {} bytes cannot be injected",
                    c_int::MAX
                ))),
            }?;
            // SAFETY: this many bytes are there, by libpcap's manual.
            capture.inject(unsafe { bytes(packet.cast(), size) }?)
        })
    };
    fn pcap_sendpacket(p, packet: *const u8, size: c_int) -> c_int => |handle| {
        handle.with_capture(|capture| {
            let size = usize::try_from(size)
                .ok()
                .filter(|size| *size > 0)
                .ok_or_else(|| invalid(NOT_POSITIVE))?;
            // SAFETY: as above.
            capture.inject(unsafe { bytes(packet, size) }?).map(|_| 0)
        })
    };
}

fn invalid(why: impl Display) -> LibpcapError {
    LibpcapError::general(format!("{why}: Invalid argument"))
}

/// # Safety
///
/// `packet` is NULL or points to `size` bytes, which outlive `'a`.
unsafe fn bytes<'a>(packet: *const u8, size: usize) -> Result<&'a [u8], LibpcapError> {
    if packet.is_null() {
        return Err(LibpcapError::general("no packet was given"));
    }
    // SAFETY: not null; the caller guarantees the size.
    Ok(unsafe { std::slice::from_raw_parts(packet, size) })
}
