// SPDX-License-Identifier: MIT OR Apache-2.0
//! Escapes characters of the syntax inside names: `%2C` is a comma, as in URLs.

/// A name with the characters of the device syntax written as `%XX`.
pub(super) fn escape(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for sign in name.chars() {
        match sign {
            '%' => text.push_str("%25"),
            ',' => text.push_str("%2C"),
            '?' => text.push_str("%3F"),
            '@' => text.push_str("%40"),
            other => text.push(other),
        }
    }
    text
}

/// The name that a text stands for; `None` if the bytes are not UTF-8.
///
/// A percent sign without two hexadecimal digits after it stands for itself.
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        match (first, code(after)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or(&[]);
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn code(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits.get(..2)?).ok()?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
}
