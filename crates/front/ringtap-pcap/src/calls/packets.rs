// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads packets, one by one or by a callback, and sends packets.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::on_handle;
use crate::abi::{Callback, PacketHeader};
use crate::capture::ReadUntil;
use crate::error::LibpcapError;
use crate::handle::PcapHandle;

/// libpcap's error texts for impossible packet sizes.
const NO_BYTES: &str = "The number of bytes to be injected must not be zero";
const NOT_POSITIVE: &str = "The number of bytes to be sent must be positive";

on_handle! {
    fn pcap_dispatch(p, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int => |handle| {
        // SAFETY: the callback takes these arguments, by libpcap's manual.
        unsafe { run(&handle, ReadUntil::Batch, count, callback, user) }
    };
    fn pcap_loop(p, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int => |handle| {
        // SAFETY: as above.
        unsafe { run(&handle, ReadUntil::Enough, count, callback, user) }
    };
    fn pcap_next_ex(p, header: *mut *mut PacketHeader, packet: *mut *const u8) -> c_int => |handle| {
        next(&handle, |found, data| {
            if !header.is_null() {
                // SAFETY: not null; a place for a pointer, by libpcap's manual.
                unsafe { header.write(found) };
            }
            if !packet.is_null() {
                // SAFETY: as above.
                unsafe { packet.write(data) };
            }
        })
    };
    fn pcap_next(p, header: *mut PacketHeader) -> *const u8 => |handle| {
        let mut packet = ptr::null();
        let _status = next(&handle, |found, data| {
            packet = data;
            if !header.is_null() {
                // SAFETY: not null; a place for a header, by libpcap's manual. The source is valid
                // until the next read.
                unsafe { header.copy_from(found, 1) };
            }
        });
        packet
    };
    fn pcap_inject(p, packet: *const c_void, size: usize) -> c_int => |handle| {
        handle.with_capture(|capture| {
            let size = match c_int::try_from(size) {
                Ok(0) => Err(NO_BYTES.to_owned()),
                Ok(_) => Ok(size),
                Err(_) => Err(format!("More than {} bytes cannot be injected", c_int::MAX)),
            };
            // SAFETY: this many bytes are there, by libpcap's manual.
            capture.inject(unsafe { bytes(packet.cast(), size) }?)
        })
    };
    fn pcap_sendpacket(p, packet: *const u8, size: c_int) -> c_int => |handle| {
        handle.with_capture(|capture| {
            let size = usize::try_from(size).ok().filter(|size| *size > 0);
            let size = size.ok_or_else(|| NOT_POSITIVE.to_owned());
            // SAFETY: as above.
            capture.inject(unsafe { bytes(packet, size) }?).map(|_| 0)
        })
    };
}

/// Passes packets to a callback.
///
/// # Safety
///
/// `callback` takes `user`, a header and as many bytes as the header says.
unsafe fn run(
    handle: &PcapHandle,
    until: ReadUntil,
    count: c_int,
    callback: Option<Callback>,
    user: *mut u8,
) -> c_int {
    let most = u64::try_from(count).ok().filter(|count| *count > 0);
    handle.with_capture(|capture| {
        let callback = callback.ok_or_else(|| LibpcapError::general("no callback was given"))?;
        capture.read(handle, until, most, |header, data| {
            // SAFETY: the caller's guarantee; header and bytes are valid until the next read.
            unsafe { callback(user, header, data) };
        })
    })
}

fn next(handle: &PcapHandle, take: impl FnMut(*mut PacketHeader, *const u8)) -> c_int {
    handle.with_capture(|capture| capture.read(handle, ReadUntil::Batch, Some(1), take))
}

/// # Safety
///
/// `packet` is NULL or points to `size` bytes, which outlive `'a`.
unsafe fn bytes<'a>(
    packet: *const u8,
    size: Result<usize, String>,
) -> Result<&'a [u8], LibpcapError> {
    let size = size.map_err(|why| LibpcapError::general(format!("{why}: Invalid argument")))?;
    if packet.is_null() {
        return Err(LibpcapError::general("no packet was given"));
    }
    // SAFETY: not null; the caller guarantees the size.
    Ok(unsafe { std::slice::from_raw_parts(packet, size) })
}
