// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks a position in text that a user typed: the line, and carets below the wrong part.

use std::ops::Range;

/// The text indented by two, and below it a caret under each character of `place` (a byte range).
///
/// An empty range, or one at the end, gets one caret.
pub fn show(text: &str, place: &Range<usize>) -> String {
    let before = characters(text, 0..place.start);
    let marked = characters(text, place.clone()).max(1);
    format!("  {text}\n  {}{}", " ".repeat(before), "^".repeat(marked))
}

/// Column (character number, from 1) of a byte position, as editors count.
pub fn column(text: &str, position: usize) -> usize {
    characters(text, 0..position) + 1
}

fn characters(text: &str, range: Range<usize>) -> usize {
    text.char_indices()
        .filter(|(at, _)| range.contains(at))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_stand_under_the_marked_characters() {
        assert_eq!(show("tcp prt 80", &(4..7)), "  tcp prt 80\n      ^^^");
        assert_eq!(show("port", &(4..4)), "  port\n      ^");
    }

    #[test]
    fn columns_count_characters_not_bytes() {
        assert_eq!(column("é@x", 2), 2);
        assert_eq!(show("é@x", &(2..3)), "  é@x\n   ^");
    }
}
