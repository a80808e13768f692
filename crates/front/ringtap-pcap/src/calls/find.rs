// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of devices: the real library's devices, then the groups of the hub.

use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::{Mutex, MutexGuard};

use ringtap_ipc::mutex::lock;

use super::guarded;
use crate::abi::{DEVICE_CONNECTION_NOT_APPLICABLE, DEVICE_RUNNING, DEVICE_UP, ERROR, PcapDevice};
use crate::real;
use crate::route::{self, Route};
use crate::text;

/// Addresses of the list entries that this library allocated.
fn own_devices() -> MutexGuard<'static, BTreeSet<usize>> {
    static OWN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    lock(&OWN)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_findalldevs(
    list: *mut *mut PcapDevice,
    errbuf: *mut c_char,
) -> c_int {
    guarded(ERROR, || {
        if list.is_null() {
            // SAFETY: an error buffer or NULL, by libpcap's manual.
            unsafe { text::give(errbuf, "no place for the list was given") };
            return ERROR;
        }
        // SAFETY: not null; a place for a pointer, by libpcap's manual.
        unsafe { list.write(ptr::null_mut()) };
        let groups = route::groups();
        match real::functions() {
            Ok(functions) => {
                // SAFETY: the same call with the same caller's guarantee.
                let status = unsafe { (functions.pcap_findalldevs)(list, errbuf) };
                if status < 0 {
                    return status;
                }
            }
            Err(why) if groups.is_empty() => {
                // SAFETY: an error buffer or NULL, by libpcap's manual.
                unsafe { text::give(errbuf, &why.to_string()) };
                return ERROR;
            }
            Err(_) => {}
        }
        // SAFETY: libpcap or the line above has written it.
        unsafe { append(list, &groups) };
        0
    })
}

/// Appends devices with these names and descriptions. They are last because programs take the first
/// device by default.
///
/// # Safety
///
/// `list` is a place that holds NULL or points to a list of devices.
unsafe fn append(list: *mut *mut PcapDevice, groups: &[(String, String)]) {
    let mut end = list;
    loop {
        // SAFETY: the caller's guarantee, or the previous round.
        let device = unsafe { *end };
        if device.is_null() {
            break;
        }
        // SAFETY: not null, so a device.
        end = unsafe { &raw mut (*device).next };
    }
    for (name, description) in groups {
        let device = Box::into_raw(Box::new(PcapDevice {
            next: ptr::null_mut(),
            name: c_text(name).into_raw(),
            description: c_text(description).into_raw(),
            addresses: ptr::null_mut(),
            flags: DEVICE_UP | DEVICE_RUNNING | DEVICE_CONNECTION_NOT_APPLICABLE,
        }));
        own_devices().insert(device.addr());
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
pub unsafe extern "C" fn pcap_freealldevs(list: *mut PcapDevice) {
    guarded((), || {
        let mut head = list;
        let mut end = &raw mut head;
        loop {
            // SAFETY: a list that `pcap_findalldevs` made, by libpcap's manual.
            let device = unsafe { *end };
            if device.is_null() {
                break;
            }
            if !own_devices().remove(&device.addr()) {
                // SAFETY: not null, so a device.
                end = unsafe { &raw mut (*device).next };
                continue;
            }
            // SAFETY: allocated here, and freed once: the line above removes its address.
            let device = unsafe { Box::from_raw(device) };
            // SAFETY: a device before, or our own variable.
            unsafe { end.write(device.next) };
            for text in [device.name, device.description] {
                // SAFETY: made by `into_raw` together with the device.
                drop(unsafe { CString::from_raw(text) });
            }
        }
        if let (false, Ok(functions)) = (head.is_null(), real::functions()) {
            // SAFETY: the rest of the list is the library's own.
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
                unsafe { text::give(errbuf, &why.to_string()) };
                return ERROR;
            }
        };
        let interface = match Route::for_device(name.as_deref(), None) {
            Ok(Route::Ringtap(of)) if of.kind.names_an_interface() => Some(c_text(&of.name)),
            Ok(Route::Ringtap(_)) => {
                // libpcap, too, returns 0 for a device that is not an interface ("any").
                for place in [net, mask].into_iter().filter(|place| !place.is_null()) {
                    // SAFETY: not null; a place for a number, by libpcap's manual.
                    unsafe { place.write(0) };
                }
                return 0;
            }
            Ok(Route::Interface(_) | Route::Libpcap) | Err(_) => None,
        };
        let device = interface.as_ref().map_or(device, |name| name.as_ptr());
        // SAFETY: our text or the caller's; the caller guarantees the rest.
        unsafe { (functions.pcap_lookupnet)(device, net, mask, errbuf) }
    })
}
