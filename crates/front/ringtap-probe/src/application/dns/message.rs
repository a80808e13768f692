// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what records need of a DNS message: its question, its response code, its first answers.
//!
//! simple-dns, which names types and response codes, reads whole messages: each label of each name becomes an entry
//! of a list. A message of 1,500 bytes can refer to one name of 126 labels a hundred times.
//!
//! Invariants
//! - Only names that records show are read through their pointers. Others are passed over.
//! - All that is read or passed costs the packet's budget, names as often as they are read.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::{QTYPE, RCODE, TYPE};

use super::super::budget::WorkBudget;
use super::super::text::cut;

/// Records of an answer that are kept.
const MAX_ANSWERS: usize = 16;
/// Most bytes of a name, without its last, empty label.
const MAX_NAME_BYTES: usize = 254;
/// Longest text of an address, in bytes.
const LONGEST_ADDRESS: usize = 39;
const RESPONSE: u16 = 0x8000;
const RCODE_BITS: u16 = 0x000f;

/// Fields of a DNS message that records contain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DnsMessage {
    pub(super) id: u16,
    pub(super) is_answer: bool,
    pub(super) query: String,
    pub(super) query_type: String,
    pub(super) response: String,
    pub(super) answers: Vec<String>,
}

/// Reads a message from its begin to its end.
struct DnsReader<'a> {
    bytes: &'a [u8],
    at: usize,
    budget: &'a mut WorkBudget,
}

/// A record without the name of its owner.
struct RecordData<'a> {
    kind: u16,
    /// Upper eight bits of the time to live; of OPT, those of the response code.
    high_time: u8,
    /// Offset of the data in the message.
    at: usize,
    data: &'a [u8],
}

impl DnsMessage {
    /// Reads a message; `None` if it is malformed, or costs more than the budget.
    pub(super) fn parse(bytes: &[u8], budget: &mut WorkBudget) -> Option<Self> {
        let mut reader = DnsReader {
            bytes,
            at: 0,
            budget,
        };
        let [id, flags, questions, answers, authorities, additional] = reader.header()?;
        let (mut query, mut query_type) = (String::new(), String::new());
        for number in 0..questions {
            let name_at = reader.at;
            reader.skip_name()?;
            let [kind, _class] = reader.numbers()?;
            if number == 0 {
                query = reader.name(name_at)?.to_ascii_lowercase();
                query_type = type_word(kind);
            }
        }
        let mut response = flags & RCODE_BITS;
        let mut texts = Vec::new();
        for _ in 0..answers {
            let record = reader.record()?;
            if texts.len() < MAX_ANSWERS {
                texts.push(reader.data_text(&record)?);
            }
        }
        for _ in 0..u32::from(authorities) + u32::from(additional) {
            let record = reader.record()?;
            if TYPE::from(record.kind) == TYPE::OPT {
                response = flags & RCODE_BITS | u16::from(record.high_time) << 4;
            }
        }
        Some(DnsMessage {
            id,
            is_answer: flags & RESPONSE != 0,
            query,
            query_type,
            response: response_word(response.into()).into(),
            answers: texts,
        })
    }
}

impl<'a> DnsReader<'a> {
    fn header(&mut self) -> Option<[u16; 6]> {
        self.numbers()
    }

    fn numbers<const COUNT: usize>(&mut self) -> Option<[u16; COUNT]> {
        let bytes = self.take(2 * COUNT)?;
        let mut numbers = [0; COUNT];
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
            *number = u16::from_be_bytes(*bytes);
        }
        Some(numbers)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..count)?;
        self.at += count;
        Some(taken)
    }

    /// Passes over a name up to its end or its pointer.
    fn skip_name(&mut self) -> Option<()> {
        let begin = self.at;
        loop {
            match *self.bytes.get(self.at)? {
                0 => self.at += 1,
                0xc0.. => self.at += 2,
                length @ ..0x40 => {
                    self.at += 1 + usize::from(length);
                    continue;
                }
                _ => return None,
            }
            return self.budget.bytes(self.at - begin);
        }
    }

    fn record(&mut self) -> Option<RecordData<'a>> {
        self.skip_name()?;
        self.budget.items(1, 10)?;
        let [kind, _class, time, _low_time, length] = self.numbers()?;
        let at = self.at;
        let data = self.take(length.into())?;
        let [high_time, _] = time.to_be_bytes();
        Some(RecordData {
            kind,
            high_time,
            at,
            data,
        })
    }

    /// The name at an offset, also through pointers, each of which leads back.
    fn name(&mut self, mut at: usize) -> Option<String> {
        let (mut text, mut length) = (Vec::new(), 0);
        loop {
            match *self.bytes.get(at)? {
                0 => return self.utf8(text),
                high @ 0xc0.. => {
                    self.budget.items(1, 2)?;
                    let low = *self.bytes.get(at + 1)?;
                    let target = usize::from(u16::from_be_bytes([high & 0x3f, low]));
                    if target >= at {
                        return None;
                    }
                    at = target;
                }
                label @ ..0x40 => {
                    let end = at + 1 + usize::from(label);
                    let label = self.bytes.get(at + 1..end)?;
                    length += 1 + label.len();
                    if length > MAX_NAME_BYTES {
                        return None;
                    }
                    self.budget.items(1, 1 + label.len())?;
                    if !text.is_empty() {
                        text.push(b'.');
                    }
                    self.push_label(&mut text, label)?;
                    at = end;
                }
                _ => return None,
            }
        }
    }

    /// Appends a label; dots and backslashes in it are escaped.
    fn push_label(&mut self, text: &mut Vec<u8>, label: &[u8]) -> Option<()> {
        let mut rest = label;
        let special = |byte: &u8| matches!(byte, b'.' | b'\\');
        while let Some(at) = rest.iter().position(special) {
            self.budget.items(1, 0)?;
            text.extend_from_slice(&rest[..at]);
            text.extend([b'\\', rest[at]]);
            rest = &rest[at + 1..];
        }
        text.extend_from_slice(rest);
        Some(())
    }

    /// A text of bounded length, in which what is not UTF-8 is replaced.
    fn utf8(&mut self, bytes: Vec<u8>) -> Option<String> {
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => return Some(cut(text)),
            Err(error) => error.into_bytes(),
        };
        let mut text = String::new();
        for part in bytes.utf8_chunks() {
            self.budget.items(1, 0)?;
            text.push_str(part.valid());
            if !part.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        Some(cut(text))
    }

    /// The data of a record: addresses and names; of other records the type.
    fn data_text(&mut self, record: &RecordData<'_>) -> Option<String> {
        let RecordData { kind, at, data, .. } = *record;
        if data.is_empty() {
            return Some(type_word(kind));
        }
        Some(match TYPE::from(kind) {
            TYPE::A => address_text(Ipv4Addr::from(*data.first_chunk::<4>()?).into()),
            TYPE::AAAA => address_text(Ipv6Addr::from(*data.first_chunk::<16>()?).into()),
            TYPE::CNAME | TYPE::NS | TYPE::PTR => self.name(at)?,
            TYPE::MX => self.name(at + 2)?,
            TYPE::SRV => self.name(at + 6)?,
            _ => type_word(kind),
        })
    }
}

