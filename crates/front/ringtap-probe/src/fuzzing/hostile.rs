// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payloads of ordinary hosts, and payloads that any bytes choose to be expensive to parse.

use super::cost::{PayloadKind, PayloadTrace};

/// Payload of a packet of 1,500 bytes.
const PACKET: usize = 1460;
/// Most bytes of a stream: more than a probe keeps of one.
const STREAM: usize = 12_000;
/// Most packets of a stream: more than a probe parses of one.
const PACKETS: usize = 40;
/// The name of the question, to which pointers lead.
const QUESTION_AT: u16 = 12;

/// Types of DNS records whose data have structures of their own.
const DNS_TYPES: [u16; 17] = [
    1, 2, 5, 6, 12, 15, 16, 28, 33, 35, 41, 46, 47, 64, 65, 255, 4711,
];
/// Bytes of which labels consist: plain, to be escaped, and not UTF-8.
const LABEL_BYTES: [u8; 5] = [b'a', b'Z', b'.', b'\\', 0xff];
/// Extensions of a ClientHello whose content is read, and others.
const EXTENSIONS: [u16; 10] = [0, 10, 13, 16, 43, 51, 41, 21, 0x0a0a, 0xff01];

/// Numbers that an input chooses; 0 when it is at its end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn below(&mut self, most: usize) -> usize {
        usize::from(u16::from_be_bytes([self.byte(), self.byte()])) % most.max(1)
    }

    fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }
}

/// Payloads that `input` chooses.
#[must_use]
pub fn hostile(input: &[u8]) -> PayloadTrace {
    let mut choices = Choices(input);
    let kind = choices.choose(&PayloadKind::ALL);
    let payloads = match kind {
        PayloadKind::Dns => vec![dns(&mut choices, PACKET)],
        PayloadKind::DnsStream => {
            let message = dns(&mut choices, STREAM);
            segments(&mut choices, &list(2, &message))
        }
        PayloadKind::Tls => {
            let hello = client_hello(&mut choices);
            let records = tls_records(&mut choices, &hello);
            segments(&mut choices, &records)
        }
        PayloadKind::Http => {
            let head = http_head(&mut choices);
            segments(&mut choices, &head)
        }
    };
    PayloadTrace {
        kind,
        payloads,
        is_back: kind != PayloadKind::Http && choices.byte() % 2 == 1,
    }
}

/// Payloads as clients and servers send them.
pub(crate) fn ordinary(kind: PayloadKind) -> Vec<PayloadTrace> {
    let trace = |is_back, payloads| PayloadTrace {
        kind,
        payloads,
        is_back,
    };
    match kind {
        PayloadKind::Dns => ordinary_dns()
            .into_iter()
            .map(|(is_back, message)| trace(is_back, vec![message]))
            .collect(),
        PayloadKind::DnsStream => ordinary_dns()
            .into_iter()
            .map(|(is_back, message)| trace(is_back, vec![list(2, &message)]))
            .collect(),
        PayloadKind::Tls => [40, 300, 1200]
            .map(|key_share| {
                let hello = list_of_records(&ordinary_hello(key_share), PACKET * 2);
                trace(false, hello.chunks(PACKET).map(<[u8]>::to_vec).collect())
            })
            .into(),
        PayloadKind::Http => [2, 8, 14]
            .map(|headers| trace(false, vec![ordinary_head(headers)]))
            .into(),
    }
}

fn ordinary_dns() -> Vec<(bool, Vec<u8>)> {
    let name = dns_name(&["www", "example", "org"]);
    let long = dns_name(&["a-longer-name", "of", "some-service", "example", "com"]);
    let at_question = pointer(QUESTION_AT);
    let address = |byte| record(&at_question, 1, &[192, 0, 2, byte]);
    let alias = record(&at_question, 5, &long);
    let exchange = [&[0, 10, 4], &b"mail"[..], &at_question].concat();
    let addresses: Vec<_> = (1..9).map(address).collect();
    let options = [0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0].to_vec();
    let soa = [&at_question[..], &at_question, &[0; 20]].concat();
    vec![
        (false, dns_message(0x0100, &name, 1, &[], &[])),
        (
            false,
            dns_message(0x0100, &long, 28, &[], std::slice::from_ref(&options)),
        ),
        (true, dns_message(0x8180, &name, 1, &[address(1)], &[])),
        (true, dns_message(0x8180, &name, 1, &addresses, &[options])),
        (
            true,
            dns_message(0x8180, &name, 1, &[alias, address(1), address(2)], &[]),
        ),
        (
            true,
            dns_message(0x8183, &long, 1, &[], &[record(&at_question, 6, &soa)]),
        ),
        (
            true,
            dns_message(
                0x8180,
                &name,
                15,
                &[record(&at_question, 15, &exchange)],
                &[],
            ),
        ),
    ]
}

