// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers, shares and times in words.

use jiff::Timestamp;

use crate::report::{self, as_f64, grouped, rounded};

/// A part as a fraction of `whole`; 0 if `whole` is 0.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => as_f64(part) / as_f64(whole),
    }
}

/// `12.3 %`; 0 and 100 only for exactly none and all.
pub(super) fn percent(share: f64) -> String {
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
pub(in crate::seeing) fn span(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// `12 min ago (2026-11-21T05:29:30Z)`.
pub(super) fn ago(then_ns: u64, now_ns: u64) -> String {
    let ago = span(now_ns.saturating_sub(then_ns));
    let seconds = i64::try_from(then_ns / 1_000_000_000).unwrap_or_default();
    match Timestamp::from_second(seconds) {
        Ok(time) => format!("{ago} ago ({time})"),
        Err(_) => format!("{ago} ago"),
    }
}

/// `1,234 a second`; below ten with a decimal, 0 only for 0.
pub(super) fn a_second(rate: f64) -> String {
    match rate {
        _ if rate < 0.1 => "less than 0.1 a second".to_owned(),
        _ if rate < 10.0 => format!("{rate:.1} a second"),
        _ => format!("{} a second", grouped(rounded(rate))),
    }
}

/// `64 MiB`, `1.5 GiB`.
pub(super) fn bytes(number: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| number >= *unit) {
        Some((unit, name)) if number.is_multiple_of(*unit) => format!("{} {name}", number / unit),
        Some((unit, name)) => format!("{:.1} {name}", as_f64(number) / as_f64(*unit)),
        None => format!("{number} bytes"),
    }
}

/// Wraps a paragraph to at most `width`, with later lines below the text of the first, past a dash.
pub(super) fn wrapped(paragraph: &str, width: usize) -> String {
    let text = paragraph.trim_start_matches([' ', '-']);
    let head = paragraph.len() - text.len();
    report::wrapped(&paragraph[..head], text, width)
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
        assert_eq!(wrapped(advice, 80), advice);
        assert_eq!(wrapped(advice, 11), "  - one two\n    three");
        assert_eq!(wrapped(advice, 1), "  - one\n    two\n    three");
        assert_eq!(wrapped("", 10), "");
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
}
