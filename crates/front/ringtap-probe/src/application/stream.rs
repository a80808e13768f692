// SPDX-License-Identifier: MIT OR Apache-2.0
//! First bytes of TCP streams, in order.
//!
//! Invariant: parsers go on where they stopped, so that no byte is read again with each segment.

use ringtap_pool::number::to_u32;

use super::http;
use crate::packet::{Dissected, SYN, TCP};

/// Segments of each direction that the parser reads: bounds the work for a sender of tiny segments.
const MAX_SEGMENTS: u8 = 32;

pub(super) const DNS_PORT: u16 = 53;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamProtocol {
    Tls,
    Http,
    Dns,
}

/// A parser's verdict on the first bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParseStatus {
    /// All is found.
    Done,
    /// Further bytes are needed.
    More,
    Malformed,
}

#[derive(Debug)]
pub(super) struct TcpStreams {
    pub(super) protocol: StreamProtocol,
    pub(super) directions: [StreamStart; 2],
}

/// First bytes of one direction.
#[derive(Debug, Default)]
pub(super) struct StreamStart {
    pub(super) bytes: Vec<u8>,
    /// What the parser has dealt with, in bytes: whole lines of HTTP; of TLS, handshake messages without the
    /// headers of their records, which it moves to the begin.
    pub(super) parsed: usize,
    /// Bytes that the parser has read: all of HTTP; records of TLS.
    pub(super) scanned: usize,
    /// Next expected sequence number.
    next: u32,
    segments: u8,
    pub(super) is_over: bool,
}

impl StreamProtocol {
    /// The protocol of a TCP flow by its first segment with payload.
    pub(super) fn from_first_segment(packet: &Dissected<'_>) -> Option<Self> {
        let (from, to) = packet.key.ports;
        if packet.key.protocol != TCP || packet.tcp?.flags & SYN != 0 {
            return None;
        }
        match packet.payload() {
            _ if from == DNS_PORT || to == DNS_PORT => Some(StreamProtocol::Dns),
            // A handshake record of any version.
            [22, 3, ..] => Some(StreamProtocol::Tls),
            payload if http::begins(payload) => Some(StreamProtocol::Http),
            _ => None,
        }
    }

    /// The protocol that begins with a later segment: a record of TLS with a hello.
    pub(super) fn from_later_segment(packet: &Dissected<'_>) -> Option<Self> {
        match packet.payload() {
            [22, 3, _, _, _, 1 | 2, ..] => Some(StreamProtocol::Tls),
            _ => None,
        }
    }
}

impl TcpStreams {
    pub(super) fn new(protocol: StreamProtocol) -> Box<Self> {
        let directions = Default::default();
        Box::new(TcpStreams {
            protocol,
            directions,
        })
    }
}

impl StreamStart {
    /// Whether no further bytes are taken.
    pub(super) fn is_full(&self, most: usize) -> bool {
        self.bytes.len() >= most || self.segments >= MAX_SEGMENTS
    }

    /// Appends a segment up to `most` bytes in all; `false` if bytes before it are missing.
    pub(super) fn add(&mut self, sequence: u32, payload: &[u8], most: usize) -> bool {
        if self.segments == 0 {
            self.next = sequence;
        }
        self.segments = self.segments.saturating_add(1);
        let Ok(seen) = usize::try_from(self.next.wrapping_sub(sequence).cast_signed()) else {
            return false;
        };
        let new = payload.get(seen..).unwrap_or_default();
        let new = new
            .get(..most.saturating_sub(self.bytes.len()))
            .unwrap_or(new);
        self.bytes.extend_from_slice(new);
        let added = to_u32(new.len());
        self.next = self.next.wrapping_add(added);
        true
    }
}
