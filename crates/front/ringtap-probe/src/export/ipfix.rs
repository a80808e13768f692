// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow records for collectors: IPFIX (RFC 7011, biflows of RFC 5103) and NetFlow v9.
//!
//! Invariants
//! - No record stays in a buffer: [`Exporter::write`] returns after the last message is sent.
//! - A collector that is gone or does not read delays only this exporter's thread; the records lost
//!   meanwhile are counted.

mod fields;
mod message;
mod pace;
mod socket;

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::{Duration, Instant};

use super::{ExportError, Exporter};
use crate::record::{FlowRecord, Record};
use fields::data_records;
use message::FlowMessage;
use pace::SendingPace;
use socket::{CollectorSocket, SendOutcome};

/// Protocol of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowProtocol {
    /// RFC 7011. One record per flow, with both directions.
    Ipfix,
    /// RFC 7011 for collectors that know no biflows: one record per direction.
    IpfixUniflow,
    /// RFC 3954: one record per direction.
    NetflowV9,
}

/// Where a collector listens: `udp://10.0.0.1:4739`, `tcp://[::1]:4739`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    /// Datagrams.
    Udp(SocketAddr),
    /// A connection that is opened again when it breaks.
    Tcp(SocketAddr),
}

impl FromStr for Collector {
    type Err = ExportError;

    fn from_str(text: &str) -> Result<Self, ExportError> {
        let wrong = || {
            ExportError(format!(
                "\"{text}\" is no collector: expected udp://ADDRESS:PORT or tcp://ADDRESS:PORT, \
                 like udp://10.0.0.1:4739"
            ))
        };
        let (transport, address) = text.split_once("://").ok_or_else(wrong)?;
        let address = address.parse().map_err(|_| wrong())?;
        match transport {
            "udp" => Ok(Collector::Udp(address)),
            "tcp" => Ok(Collector::Tcp(address)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Collector::Udp(address) => write!(f, "udp://{address}"),
            Collector::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// Sends flow records to one collector; measurements are left out.
pub struct FlowExporter {
    protocol: FlowProtocol,
    socket: CollectorSocket,
    /// Identifies the probe among those of one address.
    domain: u32,
    template_every: Duration,
    /// When the templates are due again; `None`: with the next message.
    templates_due: Option<Instant>,
    /// Data records (IPFIX) or messages (NetFlow v9) sent so far.
    sequence: u32,
    pace: SendingPace,
    lost: u64,
    /// The last failure since the last [`Exporter::tick`].
    failure: Option<ExportError>,
}

impl FlowProtocol {
    /// Refuses a collector that this protocol cannot reach.
    pub(super) fn require_transport(self, collector: Collector) -> Result<(), ExportError> {
        match (self, collector.is_tcp()) {
            (FlowProtocol::NetflowV9, true) => Err(ExportError(format!(
                "{collector}: NetFlow v9 has no TCP transport: use udp:// or protocol ipfix"
            ))),
            _ => Ok(()),
        }
    }
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
            template_every,
            templates_due: None,
            sequence: 0,
            pace: SendingPace::default(),
            lost: 0,
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

    /// A message for this flow and others, with the templates in front if they are due.
    fn message(&mut self, first: &FlowRecord) -> FlowMessage {
        let mut message = FlowMessage::new(self.protocol, first);
        let now = Instant::now();
        if self.templates_due.is_none_or(|due| due <= now) {
            message.put_templates();
            self.templates_due = now.checked_add(self.template_every);
        }
        message
    }

    fn send(&mut self, message: FlowMessage) {
        let (flows, records) = (message.flows(), message.records());
        let bytes = message.finish(self.sequence, self.domain);
        self.sequence = self.sequence.wrapping_add(match self.protocol {
            FlowProtocol::NetflowV9 => 1,
            _ => records,
        });
        self.pace.wait(flows);
        match self.socket.send(&bytes, flows) {
            SendOutcome::All => {}
            SendOutcome::Lost(lost, failure) => {
                self.lost += u64::from(lost);
                self.failure = Some(failure);
                self.templates_due = None;
            }
        }
    }

    /// Connects if the connection broke, and begins a new session then.
    fn connect(&mut self) -> Result<(), ExportError> {
        if self.socket.connect()? {
            self.sequence = 0;
            self.templates_due = None;
        }
        Ok(())
    }
}

impl Collector {
    pub(super) fn is_tcp(self) -> bool {
        matches!(self, Collector::Tcp(_))
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
        self.connect()?;
        let mut message = None;
        for record in records {
            let Record::Flow(flow) = record else { continue };
            let mut current = message.take().unwrap_or_else(|| self.message(flow));
            let mut records: Vec<_> = data_records(flow, self.protocol, current.start()).collect();
            if !current.has_room(flow, &records) {
                self.send(current);
                current = self.message(flow);
                records = data_records(flow, self.protocol, current.start()).collect();
            }
            current.put_flow(records);
            message = Some(current);
        }
        if let Some(last) = message {
            self.send(last);
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), ExportError> {
        self.connect()?;
        self.failure.take().map_or(Ok(()), Err)
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
