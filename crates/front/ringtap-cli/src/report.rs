// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters as text and as JSON, one object per line.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use ringtap_ipc::time::now_ns;
use ringtap_pool::counters::{Counters, TERMS};
use ringtap_pool::ids::LaneId;
use serde::Serialize;

/// Counters as JSON; `docs/counters.md` has the names.
#[derive(Serialize)]
struct Line<'a> {
    r#type: &'static str,
    time_ns: u64,
    device: &'a str,
    /// `null`: all lanes together.
    lane: Option<u32>,
    reader: &'a str,
    #[serde(flatten)]
    counters: CounterFields,
}

/// Counters, and whether they balance.
#[derive(Serialize)]
pub(crate) struct CounterFields {
    #[serde(flatten)]
    counters: Counters,
    balanced: bool,
}

impl From<&Counters> for CounterFields {
    fn from(counters: &Counters) -> Self {
        CounterFields {
            counters: *counters,
            balanced: counters.balance().holds(),
        }
    }
}

/// A line of JSON with the counters.
pub(crate) fn json(
    device: &str,
    reader: &str,
    lane: Option<LaneId>,
    counters: &Counters,
) -> Result<String> {
    let line = Line {
        r#type: "counters",
        time_ns: now_ns(),
        device,
        lane: lane.map(|lane| lane.0),
        reader,
        counters: CounterFields::from(counters),
    };
    Ok(serde_json::to_string(&line)?)
}

/// A number with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
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
pub(crate) fn packets(number: u64) -> String {
    match number {
        1 => "1 packet".to_owned(),
        _ => format!("{} packets", grouped(number)),
    }
}

/// A number of things, `1 file`, `2 files`: the noun with an s unless there is one.
pub(crate) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {noun}"),
        number => format!("{} {noun}s", grouped(number)),
    }
}

/// A size in the unit that suits it: `999 B`, `1.9 GB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let number = as_f64(bytes);
    // What would be rounded to 1000 of a unit has the next one.
    match units.iter().find(|(unit, _)| number >= unit * 0.99995) {
        Some((unit, name)) => format!("{:.1} {name}", number / unit),
        None => format!("{bytes} B"),
    }
}

/// One line with the changes in an interval.
pub(crate) fn live_line(now: &Counters, before: &Counters, interval: Duration) -> String {
    let seconds = interval.as_secs_f64();
    let packets = now.delivered.saturating_sub(before.delivered);
    let bytes = now.bytes.saturating_sub(before.bytes);
    let lost = now.dropped.total().saturating_sub(before.dropped.total());
    let filtered = now.filtered.saturating_sub(before.filtered);
    let rate = rounded(as_f64(packets) / seconds);
    let mut line = format!(
        "{:>12} {:<9} {:>10} L2 {:>14} {}",
        grouped(rate),
        if rate == 1 { "packet/s" } else { "packets/s" },
        bits_per_second(as_f64(bytes) * 8.0 / seconds),
        grouped(now.delivered),
        if now.delivered == 1 {
            "packet"
        } else {
            "packets"
        },
    );
    if now.filtered > 0 {
        let total = grouped(now.filtered);
        let _infallible = write!(line, "  {} filtered ({total} so far)", grouped(filtered));
    }
    let _infallible = write!(line, " {:>10} lost", grouped(lost));
    if now.dropped.total() > 0 {
        let total = grouped(now.dropped.total());
        let _infallible = write!(line, " ({total} so far)");
    }
    if !now.balance().holds() {
        let _infallible = write!(line, "  {}", balance(now));
    }
    line
}

/// Both sides of the counters' equation, with grouped numbers.
pub(crate) fn balance(counters: &Counters) -> String {
    counters.balance().text(grouped)
}

/// Columns of a line.
const COLUMNS: usize = 100;

/// A counter with a note, which further lines continue where it is long.
pub(crate) fn counter(name: &str, number: u64, note: &str) -> String {
    let head = format!("  {name:<20} {:>16}  ", grouped(number));
    wrapped(&head, note, COLUMNS).trim_end().to_owned()
}

/// A text after a head, wrapped at word boundaries to at most `width`, if possible. Later lines are indented by
/// the length of the head.
pub(crate) fn wrapped(head: &str, text: &str, width: usize) -> String {
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

/// All counters, one per line.
pub(crate) fn counters(title: &str, offered_from: &str, counters: &Counters) -> String {
    let mut text = format!(
        "{title}\n{}\n",
        counter("offered", counters.offered, offered_from)
    );
    for term in &TERMS {
        let number = term.count(counters);
        if number > 0 || term.is_usual {
            let note = if number == 0 { "" } else { term.meaning };
            text.push_str(&counter(term.name, number, note));
            text.push('\n');
        }
    }
    let equation = "offered = delivered + filtered + shunted + other_members + dropped.*";
    let _infallible = write!(text, "  {}\n  ({equation})", balance(counters));
    text
}

/// A rate in bits per second, with a prefix that fits. The caller says at which layer: L1 counts
/// preamble, checksum and gap, 24 bytes a packet; L2 only the packet, as captures show it.
pub(crate) fn bits_per_second(rate: f64) -> String {
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
pub(crate) fn as_f64(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive and far below 2^53"
)]
pub(crate) fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}

#[cfg(test)]
mod tests {
    use ringtap_pool::counters::Dropped;

    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn json_uses_exactly_the_promised_names() {
        let dropped = Dropped {
            nic: 1,
            kernel: 2,
            pool_full: 3,
            overrun: 4,
            ..Dropped::default()
        };
        let counters = Counters {
            offered: 30,
            delivered: 15,
            filtered: 5,
            bytes: 960,
            dropped,
            ..Counters::default()
        };
        let text = json("tap:eth0", "count", None, &counters).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut names: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        names.sort();
        let promised = "balanced bytes delivered device dropped filtered lane offered other_members reader \
             shunted time_ns type";
        assert_eq!(names.join(" "), promised);
        assert_eq!(value["balanced"], true);
        assert_eq!(value["dropped"]["overrun"], 4);
    }

    #[test]
    fn a_long_note_goes_on_in_its_column() {
        let note = "the packets that the program in front of the sockets saw (native XDP) and the interface's \
                    missed packets";
        let text = counter("offered", 1_000, note);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines.iter().all(|line| line.len() <= 100), "{text}");
        assert_eq!(lines[0].find("the packets"), Some(41), "{text}");
        let indent = lines[1].len() - lines[1].trim_start().len();
        assert_eq!(indent, 41, "{text}");
        let words = text
            .split_whitespace()
            .skip(2)
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(words, note);
        assert_eq!(
            counter("filtered", 0, "").trim_end(),
            counter("filtered", 0, "")
        );
    }

    #[test]
    fn an_unbalanced_counters_says_so() {
        let counters = Counters {
            offered: 1_234_567,
            delivered: 1_000,
            ..Counters::default()
        };
        let equation = "NOT balanced: 1,234,567 offered, 1,000 accounted for, 1,233,567 missing";
        assert!(super::counters("x", "y", &counters).contains(equation));
        assert!(crate::reading::require_balance(&counters).is_err());
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
