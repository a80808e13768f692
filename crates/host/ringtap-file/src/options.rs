// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options at the end of a pcapng block.

use super::{bytes::ByteOrder, damage::Damage};

/// Calls `each` with the code and value of every option, up to the end mark.
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
pub(super) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value)
        .trim_end_matches('\0')
        .to_owned()
}
