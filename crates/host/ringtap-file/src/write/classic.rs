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

/// Whether the format, whose seconds have 32 bits, can hold a time: it ends on 7 February 2106.
#[inline]
pub fn holds_time(time_ns: u64) -> bool {
    u32::try_from(time_ns / 1_000_000_000).is_ok()
}

/// Appends a packet; a time that does not fit ([`holds_time`]) becomes the last second that does.
#[inline]
pub fn packet(into: &mut Vec<u8>, packet: &FilePacket<'_>) {
    let data = &packet.data[..packet.data.len().min(LARGEST_PACKET)];
    let captured = to_u32(data.len());
    let seconds = to_u32(packet.time_ns / 1_000_000_000).to_le_bytes();
    let nanoseconds = to_u32(packet.time_ns % 1_000_000_000).to_le_bytes();
    let mut head = [0; PACKET_HEADER];
    head[0..4].copy_from_slice(&seconds);
    head[4..8].copy_from_slice(&nanoseconds);
    head[8..12].copy_from_slice(&captured.to_le_bytes());
    head[12..16].copy_from_slice(&packet.wire_length.max(captured).to_le_bytes());
    into.extend_from_slice(&head);
    into.extend_from_slice(data);
}

/// The whole packets in the first `limit` bytes; `bytes` starts with a packet's header.
pub fn whole_packets(bytes: &[u8], limit: usize) -> WholeBlocks {
    super::whole(bytes, limit, |word| {
        Some((PACKET_HEADER + to_usize(word(8)?), Some(word(12)?)))
    })
}
