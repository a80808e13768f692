// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options at the end of a pcapng block.
#![forbid(unsafe_code)]

use super::{bytes::ByteOrder, damage::Damage};

/// Calls `each` with every option's code and value, up to the end mark.
pub(super) fn each_option(
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

/// A packet's `epb_flags`, 0 without.
pub(super) fn packet_flags(bytes: &[u8], order: ByteOrder) -> u32 {
    let mut flags = 0;
    // Damage in a packet's options does not make the packet worse.
    let _ = each_option(bytes, order, |code, value| {
        if code == 2 && value.len() == 4 {
            flags = order.u32_at(value, 0);
        }
    });
    flags
}

/// A packet's `epb_dropcount`.
pub(super) fn packet_drop_count(bytes: &[u8], order: ByteOrder) -> Option<u64> {
    let mut count = None;
    let _ = each_option(bytes, order, |code, value| {
        if code == 4 && value.len() == 8 {
            count = Some(order.u64_at(value, 0));
        }
    });
    count
}

/// Text of a file, which may not be the UTF-8 that it should be.
pub(super) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value)
        .trim_end_matches('\0')
        .to_owned()
}
