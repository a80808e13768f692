// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of readers.

use std::cmp::Ordering;

use ringtap_ipc::protocol::ReaderStatus;

use super::cells::{Column, Emphasis, StatusTable, TableCell, loss_emphasis, plain, rate, short};
use crate::change::StatusChange;
use crate::text::as_f64;

const COLUMNS: [Column; 10] = [
    Column::right("LOST/s", 7),
    Column::right("LOST", 6),
    Column::right("PKT/s", 7),
    Column::right("LAG", 9),
    Column::right("LAG ms", 7),
    Column::right("BIT/s", 7),
    Column::left("GROUP", 8),
    Column::right("PID", 7),
    Column::wide("FILTERED/s", 10),
    Column::wide("SHUNTED/s", 9),
];
/// Percentage of a reader's credit from which losses threaten.
const NEARLY_LATE: u64 = 75;

/// The column that readers are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReaderOrder {
    /// Packets lost per second, then packets lost.
    #[default]
    Loss,
    /// Packets per second.
    Rate,
    /// Chunks held.
    Lag,
    /// The reader's name.
    Name,
}

impl ReaderOrder {
    /// The next column, round.
    pub fn next(self) -> Self {
        match self {
            ReaderOrder::Loss => ReaderOrder::Rate,
            ReaderOrder::Rate => ReaderOrder::Lag,
            ReaderOrder::Lag => ReaderOrder::Name,
            ReaderOrder::Name => ReaderOrder::Loss,
        }
    }

    /// The order in one word.
    pub fn word(self) -> &'static str {
        match self {
            ReaderOrder::Loss => "loss",
            ReaderOrder::Rate => "rate",
            ReaderOrder::Lag => "lag",
            ReaderOrder::Name => "name",
        }
    }
}

/// All readers in this order.
pub fn readers(change: StatusChange<'_>, order: ReaderOrder) -> StatusTable {
    let lanes = change.now.sources.iter().flat_map(|source| &source.lanes);
    let lanes = lanes.count() as u64;
    let mut readers: Vec<_> = change.now.readers.iter().collect();
    readers.sort_by(|a, b| compare(change, order, a, b));
    let rows = readers.iter().map(|reader| row(change, reader, lanes));
    StatusTable {
        first: "READER",
        columns: &COLUMNS,
        rows: rows.collect(),
    }
}

/// Growth of a reader's counter per second.
fn per_second(
    change: StatusChange<'_>,
    reader: &ReaderStatus,
    counter: fn(&ReaderStatus) -> u64,
) -> Option<f64> {
    let before = change.reader(reader.reader).map(counter);
    change.per_second(before, counter(reader))
}

/// Greatest first; equal readers by group and number, so that rows keep their places.
fn compare(
    change: StatusChange<'_>,
    order: ReaderOrder,
    a: &ReaderStatus,
    b: &ReaderStatus,
) -> Ordering {
    let rate = |reader: &_, counter| per_second(change, reader, counter).unwrap_or(0.0);
    let key = |reader: &ReaderStatus| match order {
        ReaderOrder::Loss => (
            rate(reader, |reader| reader.counters.dropped.overrun),
            as_f64(reader.counters.dropped.overrun),
        ),
        ReaderOrder::Rate => (rate(reader, |reader| reader.counters.delivered), 0.0),
        ReaderOrder::Lag => (reader.lag_chunks.into(), as_f64(reader.lag_ms)),
        ReaderOrder::Name => (0.0, 0.0),
    };
    let (greatest, next) = (key(b), key(a));
    let by_number = greatest
        .0
        .total_cmp(&next.0)
        .then(greatest.1.total_cmp(&next.1));
    let by_name = match order {
        ReaderOrder::Name => a.name.cmp(&b.name),
        _ => Ordering::Equal,
    };
    let by_place = || (&a.group, a.reader).cmp(&(&b.group, b.reader));
    by_number.then(by_name).then_with(by_place)
}

fn row(change: StatusChange<'_>, reader: &ReaderStatus, lanes: u64) -> Vec<TableCell> {
    let per_second = |counter| per_second(change, reader, counter);
    let lost_rate = per_second(|reader| reader.counters.dropped.overrun);
    let lost = loss_emphasis(reader.counters.dropped.overrun, lost_rate);
    let bits = per_second(|reader| reader.counters.bytes).map(|bytes| bytes * 8.0);
    let held = u64::from(reader.lag_chunks);
    let credit = u64::from(reader.credit_chunks).saturating_mul(lanes);
    let late = if held > 0 && held * 100 >= credit.saturating_mul(NEARLY_LATE) {
        Emphasis::Warn
    } else {
        Emphasis::Plain
    };
    let broken = if reader.corrupt || reader.impossible {
        Emphasis::Bad
    } else {
        Emphasis::Plain
    };
    vec![
        (reader.name.clone(), broken),
        (rate(lost_rate), lost),
        (short(reader.counters.dropped.overrun), lost),
        plain(rate(per_second(|reader| reader.counters.delivered))),
        (format!("{held}/{credit}"), late),
        (short(reader.lag_ms), late),
        plain(rate(bits)),
        plain(&reader.group),
        plain(reader.pid.to_string()),
        plain(rate(per_second(|reader| reader.counters.filtered))),
        plain(rate(per_second(|reader| reader.counters.shunted))),
    ]
}
