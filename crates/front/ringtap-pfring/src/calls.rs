// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of `include/pfring.h`.
//!
//! Invariants
//! - Every pointer is checked for null; a ring is one that `pfring_open` returned and that is not closed.
#![expect(
    clippy::missing_safety_doc,
    reason = "include/pfring.h and docs/pfring.md have the documentation"
)]
#![expect(missing_docs, reason = "include/pfring.h has the documentation")]

pub mod facts;
pub mod refused;
pub mod rules;
pub mod sending;
pub mod texts;

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ringtap::{CursorPacket, Deadline, Look, flag};

use crate::abi::{
    self, BurstPacket, ERROR_GENERIC, OPEN_DO_NOT_PARSE, OPEN_FLOW_OFFLOAD, OPEN_LONG_HEADER,
    RECV_BURST, RING_BYTES, RingPacketHeader, RingParsedPacket, RingStatistics,
};
use crate::error::RingError;
use crate::parse::parse;
use crate::ring::{RingDirection, RingState};

/// A ring. Programs read fields of its first part, whose layout is PF_RING's.
#[repr(C)]
pub struct PfRing {
    visible: [usize; RING_BYTES / 8],
    /// Apart from the state, which another thread may use meanwhile.
    stops: Arc<AtomicBool>,
    state: RingState,
}

type Looper = unsafe extern "C" fn(*const RingPacketHeader, *const u8, *const u8);

/// Runs `work` on a ring; an error or a panic becomes its number.
unsafe fn with(
    ring: *mut PfRing,
    work: impl FnOnce(&mut RingState) -> Result<c_int, RingError>,
) -> c_int {
    if ring.is_null() {
        return RingError::Argument.code();
    }
    // SAFETY: an open ring, by the header.
    let state = unsafe { &raw mut (*ring).state };
    // SAFETY: as above; one thread at a time uses a ring's state.
    let state = unsafe { &mut *state };
    let outcome = catch_unwind(AssertUnwindSafe(|| work(state)));
    outcome.map_or(ERROR_GENERIC, |done| {
        done.unwrap_or_else(|error| error.code())
    })
}

unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, RingError> {
    if text.is_null() {
        return Err(RingError::Argument);
    }
    // SAFETY: not null; a text that ends with NUL, by the header.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| RingError::Argument)
}

