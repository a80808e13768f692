// SPDX-License-Identifier: MIT OR Apache-2.0
//! Application protocols of flows: TLS, HTTP/1 and DNS, from the first payload bytes of each direction.
//!
//! Invariants
//! - Of each direction of a TCP flow, at most `payload_bytes` in 32 segments are kept and parsed.
//! - The parsers of a packet do at most the work of its [`WorkBudget`]. Payload that needs more is unread.
//! - Payload, texts of flows and unanswered questions take at most `payload_memory` bytes, plus those of
//!   one packet. What finds no room is counted, and the flow goes on without texts.

mod budget;
mod dns;
mod http;
#[expect(unsafe_code, reason = "functions of the C library nDPI")]
mod ndpi;
mod stream;
mod text;
mod tls;

#[cfg(test)]
mod tests;

use ringtap_pool::number::to_usize;

use crate::flows::{FlowCounters, FlowOptions};
use crate::packet::{Dissected, TCP, UDP};
use crate::record::{Details, Record};
use budget::WorkBudget;
pub(crate) use dns::DnsName;
use dns::DnsTransactions;
pub use ndpi::NdpiError;
use ndpi::{NdpiFlow, NdpiModule, NdpiVerdict};
use stream::{ParseStatus, StreamProtocol, StreamStart, TcpStreams};

/// Segments of a connection in which TLS may begin after another protocol.
const MAX_SEARCHED: u8 = 32;
/// Share of the memory for questions without an answer: 1 / 4.
const QUESTIONS_PART: usize = 4;

/// Inspects the payload of one worker's flows.
pub(crate) struct PayloadInspector {
    payload_bytes: usize,
    /// For payload and texts of flows; questions have the rest.
    max_memory: usize,
    memory: usize,
    questions: DnsTransactions,
    ndpi: Option<NdpiModule>,
    /// Flows and DNS messages that could not be read, and flows for which the memory had no room.
    unread: u64,
    no_room: u64,
}

/// Texts of a flow, and the payload from which further ones may come.
#[derive(Debug, Default)]
pub(crate) struct FlowTexts {
    details: Option<Box<Details>>,
    inspection: Inspection<TcpStreams>,
    /// That by nDPI.
    ndpi: Inspection<NdpiFlow>,
}

/// How far the inspection of a flow's payload is.
#[derive(Debug, Default)]
enum Inspection<T> {
    /// No payload yet, or a flow of DNS datagrams, each of which is whole.
    #[default]
    Waiting,
    /// Another protocol in this many segments: TLS may follow STARTTLS, a proxy's answer, or RDP's negotiation.
    Searching(u8),
    Running(Box<T>),
    Over,
}

impl FlowTexts {
    /// Whether a further packet with payload may tell more.
    pub(crate) fn wants_payload(&self) -> bool {
        !matches!(self.inspection, Inspection::Over)
    }

    /// The texts, which stay with the flow for its next part.
    pub(crate) fn details(&self) -> Option<Box<Details>> {
        self.details
            .clone()
            .filter(|details| **details != Details::default())
    }

    /// Shows nDPI a packet, until it knows the application or has seen enough.
    fn ask_ndpi(&mut self, module: &mut NdpiModule, packet: &Dissected<'_>) {
        if let Inspection::Waiting = self.ndpi {
            self.ndpi = Inspection::Running(module.flow());
        }
        let Inspection::Running(flow) = &mut self.ndpi else {
            return;
        };
        let verdict = module.packet(flow, packet.packet, packet.time_ns);
        if verdict.is_some() || flow.is_over() {
            self.ndpi = Inspection::Over;
        }
        if let Some(NdpiVerdict {
            application,
            server_name,
        }) = verdict
        {
            let details = self.details.get_or_insert_default();
            details.ndpi_application = Some(application);
            details.server_name = details.server_name.take().or(server_name);
        }
    }

    fn memory(&self) -> usize {
        let details = self.details.as_ref().map_or(0, |details| details.memory());
        let streams = match &self.inspection {
            Inspection::Running(streams) => {
                let bytes = streams
                    .directions
                    .iter()
                    .map(|direction| direction.bytes.capacity());
                size_of::<TcpStreams>() + bytes.sum::<usize>()
            }
            _ => 0,
        };
        let ndpi = match &self.ndpi {
            Inspection::Running(flow) => flow.memory(),
            _ => 0,
        };
        details + streams + ndpi
    }

    /// Ends the inspection; texts that were found stay.
    fn end(&mut self) {
        self.inspection = Inspection::Over;
    }
}

impl PayloadInspector {
    pub(crate) fn new(options: &FlowOptions) -> Self {
        let mut inspector = PayloadInspector {
            payload_bytes: 0,
            max_memory: 0,
            memory: 0,
            questions: DnsTransactions::default(),
            ndpi: None,
            unread: 0,
            no_room: 0,
        };
        inspector.change(options);
        inspector
    }

    /// Changes the limits.
    pub(crate) fn change(&mut self, options: &FlowOptions) {
        self.payload_bytes = options.payload_bytes as usize;
        let memory = to_usize(options.payload_memory);
        self.max_memory = memory - memory / QUESTIONS_PART;
        self.questions.limit(memory / QUESTIONS_PART);
        if options.ndpi && self.ndpi.is_none() {
            // The configuration was refused if the library is missing.
            self.ndpi = NdpiModule::new().ok();
        } else if !options.ndpi {
            self.ndpi = None;
        }
    }

    /// Adds what the inspection could not do.
    pub(crate) fn add_to(&self, counters: &mut FlowCounters) {
        counters.payload_unread += self.unread;
        counters.payload_no_room += self.no_room + self.questions.early();
    }

