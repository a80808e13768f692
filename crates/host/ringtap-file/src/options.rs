// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of pcapng blocks: those of packets, and those that describe interfaces and count for them.
//!
//! Invariant: an option of the wrong size is ignored, one that reaches past its block is damage.

use ringtap_filter::LinkType;

use super::{
    bytes::ByteOrder,
    damage::Damage,
    interface::{FileInterface, Resolution, Statistics},
};

/// Bytes of an interface description before its options.
pub(super) const INTERFACE_FIXED: usize = 8;
/// Bytes of an interface statistics block before its options.
pub(super) const STATISTICS_FIXED: usize = 12;

/// Reads the body of an interface description, which has its fixed part.
pub(super) fn interface(
    section: u32,
    body: &[u8],
    order: ByteOrder,
) -> Result<FileInterface, Damage> {
    let link_type = LinkType::from_file(order.u16_at(body, 0));
    let mut interface = FileInterface::new(section, link_type, order.u32_at(body, 4));
    each_option(&body[INTERFACE_FIXED..], order, |code, value| {
        match (code, value.len()) {
            (1, _) => interface.comment = Some(text(value)),
            (2, _) => interface.name = Some(text(value)),
            (9, 1) => interface.resolution = Resolution::from_option(value[0]),
            // The first byte says how to read the rest; 0 is a pcap-filter expression.
            (11, 1..) if value[0] == 0 => interface.filter = Some(text(&value[1..])),
            (14, 8) => interface.offset_s = order.u64_at(value, 0).cast_signed(),
            _ => {}
        }
    })?;
    Ok(interface)
}

/// Reads the body of the statistics of `interface`; the body has its fixed part.
pub(super) fn statistics(
    interface: &FileInterface,
    body: &[u8],
    order: ByteOrder,
) -> Result<Statistics, Damage> {
    let time = |bytes: &[u8], at| interface.time(order.split_u64_at(bytes, at)).nearest_ns;
    let mut taken = Statistics {
        time_ns: time(body, 4),
        ..Statistics::default()
    };
    each_option(&body[STATISTICS_FIXED..], order, |code, value| {
        match (code, value.len()) {
            (1, _) => taken.comment = Some(text(value)),
            (2, 8) => taken.start_ns = Some(time(value, 0)),
            (3, 8) => taken.end_ns = Some(time(value, 0)),
            (4, 8) => taken.received = Some(order.u64_at(value, 0)),
            (5, 8) => taken.dropped = Some(order.u64_at(value, 0)),
            (6, 8) => taken.filter_accepted = Some(order.u64_at(value, 0)),
            (7, 8) => taken.os_dropped = Some(order.u64_at(value, 0)),
            (8, 8) => taken.delivered = Some(order.u64_at(value, 0)),
            _ => {}
        }
    })?;
    Ok(taken)
}

/// Calls `each` with the code and value of every option, up to the end mark.
fn each_option(
    mut bytes: &[u8],
    order: ByteOrder,
    mut each: impl FnMut(u16, &[u8]),
) -> Result<(), Damage> {
    while bytes.len() >= 4 {
        let (code, length) = (order.u16_at(bytes, 0), order.u16_at(bytes, 2));
        if code == 0 {
            break;
        }
        let rest = &bytes[4..];
        let Some(value) = rest.get(..usize::from(length)) else {
            return Err(Damage::OptionLength {
                code,
                claimed: length,
                room: rest.len(),
            });
        };
        each(code, value);
        let padded = value.len().next_multiple_of(4).min(rest.len());
        bytes = &rest[padded..];
    }
    Ok(())
}

/// The value of an option of this length, if the block has one.
///
/// Damage in the options of a packet is ignored: the packet itself is valid.
pub(super) fn find<const N: usize>(bytes: &[u8], order: ByteOrder, wanted: u16) -> Option<[u8; N]> {
    let mut found = None;
    let _ = each_option(bytes, order, |code, value| {
        if code == wanted {
            found = value.try_into().ok().or(found);
        }
    });
    found
}

/// The text of an option; invalid UTF-8 is replaced.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value)
        .trim_end_matches('\0')
        .to_owned()
}
