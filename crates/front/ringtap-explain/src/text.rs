// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers, sizes, shares, rates and times in words; paragraphs.

use jiff::Timestamp;

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 packet`, `12,345 packets`.
pub fn packets(number: u64) -> String {
    match number {
        1 => "1 packet".to_owned(),
        _ => format!("{} packets", grouped(number)),
    }
}

/// A number of things, `1 file`, `2 files`: the noun with an s unless there is one.
pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {noun}"),
        number => format!("{} {noun}s", grouped(number)),
    }
}

/// A size in the unit that suits it: `999 B`, `1.9 GB`.
pub fn size(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let number = as_f64(bytes);
    // What would be rounded to 1000 of a unit has the next one.
    match units.iter().find(|(unit, _)| number >= unit * 0.99995) {
        Some((unit, name)) => format!("{:.1} {name}", number / unit),
        None => format!("{bytes} B"),
    }
}

/// A rate in bits per second, with a prefix that fits. The caller says at which layer: L1 counts
/// preamble, checksum and gap, 24 bytes a packet; L2 only the packet, as captures show it.
pub fn bits_per_second(rate: f64) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    match units.iter().find(|(unit, _)| rate >= *unit) {
        Some((unit, name)) => format!("{:.2} {name}", rate / unit),
        None => format!("{rate:.0} bit/s"),
    }
}

/// A number for rates and shares; exact up to 2^53, more than any counter of a session.
#[expect(
    clippy::cast_precision_loss,
    reason = "rates for people need no 16th digit"
)]
pub fn as_f64(number: u64) -> f64 {
    number as f64
}

/// A rate as a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and far below 2^53"
)]
pub fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}

/// A part as a fraction of `whole`; 0 if `whole` is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => as_f64(part) / as_f64(whole),
    }
}

/// `12.3 %`; 0 and 100 only for exactly none and all.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent <= 0.0 => "0 %".to_owned(),
        _ if percent < 0.01 => "less than 0.01 %".to_owned(),
        _ if percent < 1.0 => format!("{percent:.2} %"),
        _ if (99.95..100.0).contains(&percent) => "more than 99.9 %".to_owned(),
        _ if percent >= 100.0 => "100 %".to_owned(),
        _ => format!("{percent:.1} %"),
    }
}

/// `3 s`, `12 min`, `5 h`, `9 days`: always one unit.
pub fn span(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// `12 min ago (2026-11-21T05:29:30Z)`.
pub fn ago(then_ns: u64, now_ns: u64) -> String {
    let ago = span(now_ns.saturating_sub(then_ns));
    let seconds = i64::try_from(then_ns / 1_000_000_000).unwrap_or_default();
    match Timestamp::from_second(seconds) {
        Ok(time) => format!("{ago} ago ({time})"),
        Err(_) => format!("{ago} ago"),
    }
}

/// `1,234 a second`; below ten with a decimal, 0 only for 0.
pub fn a_second(rate: f64) -> String {
    match rate {
        _ if rate < 0.1 => "less than 0.1 a second".to_owned(),
        _ if rate < 10.0 => format!("{rate:.1} a second"),
        _ => format!("{} a second", grouped(rounded(rate))),
    }
}

/// `64 MiB`, `1.5 GiB`.
pub fn bytes(number: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| number >= *unit) {
        Some((unit, name)) if number.is_multiple_of(*unit) => format!("{} {name}", number / unit),
        Some((unit, name)) => format!("{:.1} {name}", as_f64(number) / as_f64(*unit)),
        None => format!("{number} bytes"),
    }
}

/// Wraps a paragraph to at most `width`, with later lines below the text of the first, past a dash.
pub fn wrapped_paragraph(paragraph: &str, width: usize) -> String {
    let text = paragraph.trim_start_matches([' ', '-']);
    let head = paragraph.len() - text.len();
    wrapped(&paragraph[..head], text, width)
}

/// A text after a head, wrapped at word boundaries to at most `width`, if possible. Later lines are indented by
/// the length of the head.
pub fn wrapped(head: &str, text: &str, width: usize) -> String {
    let indent = head.chars().count();
    let (mut lines, mut column) = (head.to_owned(), indent);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > width {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_to_nothing_or_to_all() {
        assert_eq!(percent(share(0, 0)), "0 %");
        assert_eq!(percent(share(1, 1_000_000)), "less than 0.01 %");
        assert_eq!(percent(share(1, 8)), "12.5 %");
        assert_eq!(percent(share(999_999, 1_000_000)), "more than 99.9 %");
        assert_eq!(percent(share(5, 5)), "100 %");
    }

    #[test]
    fn paragraphs_break_between_words_and_keep_their_indent() {
        let advice = "  - one two three";
        assert_eq!(wrapped_paragraph(advice, 80), advice);
        assert_eq!(wrapped_paragraph(advice, 11), "  - one two\n    three");
        assert_eq!(wrapped_paragraph(advice, 1), "  - one\n    two\n    three");
        assert_eq!(wrapped_paragraph("", 10), "");
    }

    #[test]
    fn times_have_one_unit() {
        assert_eq!(span(119_000_000_000), "119 s");
        assert_eq!(span(125_000_000_000), "2 min");
        assert_eq!(span(3 * 3_600_000_000_000), "3 h");
        assert_eq!(
            ago(1_000_000_000, 61_000_000_000),
            "60 s ago (1970-01-01T00:00:01Z)"
        );
    }

    #[test]
    fn rates_and_sizes_keep_what_matters() {
        assert_eq!(a_second(0.01), "less than 0.1 a second");
        assert_eq!(a_second(2.5), "2.5 a second");
        assert_eq!(a_second(1_234.4), "1,234 a second");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn a_number_of_one_has_its_noun_and_a_size_its_unit() {
        assert_eq!(count(1_u64, "event"), "1 event");
        assert_eq!(count(0_u64, "event"), "0 events");
        assert_eq!(count(1_000_usize, "file"), "1,000 files");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_920_000_000), "1.9 GB");
        assert_eq!(size(999_990_000), "1.0 GB");
        assert_eq!(size(1_000), "1.0 kB");
    }
}
