// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS handshakes: server name, ALPN, version, cipher, and the client's JA4 fingerprint.

use sha2::{Digest as _, Sha256};
use tls_parser::{
    TlsClientHelloContents, TlsExtension, TlsMessage, TlsMessageHandshake, TlsRecordType,
    TlsServerHelloContents, parse_tls_client_hello_extension, parse_tls_extension_unknown,
    parse_tls_message_handshake, parse_tls_raw_record, parse_tls_server_hello_extension,
};

use super::{ParseProgress, text};
use crate::record::Details;

const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;

/// Reads the hello message with which one direction begins.
pub(super) fn read(bytes: &[u8], details: &mut Details) -> ParseProgress {
    let mut rest = bytes;
    let mut messages = Vec::new();
    loop {
        match parse_tls_raw_record(rest) {
            Ok((after, record)) if record.hdr.record_type == TlsRecordType::Handshake => {
                messages.extend_from_slice(record.data);
                rest = after;
            }
            Err(error) if error.is_incomplete() => return ParseProgress::More,
            _ => return ParseProgress::Malformed,
        }
        match parse_tls_message_handshake(&messages) {
            Ok((_, TlsMessage::Handshake(TlsMessageHandshake::ClientHello(hello)))) => {
                client(&hello, details);
            }
            Ok((_, TlsMessage::Handshake(TlsMessageHandshake::ServerHello(hello)))) => {
                server(&hello, details);
            }
            Err(error) if error.is_incomplete() => continue,
            _ => return ParseProgress::Malformed,
        }
        details.application = Some("tls".into());
        return ParseProgress::Done;
    }
}

fn client(hello: &TlsClientHelloContents<'_>, details: &mut Details) {
    let (mut types, mut versions, mut signatures) = (Vec::new(), Vec::new(), Vec::new());
    let (mut name, mut first_alpn) = (None, None);
    let mut rest = hello.ext.unwrap_or_default();
    while let Ok((after, TlsExtension::Unknown(kind, _))) = parse_tls_extension_unknown(rest) {
        if !is_grease(kind.0) {
            types.push(kind.0);
        }
        match parse_tls_client_hello_extension(rest) {
            Ok((_, TlsExtension::SNI(names))) => name = names.first().map(|(_, name)| text(name)),
            Ok((_, TlsExtension::ALPN(protocols))) => first_alpn = protocols.first().copied(),
            Ok((_, TlsExtension::SupportedVersions(all))) => {
                versions = all.into_iter().map(|version| version.0).collect();
            }
            Ok((_, TlsExtension::SignatureAlgorithms(all))) => signatures = all,
            _ => {}
        }
        rest = after;
    }
    let known = versions.into_iter().filter(|version| !is_grease(*version));
    let version = known.max().unwrap_or(hello.version.0);
    let ciphers = hello.ciphers.iter().map(|cipher| cipher.0);
    let ciphers = ciphers.filter(|cipher| !is_grease(*cipher)).collect();
    details.ja4 = Some(ja4(version, ciphers, types, &signatures, first_alpn));
    details.server_name = name;
    // What the server chose stays, if its packet came first.
    details.alpn = details.alpn.take().or(first_alpn.map(text));
    details
        .tls_version
        .get_or_insert_with(|| version_name(version));
}

fn server(hello: &TlsServerHelloContents<'_>, details: &mut Details) {
    let mut version = hello.version.0;
    let mut rest = hello.ext.unwrap_or_default();
    while let Ok((after, _)) = parse_tls_extension_unknown(rest) {
        match parse_tls_server_hello_extension(rest) {
            Ok((_, TlsExtension::SupportedVersions(chosen))) => {
                version = chosen.first().map_or(version, |chosen| chosen.0);
            }
            Ok((_, TlsExtension::ALPN(chosen))) => {
                details.alpn = chosen.first().map(|one| text(one))
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
    details.tls_cipher = Some(name);
    details.tls_version = Some(version_name(version));
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
    match first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        true => format!("{}{}", char::from(first), char::from(last)),
        false => format!("{:x}{:x}", first >> 4, last & 0x0f),
    }
}

fn hex_list(values: &[u16]) -> String {
    let values: Vec<_> = values.iter().map(|value| format!("{value:04x}")).collect();
    values.join(",")
}

/// First 12 hexadecimal digits of SHA-256; zeros for an empty list.
fn short_hash(list: &str) -> String {
    match list.is_empty() {
        true => "0".repeat(12),
        false => {
            let hash = Sha256::digest(list);
            hash.iter()
                .take(6)
                .map(|byte| format!("{byte:02x}"))
                .collect()
        }
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
