// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets: one by one, in a loop, and sent.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::{about_a_handle, guarded};
use crate::abi::{Callback, ERROR, PacketHeader, Pcap};
use crate::error::Refused;
use crate::handle::PcapHandle;
use crate::handles::{Owner, owner};
use crate::live::Until;
use crate::real;

/// libpcap's words for sizes of packets that are none.
const NO_BYTES: &str = "The number of bytes to be injected must not be zero";
const NOT_POSITIVE: &str = "The number of bytes to be sent must be positive";

about_a_handle! {
    fn pcap_dispatch(p, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int, or ERROR => |handle| {
        // SAFETY: the callback takes what it is given, by libpcap's manual.
        unsafe { run(&handle, Until::Batch, count, callback, user) }
    };
    fn pcap_loop(p, count: c_int, callback: Option<Callback>, user: *mut u8) -> c_int, or ERROR => |handle| {
        // SAFETY: as above.
        unsafe { run(&handle, Until::Enough, count, callback, user) }
    };
    fn pcap_next_ex(p, header: *mut *mut PacketHeader, packet: *mut *const u8) -> c_int, or ERROR => |handle| {
        let (status, found) = next(&handle);
        if let Some((of, data)) = found {
            let kept = handle.live().and_then(|live| live.keep_header(&of));
            if !header.is_null() {
                // SAFETY: not null; a place for a pointer, by libpcap's manual.
                unsafe { header.write(kept.unwrap_or(ptr::null_mut())) };
            }
            if !packet.is_null() {
                // SAFETY: as above.
                unsafe { packet.write(data) };
            }
        }
        status
    };
    fn pcap_inject(p, packet: *const c_void, size: usize) -> c_int, or ERROR => |handle| {
        handle.with_live(|live| {
            let size = match c_int::try_from(size) {
                Ok(0) => Err(NO_BYTES.to_owned()),
                Ok(_) => Ok(size),
                Err(_) => Err(format!("More than {} bytes cannot be injected", c_int::MAX)),
            };
            // SAFETY: so many bytes are there, by libpcap's manual.
            live.inject(unsafe { bytes(packet.cast(), size) }?)
        })
    };
    fn pcap_sendpacket(p, packet: *const u8, size: c_int) -> c_int, or ERROR => |handle| {
        handle.with_live(|live| {
            let size = usize::try_from(size).ok().filter(|size| *size > 0);
            let size = size.ok_or_else(|| NOT_POSITIVE.to_owned());
            // SAFETY: as above.
            live.inject(unsafe { bytes(packet, size) }?).map(|_| 0)
        })
    };
}

/// Gives packets to a callback.
///
/// # Safety
///
/// `callback` takes `user`, a header and as many bytes as that says.
unsafe fn run(
    handle: &PcapHandle,
    until: Until,
    count: c_int,
    callback: Option<Callback>,
    user: *mut u8,
) -> c_int {
    let most = u64::try_from(count).ok().filter(|count| *count > 0);
    handle.with_live(|live| {
        let callback = callback.ok_or_else(|| Refused::general("no callback was given"))?;
        live.read(handle, until, most, |header, data| {
            // SAFETY: the caller's word; header and bytes last until the callback returned.
            unsafe { callback(user, header, data) };
        })
    })
}

/// One packet: libpcap's status, and it if there is one.
fn next(handle: &PcapHandle) -> (c_int, Option<(PacketHeader, *const u8)>) {
    let mut found = None;
    let status = handle.with_live(|live| {
        live.read(handle, Until::Batch, Some(1), |header, data| {
            found = Some((*header, data));
        })
    });
    (status, found)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_next(p: *mut Pcap, header: *mut PacketHeader) -> *const u8 {
    guarded(ptr::null(), || match owner(p) {
        Owner::Ringtap(handle) => {
            let (_, Some((of, data))) = next(&handle) else {
                return ptr::null();
            };
            if !header.is_null() {
                // SAFETY: not null; a place for a header, by libpcap's manual.
                unsafe { header.write(of) };
            }
            data
        }
        Owner::Libpcap(real) => match real::functions() {
            // SAFETY: the same call about the library's own handle, by the caller's word.
            Ok(functions) => unsafe { (functions.pcap_next)(real, header) },
            Err(_) => ptr::null(),
        },
        Owner::None => ptr::null(),
    })
}

/// # Safety
///
/// `packet` is NULL or leads to as many bytes as `size` says, which outlive `'a`.
unsafe fn bytes<'a>(packet: *const u8, size: Result<usize, String>) -> Result<&'a [u8], Refused> {
    let size = size.map_err(|why| Refused::general(format!("{why}: Invalid argument")))?;
    if packet.is_null() {
        return Err(Refused::general("no packet was given"));
    }
    // SAFETY: not null, and so many bytes, by the caller's word.
    Ok(unsafe { std::slice::from_raw_parts(packet, size) })
}
