// SPDX-License-Identifier: MIT OR Apache-2.0
//! pcapng blocks as bytes, little-endian; no I/O.
//!
//! Invariants
//! - Every function appends exactly one whole block.
//! - Times are nanoseconds: each interface is described with `if_tsresol` 9.
#![forbid(unsafe_code)]

use ringtap_file::Direction;
use ringtap_filter::LinkType;
use ringtap_pool::counters::Counters;
use ringtap_pool::number::{to_u16, to_u32, to_usize};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// Bytes of a packet block around its data, without padding and options.
const PACKET_FRAME: usize = 32;
/// Largest packet that libpcap and Wireshark accept; longer ones are cut.
const LARGEST_PACKET: usize = 256 * 1024;
/// An option's length has 16 bits.
const LARGEST_OPTION: usize = 65_532;

/// The interface of the packets, as the file describes it.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// The device, e.g. `eth0`.
    pub(crate) name: String,
    /// The capture filter in pcap-filter syntax, if there is one.
    pub(crate) filter: Option<String>,
    /// The link type of the packets.
    pub(crate) link_type: LinkType,
    /// Longest captured part of a packet in bytes; 0: no limit.
    pub(crate) snap_length: u32,
}

/// One packet to record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    /// Nanoseconds since 1970.
    pub(crate) time_ns: u64,
    /// Bytes on the wire.
    pub(crate) wire_length: u32,
    /// The captured bytes.
    pub(crate) data: &'a [u8],
    /// The direction of the packet.
    pub(crate) direction: Direction,
    /// Packets that were lost directly before this one.
    pub(crate) dropped_before: u64,
}

/// The counters at the end of each file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    /// Start of the capture, in nanoseconds since 1970.
    pub(crate) start_ns: u64,
    /// Time of the counters, in nanoseconds since 1970.
    pub(crate) time_ns: u64,
    /// The counters since the start of the capture.
    pub(crate) counters: Counters,
}

/// The machine and the program that wrote the file.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The processor.
    pub(crate) hardware: Option<String>,
    /// The operating system and its version.
    pub(crate) os: Option<String>,
    /// The program and its version.
    pub(crate) application: String,
}

