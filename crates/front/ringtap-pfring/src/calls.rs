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

pub mod devices;
pub mod facts;
pub mod refused;
pub mod rules;
pub mod sending;
pub mod texts;

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringtap::{CursorPacket, Deadline, flag};
use ringtap_client::OutsideWait;
use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::mutex::lock;

use crate::abi::{
    self, BurstPacket, ERROR_GENERIC, MAX_CLUSTER_QUEUES, OPEN_DO_NOT_PARSE, OPEN_FLOW_OFFLOAD,
    OPEN_LONG_HEADER, RECV_BURST, RING_BYTES, RingPacketHeader, RingParsedPacket, RingStatistics,
};
use crate::error::RingError;
use crate::parse::parse;
use crate::ring::{RingDirection, RingMode, RingState, RingStep};
use crate::shared::{RingCall, RingSignals};

/// Longest wait before a ring looks whether `pfring_breakloop` was called, from a signal handler too.
const STEP: Duration = Duration::from_millis(100);

/// A ring. Programs read fields of its first part, whose layout is PF_RING's.
#[repr(C)]
pub struct PfRing {
    visible: [usize; RING_BYTES / 8],
    signals: Arc<RingSignals>,
    state: Mutex<RingState>,
}

type Looper = unsafe extern "C" fn(*const RingPacketHeader, *const u8, *const u8);

/// An error's number; a panic becomes one, too.
fn answer(work: impl FnOnce() -> Result<c_int, RingError>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    outcome.map_or(ERROR_GENERIC, |done| {
        done.unwrap_or_else(|error| error.code())
    })
}

/// Runs `work` on a ring; an error or a panic becomes its number.
unsafe fn with(
    ring: *mut PfRing,
    work: impl FnOnce(&mut RingState) -> Result<c_int, RingError>,
) -> c_int {
    // SAFETY: NULL or an open ring, by the header.
    unsafe { on(ring, |ring| ring.locked(work)) }
}

/// Runs `work` on a ring without its lock.
unsafe fn on(ring: *mut PfRing, work: impl FnOnce(&PfRing) -> Result<c_int, RingError>) -> c_int {
    // SAFETY: NULL or an open ring, by the header.
    let Some(ring) = (unsafe { ring.as_ref() }) else {
        return RingError::Argument.code();
    };
    answer(|| work(ring))
}

impl PfRing {
    /// Runs `work` under the ring's lock.
    fn locked<T>(
        &self,
        work: impl FnOnce(&mut RingState) -> Result<T, RingError>,
    ) -> Result<T, RingError> {
        let _inside = RingCall::enter().ok_or(RingError::Interrupted)?;
        work(&mut lock(&self.state))
    }

    /// Looks for packets and gives them to `take`, until it returns something, the deadline or a stop. Waits without
    /// the lock.
    fn receive<T>(
        &self,
        deadline: Deadline,
        mut take: impl FnMut(&mut RingState) -> Result<Option<T>, RingError>,
    ) -> Result<Option<T>, RingError> {
        loop {
            let step = self.locked(|ring| {
                let step = ring.step(deadline)?;
                match step {
                    RingStep::Packets => take(ring).map(|taken| (step, taken)),
                    _ => Ok((step, None)),
                }
            })?;
            match step {
                (_, Some(taken)) => return Ok(Some(taken)),
                (RingStep::Packets, None) => {}
                (RingStep::Empty, None) => return Ok(None),
                (RingStep::Wait(wait), None) => pause(&wait)?,
            }
        }
    }
}

