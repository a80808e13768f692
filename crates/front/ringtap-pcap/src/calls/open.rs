// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handles: made, activated, closed, and told to come out of their loop.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use super::{about_a_handle, guarded};
use crate::abi::{ERRBUF_SIZE, ERROR, ERROR_NO_SUCH_DEVICE, ERROR_PERM_DENIED};
use crate::abi::{ERROR_PROMISC_PERM_DENIED, Pcap};
use crate::activate::{Outcome, activate};
use crate::error::Refused;
use crate::handle::PcapHandle;
use crate::handles;
use crate::list::Functions;
use crate::plain::{self, Target};
use crate::real;
use crate::settings::Settings;
use crate::text;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_create(source: *const c_char, errbuf: *mut c_char) -> *mut Pcap {
    guarded(ptr::null_mut(), || {
        // SAFETY: NULL or a text, by libpcap's manual.
        let name = unsafe { text::take(source) };
        let made = match Target::of(name.as_deref(), plain::via().as_deref()) {
            Ok(Target::Real) => {
                return match real::functions() {
                    // SAFETY: the same call, by the same caller's word.
                    Ok(functions) => unsafe { (functions.pcap_create)(source, errbuf) },
                    Err(why) => {
                        // SAFETY: an error buffer or NULL, by libpcap's manual.
                        unsafe { text::give(errbuf, why) };
                        ptr::null_mut()
                    }
                };
            }
            Ok(_) => Ok(handles::add(name)),
            Err(refused) => Err(refused.text),
        };
        made.unwrap_or_else(|why| {
            // SAFETY: an error buffer or NULL, by libpcap's manual.
            unsafe { text::give(errbuf, &why) };
            ptr::null_mut()
        })
    })
}

about_a_handle! {
    fn pcap_activate(p) -> c_int, or ERROR => |handle| {
        // The same words as for a setting that comes too late.
        match handle.set(|_| 0) {
            0 => {}
            is_activated => return is_activated,
        }
        match activate(&handle) {
            Ok(Outcome::Live(status)) => status,
            Ok(Outcome::Real) => {
                let settings = handle.settings().clone();
                handle.told(hand_over(&handle, &settings))
            }
            Err(refused) => handle.told(Err(refused)),
        }
    };
}

/// Lets the real library open the device of this handle.
fn hand_over(handle: &PcapHandle, settings: &Settings) -> Result<c_int, Refused> {
    let functions = real::functions().map_err(Refused::general)?;
    let name = settings.source.as_deref().unwrap_or("any");
    let name = CString::new(name).map_err(|error| Refused::general(error.to_string()))?;
    let mut errbuf: [c_char; ERRBUF_SIZE] = [0; ERRBUF_SIZE];
    // SAFETY: a text and an error buffer.
    let real = unsafe { (functions.pcap_create)(name.as_ptr(), errbuf.as_mut_ptr()) };
    if real.is_null() {
        // SAFETY: libpcap filled it.
        let why = unsafe { text::take(errbuf.as_ptr()) };
        return Err(Refused::general(why.unwrap_or_default()));
    }
    // SAFETY: a handle of the real library's that is not yet activated.
    unsafe { pass_settings(functions, real, settings) };
    // SAFETY: as above.
    let status = unsafe { (functions.pcap_activate)(real) };
    if status >= 0 {
        handle.token().hand_over(real);
        return Ok(status);
    }
    // SAFETY: as above.
    let why = unsafe { (functions.pcap_geterr)(real) };
    // SAFETY: a text of that handle, which is still open.
    let why = unsafe { text::take(why) };
    // SAFETY: made above, and closed once.
    unsafe { (functions.pcap_close)(real) };
    Err(Refused::new(status, why.unwrap_or_default()))
}

