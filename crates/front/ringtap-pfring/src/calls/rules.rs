// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls for rules.
#![expect(
    clippy::missing_safety_doc,
    reason = "include/pfring.h and docs/pfring.md have the documentation"
)]

use std::ffi::{c_int, c_void};

use super::{PfRing, with};
use crate::error::RingError;
use crate::ring::RingState;
use crate::rules::{hardware_rule, hash_rule, wildcard_rule};

/// The bytes of a structure of this size.
unsafe fn structure<const N: usize>(rule: *const c_void) -> Result<[u8; N], RingError> {
    if rule.is_null() {
        return Err(RingError::Argument);
    }
    // SAFETY: not null; a structure of this size, by the header. Bytes have no alignment.
    Ok(unsafe { rule.cast::<[u8; N]>().read() })
}

/// Adds or removes a rule that ignores a flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_handle_hash_filtering_rule(
    ring: *mut PfRing,
    rule: *mut c_void,
    add: u8,
) -> c_int {
    let work = |ring: &mut RingState| {
        // SAFETY: NULL or a hash_filtering_rule, by the header.
        let flow = hash_rule(&unsafe { structure(rule) }?)?;
        if add != 0 {
            ring.ignore(None, flow)?;
        } else if !ring.heed(&flow)? {
            return Err(RingError::NoRule);
        }
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

/// Adds a rule that names one flow in both directions, and ignores it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_add_filtering_rule(ring: *mut PfRing, rule: *mut c_void) -> c_int {
    let work = |ring: &mut RingState| {
        // SAFETY: NULL or a filtering_rule, by the header.
        let (number, flow) = wildcard_rule(&unsafe { structure(rule) }?)?;
        ring.ignore(Some(number), flow)?;
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

/// Removes the rule with this number, of `pfring_add_filtering_rule` or `pfring_add_hw_rule`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_remove_filtering_rule(ring: *mut PfRing, number: u16) -> c_int {
    let work = |ring: &mut RingState| {
        let flow = ring.numbered(number).ok_or(RingError::NoRule)?;
        ring.heed(&flow).map(|_| 0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

/// Adds a rule that drops a flow, given by its number (`PF_RING_FLOW_OFFLOAD`) or its addresses and ports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_add_hw_rule(ring: *mut PfRing, rule: *mut c_void) -> c_int {
    let work = |ring: &mut RingState| {
        // SAFETY: NULL or a hw_filtering_rule, by the header.
        let bytes = unsafe { structure(rule) }?;
        let (number, flow) = hardware_rule(&bytes, ring.flow_names())?;
        ring.ignore(Some(number), flow)?;
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_remove_hw_rule(ring: *mut PfRing, number: u16) -> c_int {
    // SAFETY: as for `pfring_remove_filtering_rule`.
    unsafe { pfring_remove_filtering_rule(ring, number) }
}

/// Packets without a rule are received: 1 is the only policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_toggle_filtering_policy(ring: *mut PfRing, accepts: u8) -> c_int {
    let answer = if accepts == 1 {
        Ok(0)
    } else {
        Err(RingError::Unsupported)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, |_| answer) }
}
