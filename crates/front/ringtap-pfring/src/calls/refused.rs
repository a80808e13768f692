// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that this library refuses: what they ask for belongs to the hub, or to PF_RING's own drivers.
#![expect(
    clippy::missing_safety_doc,
    reason = "include/pfring.h and docs/pfring.md have the documentation"
)]
#![expect(missing_docs, reason = "include/pfring.h has the documentation")]

use std::ffi::{c_char, c_int, c_short, c_uint, c_void};

use super::PfRing;
use crate::abi::ERROR_NOT_SUPPORTED;

/// Functions that answer `PF_RING_ERROR_NOT_SUPPORTED`.
macro_rules! refused {
    ($($name:ident($($argument:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(_: *mut PfRing $(, _: $argument)*) -> c_int {
            ERROR_NOT_SUPPORTED
        }
    )*};
}

refused! {
    pfring_recv_chunk(*mut *mut c_void, *mut c_void, u8);
    pfring_set_default_hw_action(c_int);
    pfring_set_reflector_device(*mut c_char);
    pfring_set_application_stats(*mut c_char);
    pfring_set_device_clock(*mut c_void);
    pfring_enable_rss_rehash();
    pfring_set_sampling_rate(u32);
}

/// The library waits as long as a program asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_poll_duration(_: *mut PfRing, _: c_uint) -> c_int {
    0
}

/// Packets are sent at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_tx_watermark(_: *mut PfRing, _: u16) -> c_int {
    0
}

/// The kernel chooses the processors.
#[unsafe(no_mangle)]
pub extern "C" fn pfring_config(_: c_short) {}

/// There is no file of statistics: `ringtap status` has them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_get_appl_stats_file_name(
    _: *mut PfRing,
    _: *mut c_char,
    _: c_uint,
) -> *mut c_char {
    std::ptr::null_mut()
}
