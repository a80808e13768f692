// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes pcapng blocks into a buffer, little-endian; no I/O.
//!
//! Invariants
//! - Every function appends exactly one whole block.
//! - Times are nanoseconds: each interface is described with `if_tsresol` 9.

pub mod classic;

use ringtap_filter::MAX_SNAP_LENGTH;
use ringtap_pool::number::{to_u16, to_u32, to_usize};

use super::{
    interface::{FileInterface, Statistics},
    pcapng::{BYTE_ORDER_MARK, INTERFACE, PACKET, SECTION_HEADER, STATISTICS},
    reader::PacketDirection,
};

/// Bytes of a packet block around its data, without padding and options.
const PACKET_FRAME: usize = 32;
/// Longer packets are cut.
const LARGEST_PACKET: usize = MAX_SNAP_LENGTH as usize;
/// An option's length has 16 bits.
const LARGEST_OPTION: usize = 65_532;

/// A packet to write.
#[derive(Clone, Copy, Debug)]
pub struct FilePacket<'a> {
    /// Number of its interface in the section, from 0.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Bytes on the wire.
    pub wire_length: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// The direction of the packet.
    pub direction: PacketDirection,
    /// Packets that were lost directly before this one.
    pub dropped_before: u64,
    /// A comment on the packet, cut after 160 bytes.
    pub comment: Option<&'a str>,
    /// The packet is larger than those on the wire: merged by GRO, or not yet segmented.
    pub is_super: bool,
    /// The NIC, whose clock the interface has, did not stamp the packet: the host did.
    pub lacks_nic_time: bool,
}

impl<'a> FilePacket<'a> {
    /// A packet of the section's first interface that is captured whole, without direction, losses and comments.
    pub fn new(time_ns: u64, data: &'a [u8]) -> Self {
        Self {
            interface: 0,
            time_ns,
            wire_length: to_u32(data.len()),
            data,
            direction: PacketDirection::Unknown,
            dropped_before: 0,
            comment: None,
            is_super: false,
            lacks_nic_time: false,
        }
    }
}

/// Longest comment of the caller.
const LONGEST_COMMENT: usize = 160;
/// Comment on packets that are larger than those on the wire.
const SUPER: &[u8] = b"not as on the wire: merged by GRO, or not yet cut by GSO";

/// Comment on packets without a time stamp of the NIC.
const HOST_TIME: &[u8] = b"stamped by the host: the network adapter did not";

/// The machine and the program that wrote the file.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The processor.
    pub hardware: Option<String>,
    /// The operating system and its version.
    pub os: Option<String>,
    /// The program and its version.
    pub application: String,
}

/// Appends the section header.
pub fn section(into: &mut Vec<u8>, origin: &Origin) {
    block(into, SECTION_HEADER, |b| {
        put(b, BYTE_ORDER_MARK);
        b.extend_from_slice(&[1, 0, 0, 0]);
        // The length of the section is not known before its end.
        b.extend_from_slice(&u64::MAX.to_le_bytes());
        for (code, text) in [(2, &origin.hardware), (3, &origin.os)] {
            if let Some(text) = text {
                option(b, code, text.as_bytes());
            }
        }
        option(b, 4, origin.application.as_bytes());
        end_of_options(b);
    });
}

/// Appends the description of the section's next interface; its times are in nanoseconds.
pub fn interface(into: &mut Vec<u8>, interface: &FileInterface, os: Option<&str>) {
    block(into, INTERFACE, |b| {
        put(b, u32::from(interface.link_type.0));
        put(b, interface.snap_length);
        for (code, text) in [(1, &interface.comment), (2, &interface.name)] {
            if let Some(text) = text {
                option(b, code, text.as_bytes());
            }
        }
        option(b, 9, &[9]);
        if let Some(filter) = &interface.filter {
            // The first byte says that a pcap-filter expression follows.
            option(b, 11, &[&[0], filter.as_bytes()].concat());
        }
        if let Some(os) = os {
            option(b, 12, os.as_bytes());
        }
        end_of_options(b);
    });
}

/// Largest size of the block for a packet with this much data, in bytes.
pub fn packet_room(data: usize) -> usize {
    // Padding, flags, drop count, comments, end of options.
    let comments = (4 + SUPER.len()) + (4 + HOST_TIME.len()) + (4 + LONGEST_COMMENT);
    PACKET_FRAME + data.min(LARGEST_PACKET) + 3 + 8 + 12 + comments + 4
}

