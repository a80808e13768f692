// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices: the real library's list with the groups of the hub behind it.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use super::guarded;
use crate::abi::{DEVICE_CONNECTION_NOT_APPLICABLE, DEVICE_RUNNING, DEVICE_UP, Device, ERROR};
use crate::devices::{self, Group};
use crate::list::Functions;
use crate::plain::Target;
use crate::real;
use crate::text;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_findalldevs(list: *mut *mut Device, errbuf: *mut c_char) -> c_int {
    guarded(ERROR, || {
        if list.is_null() {
            // SAFETY: an error buffer or NULL, by libpcap's manual.
            unsafe { text::give(errbuf, "no place for the list was given") };
            return ERROR;
        }
        // SAFETY: not null; a place for a pointer, by libpcap's manual.
        unsafe { list.write(ptr::null_mut()) };
        let groups = devices::groups();
        match real::functions() {
            Ok(functions) => {
                // SAFETY: the same call, by the same caller's word.
                let status = unsafe { (functions.pcap_findalldevs)(list, errbuf) };
                if status < 0 {
                    return status;
                }
            }
            Err(why) if groups.is_empty() => {
                // SAFETY: an error buffer or NULL, by libpcap's manual.
                unsafe { text::give(errbuf, why) };
                return ERROR;
            }
            Err(_) => {}
        }
        // SAFETY: filled just before, by libpcap or by us.
        unsafe { append(list, &groups) };
        0
    })
}

/// Puts our devices at the end: programs take the first one if none was named.
///
/// # Safety
///
/// `list` is a place that holds NULL or leads to a list of devices.
unsafe fn append(list: *mut *mut Device, groups: &[Group]) {
    let mut end = list;
    loop {
        // SAFETY: the caller's word, and the last round's.
        let device = unsafe { *end };
        if device.is_null() {
            break;
        }
        // SAFETY: not null, so a device.
        end = unsafe { &raw mut (*device).next };
    }
    for group in groups {
        let device = Box::into_raw(Box::new(Device {
            next: ptr::null_mut(),
            name: c_text(&group.name).into_raw(),
            description: c_text(&group.description).into_raw(),
            addresses: ptr::null_mut(),
            flags: DEVICE_UP | DEVICE_RUNNING | DEVICE_CONNECTION_NOT_APPLICABLE,
        }));
        devices::remember(device.addr());
        // SAFETY: the end of the list, or of what was appended.
        unsafe { end.write(device) };
        // SAFETY: made just before.
        end = unsafe { &raw mut (*device).next };
    }
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_freealldevs(list: *mut Device) {
    guarded((), || {
        let mut head = list;
        let mut end = &raw mut head;
        loop {
            // SAFETY: a list that `pcap_findalldevs` made, by libpcap's manual.
            let device = unsafe { *end };
            if device.is_null() {
                break;
            }
            if !devices::forget(device.addr()) {
                // SAFETY: not null, so a device.
                end = unsafe { &raw mut (*device).next };
                continue;
            }
            // SAFETY: ours, and freed once, as it was remembered until now.
            let device = unsafe { Box::from_raw(device) };
            // SAFETY: a device before, or our own variable.
            unsafe { end.write(device.next) };
            for text in [device.name, device.description] {
                // SAFETY: made by `into_raw` together with the device.
                drop(unsafe { CString::from_raw(text) });
            }
        }
        if let (false, Ok(functions)) = (head.is_null(), real::functions()) {
            // SAFETY: what is left is the library's own list.
            unsafe { (functions.pcap_freealldevs)(head) };
        }
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lookupnet(
    device: *const c_char,
    net: *mut u32,
    mask: *mut u32,
    errbuf: *mut c_char,
) -> c_int {
    guarded(ERROR, || {
        // SAFETY: NULL or a text, by libpcap's manual.
        let name = unsafe { text::take(device) };
        let functions = match real::functions() {
            Ok(functions) => functions,
            Err(why) => {
                // SAFETY: an error buffer or NULL, by libpcap's manual.
                unsafe { text::give(errbuf, why) };
                return ERROR;
            }
        };
        match Target::of(name.as_deref(), None) {
            Ok(Target::Device(of)) if of.kind.names_an_interface() => {
                // SAFETY: places and a buffer, by the caller's word.
                unsafe { of_interface(functions, &of.name, net, mask, errbuf) }
            }
            // No interface, no network: as libpcap has it for "any".
            Ok(Target::Device(_)) => {
                for place in [net, mask].into_iter().filter(|place| !place.is_null()) {
                    // SAFETY: not null; a place for a number, by libpcap's manual.
                    unsafe { place.write(0) };
                }
                0
            }
            Ok(Target::Plain(_) | Target::Real) | Err(_) => {
                // SAFETY: the same call, by the same caller's word.
                unsafe { (functions.pcap_lookupnet)(device, net, mask, errbuf) }
            }
        }
    })
}

/// # Safety
///
/// As for `pcap_lookupnet`.
unsafe fn of_interface(
    functions: &Functions,
    name: &str,
    net: *mut u32,
    mask: *mut u32,
    errbuf: *mut c_char,
) -> c_int {
    let name = c_text(name);
    // SAFETY: a text, and the rest by the caller's word.
    unsafe { (functions.pcap_lookupnet)(name.as_ptr(), net, mask, errbuf) }
}
