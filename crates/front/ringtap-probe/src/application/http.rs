// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host of an HTTP/1 request.
//!
//! Lines are read as they come, up to the one with the host. A parser of whole heads would begin again with each
//! segment of a head that comes in many.

use super::budget::WorkBudget;
use super::stream::{ParseStatus, StreamStart};
use super::text::text;
use crate::record::Details;

const METHODS: [&[u8]; 8] = [
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
];

/// Longest name of a header, in bytes.
const MAX_NAME: usize = 64;

/// Whether a stream that begins like this is one of requests.
pub(super) fn begins(payload: &[u8]) -> bool {
    METHODS.iter().any(|method| payload.starts_with(method))
}

/// Whether a request asks a proxy for a connection, in which another protocol follows.
pub(super) fn asks_for_tunnel(request: &[u8]) -> bool {
    request.starts_with(b"CONNECT ")
}

/// Reads the first request up to its host.
pub(super) fn read(
    stream: &mut StreamStart,
    details: &mut Details,
    budget: &mut WorkBudget,
) -> ParseStatus {
    if !begins(&stream.bytes) {
        // The other direction: answers are not read.
        return ParseStatus::Done;
    }
    lines(stream, details, budget).unwrap_or(ParseStatus::Malformed)
}

/// Reads the lines that are whole; `None` if one is malformed, or they cost more than the budget.
fn lines(
    stream: &mut StreamStart,
    details: &mut Details,
    budget: &mut WorkBudget,
) -> Option<ParseStatus> {
    loop {
        let new = &stream.bytes[stream.scanned..];
        let Some(length) = memchr::memchr(b'\n', new) else {
            budget.bytes(new.len())?;
            stream.scanned = stream.bytes.len();
            return Some(ParseStatus::More);
        };
        let end = stream.scanned + length;
        let line = &stream.bytes[stream.parsed..end];
        budget.items(1, length + MAX_NAME)?;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let host = match stream.parsed {
            0 => request_line(line).map(|()| None)?,
            _ if line.is_empty() => Some(None),
            _ => header(line)?.map(Some),
        };
        (stream.parsed, stream.scanned) = (end + 1, end + 1);
        if let Some(host) = host {
            details.application = Some("http".into());
            details.server_name = host.map(text);
            return Some(ParseStatus::Done);
        }
    }
}

/// Checks that a line ends with a version of HTTP.
fn request_line(line: &[u8]) -> Option<()> {
    let target = line.strip_suffix(b"1").or(line.strip_suffix(b"0"))?;
    target.strip_suffix(b" HTTP/1.").map(|_| ())
}

/// The value of a header if it is the host; `None` if the line is none of a header.
fn header(line: &[u8]) -> Option<Option<&[u8]>> {
    let colon = line.iter().take(MAX_NAME).position(|byte| *byte == b':')?;
    let (name, value) = line.split_at(colon);
    let is_host = name.eq_ignore_ascii_case(b"host");
    (!name.is_empty()).then(|| is_host.then(|| value[1..].trim_ascii()))
}
