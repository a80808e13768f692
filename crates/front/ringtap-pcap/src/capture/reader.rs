// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers packets as libpcap does: with libpcap's header, cut, and copied to the handle's memory.
//!
//! Only this file of the crate reads packets through the client library.
//!
//! Invariants
//! - A packet and its header stay valid until the next packet is read.
//! - Their addresses are the same for all packets, unless packets are read in place.

use std::ffi::c_int;
use std::time::Duration;

use ringtap_client::{Cursor, ORDER_WINDOW, Receiver};
use ringtap_filter::Program;
use ringtap_ipc::environment;
use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::subscription::Wanted;
use ringtap_pool::format::flag;

use super::injector::Injector;
use crate::abi::{DIRECTION_IN, DIRECTION_OUT, PacketHeader};
use crate::handle::PcapSettings;

/// A filter that the hub uses already.
pub(super) struct NewFilter {
    /// The filter in the hub's form.
    pub(super) filter: Program,
    pub(super) wanted: Vec<Wanted>,
    /// See [`PacketReader::cut`].
    pub(super) cut: Option<Program>,
}

/// Reads the packets of one capture.
pub(super) struct PacketReader {
    pub(super) cursor: Cursor,
    /// Program that returns the bytes to keep of a packet; absent if no packet is cut.
    cut: Option<Program>,
    snap_bytes: u32,
    nanoseconds: bool,
    /// The last packet; absent if packets are read in place.
    copy: Option<Box<[u8]>>,
    header: Box<PacketHeader>,
}

impl PacketReader {
    pub(super) fn new(receiver: Receiver, settings: &PcapSettings) -> Self {
        let snap_bytes = settings.snap_length();
        let copy_bytes = usize::try_from(snap_bytes).unwrap_or(0);
        let in_place = environment::is_set("RINGTAP_IN_PLACE");
        PacketReader {
            cursor: Cursor::new(match order_window() {
                Duration::ZERO => receiver,
                window => receiver.in_order(window),
            }),
            cut: None,
            snap_bytes,
            nanoseconds: settings.nanoseconds(),
            copy: (!in_place).then(|| vec![0; copy_bytes].into_boxed_slice()),
            header: Box::new(PacketHeader {
                time: time(0, false),
                captured_bytes: 0,
                wire_bytes: 0,
            }),
        }
    }

    /// The next waiting packet and its header. Skips packets in another direction, and those that the
    /// handle sent itself.
    #[inline]
    pub(super) fn next(
        &mut self,
        direction: c_int,
        injector: &Injector,
    ) -> Option<(*mut PacketHeader, *const u8)> {
        loop {
            let packet = *self.cursor.take_one()?;
            let bytes = usize::try_from(packet.captured_bytes).unwrap_or(0);
            // SAFETY: the cursor just returned this address and length. It keeps the packet's batch
            // until its next `look`, after the last use of `data`; no one writes there.
            let data = unsafe { std::slice::from_raw_parts(packet.data, bytes) };
            let out = packet.flags & u16::from(flag::OUT) != 0;
            let elsewhere = match direction {
                DIRECTION_IN => out,
                DIRECTION_OUT => !out,
                _ => false,
            };
            if elsewhere || (out && injector.sent(packet.time_ns, packet.wire_bytes, data)) {
                continue;
            }
            let kept = match &self.cut {
                Some(program) => program.run(data, packet.wire_bytes),
                None => packet.captured_bytes,
            };
            let captured_bytes = kept.min(packet.captured_bytes).min(self.snap_bytes);
            if captured_bytes == 0 && packet.captured_bytes > 0 {
                continue;
            }
            *self.header = PacketHeader {
                time: time(packet.time_ns, self.nanoseconds),
                captured_bytes,
                wire_bytes: packet.wire_bytes,
            };
            let data = &data[..usize::try_from(captured_bytes).unwrap_or(0)];
            let delivered = match &mut self.copy {
                Some(copy) => {
                    copy[..data.len()].copy_from_slice(data);
                    copy.as_mut_ptr().cast_const()
                }
                None => data.as_ptr(),
            };
            return Some((&raw mut *self.header, delivered));
        }
    }

    /// Applies a new filter to all packets that are not delivered yet.
    pub(super) fn adopt(&mut self, new: NewFilter) {
        self.cursor.adopt(&new.filter, &new.wanted);
        self.cut = new.cut;
    }

    /// Whether the descriptor is in use, and readable.
    pub(super) fn is_readable(&self) -> bool {
        let fd = self.cursor.watched();
        let readable = fd.map(|fd| sleep_until_readable(&[fd], Some(Duration::ZERO)));
        matches!(readable, Some(Ok(true)))
    }
}

/// Longest time that a packet is held back for earlier ones: `RINGTAP_IN_ORDER` in milliseconds.
fn order_window() -> Duration {
    let milliseconds = environment::variable("RINGTAP_IN_ORDER");
    let milliseconds = milliseconds.and_then(|text| text.to_str()?.parse().ok());
    milliseconds.map_or(ORDER_WINDOW, Duration::from_millis)
}

/// A time in libpcap's form.
#[inline]
fn time(time_ns: u64, nanoseconds: bool) -> libc::timeval {
    let fraction = time_ns % 1_000_000_000;
    let fraction = match nanoseconds {
        true => fraction,
        false => fraction / 1000,
    };
    libc::timeval {
        tv_sec: libc::time_t::try_from(time_ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_usec: libc::suseconds_t::try_from(fraction).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_the_unit_that_was_set() {
        let (micro, nano) = (
            time(5_123_456_789_012, false),
            time(5_123_456_789_012, true),
        );
        assert_eq!((micro.tv_sec, micro.tv_usec), (5123, 456_789));
        assert_eq!((nano.tv_sec, nano.tv_usec), (5123, 456_789_012));
    }
}
