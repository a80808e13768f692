// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters as text, and as JSON with one object per line.

use std::fmt::Write as _;
use std::time::Duration;

use ringtap_ipc::protocol::{HubStatus, SourceStatus};
use ringtap_ipc::time::now_ns;
use ringtap_pool::counters::{Counters, TERMS};
use ringtap_pool::ids::LaneId;
use serde::Serialize;

use crate::change::{lane_terms, lanes_of};
use crate::text::{as_f64, bits_per_second, grouped, packets, rounded, wrapped};

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

/// Counters, and whether they balance, as fields of a JSON object.
#[derive(Debug, Serialize)]
pub struct CounterFields {
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

/// A line of JSON with the counters of a lane, or of all lanes together.
///
/// # Errors
///
/// None: counters have a form in JSON.
pub fn json(
    device: &str,
    reader: &str,
    lane: Option<LaneId>,
    counters: &Counters,
) -> serde_json::Result<String> {
    let line = Line {
        r#type: "counters",
        time_ns: now_ns(),
        device,
        lane: lane.map(|lane| lane.0),
        reader,
        counters: CounterFields::from(counters),
    };
    serde_json::to_string(&line)
}

/// One line with the changes in an interval.
pub fn live_line(now: &Counters, before: &Counters, interval: Duration) -> String {
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
pub fn balance(counters: &Counters) -> String {
    counters.balance().text(grouped)
}

/// Columns of a line.
const COLUMNS: usize = 100;

/// A counter with a note, which further lines continue where it is long.
pub fn counter(name: &str, number: u64, note: &str) -> String {
    let head = format!("  {name:<20} {:>16}  ", grouped(number));
    wrapped(&head, note, COLUMNS).trim_end().to_owned()
}

/// All counters, one per line.
pub fn counters(title: &str, offered_from: &str, counters: &Counters) -> String {
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

/// The counters of a source on one line.
pub fn source(source: &SourceStatus) -> String {
    let sum = lanes_of(source);
    let is_balanced = if source.balanced {
        "balanced"
    } else {
        "NOT balanced"
    };
    let terms = lane_terms(&sum).map(|(name, count)| format!("{} {name}", grouped(count)));
    let mut line = format!(
        "{}: {} offered = {}: {is_balanced}",
        source.device,
        packets(sum.offered),
        terms.collect::<Vec<_>>().join(" + "),
    );
    for (lost, place) in [
        (source.dropped.nic, "by the NIC"),
        (source.dropped.kernel, "while detached"),
    ] {
        if lost > 0 {
            line.push_str(&format!("; before that lost {place}: {}", grouped(lost)));
        }
    }
    line
}

/// The counters of a hub's sources and readers, each on one line.
pub fn hub(status: &HubStatus) -> impl Iterator<Item = String> {
    let readers = status.readers.iter().map(|reader| {
        format!(
            "{} of group {}: {} delivered, {} lost: past its credit",
            reader.name,
            reader.group,
            packets(reader.counters.delivered),
            grouped(reader.counters.dropped.overrun)
        )
    });
    status.sources.iter().map(source).chain(readers)
}

#[cfg(test)]
mod tests {
    use ringtap_pool::counters::Dropped;

    use super::*;

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
    }
}
