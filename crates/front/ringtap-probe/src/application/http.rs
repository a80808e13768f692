// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host of an HTTP/1 request.

use super::{ParseProgress, text};
use crate::record::Details;

/// Header lines of a request that are read.
const MOST_HEADERS: usize = 64;
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

/// Whether a stream that begins like this is one of requests.
pub(super) fn begins(payload: &[u8]) -> bool {
    METHODS.iter().any(|method| payload.starts_with(method))
}

/// Reads the first request.
pub(super) fn read(bytes: &[u8], details: &mut Details) -> ParseProgress {
    if !begins(bytes) {
        // The other direction: answers are not read.
        return ParseProgress::Done;
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return ParseProgress::More,
        Err(_) => return ParseProgress::Malformed,
        Ok(httparse::Status::Complete(_)) => {}
    }
    let host = request
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("host"));
    details.application = Some("http".into());
    details.server_name = host.map(|header| text(header.value));
    ParseProgress::Done
}
