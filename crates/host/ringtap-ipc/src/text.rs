// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts of peers: cleaned where they enter, so that no later step can forget it.
//!
//! A peer is a hub, a reader, a guest, a library's process or QEMU.
//!
//! Invariants
//! - No text from here changes a terminal: it has no control characters but line feeds and tabs, and
//!   none that reorders the characters around it.
//! - No text from here is longer than its limit.

use std::borrow::Cow;

use serde::de::{DeserializeOwned, Error as _};

/// Most bytes of a text in a message; the rest is cut off.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

/// The end of a text that was cut.
const CUT: char = '…';

/// The text with a replacement character for each character that could change the terminal.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_hostile) {
        text.chars().map(visible).collect::<String>().into()
    } else {
        text.into()
    }
}

/// At most `most` characters of the text, in one line, cleaned: for names.
pub fn clean_name(text: &str, most: usize) -> String {
    let one_line = |c: char| if matches!(c, '\n' | '\t') { ' ' } else { c };
    text.chars()
        .take(most)
        .map(|c| visible(one_line(c)))
        .collect()
}

/// Parses JSON of a peer. Its texts are cleaned, and cut to `most` bytes each.
///
/// # Errors
///
/// The bytes are not JSON in UTF-8, or not a `T`.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8], most: usize) -> serde_json::Result<T> {
    let json = str::from_utf8(bytes).map_err(serde_json::Error::custom)?;
    serde_json::from_str(&clean_json(json, most)?)
}

/// JSON whose literals are cleaned and cut.
fn clean_json(json: &str, most: usize) -> serde_json::Result<Cow<'_, str>> {
    if json.len() <= most && !needs_look(json) {
        return Ok(json.into());
    }
    let mut cleaned = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(start) = rest.find('"') {
        let (before, literal) = rest.split_at(start);
        let (literal, after) = literal.split_at(literal_bytes(literal));
        cleaned.push_str(before);
        if literal.len() <= most && !needs_look(literal) {
            cleaned.push_str(literal);
        } else {
            let text: String = serde_json::from_str(literal)?;
            cleaned.push_str(&serde_json::to_string(&clean(&cut(text, most)))?);
        }
        rest = after;
    }
    cleaned.push_str(rest);
    Ok(cleaned.into())
}

/// Whether JSON may stand for a hostile character: as an escape, or as it is.
fn needs_look(json: &str) -> bool {
    // All of them but U+007F are a backslash and letters, or begin with one of these bytes in UTF-8.
    json.bytes()
        .any(|byte| matches!(byte, b'\\' | 0x7f | 0xc2 | 0xd8 | 0xe2))
}

/// Bytes of the literal at the start of this JSON, with both quotes; all of the JSON without an end.
fn literal_bytes(json: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !is_escaped => return at + 1,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    json.len()
}

/// The text, of at most `most` bytes.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let last = most.saturating_sub(CUT.len_utf8());
        let end = (0..=last).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push(CUT);
    }
    text
}

fn visible(c: char) -> char {
    if is_hostile(c) {
        char::REPLACEMENT_CHARACTER
    } else {
        c
    }
}

/// Whether a terminal obeys the character, or shows others in another order for it.
fn is_hostile(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' => true,
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{9b}2J\r\u{7f}\u{202e}\u{61c}\u{0}";

    #[test]
    fn no_escape_of_json_hides_a_control_character() {
        let escaped = r#"["\u001b]0;\u0007","\u009B2J","\b\f\r","\u202e","\\u001b","\"\u007f\""]"#;
        let texts: Vec<String> = from_json(escaped.as_bytes(), MAX_TEXT_BYTES).unwrap();
        let expected = [
            "\u{fffd}]0;\u{fffd}",
            "\u{fffd}2J",
            "\u{fffd}\u{fffd}\u{fffd}",
            "\u{fffd}",
            r"\u001b",
            "\"\u{fffd}\"",
        ];
        assert_eq!(texts, expected);
        let raw = "[\"\u{9b}2J\u{7f}\u{202e}\"]".as_bytes();
        let texts: Vec<String> = from_json(raw, MAX_TEXT_BYTES).unwrap();
        assert_eq!(texts, ["\u{fffd}2J\u{fffd}\u{fffd}"]);
    }

    #[test]
    fn a_text_is_cut_and_what_follows_it_is_read() {
        let long = serde_json::to_vec(&("é".repeat(100), "end", 7)).unwrap();
        let (text, end, number): (String, String, u8) = from_json(&long, 16).unwrap();
        assert_eq!((text.as_str(), end.as_str(), number), ("éééééé…", "end", 7));
    }

    #[test]
    fn a_name_is_one_short_clean_line() {
        assert_eq!(clean_name("a\nb\tc\u{1b}[2J", 64), "a b c\u{fffd}[2J");
        assert_eq!(clean_name(&"é".repeat(100), 3), "ééé");
    }

    #[test]
    fn what_is_not_utf8_or_no_json_is_refused() {
        for wrong in [
            &b"[\"\xff\"]"[..],
            b"[\"\\u00",
            b"[\"\\",
            b"\"",
            b"",
            b"[\"\\ud800\"]",
        ] {
            assert!(
                from_json::<serde_json::Value>(wrong, 64).is_err(),
                "{wrong:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn texts_arrive_cleaned_and_as_they_are_otherwise(text: String, hostile: bool, number: u64) {
            let text = if hostile { text + HOSTILE } else { text };
            let json = serde_json::to_vec(&(&text, number, &text)).unwrap();
            let (first, between, last): (String, u64, String) = from_json(&json, MAX_TEXT_BYTES).unwrap();
            prop_assert_eq!(&first, &clean(&text));
            prop_assert_eq!((between, &last), (number, &first));
            prop_assert!(!first.chars().any(is_hostile));
        }

        #[test]
        fn any_bytes_are_parsed_as_serde_parses_them(bytes: Vec<u8>) {
            let ours = from_json::<serde_json::Value>(&bytes, MAX_TEXT_BYTES);
            let theirs = serde_json::from_slice::<serde_json::Value>(&bytes);
            prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        }
    }
}
