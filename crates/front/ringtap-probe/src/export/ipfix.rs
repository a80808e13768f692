// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow records for collectors: IPFIX (RFC 7011, biflows of RFC 5103) and NetFlow v9.
//!
//! Invariants
//! - No record stays in a buffer: [`Exporter::write`] returns after the last message is sent.
//! - A collector that is gone or does not read delays only this exporter's thread; the records lost
//!   meanwhile are counted.

mod fields;
mod message;
mod octets;
mod options;
mod outside;
mod pace;
mod protocol;
mod socket;
mod start;

use std::num::NonZeroU32;
use std::time::Duration;

use ringtap_pool::number::to_u64;

use super::{ExportError, Exporter, FlowSum};
use crate::record::{FlowRecord, Record};
use fields::data_records;
use message::{FlowMessage, SentTemplates};
use options::SentSum;
use pace::SendingPace;
pub use protocol::{Collector, FlowProtocol};
use socket::{CollectorSocket, SendOutcome};

/// Sends flow records to one collector; measurements are left out.
pub struct FlowExporter {
    protocol: FlowProtocol,
    socket: CollectorSocket,
    /// Identifies the probe among those of one address.
    domain: u32,
    templates: SentTemplates,
    /// One flow in this many was analysed, as the collector knows it.
    sampling: u32,
    /// Data records (IPFIX) or messages (NetFlow v9) sent so far.
    sequence: u32,
    pace: SendingPace,
    sent: SentSum,
    /// Flows that found the queue full, those that found no connection, and those that were lost later.
    not_queued: FlowSum,
    refused: FlowSum,
    lost: FlowSum,
    /// The last failure since the last [`Exporter::tick`].
    failure: Option<ExportError>,
}

impl FlowExporter {
    /// An exporter that sends its templates again after `template_every`, if datagrams carry them.
    ///
    /// # Errors
    ///
    /// NetFlow v9 over TCP; the system has no socket left.
    pub fn new(
        protocol: FlowProtocol,
        collector: Collector,
        domain: u32,
        template_every: Duration,
    ) -> Result<Self, ExportError> {
        protocol.require_transport(collector)?;
        Ok(FlowExporter {
            protocol,
            socket: CollectorSocket::new(collector)?,
            domain,
            templates: SentTemplates::new(template_every),
            sampling: 1,
            sequence: 0,
            pace: SendingPace::default(),
            sent: SentSum::default(),
            not_queued: FlowSum::default(),
            refused: FlowSum::default(),
            lost: FlowSum::default(),
            failure: None,
        })
    }

    /// Sends at most this many flows a second, evenly; `None`: as they come.
    #[must_use]
    pub fn at_rate(self, flows_per_second: Option<NonZeroU32>) -> Self {
        FlowExporter {
            pace: flows_per_second.map(SendingPace::new).unwrap_or_default(),
            ..self
        }
    }

    /// A message for this flow and others; after a record of the sampling, if the collector does not know it.
    fn message(&mut self, first: &FlowRecord) -> FlowMessage {
        let mut message = FlowMessage::new(self.protocol, Some(first));
        if self.must_tell_sampling(first) {
            for record in options::sampling(self.protocol, first.sampling, self.domain) {
                message.put_options(&record, &mut self.templates);
            }
            self.sampling = first.sampling;
        }
        message
    }

    fn must_tell_sampling(&self, flow: &FlowRecord) -> bool {
        let is_due = flow.sampling > 1 && self.templates.is_due(options::SAMPLING);
        flow.sampling != self.sampling || is_due
    }

    fn send(&mut self, message: FlowMessage) {
        let (flows, (flow_records, options_records)) = (message.flows(), message.records());
        let bytes = message.finish(self.sequence, self.domain);
        self.sequence = self.sequence.wrapping_add(match self.protocol {
            FlowProtocol::NetflowV9 => 1,
            _ => flow_records + options_records,
        });
        self.pace.wait(flow_records);
        match self.socket.send(&bytes, flows) {
            SendOutcome::All => {
                self.sent.messages += 1;
                self.sent.flow_records += u64::from(flow_records);
                self.sent.octets += to_u64(bytes.len());
            }
            SendOutcome::Lost(lost, failure) => {
                self.lost += lost;
                self.failure = Some(failure);
                self.templates.forget();
            }
        }
    }

    /// Sends the statistics of this exporter.
    fn send_statistics(&mut self) {
        let mut message = FlowMessage::new(self.protocol, None);
        let not_sent = self.not_queued + self.refused + self.lost;
        for record in options::statistics(self.sent, not_sent, self.domain) {
            message.put_options(&record, &mut self.templates);
        }
        self.send(message);
    }

    /// Connects if the connection broke, and begins a new session then.
    fn connect(&mut self) -> Result<(), ExportError> {
        if self.socket.connect()? {
            self.sequence = 0;
            self.templates.forget();
        }
        Ok(())
    }
}

impl Exporter for FlowExporter {
    fn name(&self) -> String {
        let protocol = match self.protocol {
            FlowProtocol::Ipfix => "ipfix",
            FlowProtocol::IpfixUniflow => "ipfix-uniflow",
            FlowProtocol::NetflowV9 => "netflow9",
        };
        format!("{protocol} {}", self.socket.collector())
    }

    fn write(&mut self, records: &[Record]) -> Result<(), ExportError> {
        if let Err(error) = self.connect() {
            self.refused += FlowSum::from_records(records);
            return Err(error);
        }
        let mut message = None;
        for record in records {
            let Record::Flow(flow) = record else { continue };
            let mut current = message.take().unwrap_or_else(|| self.message(flow));
            let mut records: Vec<_> = data_records(flow, self.protocol, current.start()).collect();
            let has_room = current.has_room(flow, &records, &self.templates);
            if self.must_tell_sampling(flow) || !has_room {
                self.send(current);
                current = self.message(flow);
                records = data_records(flow, self.protocol, current.start()).collect();
            }
            current.put_flow(flow, records, &mut self.templates);
            message = Some(current);
        }
        if let Some(last) = message {
            self.send(last);
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), ExportError> {
        self.connect()?;
        if self.templates.is_due(options::STATISTICS) {
            self.send_statistics();
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        self.connect()?;
        self.send_statistics();
        self.failure.take().map_or(Ok(()), Err)
    }

    fn not_queued(&mut self, flows: FlowSum) {
        self.not_queued = flows;
    }

    fn lost(&self) -> u64 {
        self.lost.flows
    }
}
