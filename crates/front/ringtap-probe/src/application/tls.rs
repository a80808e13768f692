// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS handshakes: server name, ALPN, version, cipher, and the client's JA4 fingerprint.
//!
//! tls-parser makes a list of each list in an extension, with an entry for each of its bytes. So of extensions it
//! reads only the headers; of their contents, records need the first entry or numbers.

use sha2::{Digest as _, Sha256};
use tls_parser::{
    TlsClientHelloContents, TlsExtension, TlsMessage, TlsMessageHandshake, TlsRecordType,
    TlsServerHelloContents, parse_tls_extension_unknown, parse_tls_message_handshake,
    parse_tls_raw_record,
};

use super::budget::WorkBudget;
use super::stream::{ParseStatus, StreamStart};
use super::text::text;
use crate::record::Details;

/// Types of handshake messages.
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// Types of extensions.
const SERVER_NAME: u16 = 0;
const SIGNATURES: u16 = 13;
const ALPN: u16 = 16;
const VERSIONS: u16 = 43;
/// Lengths in bytes.
const RECORD_HEADER: usize = 5;
const MESSAGE_HEADER: usize = 4;
const EXTENSION_HEADER: usize = 4;
/// Bytes before a client's cipher suites besides the identifier of its session, which others do not exceed.
const FIXED_PART: usize = 41;
/// Random number of a server hello that asks for a second client hello (RFC 8446, 4.1.3).
pub(super) const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Bytes touched for a number in JA4, which is sorted, written in hexadecimal, and hashed.
const NUMBER_WORK: usize = 16;

/// Reads the hello message with which one direction begins; of a server that asks for another client hello, also
/// the hello that follows.
pub(super) fn read(
    stream: &mut StreamStart,
    details: &mut Details,
    budget: &mut WorkBudget,
) -> ParseStatus {
    loop {
        match message_length(&stream.bytes[..stream.parsed]) {
            Some(length) if length <= stream.parsed => {
                match hello(&stream.bytes[..length], details, budget) {
                    None => return ParseStatus::Malformed,
                    Some(AfterHello::End) => return ParseStatus::Done,
                    Some(AfterHello::AnotherHello) => {
                        stream.bytes.copy_within(length..stream.parsed, 0);
                        stream.parsed -= length;
                        continue;
                    }
                }
            }
            _ => {}
        }
        let length = match parse_tls_raw_record(&stream.bytes[stream.scanned..]) {
            Ok((_, record)) if record.hdr.record_type == TlsRecordType::Handshake => {
                record.data.len()
            }
            // Between two hellos, for middleboxes (RFC 8446, D.4).
            Ok((_, record)) if record.hdr.record_type == TlsRecordType::ChangeCipherSpec => {
                stream.scanned += RECORD_HEADER + record.data.len();
                if budget.items(1, RECORD_HEADER).is_none() {
                    return ParseStatus::Malformed;
                }
                continue;
            }
            Err(error) if error.is_incomplete() => return ParseStatus::More,
            _ => return ParseStatus::Malformed,
        };
        if budget.items(1, RECORD_HEADER).is_none() {
            return ParseStatus::Malformed;
        }
        // Joins the messages of all records at the begin.
        let begin = stream.scanned + RECORD_HEADER;
        stream.scanned = begin + length;
        stream
            .bytes
            .copy_within(begin..stream.scanned, stream.parsed);
        stream.parsed += length;
    }
}

/// Length of the handshake message at the begin of `bytes`, with its header.
fn message_length(bytes: &[u8]) -> Option<usize> {
    let &[_, a, b, c] = bytes.first_chunk()?;
    let length = u32::from_be_bytes([0, a, b, c]);
    Some(MESSAGE_HEADER + usize::try_from(length).unwrap_or(usize::MAX - MESSAGE_HEADER))
}

/// Messages of a direction after its hello.
enum AfterHello {
    /// Nothing that tells more.
    End,
    AnotherHello,
}

/// Bytes of a hello that are touched, besides those of extensions, which pay for themselves: for a client its
/// fixed part and its cipher suites.
fn touched(message: &[u8]) -> usize {
    let session = message.get(38).copied().unwrap_or_default();
    let at = 39 + usize::from(session);
    let suites = match message.get(at..) {
        Some([high, low, ..]) if message.first() == Some(&CLIENT_HELLO) => {
            u16::from_be_bytes([*high, *low])
        }
        _ => 0,
    };
    FIXED_PART + usize::from(session) + usize::from(suites)
}