/// A DNS message of about `most` bytes, full of records of one form.
fn dns(choices: &mut Choices<'_>, most: usize) -> Vec<u8> {
    let label = vec![choices.choose(&LABEL_BYTES); 1 + choices.below(63)];
    let label = list(1, &label);
    let labels = choices.below(255 / label.len() + 1);
    let name = [label.repeat(labels), vec![0]].concat();
    let kind = choices.choose(&DNS_TYPES);
    let (form, size) = (choices.byte() % 6, choices.below(64));
    let (owner_form, max_records) = (choices.byte() % 4, 1 + choices.below(1000));
    let question_kind = u16::from_be_bytes([0, choices.byte()]);
    let mut records = Vec::new();
    let mut length = 12 + name.len() + 4;
    let mut last = QUESTION_AT;
    while records.len() < max_records {
        let at = u16::try_from(length).unwrap_or(u16::MAX);
        let owner = match owner_form {
            0 => pointer(QUESTION_AT),
            1 => pointer(last),
            2 => vec![0],
            _ => [&label[..], &pointer(last)].concat(),
        };
        let data_at = at.saturating_add(u16::try_from(owner.len() + 10).unwrap_or_default());
        let head: &[u8] = match kind {
            15 => &[0, 1],
            33 => &[0, 1, 0, 1, 0, 1],
            _ => &[],
        };
        let data = match form {
            0 => pointer(QUESTION_AT),
            1 => pointer(last),
            2 => [&label[..], &pointer(QUESTION_AT)].concat(),
            3 => pointers(data_at, last, size),
            4 => vec![0; 4 * size],
            _ => options(size),
        };
        let one = record(&owner, kind, &[head, &data].concat());
        if length + one.len() > most {
            break;
        }
        last = match owner_form {
            3 => at,
            _ if form == 3 => data_at + 2 * u16::try_from(size.saturating_sub(1)).unwrap_or(0),
            _ => data_at,
        };
        length += one.len();
        records.push(one);
    }
    let answers = choices.below(records.len() + 1);
    let (others, answers) = match choices.byte() % 3 {
        0 => records.split_at(answers),
        _ => (&[][..], &records[..]),
    };
    dns_message(0x8180, &name, question_kind, answers, others)
}

/// Pointers, each to the one before it, the first to `target`.
fn pointers(at: u16, target: u16, count: usize) -> Vec<u8> {
    let mut target = target;
    let mut all = Vec::new();
    for number in 0..u16::try_from(count).unwrap_or_default() {
        all.extend(pointer(target));
        target = at.saturating_add(2 * number);
    }
    all
}

/// Empty parameters in rising order, as in OPT and SVCB.
fn options(count: usize) -> Vec<u8> {
    let count = u16::try_from(count).unwrap_or_default();
    let all = (0..count).flat_map(|number| [number.to_be_bytes(), [0, 0]].concat());
    [0, 1, 0].into_iter().chain(all).collect()
}

fn dns_message(
    flags: u16,
    name: &[u8],
    kind: u16,
    answers: &[Vec<u8>],
    others: &[Vec<u8>],
) -> Vec<u8> {
    let count = |records: &[Vec<u8>]| u16::try_from(records.len()).unwrap_or(u16::MAX);
    let header = [7, flags, 1, count(answers), 0, count(others)];
    let mut message: Vec<u8> = header.into_iter().flat_map(u16::to_be_bytes).collect();
    message.extend([name, &kind.to_be_bytes(), &[0, 1]].concat());
    message.extend(answers.concat());
    message.extend(others.concat());
    message
}

fn dns_name(labels: &[&str]) -> Vec<u8> {
    let labels = labels.iter().flat_map(|label| list(1, label.as_bytes()));
    labels.chain([0]).collect()
}

fn pointer(target: u16) -> Vec<u8> {
    (0xc000 | target.min(0x3fff)).to_be_bytes().into()
}

fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let class_and_time = [0, 1, 0, 0, 0, 60];
    [owner, &kind.to_be_bytes(), &class_and_time, &list(2, data)].concat()
}

fn client_hello(choices: &mut Choices<'_>) -> Vec<u8> {
    let budget = choices.below(STREAM);
    let ciphers: Vec<_> = (0..choices.below(budget / 2 + 1))
        .flat_map(|number| descending(number).to_be_bytes())
        .collect();
    let (kind, step) = (choices.choose(&EXTENSIONS), choices.byte() % 2);
    let (form, size) = (choices.byte() % 5, choices.below(1 << 10));
    let mut extensions = Vec::new();
    let mut number = 0;
    while extensions.len() + ciphers.len() < budget {
        let content = match form {
            0 => Vec::new(),
            // Names: those of servers have their type in front.
            1 => list(2, &[0, 0, 0].repeat(size)),
            // Protocols without a character, or with one.
            2 => list(2, &[1, b'h'].repeat(size)),
            3 => list(1, &[7; 254]),
            _ => list(2, &[4, 3].repeat(size)),
        };
        let kind = kind.wrapping_add(u16::from(step) * descending(number));
        extensions.extend([&kind.to_be_bytes()[..], &list(2, &content)].concat());
        number += 1;
    }
    extensions.truncate(usize::from(u16::MAX));
    hello(&ciphers, &extensions)
}

