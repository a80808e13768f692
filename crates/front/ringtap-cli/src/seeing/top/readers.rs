// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the screen that shows readers.
#![forbid(unsafe_code)]

use std::cmp::Ordering;

use ratatui::text::Line;
use ringtap_ipc::protocol::ReaderStatus;

use super::cells::{Cell, Mood, Palette, loss_mood, rate, short};
use crate::seeing::change::Change;

/// Heads and widths of all columns but the name.
const COLUMNS: [(&str, usize); 8] = [
    ("GROUP", 8),
    ("PID", 7),
    ("PKT/s", 7),
    ("BIT/s", 7),
    ("LAG", 9),
    ("LAG ms", 7),
    ("LOST/s", 7),
    ("LOST", 6),
];
/// One more, where there is room.
const FILTERED: (&str, usize) = ("FILTERED/s", 10);
const ROOM_FOR_FILTERED: usize = 96;
/// A reader that holds so much of its credit is about to lose packets, in percent.
const NEARLY_LATE: u64 = 75;

/// What readers are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Loss,
    Rate,
    Lag,
    Name,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Order::Loss => Order::Rate,
            Order::Rate => Order::Lag,
            Order::Lag => Order::Name,
            Order::Name => Order::Loss,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Order::Loss => "loss",
            Order::Rate => "rate",
            Order::Lag => "lag",
            Order::Name => "name",
        }
    }
}

/// A reader's figures.
struct Row<'a> {
    reader: &'a ReaderStatus,
    /// Chunks that it may hold, all lanes together.
    credit: u64,
    packets: Option<f64>,
    bits: Option<f64>,
    filtered: Option<f64>,
    lost: Option<f64>,
}

/// The lines, `width` columns wide.
pub(super) fn lines(
    change: Change<'_>,
    order: Order,
    width: usize,
    palette: Palette,
) -> Vec<Line<'static>> {
    let wide = width >= ROOM_FOR_FILTERED;
    let mut columns = COLUMNS.to_vec();
    if wide {
        columns.push(FILTERED);
    }
    let fixed: usize = columns.iter().map(|(_, width)| width + 1).sum();
    let name = width.saturating_sub(fixed).max(8);
    let head = |(at, (head, width)): (usize, &(&str, usize))| {
        let cell = match at {
            0 => Cell::left(*head, *width),
            _ => Cell::right(*head, *width),
        };
        cell.mood(Mood::Head)
    };
    let heads = columns.iter().enumerate().map(head);
    let first = Cell::left("READER", name).mood(Mood::Head);
    let mut lines = vec![palette.row([first].into_iter().chain(heads))];
    let mut rows: Vec<_> = change
        .now
        .readers
        .iter()
        .map(|one| Row::new(change, one))
        .collect();
    rows.sort_by(|a, b| a.compare(b, order));
    lines.extend(rows.iter().map(|row| palette.row(row.cells(name, wide))));
    if rows.is_empty() {
        lines.push(palette.line("nobody reads", Mood::Plain));
    }
    lines
}

impl<'a> Row<'a> {
    fn new(change: Change<'_>, reader: &'a ReaderStatus) -> Self {
        let before = change.reader(reader.reader);
        let rate = |counter: fn(&ReaderStatus) -> u64| {
            change.per_second(before.map(counter), counter(reader))
        };
        let lanes: usize = change
            .now
            .sources
            .iter()
            .map(|source| source.lanes.len())
            .sum();
        let lanes = u64::try_from(lanes).unwrap_or(1);
        Row {
            reader,
            credit: u64::from(reader.credit_chunks) * lanes,
            packets: rate(|reader| reader.delivered),
            bits: rate(|reader| reader.bytes).map(|bytes| bytes * 8.0),
            filtered: rate(|reader| reader.filtered),
            lost: rate(|reader| reader.overrun),
        }
    }

    /// The worst, fastest or latest first; among equals by group and number, so that rows stay.
    fn compare(&self, other: &Self, order: Order) -> Ordering {
        let (a, b) = (self.reader, other.reader);
        let down = |a: Option<f64>, b: Option<f64>| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0));
        let first = match order {
            Order::Loss => down(self.lost, other.lost).then(b.overrun.cmp(&a.overrun)),
            Order::Rate => down(self.packets, other.packets),
            Order::Lag => b
                .lag_chunks
                .cmp(&a.lag_chunks)
                .then(b.lag_ms.cmp(&a.lag_ms)),
            Order::Name => a.name.cmp(&b.name),
        };
        first
            .then_with(|| a.group.cmp(&b.group))
            .then(a.reader.cmp(&b.reader))
    }

    fn cells(&self, name: usize, wide: bool) -> Vec<Cell> {
        let reader = self.reader;
        let lost = loss_mood(reader.overrun, self.lost);
        let (held, may) = (u64::from(reader.lag_chunks), self.credit);
        let late = held * 100 >= may * NEARLY_LATE && held > 0;
        let late = if late { Mood::Warn } else { Mood::Plain };
        let text = [
            (reader.group.clone(), Mood::Plain),
            (reader.pid.to_string(), Mood::Plain),
            (rate(self.packets), Mood::Plain),
            (rate(self.bits), Mood::Plain),
            (format!("{held}/{may}"), late),
            (short(reader.lag_ms), late),
            (rate(self.lost), lost),
            (short(reader.overrun), lost),
        ];
        let broken = if reader.corrupt {
            Mood::Bad
        } else {
            Mood::Plain
        };
        let mut cells = vec![Cell::left(&reader.name, name).mood(broken)];
        for (at, ((text, mood), (_, width))) in text.into_iter().zip(COLUMNS).enumerate() {
            let cell = match at {
                0 => Cell::left(text, width),
                _ => Cell::right(text, width),
            };
            cells.push(cell.mood(mood));
        }
        if wide {
            cells.push(Cell::right(rate(self.filtered), FILTERED.1));
        }
        cells
    }
}
