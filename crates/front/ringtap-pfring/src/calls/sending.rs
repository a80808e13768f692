// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that send.
#![expect(
    clippy::missing_safety_doc,
    reason = "include/pfring.h and docs/pfring.md have the documentation"
)]
#![expect(missing_docs, reason = "include/pfring.h has the documentation")]

use std::ffi::{c_char, c_int, c_uint};

use super::{PfRing, with};
use crate::error::RingError;
use crate::ring::RingState;

/// Sends at once, through the ring's interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_send(
    ring: *mut PfRing,
    packet: *mut c_char,
    bytes: c_uint,
    _flush: u8,
) -> c_int {
    let work = |ring: &mut RingState| {
        if packet.is_null() {
            return Err(RingError::Argument);
        }
        let length = ringtap_pool::number::to_usize(bytes);
        // SAFETY: not null; a packet of so many bytes, by the header.
        let frame = unsafe { std::slice::from_raw_parts(packet.cast::<u8>(), length) };
        let interface = ring.sends_through()?;
        ring.send(interface, frame)?;
        c_int::try_from(bytes).map_err(|_| RingError::Argument)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

/// `pfring_send` leaves nothing behind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_flush_tx_packets(ring: *mut PfRing) -> c_int {
    // SAFETY: as for `with`.
    unsafe { with(ring, |_| Ok(0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_send_last_rx_packet(ring: *mut PfRing, interface: c_int) -> c_int {
    let work = |ring: &mut RingState| {
        let interface = u32::try_from(interface).map_err(|_| RingError::Argument)?;
        let (data, bytes) = ring.last().ok_or(RingError::NoPacket)?;
        let length = ringtap_pool::number::to_usize(bytes);
        // SAFETY: the ring has not looked again since it found the packet.
        let frame = unsafe { std::slice::from_raw_parts(data, length) };
        ring.send(interface, frame)?;
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}