/// # Safety
///
/// `real` is a handle of the real library's that is not yet activated.
unsafe fn pass_settings(functions: &Functions, real: *mut Pcap, settings: &Settings) {
    let set = [
        (
            functions.pcap_set_snaplen as Setter,
            Some(settings.snap_bytes),
        ),
        (functions.pcap_set_promisc, Some(settings.promiscuous)),
        (functions.pcap_set_timeout, Some(settings.timeout_ms)),
        (functions.pcap_set_immediate_mode, Some(settings.immediate)),
        (functions.pcap_set_rfmon, Some(settings.rfmon)),
        (
            functions.pcap_set_tstamp_precision,
            Some(settings.precision),
        ),
        (functions.pcap_set_buffer_size, settings.buffer_bytes),
        (functions.pcap_set_tstamp_type, settings.tstamp_type),
        (functions.pcap_set_protocol_linux, settings.protocol),
    ];
    for (setter, value) in set {
        if let Some(value) = value {
            // What it does not take it says again when it is activated.
            // SAFETY: the caller's word.
            let _told_later = unsafe { setter(real, value) };
        }
    }
    if settings.nonblock != 0 {
        let mut errbuf: [c_char; ERRBUF_SIZE] = [0; ERRBUF_SIZE];
        // SAFETY: the caller's word, and an error buffer.
        let _told_later = unsafe { (functions.pcap_setnonblock)(real, 1, errbuf.as_mut_ptr()) };
    }
}

/// A function that sets a number.
type Setter = unsafe extern "C" fn(*mut Pcap, c_int) -> c_int;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_open_live(
    device: *const c_char,
    snap: c_int,
    promiscuous: c_int,
    timeout_ms: c_int,
    errbuf: *mut c_char,
) -> *mut Pcap {
    guarded(ptr::null_mut(), || {
        // SAFETY: the same texts, by the same caller's word.
        let p = unsafe { pcap_create(device, errbuf) };
        if p.is_null() {
            return p;
        }
        for (setter, value) in [
            (super::set::pcap_set_snaplen as Setter, snap),
            (super::set::pcap_set_promisc, promiscuous),
            (super::set::pcap_set_timeout, timeout_ms),
        ] {
            // SAFETY: a handle that was just made.
            let _just_made = unsafe { setter(p, value) };
        }
        // SAFETY: as above.
        let status = unsafe { pcap_activate(p) };
        if status >= 0 {
            return p;
        }
        // SAFETY: NULL or a text, by libpcap's manual.
        let device = unsafe { text::take(device) }.unwrap_or_else(|| "any".to_owned());
        // SAFETY: a handle that is open.
        let why = unsafe { super::ask::pcap_geterr(p) };
        // SAFETY: a text of that handle, which is still open.
        let why = unsafe { text::take(why) }.unwrap_or_default();
        // SAFETY: an error buffer or NULL, by libpcap's manual.
        unsafe { text::give(errbuf, &told(&device, status, &why)) };
        // SAFETY: a handle that is open.
        unsafe { pcap_close(p) };
        ptr::null_mut()
    })
}

/// libpcap's words for a device that could not be opened.
fn told(device: &str, status: c_int, why: &str) -> String {
    // SAFETY: a number.
    let general = unsafe { crate::list::pcap_statustostr(status) };
    // SAFETY: a text that stays, or lasts until the next call.
    let general = unsafe { text::take(general) }.unwrap_or_default();
    match status {
        ERROR => format!("{device}: {why}"),
        ERROR_NO_SUCH_DEVICE | ERROR_PERM_DENIED | ERROR_PROMISC_PERM_DENIED if !why.is_empty() => {
            format!("{device}: {general} ({why})")
        }
        _ => format!("{device}: {general}"),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_close(p: *mut Pcap) {
    guarded((), || {
        let real = match handles::is_ours(p) {
            // Closed before: nothing is there, and nothing happens.
            true => handles::remove(p).and_then(|(handle, real)| {
                handle.end();
                real
            }),
            false => Some(p).filter(|p| !p.is_null()),
        };
        if let (Some(real), Ok(functions)) = (real, real::functions()) {
            // SAFETY: the library's own handle, by the caller's word.
            unsafe { (functions.pcap_close)(real) };
        }
    });
}

/// Called from signal handlers: see [`handles::break_loop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_breakloop(p: *mut Pcap) {
    if p.is_null() {
        return;
    }
    if let (Err(real), Some(functions)) = (handles::break_loop(p), real::found()) {
        // SAFETY: the library's own handle, by the caller's word.
        unsafe { (functions.pcap_breakloop)(real) };
    }
}
