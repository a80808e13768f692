// SPDX-License-Identifier: MIT OR Apache-2.0
//! DNS questions and their answers, matched by addresses, ports, identifier and name.
//!
//! Invariants
//! - Questions without an answer take bounded memory: beyond it, the oldest becomes a record, and is counted.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;
use simple_dns::rdata::RData;
use simple_dns::{Packet, PacketFlag, QTYPE, RCODE};

use super::{cut, is_dns_datagram};
use crate::packet::{Dissected, PacketKey};
use crate::record::{Details, DnsRecord, Record};

/// Nanoseconds after which a question has no answer, as in Zeek.
const ANSWER_TIMEOUT_NS: u64 = 10_000_000_000;
/// Memory of a question with its place in the queue, in bytes.
const QUESTION_MEMORY: usize = 512;
/// Records of an answer that are kept.
const MOST_ANSWERS: usize = 16;
/// Steps through compressed names that a message may need: hostile ones need many more than real ones.
const MOST_STEPS: usize = 32_768;

type QuestionKey = (PacketKey, u16);

/// Questions that wait for their answers.
#[derive(Debug, Default)]
pub(super) struct DnsTransactions {
    waiting: HashMap<QuestionKey, DnsRecord, RandomState>,
    /// Keys and times of questions, also of answered ones, oldest first.
    order: VecDeque<(QuestionKey, u64)>,
    most: usize,
    early: u64,
}

/// What records need of a message.
struct DnsMessage {
    id: u16,
    is_answer: bool,
    query: String,
    query_type: String,
    response: String,
    answers: Vec<String>,
}

impl DnsTransactions {
    /// Sets the most memory.
    pub(super) fn limit(&mut self, memory: usize) {
        self.most = memory / QUESTION_MEMORY;
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn memory(&self) -> usize {
        self.order.len() * QUESTION_MEMORY
    }

    /// Questions that became records before their time because of the memory.
    pub(super) fn early(&self) -> u64 {
        self.early
    }

    /// Takes a message of a packet's flow; `false` if it is malformed.
    pub(super) fn message(
        &mut self,
        packet: &Dissected<'_>,
        bytes: &[u8],
        details: &mut Option<Box<Details>>,
        records: &mut Vec<Record>,
    ) -> bool {
        self.expire(packet.time_ns, records);
        let Some(message) = DnsMessage::parse(bytes) else {
            return false;
        };
        let details = details.get_or_insert_default();
        match message.is_answer {
            true => self.answer(packet, message, details, records),
            false => self.question(packet, message, details, records),
        }
        true
    }

    /// Appends records of questions that are older than [`ANSWER_TIMEOUT_NS`].
    pub(super) fn expire(&mut self, now_ns: u64, records: &mut Vec<Record>) {
        while let Some((_, asked_ns)) = self.order.front()
            && asked_ns.saturating_add(ANSWER_TIMEOUT_NS) <= now_ns
        {
            self.give_up_oldest(records);
        }
    }

    /// Returns whether the oldest question had no answer.
    fn give_up_oldest(&mut self, records: &mut Vec<Record>) -> bool {
        let Some((key, asked_ns)) = self.order.pop_front() else {
            return false;
        };
        let waits = self.waiting.get(&key);
        if waits.is_none_or(|question| question.time_ns != asked_ns) {
            return false;
        }
        let question = self.waiting.remove(&key);
        records.extend(question.map(|question| Record::Dns(Box::new(question))));
        true
    }

    fn question(
        &mut self,
        packet: &Dissected<'_>,
        message: DnsMessage,
        details: &mut Details,
        records: &mut Vec<Record>,
    ) {
        details.application.get_or_insert_with(|| "dns".into());
        if details.dns_query.is_none() {
            details.dns_query = Some(message.query.clone());
            details.dns_query_type = Some(message.query_type.clone());
        }
        let key = (packet.key, message.id);
        if self.waiting.contains_key(&key) {
            // Sent again: the latency counts from the first.
            return;
        }
        while self.order.len() >= self.most.max(1) {
            self.early += u64::from(self.give_up_oldest(records));
        }
        self.order.push_back((key, packet.time_ns));
        self.waiting.insert(key, message.record(packet, packet.key));
    }

    fn answer(
        &mut self,
        packet: &Dissected<'_>,
        message: DnsMessage,
        details: &mut Details,
        records: &mut Vec<Record>,
    ) {
        let key = (packet.key.reversed(), message.id);
        let asked = self.waiting.get(&key);
        let matches = asked.is_some_and(|asked| {
            message.query.is_empty()
                || (&asked.query, &asked.query_type) == (&message.query, &message.query_type)
        });
        let (response, answers) = (message.response.clone(), message.answers.clone());
        let record = match matches.then(|| self.waiting.remove(&key)).flatten() {
            Some(question) => DnsRecord {
                rtt_ns: Some(packet.time_ns.saturating_sub(question.time_ns)),
                ..question
            },
            None => message.record(packet, key.0),
        };
        details.application.get_or_insert_with(|| "dns".into());
        let of_flow = details
            .dns_query
            .get_or_insert_with(|| record.query.clone());
        if *of_flow == record.query && details.dns_response.is_none() {
            details.dns_response = Some(response.clone());
            details.dns_latency_ns = record.rtt_ns;
        }
        let response = Some(response);
        records.push(Record::Dns(Box::new(DnsRecord {
            response,
            answers,
            ..record
        })));
    }
}

/// The name in a DNS datagram.
pub(crate) enum DnsName {
    /// Of a question.
    Asked(String),
    /// Of an answer that is an error.
    Failed(String),
}

impl DnsName {
    /// The name in a packet; `None` if it is no DNS datagram, has no name, or answers without an error.
    pub(crate) fn of(packet: &Dissected<'_>) -> Option<Self> {
        if !is_dns_datagram(packet) || packet.fragment.is_some() {
            return None;
        }
        let message = DnsMessage::parse(packet.payload())?;
        let name = Some(message.query).filter(|name| !name.is_empty())?;
        match (message.is_answer, &*message.response) {
            (false, _) => Some(DnsName::Asked(name)),
            (true, "NOERROR") => None,
            (true, _) => Some(DnsName::Failed(name)),
        }
    }
}

impl DnsMessage {
    fn parse(bytes: &[u8]) -> Option<Self> {
        if !is_modest(bytes) {
            return None;
        }
        let packet = Packet::parse(bytes).ok()?;
        let question = packet.questions.first();
        let answers = packet.answers.iter().take(MOST_ANSWERS);
        Some(DnsMessage {
            id: packet.id(),
            is_answer: packet.has_flags(PacketFlag::RESPONSE),
            query: question.map_or_else(String::new, |question| {
                cut(question.qname.to_string()).to_ascii_lowercase()
            }),
            query_type: question.map_or_else(String::new, |question| match question.qtype {
                QTYPE::TYPE(kind) => format!("{kind:?}"),
                other => format!("{other:?}"),
            }),
            response: response_word(packet.rcode()).into(),
            answers: answers
                .map(|answer| cut(data_text(&answer.rdata)))
                .collect(),
        })
    }