/// Appends a packet.
#[inline]
pub fn packet(into: &mut Vec<u8>, packet: &FilePacket<'_>) {
    let data = &packet.data[..packet.data.len().min(LARGEST_PACKET)];
    let flags: u32 = match packet.direction {
        PacketDirection::Inbound => 1,
        PacketDirection::Outbound => 2,
        PacketDirection::Unknown => 0,
    };
    let captured = to_u32(data.len());
    let time = packet.time_ns.to_le_bytes();
    let start = into.len();
    // The length, at 4, follows at the end.
    let mut head = [0; 28];
    head[0..4].copy_from_slice(&PACKET.to_le_bytes());
    head[8..12].copy_from_slice(&packet.interface.to_le_bytes());
    head[12..16].copy_from_slice(&time[4..]);
    head[16..20].copy_from_slice(&time[..4]);
    head[20..24].copy_from_slice(&captured.to_le_bytes());
    head[24..28].copy_from_slice(&packet.wire_length.max(captured).to_le_bytes());
    into.extend_from_slice(&head);
    padded(into, data);
    let options = into.len();
    if packet.is_super {
        option(into, 1, SUPER);
    }
    if packet.lacks_nic_time {
        option(into, 1, HOST_TIME);
    }
    if let Some(comment) = comment(packet) {
        option(into, 1, comment);
    }
    if flags != 0 {
        option(into, 2, &flags.to_le_bytes());
    }
    if packet.dropped_before != 0 {
        option(into, 4, &packet.dropped_before.to_le_bytes());
    }
    if into.len() > options {
        end_of_options(into);
    }
    end_of_block(into, start);
}

/// The caller's comment, not too long.
#[inline]
fn comment<'a>(packet: &FilePacket<'a>) -> Option<&'a [u8]> {
    let text = packet.comment?;
    let ends = (0..=LONGEST_COMMENT.min(text.len())).rev();
    let end = { ends }.find(|end| text.is_char_boundary(*end));
    text.as_bytes().get(..end?)
}

/// Appends the statistics of this interface of the section; values that are `None` are left out.
pub fn statistics(into: &mut Vec<u8>, interface: u32, statistics: &Statistics) {
    block(into, STATISTICS, |b| {
        put(b, interface);
        split(b, statistics.time_ns);
        if let Some(comment) = &statistics.comment {
            option(b, 1, comment.as_bytes());
        }
        for (code, time_ns) in [(2, statistics.start_ns), (3, statistics.end_ns)] {
            if let Some(time_ns) = time_ns {
                let mut words = Vec::with_capacity(8);
                split(&mut words, time_ns);
                option(b, code, &words);
            }
        }
        for (code, count) in [
            (4, statistics.received),
            (5, statistics.dropped),
            (6, statistics.filter_accepted),
            (7, statistics.os_dropped),
            (8, statistics.delivered),
        ] {
            if let Some(count) = count {
                option(b, code, &count.to_le_bytes());
            }
        }
        end_of_options(b);
    });
}

/// The whole blocks at the start of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeBlocks {
    /// Their length in bytes.
    pub end: usize,
    /// Number of packets in them.
    pub packets: u64,
    /// Bytes on the wire of these packets.
    pub wire_bytes: u64,
}

/// The whole blocks in the first `limit` bytes; `bytes` starts with a block.
pub fn whole_blocks(bytes: &[u8], limit: usize) -> WholeBlocks {
    whole(bytes, limit, |word| {
        let wire_length = match word(0)? {
            PACKET => word(24),
            _ => None,
        };
        Some((to_usize(word(4)?), wire_length))
    })
}

/// The whole records in the first `limit` bytes. `record` gives the length of a record and, of a packet, the
/// length on the wire; it reads the words of the record by their offsets.
fn whole(
    bytes: &[u8],
    limit: usize,
    record: impl Fn(&dyn Fn(usize) -> Option<u32>) -> Option<(usize, Option<u32>)>,
) -> WholeBlocks {
    let mut whole = WholeBlocks::default();
    loop {
        let word = |at: usize| {
            let four = bytes.get(whole.end + at..whole.end + at + 4)?;
            Some(u32::from_le_bytes(four.try_into().ok()?))
        };
        let Some((length, wire_length)) = record(&word) else {
            return whole;
        };
        let next = whole.end + length;
        if next > limit || next > bytes.len() {
            return whole;
        }
        whole.packets += u64::from(wire_length.is_some());
        whole.wire_bytes += wire_length.map_or(0, u64::from);
        whole.end = next;
    }
}

/// Appends a block around what `body` appends.
fn block(into: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    put(into, kind);
    put(into, 0);
    body(into);
    end_of_block(into, start);
}

/// Appends the length of the block that begins at `start`, and writes it into its head.
#[inline]
fn end_of_block(into: &mut Vec<u8>, start: usize) {
    let whole = to_u32(into.len() + 4 - start);
    into[start + 4..start + 8].copy_from_slice(&whole.to_le_bytes());
    put(into, whole);
}

/// Appends bytes, and zeros up to a multiple of four bytes.
#[inline]
fn padded(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(bytes);
    let padding = bytes.len().next_multiple_of(4) - bytes.len();
    into.extend_from_slice(&[0; 3][..padding]);
}

fn put(into: &mut Vec<u8>, value: u32) {
    into.extend_from_slice(&value.to_le_bytes());
}

/// A time as two words, the high one first.
fn split(into: &mut Vec<u8>, time_ns: u64) {
    let time = time_ns.to_le_bytes();
    into.extend_from_slice(&time[4..]);
    into.extend_from_slice(&time[..4]);
}

/// Appends an option; a longer value than an option can hold is cut off.
#[inline]
fn option(into: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(LARGEST_OPTION)];
    let size = to_u16(value.len());
    into.extend_from_slice(&code.to_le_bytes());
    into.extend_from_slice(&size.to_le_bytes());
    padded(into, value);
}

fn end_of_options(into: &mut Vec<u8>) {
    put(into, 0);
}