/// Reads a whole message; `None` if it is no hello, malformed, or costs more than the budget.
fn hello(message: &[u8], details: &mut Details, budget: &mut WorkBudget) -> Option<AfterHello> {
    budget.bytes(touched(message))?;
    let mut after = AfterHello::End;
    if !matches!(message.first(), Some(&(CLIENT_HELLO | SERVER_HELLO))) {
        return None;
    }
    match parse_tls_message_handshake(message).ok()?.1 {
        TlsMessage::Handshake(TlsMessageHandshake::ClientHello(hello)) => {
            client(&hello, details, budget)?;
        }
        TlsMessage::Handshake(TlsMessageHandshake::ServerHello(hello)) => {
            server(&hello, details, budget)?;
            if hello.random == RETRY {
                after = AfterHello::AnotherHello;
            }
        }
        _ => return None,
    }
    details.application = Some("tls".into());
    Some(after)
}

fn client(
    hello: &TlsClientHelloContents<'_>,
    details: &mut Details,
    budget: &mut WorkBudget,
) -> Option<()> {
    let (mut types, mut versions, mut signatures) = (Vec::new(), Vec::new(), Vec::new());
    let (mut name, mut first_alpn) = (None, None);
    let mut rest = hello.ext.unwrap_or_default();
    while let Ok((after, TlsExtension::Unknown(kind, content))) = parse_tls_extension_unknown(rest)
    {
        budget.items(1, EXTENSION_HEADER)?;
        if !is_grease(kind.0) {
            types.push(kind.0);
        }
        match kind.0 {
            SERVER_NAME => name = first_name(content),
            ALPN => first_alpn = first_protocol(content),
            VERSIONS => versions = numbers(content.get(1..).unwrap_or_default(), budget)?,
            SIGNATURES => signatures = numbers(content.get(2..).unwrap_or_default(), budget)?,
            _ => {}
        }
        rest = after;
    }
    let known = versions.into_iter().filter(|version| !is_grease(*version));
    let version = known.max().unwrap_or(hello.version.0);
    budget.bytes(NUMBER_WORK * (hello.ciphers.len() + types.len()))?;
    let ciphers = hello
        .ciphers
        .iter()
        .map(|cipher| cipher.0)
        .filter(|cipher| !is_grease(*cipher))
        .collect();
    details.ja4 = Some(ja4(version, ciphers, types, &signatures, first_alpn));
    details.server_name = name.map(text);
    // What the server chose stays, if its packet came first.
    details.alpn = details.alpn.take().or(first_alpn.map(text));
    details
        .tls_version
        .get_or_insert_with(|| version_name(version));
    Some(())
}

fn server(
    hello: &TlsServerHelloContents<'_>,
    details: &mut Details,
    budget: &mut WorkBudget,
) -> Option<()> {
    let mut version = hello.version.0;
    let mut alpn = None;
    let mut rest = hello.ext.unwrap_or_default();
    while let Ok((after, TlsExtension::Unknown(kind, content))) = parse_tls_extension_unknown(rest)
    {
        budget.items(1, EXTENSION_HEADER)?;
        match kind.0 {
            ALPN => alpn = first_protocol(content).map(text),
            VERSIONS => {
                let chosen = content.first_chunk().copied();
                version = chosen.map_or(version, u16::from_be_bytes);
            }
            _ => {}
        }
        rest = after;
    }
    let cipher = hello.cipher.get_ciphersuite();
    let name = cipher.map_or_else(
        || format!("{:#06x}", hello.cipher.0),
        |cipher| cipher.name.into(),
    );
    details.alpn = alpn.or(details.alpn.take());
    details.tls_cipher = Some(name);
    details.tls_version = Some(version_name(version));
    Some(())
}

/// The first name in a server name extension.
fn first_name(content: &[u8]) -> Option<&[u8]> {
    match content {
        [_, _, _, high, low, rest @ ..] => rest.get(..u16::from_be_bytes([*high, *low]).into()),
        _ => None,
    }
}