    /// The record of this message alone, for a flow with this key.
    fn record(self, packet: &Dissected<'_>, key: PacketKey) -> DnsRecord {
        DnsRecord {
            key: key.flow_key(),
            time_ns: packet.time_ns,
            id: self.id,
            query: self.query,
            query_type: self.query_type,
            response: None,
            answers: Vec::new(),
            rtt_ns: None,
        }
    }
}

/// The first message of a TCP stream, behind its length; `None` if it is not complete.
pub(super) fn of_stream(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

/// Whether parsing the message takes memory and time as its length suggests.
fn is_modest(bytes: &[u8]) -> bool {
    let Some(&[_, _, _, _, a, b, c, d, e, f, g, h]) = bytes.first_chunk() else {
        return false;
    };
    let number = |high, low| usize::from(u16::from_be_bytes([high, low]));
    let (questions, records) = (number(a, b), number(c, d) + number(e, f) + number(g, h));
    // A question takes at least 5 bytes, a record 11.
    let shortest = 12 + 5 * questions + 11 * records;
    let pointers = bytes.iter().filter(|byte| **byte >= 0xc0).count();
    // Names of records may lead from pointer to pointer; most records have a name in their data, too.
    shortest <= bytes.len() && (questions + 2 * records).saturating_mul(pointers) <= MOST_STEPS
}

/// The data of a record: addresses and names; of other records the type.
fn data_text(data: &RData<'_>) -> String {
    match data {
        RData::A(a) => Ipv4Addr::from(a.address).to_string(),
        RData::AAAA(aaaa) => Ipv6Addr::from(aaaa.address).to_string(),
        RData::CNAME(name) => name.0.to_string(),
        RData::NS(name) => name.0.to_string(),
        RData::PTR(name) => name.0.to_string(),
        RData::MX(mx) => mx.exchange.to_string(),
        RData::SRV(srv) => srv.target.to_string(),
        other => format!("{:?}", other.type_code()),
    }
}

/// The response code as in Zeek's `rcode_name`.
fn response_word(code: RCODE) -> &'static str {
    match code {
        RCODE::NoError => "NOERROR",
        RCODE::FormatError => "FORMERR",
        RCODE::ServerFailure => "SERVFAIL",
        RCODE::NameError => "NXDOMAIN",
        RCODE::NotImplemented => "NOTIMP",
        RCODE::Refused => "REFUSED",
        RCODE::YXDOMAIN => "YXDOMAIN",
        RCODE::YXRRSET => "YXRRSET",
        RCODE::NXRRSET => "NXRRSET",
        RCODE::NOTAUTH => "NOTAUTH",
        RCODE::NOTZONE => "NOTZONE",
        RCODE::BADVERS => "BADVERS",
        RCODE::Reserved => "RESERVED",
    }
}
