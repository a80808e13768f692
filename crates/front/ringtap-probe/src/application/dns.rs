// SPDX-License-Identifier: MIT OR Apache-2.0
//! DNS questions and their answers, matched by addresses, ports, identifier and name.
//!
//! Invariants
//! - Questions without an answer take bounded memory: beyond it, the oldest becomes a record, and is counted.
//! - Work per message is bounded: at most [`ENDS_OF_MESSAGE`] other questions end with it.

mod message;

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::budget::WorkBudget;
use super::stream::DNS_PORT;
use crate::packet::{Dissected, PacketKey, UDP};
use crate::record::{Details, DnsRecord, Record};
use message::DnsMessage;

/// Nanoseconds after which a question has no answer, as in Zeek.
const ANSWER_TIMEOUT_NS: u64 = 10_000_000_000;
/// Memory of a question with its place in the queue, in bytes.
const QUESTION_MEMORY: usize = 512;
/// Questions that may become records with each message, because their time for an answer is over.
const ENDS_OF_MESSAGE: usize = 4;

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

    /// Takes a message of a packet's flow; `false` if it is malformed, or costs more than the budget.
    pub(super) fn message(
        &mut self,
        packet: &Dissected<'_>,
        bytes: &[u8],
        details: &mut Option<Box<Details>>,
        budget: &mut WorkBudget,
        records: &mut Vec<Record>,
    ) -> bool {
        self.expire(packet.time_ns, ENDS_OF_MESSAGE, records);
        let Some(message) = DnsMessage::parse(bytes, budget) else {
            return false;
        };
        let details = details.get_or_insert_default();
        if message.is_answer {
            self.answer(packet, message, details, records)
        } else {
            self.question(packet, message, details, records)
        }
        true
    }

    /// Appends records of questions that are older than [`ANSWER_TIMEOUT_NS`], at most `most`.
    pub(super) fn expire(&mut self, now_ns: u64, most: usize, records: &mut Vec<Record>) {
        for _ in 0..most {
            match self.order.front() {
                Some((_, asked_ns)) if is_over(*asked_ns, now_ns) => {
                    self.give_up_oldest(records);
                }
                _ => return,
            }
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
        match self.waiting.get(&key) {
            Some(asked) if is_over(asked.time_ns, packet.time_ns) => {
                let asked = self.waiting.remove(&key);
                records.extend(asked.map(|asked| Record::Dns(Box::new(asked))));
            }
            // Sent again: the latency counts from the first.
            Some(_) => return,
            None => {}
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
            let is_same =
                (&asked.query, &asked.query_type) == (&message.query, &message.query_type);
            (message.query.is_empty() || is_same) && !is_over(asked.time_ns, packet.time_ns)
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

/// Whether a packet is one of DNS over UDP.
pub(super) fn is_datagram(packet: &Dissected<'_>) -> bool {
    let (from, to) = packet.key.ports;
    packet.key.protocol == UDP && (from == DNS_PORT || to == DNS_PORT)
}

/// Whether the time for an answer to a question is over.
fn is_over(asked_ns: u64, now_ns: u64) -> bool {
    asked_ns.saturating_add(ANSWER_TIMEOUT_NS) <= now_ns
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
    pub(crate) fn from_packet(packet: &Dissected<'_>) -> Option<Self> {
        if !is_datagram(packet) || packet.fragment.is_some() {
            return None;
        }
        let message = DnsMessage::parse(packet.payload(), &mut WorkBudget::for_packet())?;
        let name = Some(message.query).filter(|name| !name.is_empty())?;
        match (message.is_answer, &*message.response) {
            (false, _) => Some(DnsName::Asked(name)),
            (true, "NOERROR") => None,
            (true, _) => Some(DnsName::Failed(name)),
        }
    }
}

impl DnsMessage {
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
pub(super) fn first_message(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}
