// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records only around events: packets before each event, held in memory until then, and after it.
//!
//! Invariants
//! - Held packets use at most the given number of bytes; the oldest ones go first.
//! - A packet is written once, even if several events want it.

use std::collections::VecDeque;
use std::time::Duration;

use ringtap::Capture;
use ringtap_file::Format;
use ringtap_file::write::FilePacket;
use ringtap_filter::Program;
use ringtap_ipc::time::nanoseconds;
use ringtap_pool::number::to_u64;

use crate::error::WriteError;
use crate::note::Note;
use crate::options::EventOptions;
use crate::output::BUFFER_BYTES;
use crate::totals::PacketTotals;
use crate::writer::{FileNext, Writer, append};

/// Totals of a recording around events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTotals {
    /// Number of events.
    pub events: u64,
    /// Number of packets that were not written, because no event wanted them.
    pub packets_outside: u64,
}

/// Number of segments into which the time before an event is divided.
const SEGMENTS: u64 = 16;

/// Successive packets in the form of the file, held and dropped together.
struct Segment {
    bytes: Vec<u8>,
    first_ns: u64,
    last_ns: u64,
    totals: PacketTotals,
}

/// Decides which packets of a recording are written.
pub(crate) struct Events {
    trigger: Option<Program>,
    before_ns: u64,
    after_ns: u64,
    max_bytes: u64,
    segments: VecDeque<Segment>,
    held_bytes: u64,
    /// Time of the last packet.
    now_ns: u64,
    /// Packets up to this time belong to the last event.
    until_ns: Option<u64>,
    /// Whether memory, not time, ended the window.
    is_short: bool,
    events: u64,
    /// Packets that were dropped.
    left_out: PacketTotals,
}

impl Events {
    /// Decides by these options for the packets of this capture.
    ///
    /// # Errors
    ///
    /// The filter of events is not valid.
    pub(crate) fn new(options: &EventOptions, capture: &Capture) -> Result<Self, ringtap::Error> {
        let trigger = options
            .trigger
            .as_ref()
            .map(|filter| ringtap::compile(filter, capture.facts()));
        Ok(Events::with(options, trigger.transpose()?))
    }

    /// `trigger` passes packets that are events.
    pub(crate) fn with(options: &EventOptions, trigger: Option<Program>) -> Self {
        Self {
            trigger,
            before_ns: nanoseconds(options.before),
            after_ns: nanoseconds(options.after),
            max_bytes: options.max_bytes,
            segments: VecDeque::new(),
            held_bytes: 0,
            now_ns: 0,
            until_ns: None,
            is_short: false,
            events: 0,
            left_out: PacketTotals::default(),
        }
    }

    /// Writes the packet, or holds it until an event wants it.
    pub(crate) fn packet(
        &mut self,
        packet: &FilePacket<'_>,
        writer: &mut Writer,
    ) -> Result<FileNext, WriteError> {
        self.now_ns = self.now_ns.max(packet.time_ns);
        let trigger = self.trigger.as_ref();
        if trigger.is_some_and(|filter| filter.matches(packet.data, packet.wire_length)) {
            self.fire(writer)?;
        }
        if self.until_ns.is_some_and(|until| packet.time_ns <= until) {
            return writer.packet(packet);
        }
        self.hold(packet, writer.format());
        Ok(FileNext::Continue)
    }

    /// Begins an event, or extends the last one: writes all packets that are held.
    pub(crate) fn fire(&mut self, writer: &mut Writer) -> Result<(), WriteError> {
        if self.until_ns.is_none_or(|until| until < self.now_ns) {
            self.events += 1;
        }
        self.until_ns = Some(self.now_ns.saturating_add(self.after_ns));
        self.drop_old();
        if std::mem::take(&mut self.is_short) {
            let held_ns = self
                .segments
                .front()
                .map_or(0, |oldest| self.now_ns.saturating_sub(oldest.first_ns));
            writer.note(Note::ShortWindow {
                wanted: Duration::from_nanos(self.before_ns),
                held: Duration::from_nanos(held_ns),
            });
        }
        self.held_bytes = 0;
        for segment in self.segments.drain(..) {
            writer.append(&segment.bytes, segment.totals)?;
        }
        Ok(())
    }

    fn hold(&mut self, packet: &FilePacket<'_>, format: Format) {
        let max_ns = self.before_ns / SEGMENTS;
        let is_full = |last: &Segment| {
            last.bytes.len() + packet.data.len() + 1024 > BUFFER_BYTES
                || packet.time_ns.saturating_sub(last.first_ns) > max_ns
        };
        if self.segments.back().is_none_or(is_full) {
            self.segments.push_back(Segment {
                bytes: Vec::new(),
                first_ns: packet.time_ns,
                last_ns: packet.time_ns,
                totals: PacketTotals::default(),
            });
        }
        if let Some(last) = self.segments.back_mut() {
            let before = last.bytes.len();
            append(&mut last.bytes, packet, format);
            self.held_bytes += to_u64(last.bytes.len() - before);
            last.last_ns = last.last_ns.max(packet.time_ns);
            last.totals += PacketTotals {
                packets: 1,
                wire_bytes: packet.wire_length.into(),
            };
        }
        self.drop_old();
    }

    /// Drops what no event can want any more, and what memory has no room for.
    fn drop_old(&mut self) {
        let from_ns = self.now_ns.saturating_sub(self.before_ns);
        while let Some(oldest) = self.segments.front() {
            let is_old = oldest.last_ns < from_ns;
            if !is_old && self.held_bytes <= self.max_bytes {
                break;
            }
            self.is_short = !is_old;
            self.held_bytes -= to_u64(oldest.bytes.len());
            self.left_out += oldest.totals;
            self.segments.pop_front();
        }
    }

    /// Packets that no event wanted, those still held included.
    pub(crate) fn left_out(&self) -> PacketTotals {
        let mut all = self.left_out;
        self.segments.iter().for_each(|held| all += held.totals);
        all
    }

    pub(crate) fn totals(&self) -> EventTotals {
        EventTotals {
            events: self.events,
            packets_outside: self.left_out().packets,
        }
    }
}