fn pause(wait: &OutsideWait) -> Result<(), RingError> {
    let at_most = wait.at_most.map_or(STEP, |time| time.min(STEP));
    match wait.fd {
        None => std::thread::sleep(at_most),
        Some(fd) => {
            // SAFETY: the ring's descriptor; the program closes no ring that receives, by the header.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let _came = sleep_until_readable(&[fd], Some(at_most))?;
        }
    }
    Ok(())
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
            Box::into_raw(Box::new(PfRing {
                visible,
                signals: state.signals(),
                state: Mutex::new(state),
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
    // SAFETY: NULL or an open ring, by the header.
    if let Some(ring) = unsafe { ring.as_ref() } {
        ring.signals.stops.store(true, Relaxed);
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
    let take = |ring: &mut RingState| {
        let Some(packet) = ring.take() else {
            return Ok(None);
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
        Ok(Some(1))
    };
    let work = |ring: &PfRing| {
        if buffer.is_null() || to.is_null() {
            return Err(RingError::Argument);
        }
        Ok(ring.receive(deadline(wait), take)?.unwrap_or(0))
    };
    // SAFETY: as for `with`.
    unsafe { on(ring, work) }
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
    let take = |ring: &mut RingState| {
        let mut count = 0;
        while count < most
            && let Some(packet) = ring.take()
        {
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
        }
        Ok((count > 0).then_some(c_int::from(count)))
    };
    let work = |ring: &PfRing| match most {
        _ if packets.is_null() => Err(RingError::Argument),
        0 => Ok(0),
        _ => Ok(ring.receive(deadline(wait), take)?.unwrap_or(0)),
    };
    // SAFETY: as for `with`.
    unsafe { on(ring, work) }
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
        let mut found = None;
        let take = |ring: &mut RingState| {
            let packet = ring.take().map(|one| CursorPacket {
                captured_bytes: one.captured_bytes.min(ring.caplen),
                ..one
            });
            Ok(packet.map(|packet| (packet, ring.level())))
        };
        let work = |ring: &PfRing| {
            found = ring.receive(deadline(wait), take)?;
            Ok(c_int::from(ring.signals.stops.load(Relaxed)))
        };
        // SAFETY: as for `with`; the ring is not locked while the program's function runs.
        let code = unsafe { on(ring, work) };
        if code < 0 {
            return code;
        }
        if let Some((packet, level)) = found {
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
    let work = |ring: &PfRing| {
        let found = ring.receive(deadline, |_| Ok(Some(1)))?;
        Ok(found.unwrap_or(0))
    };
    // SAFETY: as for `with`.
    unsafe { on(ring, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_get_selectable_fd(ring: *mut PfRing) -> c_int {
    // SAFETY: as for `with`.
    unsafe { with(ring, RingState::fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_stats(ring: *mut PfRing, to: *mut RingStatistics) -> c_int {
    let work = |ring: &PfRing| {
        if to.is_null() {
            return Err(RingError::Argument);
        }
        let statistics = match ring.locked(RingState::count) {
            Ok(()) => ring.signals.known(),
            Err(RingError::Interrupted) => ring.signals.known_in_handler(),
            Err(error) => return Err(error),
        };
        // SAFETY: not null; a place for counters, by the header.
        unsafe { to.write(statistics) };
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { on(ring, work) }
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

/// Whatever the kind is, the group's balance divides the packets; without one, a cluster has one ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_cluster(
    ring: *mut PfRing,
    cluster: c_uint,
    _kind: c_int,
) -> c_int {
    // SAFETY: as for `with`.
    unsafe { with(ring, |ring| ring.join(cluster).map(|()| 0)) }
}

/// As `pfring_set_cluster`; the hub chooses the queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_cluster_consumer(
    ring: *mut PfRing,
    cluster: u16,
    queue: u16,
    kind: c_int,
    _options: u32,
) -> c_int {
    if queue < MAX_CLUSTER_QUEUES {
        return RingError::Unsupported.code();
    }
    // SAFETY: as for `with`.
    unsafe { pfring_set_cluster(ring, cluster.into(), kind) }
}

/// A ring leaves its group when it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_remove_from_cluster(ring: *mut PfRing) -> c_int {
    let work = |ring: &mut RingState| {
        ring.leave();
        Ok(0)
    };
    // SAFETY: as for `with`.
    unsafe { with(ring, work) }
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

/// A ring that only sends does not receive when it is enabled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pfring_set_socket_mode(ring: *mut PfRing, mode: c_int) -> c_int {
    let work = |ring: &mut RingState| {
        ring.mode = match mode {
            0 => RingMode::SendAndReceive,
            1 => RingMode::Send,
            2 => RingMode::Receive,
            _ => return Err(RingError::Unsupported),
        };
        Ok(0)
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
