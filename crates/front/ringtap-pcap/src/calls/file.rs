// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real library compiles filters and writes files, on a handle without a device and with the
//! same link type.

use std::ffi::{c_char, c_int};
use std::ptr;

use libc::FILE;

use super::on_handle;
use crate::abi::{BpfProgram, Dumper, Pcap};
use crate::error::LibpcapError;
use crate::handle::PcapHandle;
use crate::list::Functions;
use crate::real::RealHandle;
use crate::text;

/// libpcap's error text, which the name of the function follows.
const NOT_YET: &str = "not-yet-activated pcap_t passed to ";

on_handle! {
    fn pcap_compile(p, program: *mut BpfProgram, filter: *const c_char, optimize: c_int, mask: u32) -> c_int => |handle| {
        let compiled = with_real(&handle, &format!("{NOT_YET}pcap_compile"), |functions, real| {
            // SAFETY: an open handle; the caller guarantees the rest, as for our own function.
            let status = unsafe { (functions.pcap_compile)(real, program, filter, optimize, mask) };
            (status >= 0).then_some(status)
        });
        handle.status(compiled)
    };
    fn pcap_dump_open(p, name: *const c_char) -> *mut Dumper => |handle| {
        // SAFETY: NULL or a text, by libpcap's manual.
        let file = unsafe { text::take(name) };
        dumper(&handle, file, "pcap_dump_open", |functions, real| {
            // SAFETY: an open handle; the caller guarantees the rest, as for our own function.
            unsafe { (functions.pcap_dump_open)(real, name) }
        })
    };
    fn pcap_dump_open_append(p, name: *const c_char) -> *mut Dumper => |handle| {
        // SAFETY: NULL or a text, by libpcap's manual.
        let file = unsafe { text::take(name) };
        dumper(&handle, file, "pcap_dump_open_append", |functions, real| {
            // SAFETY: as above.
            unsafe { (functions.pcap_dump_open_append)(real, name) }
        })
    };
    fn pcap_dump_fopen(p, file: *mut FILE) -> *mut Dumper => |handle| {
        dumper(&handle, Some("stream".to_owned()), "pcap_dump_fopen", |functions, real| {
            // SAFETY: as above.
            unsafe { (functions.pcap_dump_fopen)(real, file) }
        })
    };
}

fn dumper(
    handle: &PcapHandle,
    file: Option<String>,
    function: &str,
    open: impl FnOnce(&Functions, *mut Pcap) -> *mut Dumper,
) -> *mut Dumper {
    let not_yet = match file {
        Some(file) => format!("{file}: {NOT_YET}{function}"),
        None => format!("{NOT_YET}{function}"),
    };
    let opened = with_real(handle, &not_yet, |functions, real| {
        let dumper = open(functions, real);
        (!dumper.is_null()).then_some(dumper)
    });
    opened.unwrap_or_else(|error| {
        handle.error.set(&error.text);
        ptr::null_mut()
    })
}

/// Runs `work` on a handle of the real library without a device; copies its error to our handle.
/// Before our handle is activated, the error is `not_yet`.
fn with_real<T>(
    handle: &PcapHandle,
    not_yet: &str,
    work: impl FnOnce(&Functions, *mut Pcap) -> Option<T>,
) -> Result<T, LibpcapError> {
    let Some(capture) = handle.capture() else {
        return Err(LibpcapError::general(not_yet));
    };
    let real = RealHandle::dead(capture.dlt, capture.snap_bytes, capture.nanoseconds)?;
    work(real.functions, real.p).ok_or_else(|| LibpcapError::general(real.error()))
}
