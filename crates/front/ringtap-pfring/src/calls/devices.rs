// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that list devices, and the other functions that ntop's example programs take from libpfring.
#![expect(
    clippy::missing_safety_doc,
    reason = "include/pfring.h and docs/pfring.md have the documentation"
)]

use std::ffi::{CString, c_char, c_int, c_long};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use ringtap_client::{Connection, default_socket};
use ringtap_net::interface::Interface;

/// A device of `pfring_findalldevs`.
#[repr(C)]
#[derive(Debug)]
pub struct RingDevice {
    name: *mut c_char,
    system_name: *mut c_char,
    module: *mut c_char,
    module_version: *mut c_char,
    serial_number: *mut c_char,
    mac: [u8; 6],
    bus_id: [c_int; 4],
    /// 1: up, 0: down, -1: unknown.
    status: c_int,
    license: c_int,
    license_expiration: c_long,
    next: *mut RingDevice,
}

fn allocated(text: &str) -> *mut c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

fn device(name: &str, mac: [u8; 6], status: c_int, next: *mut RingDevice) -> *mut RingDevice {
    Box::into_raw(Box::new(RingDevice {
        name: allocated(name),
        system_name: allocated(name),
        module: allocated("ringtap"),
        module_version: allocated(env!("CARGO_PKG_VERSION")),
        serial_number: ptr::null_mut(),
        mac,
        bus_id: [0; 4],
        status,
        license: 1,
        license_expiration: 0,
        next,
    }))
}

/// The groups of the running hub that this user may join, then the interfaces; NULL if there is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pfring_findalldevs() -> *mut RingDevice {
    let list = || {
        let mut list = ptr::null_mut();
        for one in Interface::list().unwrap_or_default().iter().rev() {
            let mac = one.mac.unwrap_or_default();
            list = device(&one.name, mac, c_int::from(one.is_up), list);
        }
        let hub = Connection::open(&default_socket(), "libpfring");
        let status = hub.ok().and_then(|hub| hub.status().ok());
        for group in status.iter().flat_map(|status| status.groups.iter().rev()) {
            list = device(&format!("hub:{}", group.name), [0; 6], 1, list);
        }
        list
    };
    catch_unwind(list).unwrap_or(ptr::null_mut())
}

/// Frees a list of `pfring_findalldevs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_freealldevs(mut list: *mut RingDevice) {
    while !list.is_null() {
        // SAFETY: made by `device`, and not used after this, by the header.
        let device = unsafe { Box::from_raw(list) };
        let texts = [
            device.name,
            device.system_name,
            device.module,
            device.module_version,
        ];
        for text in texts {
            // SAFETY: made by `allocated`.
            drop(unsafe { CString::from_raw(text) });
        }
        list = device.next;
    }
}

/// Seconds by which local time is ahead of UTC, at a time since 1970; 0: now.
#[unsafe(no_mangle)]
pub extern "C" fn gmt_to_local(time: c_long) -> i32 {
    let seconds = || {
        // SAFETY: takes no memory of ours.
        let now = unsafe { libc::time(ptr::null_mut()) };
        let time = if time == 0 { now } else { time };
        // SAFETY: a structure of numbers and a pointer, which may be zero.
        let mut local = unsafe { std::mem::zeroed::<libc::tm>() };
        // SAFETY: two valid structures.
        unsafe { libc::localtime_r(&raw const time, &raw mut local) };
        i32::try_from(local.tm_gmtoff).unwrap_or(0)
    };
    catch_unwind(AssertUnwindSafe(seconds)).unwrap_or(0)
}

/// Ringtap receives no events of sysdig: no number has a name.
#[unsafe(no_mangle)]
pub extern "C" fn sysdig_event2name(_: c_int) -> *const c_char {
    c"".as_ptr()
}