/// The first protocol in an ALPN extension.
fn first_protocol(content: &[u8]) -> Option<&[u8]> {
    match content {
        [_, _, length, rest @ ..] => rest.get(..usize::from(*length)),
        _ => None,
    }
}

/// The numbers of a list.
fn numbers(list: &[u8], budget: &mut WorkBudget) -> Option<Vec<u16>> {
    let numbers = list.as_chunks().0;
    budget.bytes(NUMBER_WORK * numbers.len())?;
    let numbers = numbers.iter().copied();
    Some(numbers.map(u16::from_be_bytes).collect())
}

/// Reserved values that clients mix in at random (RFC 8701).
fn is_grease(value: u16) -> bool {
    let [high, low] = value.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

/// Name of a version, as Zeek writes it.
fn version_name(version: u16) -> String {
    match version {
        0x0300 => "SSLv3".into(),
        0x0301 => "TLSv10".into(),
        0x0302 => "TLSv11".into(),
        0x0303 => "TLSv12".into(),
        0x0304 => "TLSv13".into(),
        other => format!("{other:#06x}"),
    }
}

/// The JA4 fingerprint of a client over TCP; the lists are in the client's order, without GREASE.
fn ja4(
    version: u16,
    mut ciphers: Vec<u16>,
    mut extensions: Vec<u16>,
    signatures: &[u16],
    alpn: Option<&[u8]>,
) -> String {
    let version = match version {
        0x0300 => "s3",
        0x0301 => "10",
        0x0302 => "11",
        0x0303 => "12",
        0x0304 => "13",
        _ => "00",
    };
    let sni = if extensions.contains(&SERVER_NAME) {
        'd'
    } else {
        'i'
    };
    let (cipher_count, extension_count) = (ciphers.len().min(99), extensions.len().min(99));
    let alpn = match alpn {
        Some([first, .., last] | [first @ last]) => ends(*first, *last),
        _ => "00".into(),
    };
    ciphers.sort_unstable();
    extensions.retain(|extension| ![SERVER_NAME, ALPN].contains(extension));
    extensions.sort_unstable();
    let mut lists = hex_list(&extensions);
    if !extensions.is_empty() && !signatures.is_empty() {
        lists = format!("{lists}_{}", hex_list(signatures));
    }
    format!(
        "t{version}{sni}{cipher_count:02}{extension_count:02}{alpn}_{}_{}",
        short_hash(&hex_list(&ciphers)),
        short_hash(&lists)
    )
}

/// First and last character of an ALPN value; of their hexadecimal form if one is not alphanumeric.
fn ends(first: u8, last: u8) -> String {
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        format!("{}{}", char::from(first), char::from(last))
    } else {
        format!("{:x}{:x}", first >> 4, last & 0x0f)
    }
}

fn hex_list(values: &[u16]) -> String {
    let mut list = String::with_capacity(5 * values.len());
    for value in values {
        if !list.is_empty() {
            list.push(',');
        }
        let digits = [12, 8, 4, 0].map(|shift| u32::from(value >> shift & 0xf));
        list.extend(digits.map(|digit| char::from_digit(digit, 16).unwrap_or('0')));
    }
    list
}

/// First 12 hexadecimal digits of SHA-256; zeros for an empty list.
fn short_hash(list: &str) -> String {
    if list.is_empty() {
        "0".repeat(12)
    } else {
        let hash = Sha256::digest(list);
        hash.iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ja4_is_that_of_its_specification() {
        // The example of the specification: Chrome, with the hashes stated there.
        let ciphers = [
            0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014,
            0x009c, 0x009d, 0x002f, 0x0035,
        ];
        let extensions = [
            0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023, 0x0012,
            0x002b, 0xff01, 0x000b, 0x000a, 0x0015,
        ];
        let signatures = [
            0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601,
        ];
        let got = ja4(
            0x0304,
            ciphers.into(),
            extensions.into(),
            &signatures,
            Some(b"h2"),
        );
        assert_eq!(got, "t13d1516h2_8daaf6152771_e5627efa2ab1");
    }

    #[test]
    fn ja4_of_an_empty_client_hello_has_zeros() {
        assert_eq!(
            ja4(0x0303, Vec::new(), Vec::new(), &[], None),
            "t12i000000_000000000000_000000000000"
        );
    }
}
