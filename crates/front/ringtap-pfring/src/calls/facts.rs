// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that tell about a ring's interface.
#![expect(
    clippy::missing_safety_doc,
    reason = "include/pfring.h and docs/pfring.md have the documentation"
)]
#![expect(missing_docs, reason = "include/pfring.h has the documentation")]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringtap_net::interface::Interface;

use super::{PfRing, with};
use crate::error::RingError;
use crate::ring::RingState;

unsafe fn interface_of(
    ring: *mut PfRing,
    tell: impl FnOnce(Interface) -> Result<c_int, RingError>,
) -> c_int {
    // SAFETY: as for `with`.
    unsafe { with(ring, |ring: &mut RingState| tell(ring.interface()?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_get_mtu_size(ring: *mut PfRing) -> c_int {
    let mtu = |interface: Interface| {
        c_int::try_from(interface.mtu_bytes).map_err(|_| RingError::NoInterface)
    };
    // SAFETY: as for `with`.
    unsafe { interface_of(ring, mtu) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_get_bound_device_ifindex(
    ring: *mut PfRing,
    to: *mut c_int,
) -> c_int {
    let index = |interface: Interface| {
        if to.is_null() {
            return Err(RingError::Argument);
        }
        let index = c_int::try_from(interface.index).map_err(|_| RingError::NoInterface)?;
        // SAFETY: not null; a place for a number, by the header.
        unsafe { to.write(index) };
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { interface_of(ring, index) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_get_bound_device_address(ring: *mut PfRing, to: *mut u8) -> c_int {
    let address = |interface: Interface| {
        if to.is_null() {
            return Err(RingError::Argument);
        }
        let mac = interface.mac.ok_or(RingError::NoInterface)?;
        // SAFETY: not null; a place for six bytes, by the header.
        unsafe { to.cast::<[u8; 6]>().write(mac) };
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { interface_of(ring, address) }
}

/// 1 for a ring without an interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_get_num_rx_channels(ring: *mut PfRing) -> u8 {
    let channels = |interface: Interface| {
        Ok(c_int::from(
            u8::try_from(interface.rx_queue_count).unwrap_or(u8::MAX),
        ))
    };
    // SAFETY: as for `with`.
    let told = unsafe { interface_of(ring, channels) };
    u8::try_from(told).unwrap_or(0).max(1)
}

/// In Mbit/s; 0 if it is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_get_interface_speed(ring: *mut PfRing) -> u32 {
    let mut speed = 0;
    let work = |interface: Interface| {
        let path = format!("/sys/class/net/{}/speed", interface.name);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        speed = text.trim().parse().unwrap_or(0);
        Ok(0)
    };
    // SAFETY: as for `with`.
    let _told = unsafe { interface_of(ring, work) };
    speed
}

/// The number of an interface, by its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_get_device_ifindex(
    ring: *mut PfRing,
    name: *mut std::ffi::c_char,
    to: *mut c_int,
) -> c_int {
    let work = |_: &mut RingState| {
        // SAFETY: NULL or a text, by the header.
        let found = Interface::find(unsafe { super::text(name) }?)?;
        if to.is_null() {
            return Err(RingError::Argument);
        }
        let index = c_int::try_from(found.index).map_err(|_| RingError::NoInterface)?;
        // SAFETY: not null; a place for a number, by the header.
        unsafe { to.write(index) };
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

/// Always up to now: the ring's counters are read when `pfring_stats` is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_version_noring(version: *mut u32) {
    let _panicked = catch_unwind(AssertUnwindSafe(|| {
        if !version.is_null() {
            // SAFETY: not null; a place for a number, by the header.
            unsafe { version.write(crate::abi::VERSION) };
        }
    }));
}