    /// Memory in bytes.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn memory(&self) -> usize {
        self.memory + self.questions.memory()
    }

    /// Whether a packet may tell something of its flow.
    #[inline]
    pub(crate) fn wants(&self, packet: &Dissected<'_>) -> bool {
        packet.payload_bytes > 0
            && matches!(packet.key.protocol, TCP | UDP)
            && packet.fragment.is_none()
            && (self.payload_bytes > 0 || self.ndpi.is_some())
    }

    /// Whether no further packet can tell more of a flow.
    pub(crate) fn is_over(&self, texts: &FlowTexts) -> bool {
        let is_over = !(self.payload_bytes > 0 && texts.wants_payload());
        is_over && (self.ndpi.is_none() || matches!(texts.ndpi, Inspection::Over))
    }

    /// Looks at a packet with payload in a direction of its flow; appends answered DNS questions.
    #[inline(never)]
    pub(crate) fn packet(
        &mut self,
        texts: &mut FlowTexts,
        direction: usize,
        packet: &Dissected<'_>,
        records: &mut Vec<Record>,
    ) {
        let before = texts.memory();
        if self.payload_bytes > 0 {
            self.inspect(texts, direction, packet, records);
        }
        if let Some(module) = &mut self.ndpi {
            texts.ask_ndpi(module, packet);
        }
        let after = texts.memory();
        self.memory = (self.memory + after).saturating_sub(before);
        if after > before && self.memory > self.max_memory {
            self.no_room += 1;
            *texts = FlowTexts {
                inspection: Inspection::Over,
                ndpi: Inspection::Over,
                ..FlowTexts::default()
            };
            self.memory = self.memory.saturating_sub(after);
        }
    }

    /// Gives the memory of a flow that ends back.
    pub(crate) fn release(&mut self, texts: &FlowTexts) {
        self.memory = self.memory.saturating_sub(texts.memory());
    }

    /// Appends DNS questions whose time for an answer is over, at most `most`.
    pub(crate) fn expire(&mut self, now_ns: u64, most: usize, records: &mut Vec<Record>) {
        self.questions.expire(now_ns, most, records);
    }

    /// Appends all DNS questions without an answer.
    pub(crate) fn finish(&mut self, records: &mut Vec<Record>) {
        self.questions.expire(u64::MAX, usize::MAX, records);
    }

    fn inspect(
        &mut self,
        texts: &mut FlowTexts,
        direction: usize,
        packet: &Dissected<'_>,
        records: &mut Vec<Record>,
    ) {
        let FlowTexts {
            details,
            inspection,
            ..
        } = texts;
        let searched = match inspection {
            Inspection::Waiting => Some(0),
            Inspection::Searching(segments) => Some(*segments),
            Inspection::Running(_) | Inspection::Over => None,
        };
        if let Some(searched) = searched {
            if dns::is_datagram(packet) {
                let (bytes, budget) = (packet.payload(), &mut WorkBudget::for_packet());
                let questions = &mut self.questions;
                if !questions.message(packet, bytes, details, budget, records) {
                    self.unread += 1;
                }
                return;
            }
            let protocol = match searched {
                0 => StreamProtocol::from_first_segment(packet),
                _ => StreamProtocol::from_later_segment(packet),
            };
            match protocol {
                Some(protocol) => *inspection = Inspection::Running(TcpStreams::new(protocol)),
                None if packet.tcp.is_some() && searched < MAX_SEARCHED => {
                    *inspection = Inspection::Searching(searched + 1);
                    return;
                }
                None => return texts.end(),
            }
        }
        let (Inspection::Running(streams), Some(tcp)) = (&mut *inspection, packet.tcp) else {
            return;
        };
        let protocol = streams.protocol;
        let Some(stream) = streams.directions.get_mut(direction) else {
            return;
        };
        if stream.is_over {
            return;
        }
        let grew = stream.add(tcp.sequence, packet.payload(), self.payload_bytes);
        let status = if grew {
            self.parse_stream(protocol, stream, packet, details, records)
        } else {
            ParseStatus::Malformed
        };
        let is_full = stream.is_full(self.payload_bytes);
        if status == ParseStatus::Malformed || status == ParseStatus::More && is_full {
            self.unread += 1;
            return texts.end();
        }
        stream.is_over = status == ParseStatus::Done;
        // An HTTP request has the host; its answer tells nothing more.
        let is_over = protocol == StreamProtocol::Http && stream.is_over;
        if is_over && http::asks_for_tunnel(&stream.bytes) {
            *inspection = Inspection::Searching(1);
            return;
        }
        if is_over || streams.directions.iter().all(|direction| direction.is_over) {
            texts.end();
        }
    }

    /// Parses what has come of a stream's direction with this packet.
    fn parse_stream(
        &mut self,
        protocol: StreamProtocol,
        stream: &mut StreamStart,
        packet: &Dissected<'_>,
        details: &mut Option<Box<Details>>,
        records: &mut Vec<Record>,
    ) -> ParseStatus {
        let budget = &mut WorkBudget::for_packet();
        match protocol {
            StreamProtocol::Tls => tls::read(stream, details.get_or_insert_default(), budget),
            StreamProtocol::Http => http::read(stream, details.get_or_insert_default(), budget),
            StreamProtocol::Dns => {
                let Some(bytes) = dns::first_message(&stream.bytes) else {
                    return ParseStatus::More;
                };
                let questions = &mut self.questions;
                if questions.message(packet, bytes, details, budget, records) {
                    ParseStatus::Done
                } else {
                    ParseStatus::Malformed
                }
            }
        }
    }
}

/// Loads nDPI, to see whether it is there.
///
/// # Errors
///
/// Every [`NdpiError`].
pub fn require_ndpi() -> Result<(), NdpiError> {
    NdpiModule::new().map(|_| ())
}
