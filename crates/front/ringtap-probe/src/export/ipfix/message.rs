// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages: a header, sets of data records, and each template before the first record that needs it.
//!
//! Invariants
//! - No message is longer than [`MAX_MESSAGE`], if the records of one flow with their templates are not.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::fields::Template;
use super::octets::put;
use super::options::OptionsRecord;
use super::protocol::FlowProtocol;
use super::start::SystemStart;
use crate::export::FlowSum;
use crate::record::FlowRecord;

/// Longest message in bytes: fits into one Ethernet frame over IPv6, with room for a tunnel.
const MAX_MESSAGE: usize = 1400;
/// Set header and padding of a record.
const SET_OVERHEAD: usize = 8;

/// A message under construction.
pub(super) struct FlowMessage {
    protocol: FlowProtocol,
    start: SystemStart,
    bytes: Vec<u8>,
    /// Template's number and start of the last set, if the set holds data.
    set: Option<(u16, usize)>,
    flows: FlowSum,
    flow_records: u32,
    options_records: u32,
    templates: u32,
}

/// The templates that the collector has.
pub(super) struct SentTemplates {
    every: Duration,
    /// When each is due again.
    due: BTreeMap<u16, Option<Instant>>,
}

impl SentTemplates {
    /// No templates; each is due again after `every`.
    pub(super) fn new(every: Duration) -> Self {
        let due = BTreeMap::new();
        SentTemplates { every, due }
    }

    /// Whether the collector does not have the template, or has had it for a long time.
    pub(super) fn is_due(&self, id: u16) -> bool {
        let due = self.due.get(&id);
        due.is_none_or(|due| due.is_some_and(|due| due <= Instant::now()))
    }

    /// The collector has lost all templates.
    pub(super) fn forget(&mut self) {
        self.due.clear();
    }

    fn sent(&mut self, id: u16) {
        let due = Instant::now().checked_add(self.every);
        self.due.insert(id, due);
    }
}

impl FlowMessage {
    /// A message without records, for this flow and others; `None`: for options.
    pub(super) fn new(protocol: FlowProtocol, first: Option<&FlowRecord>) -> Self {
        let header = match protocol {
            FlowProtocol::NetflowV9 => 20,
            _ => 16,
        };
        FlowMessage {
            protocol,
            start: first.map_or_else(SystemStart::now, SystemStart::for_flow),
            bytes: vec![0; header],
            set: None,
            flows: FlowSum::default(),
            flow_records: 0,
            options_records: 0,
            templates: 0,
        }
    }

    /// Flows in the message.
    pub(super) fn flows(&self) -> FlowSum {
        self.flows
    }

    /// Records of flows, and of options.
    pub(super) fn records(&self) -> (u32, u32) {
        (self.flow_records, self.options_records)
    }

    /// The start of the times in its records.
    pub(super) fn start(&self) -> SystemStart {
        self.start
    }

    /// Whether the records of a further flow fit: its times, and its bytes with those of templates.
    pub(super) fn has_room(
        &self,
        flow: &FlowRecord,
        records: &[(Template, Vec<u8>)],
        templates: &SentTemplates,
    ) -> bool {
        if self.protocol == FlowProtocol::NetflowV9 && !self.start.fits(flow) {
            return false;
        }
        let lengths = records.iter().map(|(template, record)| {
            let template = if templates.is_due(template.id()) {
                template.to_bytes().len() + SET_OVERHEAD
            } else {
                0
            };
            template + record.len() + SET_OVERHEAD
        });
        self.bytes.len() + lengths.sum::<usize>() <= MAX_MESSAGE
    }

    /// Appends all records of a flow, after templates that are due.
    pub(super) fn put_flow(
        &mut self,
        flow: &FlowRecord,
        records: Vec<(Template, Vec<u8>)>,
        templates: &mut SentTemplates,
    ) {
        let set = if self.is_v9() { 0 } else { 2 };
        for (template, record) in records {
            if templates.is_due(template.id()) {
                self.put_template(set, &template.to_bytes());
                templates.sent(template.id());
            }
            self.open_set(template.id());
            self.bytes.extend(record);
            self.flow_records += 1;
        }
        self.flows += FlowSum::from_flow(flow);
    }

    /// Appends a record of options, after its template if that is due.
    pub(super) fn put_options(&mut self, record: &OptionsRecord, templates: &mut SentTemplates) {
        let set = if self.is_v9() { 1 } else { 3 };
        if templates.is_due(record.id()) {
            self.put_template(set, &record.template(self.protocol));
            templates.sent(record.id());
        }
        self.open_set(record.id());
        self.bytes.extend(record.values());
        self.options_records += 1;
    }

    fn is_v9(&self) -> bool {
        self.protocol == FlowProtocol::NetflowV9
    }

    /// Appends a set with one template: nfdump 1.7 reads no further one of options in a set.
    fn put_template(&mut self, set: u64, template: &[u8]) {
        if let Some((_, start)) = self.set.take() {
            self.end_set(start);
        }
        let start = self.bytes.len();
        put(&mut self.bytes, 2, set);
        put(&mut self.bytes, 2, 0);
        self.bytes.extend(template);
        self.templates += 1;
        self.end_set(start);
    }

    fn open_set(&mut self, id: u16) {
        match self.set {
            Some((open, _)) if open == id => return,
            Some((_, start)) => self.end_set(start),
            None => {}
        }
        self.set = Some((id, self.bytes.len()));
        put(&mut self.bytes, 2, id.into());
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
                let records = self.flow_records + self.options_records + self.templates;
                let uptime = export_s * 1000 - self.start.start_ms;
                vec![
                    (2, 9),
                    (2, records.into()),
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
