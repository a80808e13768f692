// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates, activates and closes handles, and breaks their loops.

use std::ffi::{c_char, c_int};
use std::ptr;

use super::{guarded, on_handle};
use crate::abi::{ERRBUF_SIZE, ERROR, ERROR_NO_SUCH_DEVICE, ERROR_PERM_DENIED};
use crate::abi::{ERROR_PROMISC_PERM_DENIED, Pcap};
use crate::activate::activate;
use crate::error::LibpcapError;
use crate::handle::PcapHandle;
use crate::handles;
use crate::real::{self, RealHandle};
use crate::route::{self, Route};
use crate::settings::PcapSettings;
use crate::text;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_create(source: *const c_char, errbuf: *mut c_char) -> *mut Pcap {
    guarded(ptr::null_mut(), || {
        // SAFETY: NULL or a text, by libpcap's manual.
        let name = unsafe { text::take(source) };
        let via = route::via();
        route::say_if_around(name.as_deref(), via.as_deref());
        let error = match Route::for_device(name.as_deref(), via.as_deref()) {
            Ok(Route::Libpcap) => match real::functions() {
                // SAFETY: the same call with the same caller's guarantee.
                Ok(functions) => return unsafe { (functions.pcap_create)(source, errbuf) },
                Err(why) => why.to_string(),
            },
            Ok(_) => return handles::add(name),
            Err(error) => error.text,
        };
        // SAFETY: an error buffer or NULL, by libpcap's manual.
        unsafe { text::give(errbuf, &error) };
        ptr::null_mut()
    })
}

on_handle! {
    fn pcap_activate(p) -> c_int => |handle| {
        // The same error text as for a setting after activation.
        match handle.set(|_| ()) {
            0 => {}
            is_activated => return is_activated,
        }
        let activated = activate(&handle).and_then(|status| match status {
            Some(status) => Ok(status),
            None => hand_over(&handle),
        });
        handle.status(activated)
    };
}

/// Makes the real library open the device of this handle.
fn hand_over(handle: &PcapHandle) -> Result<c_int, LibpcapError> {
    let settings = handle.settings().clone();
    let real = RealHandle::create(settings.source.as_deref().unwrap_or("any"))?;
    pass_settings(&real, &settings);
    // SAFETY: an open handle.
    let status = unsafe { (real.functions.pcap_activate)(real.p) };
    if status < 0 {
        return Err(LibpcapError::new(status, real.error()));
    }
    handle.token().hand_over(real.into_raw());
    Ok(status)
}

fn pass_settings(real: &RealHandle, settings: &PcapSettings) {
    let functions = real.functions;
    // If the real library refuses a setting, it does so again when it activates the handle.
    let set = |setter: Setter, value: Option<c_int>| {
        // SAFETY: an open handle.
        value.map(|value| unsafe { setter(real.p, value) })
    };
    set(functions.pcap_set_snaplen, Some(settings.snap_bytes));
    set(functions.pcap_set_promisc, Some(settings.promiscuous));
    set(functions.pcap_set_timeout, Some(settings.timeout_ms));
    set(functions.pcap_set_immediate_mode, Some(settings.immediate));
    set(functions.pcap_set_rfmon, Some(settings.rfmon));
    set(
        functions.pcap_set_tstamp_precision,
        Some(settings.precision),
    );
    set(functions.pcap_set_buffer_size, settings.buffer_bytes);
    set(functions.pcap_set_tstamp_type, settings.tstamp_type);
    set(functions.pcap_set_protocol_linux, settings.protocol);
    if settings.nonblock != 0 {
        let mut errbuf: [c_char; ERRBUF_SIZE] = [0; ERRBUF_SIZE];
        // SAFETY: an open handle and an error buffer.
        unsafe { (functions.pcap_setnonblock)(real.p, 1, errbuf.as_mut_ptr()) };
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
        // SAFETY: the same texts, and the same caller's guarantee.
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
        unsafe { text::give(errbuf, &message(&device, status, &why)) };
        // SAFETY: a handle that is open.
        unsafe { pcap_close(p) };
        ptr::null_mut()
    })
}

/// libpcap's error text for a device that could not be opened.
fn message(device: &str, status: c_int, why: &str) -> String {
    // SAFETY: a number.
    let general = unsafe { crate::list::pcap_statustostr(status) };
    // SAFETY: a static text, or one that is valid until the next call.
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
        if p.is_null() {
            return;
        }
        let real = if handles::is_ours(p) {
            // Does nothing for a handle that was closed before.
            handles::remove(p).and_then(|(_handle, real)| real)
        } else {
            Some(p)
        };
        if let (Some(real), Ok(functions)) = (real, real::functions()) {
            // SAFETY: the real library's handle, as the caller guarantees.
            unsafe { (functions.pcap_close)(real) };
        }
    });
}

/// Signal handlers call this: see [`handles::break_loop`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_breakloop(p: *mut Pcap) {
    if p.is_null() {
        return;
    }
    if let (Err(real), Some(functions)) = (handles::break_loop(p), real::found()) {
        // SAFETY: the real library's handle, as the caller guarantees.
        unsafe { (functions.pcap_breakloop)(real) };
    }
}
