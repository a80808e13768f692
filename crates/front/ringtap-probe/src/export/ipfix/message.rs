// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages: a header, templates if they are due, and sets of data records.

use std::time::{SystemTime, UNIX_EPOCH};

use super::FlowProtocol;
use super::fields::{Template, put};

/// Longest message in bytes: fits into one Ethernet frame over IPv6, with room for a tunnel.
const MAX_MESSAGE: usize = 1400;
/// Set header and padding of a record.
const SET_OVERHEAD: usize = 8;

/// A message under construction.
pub(super) struct FlowMessage {
    protocol: FlowProtocol,
    bytes: Vec<u8>,
    /// Template and start of the last set, if the set holds data.
    set: Option<(Template, usize)>,
    flows: u32,
    records: u32,
    templates: u32,
}

impl FlowMessage {
    pub(super) fn new(protocol: FlowProtocol) -> Self {
        let header = match protocol {
            FlowProtocol::NetflowV9 => 20,
            _ => 16,
        };
        FlowMessage {
            protocol,
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

    /// Whether the records of a further flow fit.
    pub(super) fn has_room(&self, records: &[(Template, Vec<u8>)]) -> bool {
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
        let (sequence, domain) = (sequence.into(), domain.into());
        let header: &[(u16, u64)] = &match self.protocol {
            FlowProtocol::NetflowV9 => {
                let records = u64::from(self.records + self.templates);
                let uptime = now.as_secs() * 1000 + u64::from(now.subsec_millis());
                vec![
                    (2, 9),
                    (2, records),
                    (4, uptime),
                    (4, now.as_secs()),
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