/// An address as text, in memory that need not grow.
fn address_text(address: IpAddr) -> String {
    let mut text = String::with_capacity(LONGEST_ADDRESS);
    let _always_fits = write!(text, "{address}");
    text
}

/// A type's mnemonic, else `TYPE` and its number, as in RFC 3597.
fn type_word(kind: u16) -> String {
    match QTYPE::try_from(kind) {
        Ok(QTYPE::TYPE(kind)) => format!("{kind:?}"),
        Ok(other) => format!("{other:?}"),
        Err(_) => format!("TYPE{kind}"),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::rdata::RData;
    use simple_dns::{Packet, PacketFlag};

    use super::*;
    use crate::fuzzing::cost::PayloadKind;
    use crate::fuzzing::hostile::{hostile, ordinary};

    /// The same by simple-dns, for messages that it reads.
    fn by_simple_dns(bytes: &[u8]) -> Option<DnsMessage> {
        let packet = Packet::parse(bytes).ok()?;
        let question = packet.questions.first();
        let answers = packet
            .answers
            .iter()
            .take(MAX_ANSWERS)
            .map(|answer| match &answer.rdata {
                RData::A(a) => Ipv4Addr::from(a.address).to_string(),
                RData::AAAA(aaaa) => Ipv6Addr::from(aaaa.address).to_string(),
                RData::CNAME(name) => name.0.to_string(),
                RData::NS(name) => name.0.to_string(),
                RData::PTR(name) => name.0.to_string(),
                RData::MX(mx) => mx.exchange.to_string(),
                RData::SRV(srv) => srv.target.to_string(),
                other => type_word(other.type_code().into()),
            });
        Some(DnsMessage {
            id: packet.id(),
            is_answer: packet.has_flags(PacketFlag::RESPONSE),
            query: question.map_or_else(String::new, |question| {
                cut(question.qname.to_string()).to_ascii_lowercase()
            }),
            query_type: question.map_or_else(String::new, |one| type_word(one.qtype.into())),
            // Its extended codes have the bits in another place.
            response: match packet.opt() {
                Some(_) => DnsMessage::parse(bytes, &mut endless())?.response,
                None => response_word(packet.rcode()).into(),
            },
            answers: answers.map(cut).collect(),
        })
    }

    fn endless() -> WorkBudget {
        WorkBudget::with(usize::MAX)
    }

    #[test]
    fn ordinary_messages_are_read_as_by_simple_dns() {
        let messages = ordinary(PayloadKind::Dns);
        assert!(messages.len() > 5);
        for message in messages.iter().flat_map(|one| &one.payloads) {
            let read = DnsMessage::parse(message, &mut WorkBudget::for_packet());
            assert_eq!(read, by_simple_dns(message));
            assert!(read.is_some());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn what_simple_dns_reads_is_read_the_same_or_costs_more_than_the_budget(
            input in prop::collection::vec(any::<u8>(), 0..48),
            damage in prop::collection::vec((any::<u16>(), any::<u8>()), 0..3),
        ) {
            let mut message = hostile(&[&[0], &input[..]].concat()).payloads.concat();
            for (at, byte) in damage {
                let at = usize::from(at) % message.len();
                message[at] = byte;
            }
            if let Some(expected) = by_simple_dns(&message) {
                prop_assert_eq!(DnsMessage::parse(&message, &mut endless()), Some(expected));
            }
        }
    }

    #[test]
    fn an_extended_response_code_and_an_unknown_type_have_their_words() {
        let mut message = vec![0, 7, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 1];
        message.extend([1, b'a', 0, 0, 52, 0, 1]);
        message.extend([0xc0, 12, 0x12, 0x67, 0, 1, 0, 0, 0, 1, 0, 1, 9]);
        message.extend([0, 0, 41, 4, 0xd0, 1, 0, 0, 0, 0, 0]);
        let read = DnsMessage::parse(&message, &mut WorkBudget::for_packet()).expect("a message");
        assert_eq!((&*read.query, &*read.query_type), ("a", "TYPE52"));
        assert_eq!(
            (&*read.response, read.answers),
            ("BADVERS", vec!["TYPE4711".into()])
        );
    }
}
