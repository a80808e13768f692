// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the real library does for our handles: it compiles their filters and writes their files,
//! on a handle without a device that has the same link type.

use std::ffi::{c_char, c_int};
use std::ptr;

use libc::FILE;

use super::about_a_handle;
use crate::abi::{BpfProgram, Dumper, ERROR, Pcap};
use crate::error::Refused;
use crate::handle::PcapHandle;
use crate::list::Functions;
use crate::real;
use crate::text;

/// libpcap's words, before the name of the function.
const NOT_YET: &str = "not-yet-activated pcap_t passed to ";

about_a_handle! {
    fn pcap_compile(p, program: *mut BpfProgram, filter: *const c_char, optimize: c_int, mask: u32) -> c_int, or ERROR => |handle| {
        let compiled = with_dead(&handle, &format!("{NOT_YET}pcap_compile"), |functions, dead| {
            // SAFETY: an open handle; the rest by the caller's word, as for our own.
            let status = unsafe { (functions.pcap_compile)(dead, program, filter, optimize, mask) };
            (status >= 0).then_some(status)
        });
        handle.told(compiled)
    };
    fn pcap_dump_open(p, name: *const c_char) -> *mut Dumper, or ptr::null_mut() => |handle| {
        // SAFETY: NULL or a text, by libpcap's manual.
        let file = unsafe { text::take(name) };
        dumper(&handle, file, "pcap_dump_open", |functions, dead| {
            // SAFETY: an open handle; the rest by the caller's word, as for our own.
            unsafe { (functions.pcap_dump_open)(dead, name) }
        })
    };
    fn pcap_dump_open_append(p, name: *const c_char) -> *mut Dumper, or ptr::null_mut() => |handle| {
        // SAFETY: NULL or a text, by libpcap's manual.
        let file = unsafe { text::take(name) };
        dumper(&handle, file, "pcap_dump_open_append", |functions, dead| {
            // SAFETY: as above.
            unsafe { (functions.pcap_dump_open_append)(dead, name) }
        })
    };
    fn pcap_dump_fopen(p, file: *mut FILE) -> *mut Dumper, or ptr::null_mut() => |handle| {
        dumper(&handle, Some("stream".to_owned()), "pcap_dump_fopen", |functions, dead| {
            // SAFETY: as above.
            unsafe { (functions.pcap_dump_fopen)(dead, file) }
        })
    };
}

fn dumper(
    handle: &PcapHandle,
    file: Option<String>,
    function: &str,
    open: impl FnOnce(&Functions, *mut Pcap) -> *mut Dumper,
) -> *mut Dumper {
    let function = match file {
        Some(file) if handle.live().is_none() => format!("{file}: {NOT_YET}{function}"),
        _ => format!("{NOT_YET}{function}"),
    };
    let opened = with_dead(handle, &function, |functions, dead| {
        let dumper = open(functions, dead);
        (!dumper.is_null()).then_some(dumper)
    });
    opened.unwrap_or_else(|refused| {
        handle.error.set(&refused.text);
        ptr::null_mut()
    })
}

/// Does `work` on a handle without a device; its error becomes that of our handle, or `not_yet`
/// if that was not activated.
fn with_dead<T>(
    handle: &PcapHandle,
    not_yet: &str,
    work: impl FnOnce(&Functions, *mut Pcap) -> Option<T>,
) -> Result<T, Refused> {
    let Some(live) = handle.live() else {
        return Err(Refused::general(not_yet));
    };
    let functions = real::functions().map_err(Refused::general)?;
    let facts = &live.facts;
    let snap = c_int::try_from(facts.snap_bytes).unwrap_or(c_int::MAX);
    let precision = u32::from(facts.nanoseconds);
    // SAFETY: three numbers.
    let dead =
        unsafe { (functions.pcap_open_dead_with_tstamp_precision)(facts.dlt, snap, precision) };
    if dead.is_null() {
        return Err(Refused::general("out of memory"));
    }
    let done = work(functions, dead).ok_or_else(|| {
        // SAFETY: an open handle.
        let why = unsafe { (functions.pcap_geterr)(dead) };
        // SAFETY: a text of that handle, which is still open.
        let why = unsafe { text::take(why) };
        Refused::general(why.unwrap_or_default())
    });
    // SAFETY: made above, and closed once.
    unsafe { (functions.pcap_close)(dead) };
    done
}
