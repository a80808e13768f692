// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts of packets.

/// Longest text that is taken from a packet, in bytes.
const LONGEST_TEXT: usize = 255;

/// Bytes of a packet as a text of bounded length.
pub(super) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.get(..LONGEST_TEXT).unwrap_or(bytes);
    cut(String::from_utf8_lossy(bytes).into_owned())
}

/// A text of bounded length.
pub(super) fn cut(mut text: String) -> String {
    let end = (0..=LONGEST_TEXT.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    text
}
