// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds packets for the window of a handle, from which `border.c` gives them to the program: with
//! libpcap's header, cut, and copied to the handle's memory.
//!
//! Invariants
//! - A packet and its header stay valid until the next packet is read.
//! - Their addresses are the same for all packets, unless packets are read in place.
//! - A packet counts as delivered when the program has read it, not when it is in the window.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use ringtap_client::{Cursor, CursorPacket, ORDER_WINDOW, Receiver};
use ringtap_filter::Program;
use ringtap_ipc::environment;
use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::subscription::Wanted;
use ringtap_pool::format::flag;

use super::injector::Injector;
use crate::abi::{DIRECTION_IN, DIRECTION_INOUT, DIRECTION_OUT};
use crate::control::ReadControl;
use crate::error::LibpcapError;
use crate::helper;
use crate::settings::PcapSettings;
use crate::shared::PacketWindow;

/// A filter that the hub uses already.
pub(super) struct NewFilter {
    /// The filter in the hub's form.
    pub(super) filter: Program,
    pub(super) wanted: Vec<Wanted>,
    /// See [`PacketReader::cut`].
    pub(super) cut: Option<Program>,
}

/// Reads the packets of one capture.
pub(crate) struct PacketReader {
    pub(crate) cursor: Cursor,
    /// Program that returns the bytes to keep of a packet; absent if no packet is cut.
    cut: Option<Program>,
    /// Memory of the last packet; absent if packets are read in place.
    copy: Option<Box<[u8]>>,
    snap_bytes: u32,
    nanoseconds: bool,
    /// The packet of the window, if it was chosen alone.
    single: Box<Option<CursorPacket>>,
    /// Number of forks of the process when this process's waits were set up.
    forks: usize,
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
            copy: (!in_place).then(|| vec![0; copy_bytes].into_boxed_slice()),
            snap_bytes,
            nanoseconds: settings.nanoseconds(),
            single: Box::new(None),
            forks: helper::forks(),
        }
    }

    /// Prepares the handle's window and wake-up for this reader.
    pub(crate) fn begin(&mut self, control: &ReadControl) -> Result<(), LibpcapError> {
        let copy = self
            .copy
            .as_mut()
            .map_or(ptr::null_mut(), |copy| copy.as_mut_ptr());
        control
            .shared
            .window
            .begin(copy, self.snap_bytes, self.nanoseconds);
        self.listen(control)
    }

    fn listen(&self, control: &ReadControl) -> Result<(), LibpcapError> {
        let opened = control.wakeup.open();
        opened.map_err(|error| LibpcapError::general(format!("no descriptor: {error}")))?;
        let listened = control.wakeup.with(|fd| self.cursor.listen(fd));
        Ok(listened.transpose().map(drop)?)
    }

    /// Separates the waits of this process from those of others that have copies of the handle.
    pub(super) fn follow_fork(&mut self, control: &ReadControl) -> Result<(), LibpcapError> {
        let forks = helper::forks();
        if forks != self.forks {
            self.forks = forks;
            self.cursor.renew_waits()?;
            self.listen(control)?;
        }
        Ok(())
    }

    /// Takes out the memory of the last packet.
    pub(crate) fn take_packet(&mut self) -> Option<Box<[u8]>> {
        self.copy.take()
    }

    /// Counts the packets of the window that the program has read, and empties the window.
    pub(crate) fn settle(&mut self, window: &PacketWindow) {
        for _ in 0..window.taken() {
            let _read = self.cursor.take_one();
        }
        window.show(&[], false);
    }

    /// Shows the waiting packets in the window; returns whether there are any. Leaves out packets in
    /// another direction, and those that the handle sent itself.
    pub(super) fn fill(
        &mut self,
        window: &PacketWindow,
        direction: c_int,
        injector: &Injector,
    ) -> bool {
        let must_finish = self.cursor.must_be_readable();
        if direction == DIRECTION_INOUT && !injector.has_sent() && self.cut.is_none() {
            window.show(self.cursor.rest(), must_finish);
            return !self.cursor.rest().is_empty();
        }
        *self.single = self.choose(direction, injector);
        window.show(self.single.as_slice(), must_finish);
        self.single.is_some()
    }

    /// The next packet for the program.
    fn choose(&mut self, direction: c_int, injector: &Injector) -> Option<CursorPacket> {
        loop {
            let packet = *self.cursor.rest().first()?;
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
            let own = || out && injector.sent(packet.time_ns, packet.wire_bytes, data);
            let kept = match &self.cut {
                _ if elsewhere || own() => 0,
                Some(program) => program.run(data, packet.wire_bytes),
                None => u32::MAX,
            };
            if kept > 0 {
                return Some(CursorPacket {
                    captured_bytes: kept.min(packet.captured_bytes),
                    ..packet
                });
            }
            let _left_out = self.cursor.take_one();
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
    let milliseconds =
        environment::variable("RINGTAP_IN_ORDER").and_then(|text| text.to_str()?.parse().ok());
    milliseconds.map_or(ORDER_WINDOW, Duration::from_millis)
}
