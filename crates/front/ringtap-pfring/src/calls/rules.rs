// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls for rules.
#![expect(
    clippy::missing_safety_doc,
    reason = "include/pfring.h and docs/pfring.md have the documentation"
)]

use std::ffi::{c_int, c_void};

use ringtap::{FlowAction, FlowId, FlowRule, ReaderRules};

use super::{PfRing, on};
use crate::error::RingError;
use crate::ring::RingState;
use crate::rules::{hardware_rule, hash_rule, wildcard_rule};
use crate::shared::RingCall;

/// The bytes of a structure of this size.
unsafe fn structure<const N: usize>(rule: *const c_void) -> Result<[u8; N], RingError> {
    if rule.is_null() {
        return Err(RingError::Argument);
    }
    // SAFETY: not null; a structure of this size, by the header. Bytes have no alignment.
    Ok(unsafe { rule.cast::<[u8; N]>().read() })
}

// Any thread may set rules while another receives: these wait for the hub without the ring's lock.
impl PfRing {
    /// Sets a rule that withholds the further packets of a flow.
    fn ignore(&self, number: Option<u16>, flow: FlowId) -> Result<(), RingError> {
        let rule = FlowRule {
            flow,
            action: FlowAction::Ignore,
            lasts_ns: None,
        };
        let control = self.locked(RingState::control)?;
        {
            let _inside = RingCall::enter().ok_or(RingError::Interrupted)?;
            ReaderRules::new(&*control).set(&[rule])?;
        }
        self.locked(|ring| {
            if let Some(number) = number {
                ring.set_number(number, flow);
            }
            Ok(())
        })
    }

    /// Removes the rule for a flow; `false` if there is none.
    fn heed(&self, flow: &FlowId) -> Result<bool, RingError> {
        let control = self.locked(|ring| {
            ring.forget(flow);
            ring.control()
        })?;
        let _inside = RingCall::enter().ok_or(RingError::Interrupted)?;
        Ok(ReaderRules::new(&*control).remove(&[*flow])? > 0)
    }
}

/// Adds or removes a rule that ignores a flow.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_handle_hash_filtering_rule(
    ring: *mut PfRing,
    rule: *mut c_void,
    add: u8,
) -> c_int {
    let work = |ring: &PfRing| {
        // SAFETY: NULL or a hash_filtering_rule, by the header.
        let flow = hash_rule(&unsafe { structure(rule) }?)?;
        if add != 0 {
            ring.ignore(None, flow)?;
        } else if !ring.heed(&flow)? {
            return Err(RingError::NoRule);
        }
        Ok(0)
    };
    // SAFETY: as for `on`.
    unsafe { on(ring, work) }
}

/// Adds a rule that names one flow in both directions, and ignores it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_add_filtering_rule(ring: *mut PfRing, rule: *mut c_void) -> c_int {
    let work = |ring: &PfRing| {
        // SAFETY: NULL or a filtering_rule, by the header.
        let (number, flow) = wildcard_rule(&unsafe { structure(rule) }?)?;
        ring.ignore(Some(number), flow)?;
        Ok(0)
    };
    // SAFETY: as for `on`.
    unsafe { on(ring, work) }
}

/// Removes the rule with this number, of `pfring_add_filtering_rule` or `pfring_add_hw_rule`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_remove_filtering_rule(ring: *mut PfRing, number: u16) -> c_int {
    let work = |ring: &PfRing| {
        let numbered = ring.locked(|ring| Ok(ring.numbered(number)))?;
        let flow = numbered.ok_or(RingError::NoRule)?;
        ring.heed(&flow).map(|_| 0)
    };
    // SAFETY: as for `on`.
    unsafe { on(ring, work) }
}

/// Adds a rule that drops a flow, given by its number (`PF_RING_FLOW_OFFLOAD`) or its addresses and ports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_add_hw_rule(ring: *mut PfRing, rule: *mut c_void) -> c_int {
    let work = |ring: &PfRing| {
        // SAFETY: NULL or a hw_filtering_rule, by the header.
        let bytes = unsafe { structure(rule) }?;
        let (number, flow) = ring.locked(|ring| hardware_rule(&bytes, ring.flow_names()))?;
        ring.ignore(Some(number), flow)?;
        Ok(0)
    };
    // SAFETY: as for `on`.
    unsafe { on(ring, work) }
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
    unsafe { on(ring, |_| answer) }
}