fn deadline(wait: u8) -> Deadline {
    if wait == 0 {
        Deadline::Now
    } else {
        Deadline::Never
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_open(
    device: *const c_char,
    caplen: u32,
    flags: u32,
) -> *mut PfRing {
    let parses = flags & OPEN_LONG_HEADER != 0 && flags & OPEN_DO_NOT_PARSE == 0;
    let numbers_flows = flags & OPEN_FLOW_OFFLOAD != 0;
    let opened = catch_unwind(|| {
        // SAFETY: NULL or a text, by the header.
        RingState::open(unsafe { text(device) }?, caplen, parses, numbers_flows)
    });
    match opened {
        Ok(Ok(state)) => {
            let mut visible = [0; RING_BYTES / 8];
            visible[RECV_BURST / 8] = pfring_recv_burst as *const () as usize;
            let stops = state.stop_flag();
            Box::into_raw(Box::new(PfRing {
                visible,
                stops,
                state,
            }))
        }
        _ => {
            // SAFETY: takes nothing.
            let number = unsafe { libc::__errno_location() };
            // SAFETY: this thread's error number.
            unsafe { number.write(libc::ENODEV) };
            ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_close(ring: *mut PfRing) {
    if !ring.is_null() {
        // SAFETY: made by `pfring_open`, and not used after this, by the header.
        let ring = unsafe { Box::from_raw(ring) };
        let _panicked = catch_unwind(AssertUnwindSafe(|| drop(ring)));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_enable_ring(ring: *mut PfRing) -> c_int {
    // SAFETY: as for `with`.
    unsafe { with(ring, |ring| ring.enable().map(|()| 0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_breakloop(ring: *mut PfRing) {
    if !ring.is_null() {
        // SAFETY: an open ring, by the header.
        let stops = unsafe { &raw const (*ring).stops };
        // SAFETY: as above; the flag is never replaced.
        unsafe { &*stops }.store(true, Relaxed);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_shutdown(ring: *mut PfRing) {
    // SAFETY: as for `pfring_breakloop`.
    unsafe { pfring_breakloop(ring) };
}

/// The packet's captured bytes.
///
/// # Safety
///
/// The ring has not looked again since it found the packet.
unsafe fn bytes_of<'a>(packet: &CursorPacket, caplen: u32) -> &'a [u8] {
    let bytes = ringtap_pool::number::to_usize(caplen.min(packet.captured_bytes));
    // SAFETY: the packet has at least so many bytes, by the contract above.
    unsafe { std::slice::from_raw_parts(packet.data, bytes) }
}

/// The header of a packet that was just found.
fn header(packet: &CursorPacket, caplen: u32, level: u8) -> RingPacketHeader {
    let parsed = if level == 0 {
        RingParsedPacket::NONE
    } else {
        // SAFETY: the packet was just found.
        parse(unsafe { bytes_of(packet, caplen) }, level).0
    };
    let is_sent = packet.flags & u16::from(flag::OUT) != 0;
    RingPacketHeader {
        seconds: seconds(packet),
        microseconds: microseconds(packet),
        caplen,
        len: packet.wire_bytes,
        timestamp_ns: packet.time_ns,
        flags: 0,
        rx_direction: u8::from(!is_sent),
        port_id: 0,
        device_id: 0,
        if_index: -1,
        pkt_hash: packet.hash,
        tx: [0; 16],
        process: 0,
        parsed,
    }
}

fn seconds(packet: &CursorPacket) -> i64 {
    i64::try_from(packet.time_ns / 1_000_000_000).unwrap_or(i64::MAX)
}

fn microseconds(packet: &CursorPacket) -> i64 {
    i64::try_from(packet.time_ns % 1_000_000_000 / 1000).unwrap_or(0)
}

/// Receives a packet, with the part of its header parsed up to `level`, or as the ring parses.
unsafe fn receive(
    ring: *mut PfRing,
    buffer: *mut *mut u8,
    buffer_bytes: c_uint,
    to: *mut RingPacketHeader,
    wait: u8,
    level: Option<u8>,
) -> c_int {
    let work = |ring: &mut RingState| {
        if buffer.is_null() || to.is_null() {
            return Err(RingError::Argument);
        }
        let Some(packet) = ring.next(deadline(wait))? else {
            return Ok(0);
        };
        let mut caplen = packet.captured_bytes.min(ring.caplen);
        if buffer_bytes == 0 {
            // SAFETY: not null; a place for a pointer, by the header.
            unsafe { buffer.write(packet.data.cast_mut()) };
        } else {
            caplen = caplen.min(buffer_bytes);
            let bytes = ringtap_pool::number::to_usize(caplen);
            // SAFETY: not null; a pointer to `buffer_bytes` bytes, by the header.
            let place = unsafe { buffer.read() };
            // SAFETY: as above; the packet has at least so many bytes until the next look.
            unsafe { ptr::copy_nonoverlapping(packet.data, place, bytes) };
        }
        let header = header(&packet, caplen, level.unwrap_or(ring.level()));
        // SAFETY: not null; a header, perhaps not aligned.
        unsafe { to.write_unaligned(header) };
        Ok(1)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_recv(
    ring: *mut PfRing,
    buffer: *mut *mut u8,
    buffer_bytes: c_uint,
    to: *mut RingPacketHeader,
    wait: u8,
) -> c_int {
    // SAFETY: as for `receive`.
    unsafe { receive(ring, buffer, buffer_bytes, to, wait, None) }
}

/// Times and hashes are always there, whatever the last two arguments are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_recv_parsed(
    ring: *mut PfRing,
    buffer: *mut *mut u8,
    buffer_bytes: c_uint,
    to: *mut RingPacketHeader,
    wait: u8,
    level: u8,
    _add_timestamp: u8,
    _add_hash: u8,
) -> c_int {
    // SAFETY: as for `receive`.
    unsafe { receive(ring, buffer, buffer_bytes, to, wait, Some(level)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_recv_burst(
    ring: *mut PfRing,
    packets: *mut BurstPacket,
    most: u8,
    wait: u8,
) -> c_int {
    let work = |ring: &mut RingState| {
        if packets.is_null() {
            return Err(RingError::Argument);
        }
        let mut next = if most == 0 {
            None
        } else {
            ring.next(deadline(wait))?
        };
        let mut count = 0;
        while let Some(packet) = next {
            let short = |bytes: u32| u16::try_from(bytes).unwrap_or(u16::MAX);
            let one = BurstPacket {
                data: packet.data,
                seconds: seconds(&packet),
                microseconds: microseconds(&packet),
                caplen: short(packet.captured_bytes.min(ring.caplen)),
                len: short(packet.wire_bytes),
                flags: 0,
                hash: packet.hash,
            };
            // SAFETY: not null; `most` places, by the header.
            let place = unsafe { packets.add(usize::from(count)) };
            // SAFETY: as above.
            unsafe { place.write(one) };
            count += 1;
            next = if count < most { ring.take() } else { None };
        }
        Ok(c_int::from(count))
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_loop(
    ring: *mut PfRing,
    looper: Option<Looper>,
    user: *const u8,
    wait: u8,
) -> c_int {
    let Some(looper) = looper else {
        return RingError::Argument.code();
    };
    loop {
        let (mut packet, mut level) = (None, 0);
        // SAFETY: as for `with`; the ring is not borrowed while the program's function runs.
        let code = unsafe {
            with(ring, |ring| {
                level = ring.level();
                packet = ring.next(deadline(wait))?.map(|one| CursorPacket {
                    captured_bytes: one.captured_bytes.min(ring.caplen),
                    ..one
                });
                Ok(c_int::from(ring.has_stopped()))
            })
        };
        if code < 0 {
            return code;
        }
        if let Some(packet) = packet {
            let header = header(&packet, packet.captured_bytes, level);
            // SAFETY: the program's function; the packet is readable until the next look.
            unsafe { looper(&raw const header, packet.data, user) };
        }
        if code > 0 {
            return 0;
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_poll(ring: *mut PfRing, wait_ms: c_uint) -> c_int {
    let deadline = match wait_ms {
        0 => Deadline::Now,
        c_uint::MAX => Deadline::Never,
        ms => Deadline::At(Instant::now() + Duration::from_millis(ms.into())),
    };
    let work = |ring: &mut RingState| Ok(c_int::from(ring.wait(deadline)? == Look::Packets));
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_get_selectable_fd(ring: *mut PfRing) -> c_int {
    // SAFETY: as for `with`.
    unsafe { with(ring, RingState::fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_stats(ring: *mut PfRing, to: *mut RingStatistics) -> c_int {
    let work = |ring: &mut RingState| {
        if to.is_null() {
            return Err(RingError::Argument);
        }
        let statistics = ring.statistics()?;
        // SAFETY: not null; a place for counters, by the header.
        unsafe { to.write(statistics) };
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_bpf_filter(ring: *mut PfRing, filter: *const c_char) -> c_int {
    // SAFETY: NULL or a text, by the header.
    let filter = unsafe { text(filter) };
    // SAFETY: as for `with`.
    unsafe { with(ring, |ring| ring.set_filter(filter?).map(|()| 0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_remove_bpf_filter(ring: *mut PfRing) -> c_int {
    // SAFETY: as for `with`.
    unsafe { with(ring, |ring| ring.set_filter("").map(|()| 0)) }
}

/// The group divides the packets: the hub's `-g NAME:flow`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_cluster(
    ring: *mut PfRing,
    _cluster: c_uint,
    _kind: c_int,
) -> c_int {
    // SAFETY: as for `with`.
    unsafe { with(ring, |_| Ok(0)) }
}

/// A ring leaves its group when it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_remove_from_cluster(ring: *mut PfRing) -> c_int {
    // SAFETY: as for `with`.
    unsafe { with(ring, |_| Ok(0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_direction(ring: *mut PfRing, direction: c_int) -> c_int {
    let work = |ring: &mut RingState| {
        ring.direction = match direction {
            0 => RingDirection::Both,
            1 => RingDirection::Received,
            2 => RingDirection::Sent,
            _ => return Err(RingError::Argument),
        };
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

/// Modes 0 to 2 change nothing: a ring receives once it is enabled, and sends at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_socket_mode(ring: *mut PfRing, mode: c_int) -> c_int {
    let work = |_: &mut RingState| match mode {
        0..=2 => Ok(0),
        _ => Err(RingError::Unsupported),
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_poll_watermark(ring: *mut PfRing, packets: u16) -> c_int {
    let work = |ring: &mut RingState| {
        ring.watermark = packets;
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_application_name(
    ring: *mut PfRing,
    name: *const c_char,
) -> c_int {
    let work = |ring: &mut RingState| {
        // SAFETY: NULL or a text, by the header.
        unsafe { text(name) }?.clone_into(&mut ring.name);
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_version(ring: *mut PfRing, version: *mut u32) -> c_int {
    if version.is_null() {
        return RingError::Argument.code();
    }
    // SAFETY: not null; a place for a number, by the header.
    unsafe { version.write(abi::VERSION) };
    // SAFETY: as for `with`.
    unsafe { with(ring, |_| Ok(0)) }
}