/// Appends the section header.
pub(super) fn section(into: &mut Vec<u8>, origin: &Origin) {
    block(into, SECTION_HEADER, |b| {
        put(b, 0x1a2b_3c4d);
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

/// Appends the description of the section's next interface.
pub(super) fn interface(into: &mut Vec<u8>, interface: &Interface, os: Option<&str>) {
    block(into, INTERFACE, |b| {
        put(b, u32::from(interface.link_type.0));
        put(b, interface.snap_length);
        option(b, 2, interface.name.as_bytes());
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
pub(super) fn packet_room(data: usize) -> usize {
    // Padding, flags, drop count, end of options.
    PACKET_FRAME + data.min(LARGEST_PACKET) + 3 + 8 + 12 + 4
}

/// Appends a packet of interface 0.
#[inline]
pub(super) fn packet(into: &mut Vec<u8>, packet: &Packet<'_>) {
    let data = &packet.data[..packet.data.len().min(LARGEST_PACKET)];
    let flags: u32 = match packet.direction {
        Direction::Inbound => 1,
        Direction::Outbound => 2,
        Direction::Unknown => 0,
    };
    let captured = length(data.len());
    let padding = data.len().next_multiple_of(4) - data.len();
    let options = option_bytes(flags, packet.dropped_before);
    let whole = length(PACKET_FRAME + data.len() + padding + options);
    let time = packet.time_ns.to_le_bytes();
    let mut head = [0; 28];
    head[0..4].copy_from_slice(&PACKET.to_le_bytes());
    head[4..8].copy_from_slice(&whole.to_le_bytes());
    head[12..16].copy_from_slice(&time[4..]);
    head[16..20].copy_from_slice(&time[..4]);
    head[20..24].copy_from_slice(&captured.to_le_bytes());
    head[24..28].copy_from_slice(&packet.wire_length.max(captured).to_le_bytes());
    into.extend_from_slice(&head);
    into.extend_from_slice(data);
    into.extend_from_slice(&[0; 3][..padding]);
    if options > 0 {
        if flags != 0 {
            option(into, 2, &flags.to_le_bytes());
        }
        if packet.dropped_before != 0 {
            option(into, 4, &packet.dropped_before.to_le_bytes());
        }
        end_of_options(into);
    }
    put(into, whole);
}

fn option_bytes(flags: u32, dropped: u64) -> usize {
    match (flags, dropped) {
        (0, 0) => 0,
        (_, 0) => 8 + 4,
        (0, _) => 12 + 4,
        _ => 8 + 12 + 4,
    }
}

/// Appends the statistics of interface 0, which end a file.
pub(super) fn statistics(into: &mut Vec<u8>, statistics: &Statistics) {
    let counters = &statistics.counters;
    let dropped = &counters.dropped;
    // Lost after the NIC: to other tools all of it is "the operating system".
    let after_nic = dropped.kernel + dropped.pool_full + dropped.overrun;
    block(into, STATISTICS, |b| {
        put(b, 0);
        split(b, statistics.time_ns);
        option(b, 1, counters_text(counters).as_bytes());
        for (code, time_ns) in [(2, statistics.start_ns), (3, statistics.time_ns)] {
            let mut words = Vec::with_capacity(8);
            split(&mut words, time_ns);
            option(b, code, &words);
        }
        for (code, count) in [
            (4, counters.offered),
            (5, dropped.nic),
            (6, counters.delivered + after_nic),
            (7, after_nic),
            (8, counters.delivered),
        ] {
            option(b, code, &count.to_le_bytes());
        }
        end_of_options(b);
    });
}

/// All counters as text, with the names of the JSON output.
fn counters_text(counters: &Counters) -> String {
    let dropped = &counters.dropped;
    format!(
        "counters: offered={} delivered={} filtered={} bytes={} dropped.nic={} dropped.kernel={} \
         dropped.pool_full={} dropped.overrun={}; {}",
        counters.offered,
        counters.delivered,
        counters.filtered,
        counters.bytes,
        dropped.nic,
        dropped.kernel,
        dropped.pool_full,
        dropped.overrun,
        counters.balance(),
    )
}

/// The whole blocks at the start of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    /// Their length in bytes.
    pub(super) end: usize,
    /// Their packets.
    pub(super) packets: u64,
    /// Bytes on the wire of these packets.
    pub(super) wire_bytes: u64,
}

/// The whole blocks in the first `limit` bytes; `bytes` starts with a block.
pub(super) fn whole_blocks(bytes: &[u8], limit: usize) -> Whole {
    let mut whole = Whole::default();
    let word = |at: usize| {
        let four = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(four))
    };
    while let (Some(kind), Some(length)) = (word(whole.end), word(whole.end + 4)) {
        let next = whole.end + to_usize(length);
        if next > limit || next > bytes.len() {
            break;
        }
        if kind == PACKET {
            whole.packets += 1;
            whole.wire_bytes += word(whole.end + 24).map_or(0, u64::from);
        }
        whole.end = next;
    }
    whole
}

/// Appends a block around what `body` appends.
fn block(into: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    put(into, kind);
    put(into, 0);
    body(into);
    let whole = length(into.len() + 4 - start);
    into[start + 4..start + 8].copy_from_slice(&whole.to_le_bytes());
    put(into, whole);
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
    into.extend_from_slice(value);
    let padding = value.len().next_multiple_of(4) - value.len();
    into.extend_from_slice(&[0; 3][..padding]);
}

fn end_of_options(into: &mut Vec<u8>) {
    put(into, 0);
}

/// A length in 32 bits; all lengths here are far below 4 GiB.
#[inline]
fn length(bytes: usize) -> u32 {
    to_u32(bytes)
}
