// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages: a header, templates if they are due, and sets of data records.

use std::time::{SystemTime, UNIX_EPOCH};

use super::FlowProtocol;
use super::fields::{Template, put};
use crate::record::FlowRecord;

/// Longest message in bytes: fits into one Ethernet frame over IPv6, with room for a tunnel.
const MAX_MESSAGE: usize = 1400;
/// Set header and padding of a record.
const SET_OVERHEAD: usize = 8;

/// The moment from which NetFlow v9 counts times, in milliseconds, as RFC 3954's system start.
///
/// Times are 32-bit numbers. So the start is half of their range before the time of export, which is now, or
/// for flows of an old file the end of its first flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SystemStart {
    start_ms: u64,
    /// Time of export in seconds since 1970.
    export_s: u64,
}

impl SystemStart {
    const RANGE_MS: u64 = 1 << 31;

    /// The start for a message that begins with this flow.
    fn for_flow(flow: &FlowRecord) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.unwrap_or_default().as_secs() * 1000;
        let is_recent = now_ms.saturating_sub(flow.first_ns() / 1_000_000) < Self::RANGE_MS;
        let export_ms = match is_recent {
            true => now_ms,
            false => flow.last_ns().div_ceil(1_000_000_000) * 1000,
        };
        SystemStart {
            start_ms: export_ms.saturating_sub(Self::RANGE_MS),
            export_s: export_ms / 1000,
        }
    }

    /// Milliseconds from the start to a time in nanoseconds since 1970, at most 2^32 - 1.
    pub(super) fn uptime_ms(self, time_ns: u64) -> u64 {
        let uptime_ms = (time_ns / 1_000_000).saturating_sub(self.start_ms);
        uptime_ms.min(u32::MAX.into())
    }

    /// Whether 32 bits hold the times of a flow.
    fn fits(self, flow: &FlowRecord) -> bool {
        let begins = flow.first_ns() / 1_000_000 >= self.start_ms;
        begins && self.uptime_ms(flow.last_ns()) < u32::MAX.into()
    }
}

/// A message under construction.
pub(super) struct FlowMessage {
    protocol: FlowProtocol,
    start: SystemStart,
    bytes: Vec<u8>,
    /// Template and start of the last set, if the set holds data.
    set: Option<(Template, usize)>,
    flows: u32,
    records: u32,
    templates: u32,
}

impl FlowMessage {
    /// A message without records, whose first one will be of this flow.
    pub(super) fn new(protocol: FlowProtocol, first: &FlowRecord) -> Self {
        let header = match protocol {
            FlowProtocol::NetflowV9 => 20,
            _ => 16,
        };
        FlowMessage {
            protocol,
            start: SystemStart::for_flow(first),
            bytes: vec![0; header],
            set: None,
            flows: 0,
            records: 0,
            templates: 0,
        }
    }

    /// Flows in the message.
    pub(super) fn flows(&self) -> u32 {
        self.flows
    }

    /// Data records in the message.
    pub(super) fn records(&self) -> u32 {
        self.records
    }

    /// The start of the times in its records.
    pub(super) fn start(&self) -> SystemStart {
        self.start
    }

    /// Whether the records of a further flow fit: its times, and its bytes.
    pub(super) fn has_room(&self, flow: &FlowRecord, records: &[(Template, Vec<u8>)]) -> bool {
        if self.protocol == FlowProtocol::NetflowV9 && !self.start.fits(flow) {
            return false;
        }
        let lengths = records
            .iter()
            .map(|(_, record)| record.len() + SET_OVERHEAD);
        self.bytes.len() + lengths.sum::<usize>() <= MAX_MESSAGE
    }

    pub(super) fn put_templates(&mut self) {
        let start = self.bytes.len();
        put(
            &mut self.bytes,
            2,
            match self.protocol {
                FlowProtocol::NetflowV9 => 0,
                _ => 2,
            },
        );
        put(&mut self.bytes, 2, 0);
        for template in Template::all(self.protocol) {
            template.put(&mut self.bytes);
            self.templates += 1;
        }
        self.end_set(start);
    }

    /// Appends all records of a flow.
    pub(super) fn put_flow(&mut self, records: Vec<(Template, Vec<u8>)>) {
        for (template, record) in records {
            self.open_set(template);
            self.bytes.extend(record);
            self.records += 1;
        }
        self.flows += 1;
    }

    fn open_set(&mut self, template: Template) {
        match self.set {
            Some((open, _)) if open == template => return,
            Some((_, start)) => self.end_set(start),
            None => {}
        }
        self.set = Some((template, self.bytes.len()));
        put(&mut self.bytes, 2, template.id().into());
        put(&mut self.bytes, 2, 0);
    }

    /// Pads the set to four bytes and writes its length.
    fn end_set(&mut self, start: usize) {
        let length = (self.bytes.len() - start).next_multiple_of(4);
        self.bytes.resize(start + length, 0);
        self.overwrite(start + 2, 2, length as u64);
    }

    /// The bytes of the message, with its header.
    pub(super) fn finish(mut self, sequence: u32, domain: u32) -> Vec<u8> {
        if let Some((_, start)) = self.set.take() {
            self.end_set(start);
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let export_s = self.start.export_s;
        let (sequence, domain) = (sequence.into(), domain.into());
        let header: &[(u16, u64)] = &match self.protocol {
            FlowProtocol::NetflowV9 => {
                let records = u64::from(self.records + self.templates);
                let uptime = export_s * 1000 - self.start.start_ms;
                vec![
                    (2, 9),
                    (2, records),
                    (4, uptime),
                    (4, export_s),
                    (4, sequence),
                    (4, domain),
                ]
            }
            _ => {
                let length = self.bytes.len() as u64;
                vec![
                    (2, 10),
                    (2, length),
                    (4, now.as_secs()),
                    (4, sequence),
                    (4, domain),
                ]
            }
        };
        let mut at = 0;
        for &(length, value) in header {
            self.overwrite(at, length, value);
            at += usize::from(length);
        }
        self.bytes
    }

    fn overwrite(&mut self, at: usize, length: u16, value: u64) {
        let mut number = Vec::with_capacity(8);
        put(&mut number, length, value);
        for (byte, new) in self.bytes.iter_mut().skip(at).zip(number) {
            *byte = new;
        }
    }
}
