// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the classic pcap format with nanosecond times, little-endian, into a buffer; no I/O.
//!
//! The format has neither counters, directions, losses nor names of interfaces.

use ringtap_filter::LinkType;
use ringtap_pool::number::{to_u32, to_usize};

use super::{FilePacket, LARGEST_PACKET, WholeBlocks};
use crate::pcap::NANOSECONDS;

/// Bytes of the file's header.
pub const FILE_HEADER: usize = 24;
/// Bytes before the data of a packet.
const PACKET_HEADER: usize = 16;

/// Appends the header of a file.
pub fn file_header(into: &mut Vec<u8>, link_type: LinkType) {
    let version = 2 | 4 << 16;
    let snap_length = to_u32(LARGEST_PACKET);
    let link_type = u32::from(link_type.0);
    for word in [NANOSECONDS, version, 0, 0, snap_length, link_type] {
        into.extend_from_slice(&word.to_le_bytes());
    }
}

/// Appends a packet; times after the year 2106 wrap around.
#[inline]
pub fn packet(into: &mut Vec<u8>, packet: &FilePacket<'_>) {
    let data = &packet.data[..packet.data.len().min(LARGEST_PACKET)];
    let captured = to_u32(data.len());
    let seconds = low_word(packet.time_ns / 1_000_000_000);
    let nanoseconds = low_word(packet.time_ns % 1_000_000_000);
    let mut head = [0; PACKET_HEADER];
    head[0..4].copy_from_slice(&seconds);
    head[4..8].copy_from_slice(&nanoseconds);
    head[8..12].copy_from_slice(&captured.to_le_bytes());
    head[12..16].copy_from_slice(&packet.wire_length.max(captured).to_le_bytes());
    into.extend_from_slice(&head);
    into.extend_from_slice(data);
}

/// The lower 32 bits, little-endian.
fn low_word(value: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = value.to_le_bytes();
    [a, b, c, d]
}

/// The whole packets in the first `limit` bytes; `bytes` starts with a packet's header.
pub fn whole_packets(bytes: &[u8], limit: usize) -> WholeBlocks {
    super::whole(bytes, limit, |word| {
        Some((PACKET_HEADER + to_usize(word(8)?), Some(word(12)?)))
    })
}