/// Numbers in an order that is expensive to sort.
fn descending(number: usize) -> u16 {
    let number = u16::try_from(number % 0x1_0000).unwrap_or_default();
    number.wrapping_mul(0x9e37)
}

fn ordinary_hello(key_share: usize) -> Vec<u8> {
    let ciphers = [
        0x1a1a_u16, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
        0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
    ];
    let name = list(2, &[&[0][..], &list(2, b"www.example.org")].concat());
    let protocols = [list(1, b"h2"), list(1, b"http/1.1")].concat();
    let signatures = [4, 3, 8, 4, 4, 1, 5, 3, 8, 5, 5, 1, 8, 6, 6, 1];
    let extensions = [
        (0x2a2a_u16, Vec::new()),
        (0, name),
        (23, Vec::new()),
        (0xff01, vec![0]),
        (10, list(2, &[0, 29, 0, 23, 0, 24])),
        (11, vec![1, 0]),
        (35, Vec::new()),
        (16, list(2, &protocols)),
        (5, vec![1, 0, 0, 0, 0]),
        (13, list(2, &signatures)),
        (18, Vec::new()),
        (
            51,
            list(2, &[&[0, 29][..], &list(2, &vec![5; key_share])].concat()),
        ),
        (45, vec![1, 1]),
        (43, list(1, &[3, 4, 3, 3])),
        (27, vec![2, 0, 2]),
        (21, vec![0; 100]),
    ];
    let extensions =
        extensions.map(|(kind, data)| [&kind.to_be_bytes()[..], &list(2, &data)].concat());
    hello(
        &ciphers.map(u16::to_be_bytes).concat(),
        &extensions.concat(),
    )
}

/// A ClientHello without its record.
fn hello(ciphers: &[u8], extensions: &[u8]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &list(2, ciphers),
        &[1, 0],
        &list(2, extensions),
    ];
    [&[1][..], &list(3, &body.concat())].concat()
}

fn tls_records(choices: &mut Choices<'_>, message: &[u8]) -> Vec<u8> {
    let length = match choices.byte() % 3 {
        0 => message.len(),
        1 => 1 + choices.below(16),
        _ => 1 + choices.below(16_384),
    };
    list_of_records(message, length)
}

fn list_of_records(message: &[u8], length: usize) -> Vec<u8> {
    let parts = message.chunks(length.clamp(1, 16_384));
    let records = parts.map(|part| [&[22, 3, 1][..], &list(2, part)].concat());
    records.collect::<Vec<_>>().concat()
}

fn http_head(choices: &mut Choices<'_>) -> Vec<u8> {
    let budget = choices.below(STREAM);
    let path = vec![choices.choose(b"/a%\xc3"); choices.below(budget + 1)];
    let (name, value) = (1 + choices.below(64), choices.below(512));
    let line_end = choices.choose(&["\r\n", "\n"]).as_bytes();
    let fill = choices.choose(b"x \t\xff");
    let line = [&vec![b'n'; name][..], b":", &vec![fill; value], line_end].concat();
    let mut head = [b"GET /", &path[..], b" HTTP/1.1", line_end].concat();
    while head.len() < budget {
        head.extend(&line);
    }
    head.extend(line_end);
    head
}

fn ordinary_head(headers: usize) -> Vec<u8> {
    let mut head = b"GET /index.html?q=1 HTTP/1.1\r\nHost: www.example.org\r\n".to_vec();
    for number in 0..headers {
        head.extend(format!("X-Header-{number}: some value of usual length\r\n").bytes());
    }
    head.extend(b"\r\n");
    head
}

/// The segments of a stream: large ones, then many of few bytes.
fn segments(choices: &mut Choices<'_>, stream: &[u8]) -> Vec<Vec<u8>> {
    let small = 1 + choices.below(8);
    let many = choices.below(PACKETS).min(stream.len() / small);
    let (large, tail) = stream.split_at(stream.len() - many * small);
    let first = match choices.byte() % 2 {
        0 => PACKET,
        _ => 1 + choices.below(PACKET),
    };
    let all = large.chunks(first).chain(tail.chunks(small));
    all.take(PACKETS).map(<[u8]>::to_vec).collect()
}

/// A list after its length, a number of this many bytes.
fn list(length_bytes: usize, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    [&length[length.len() - length_bytes..], content].concat()
}

/// The answers of the attack that showed why labels are counted: `records` names, each of 126 labels.
#[cfg(test)]
pub(super) fn many_labels(records: usize, kind: u16) -> PayloadTrace {
    let name = [[1, b'a'].repeat(126), vec![0]].concat();
    let one = record(&pointer(QUESTION_AT), kind, &pointer(QUESTION_AT));
    PayloadTrace {
        kind: PayloadKind::Dns,
        payloads: vec![dns_message(0x8180, &name, 1, &vec![one; records], &[])],
        is_back: true,
    }
}
