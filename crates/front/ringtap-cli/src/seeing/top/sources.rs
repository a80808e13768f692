// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the screen that shows sources and their lanes.
#![forbid(unsafe_code)]

use ratatui::text::Line;
use ringtap_ipc::protocol::{LaneStatus, SourceState, SourceStatus};

use super::cells::{Cell, Mood, Palette, bar, loss_mood, percent, rate, short};
use crate::seeing::change::Change;

const NUMBER: usize = 10;
const BAR: usize = 17;
const LOST: usize = 8;
/// All but the name, with the blanks between.
const FIXED: usize = 3 * (NUMBER + 1) + BAR + 1 + 2 * (LOST + 1);
/// One column more, where there is room.
const BITS: (&str, usize) = ("BIT/s", 8);
const ROOM_FOR_BITS: usize = 96;
/// A pool as full as that is about to lose packets.
const NEARLY_FULL: u64 = 75;

/// A source's or a lane's figures.
struct Row {
    name: String,
    rates: [Option<f64>; 3],
    bits: Option<f64>,
    /// Chunks in use, and all.
    chunks: (u32, u32),
    state: Option<&'static str>,
    lost: u64,
    lost_rate: Option<f64>,
}

/// The lines, `width` columns wide.
pub(super) fn lines(change: Change<'_>, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let wide = width >= ROOM_FOR_BITS;
    let bits = if wide { BITS.1 + 1 } else { 0 };
    let name = width.saturating_sub(FIXED + bits).max(8);
    let heads = ["SEEN/s", "CAPTURED/s", "UNWANTED/s"];
    let heads = heads.map(|head| Cell::right(head, NUMBER).mood(Mood::Head));
    let mut cells = vec![Cell::left("SOURCE", name).mood(Mood::Head)];
    cells.extend(heads);
    cells.push(Cell::left("POOL IN USE", BAR).mood(Mood::Head));
    cells.extend(["LOST/s", "LOST"].map(|head| Cell::right(head, LOST).mood(Mood::Head)));
    if wide {
        cells.insert(4, Cell::right(BITS.0, BITS.1).mood(Mood::Head));
    }
    let mut lines = vec![palette.row(cells)];
    for (at, source) in change.now.sources.iter().enumerate() {
        let rows = rows(change, at, source);
        lines.extend(
            rows.into_iter()
                .map(|row| palette.row(row.cells(name, wide))),
        );
    }
    lines
}

/// The source, then its lanes, the busiest first, if there are several.
fn rows(change: Change<'_>, at: usize, source: &SourceStatus) -> Vec<Row> {
    let used = |lane: &&LaneStatus| lane.seen > 0 || lane.chunks_in_use > 0 || lane.pool_full > 0;
    let of_lane = |lane: &LaneStatus| of_lane(change, at, lane);
    let mut lanes: Vec<_> = source.lanes.iter().filter(used).map(of_lane).collect();
    lanes.sort_by(|a, b| {
        b.rates[0]
            .unwrap_or(0.0)
            .total_cmp(&a.rates[0].unwrap_or(0.0))
    });
    let mut rows = vec![of_source(change, at, source)];
    if source.lanes.len() > 1 {
        rows.extend(lanes);
    }
    rows
}

fn of_source(change: Change<'_>, at: usize, source: &SourceStatus) -> Row {
    let before = change.source(at);
    let total = |counter: fn(&LaneStatus) -> u64| {
        let sum = |source: &SourceStatus| source.lanes.iter().map(counter).sum::<u64>();
        change.per_second(before.map(sum), sum(source))
    };
    let lost = |source: &SourceStatus| {
        let lanes = source.lanes.iter().map(|lane| lane.pool_full + lane.kernel);
        source.nic + source.kernel + lanes.sum::<u64>()
    };
    let chunks = source.lanes.iter().fold((0, 0), |(used, all), lane| {
        (used + lane.chunks_in_use, all + lane.chunks)
    });
    Row {
        name: source.device.clone(),
        rates: [
            total(|lane| lane.seen),
            total(|lane| lane.captured),
            total(|lane| lane.unwanted),
        ],
        bits: total(|lane| lane.bytes).map(|bytes| bytes * 8.0),
        chunks,
        state: match (source.state, &source.failure) {
            (_, Some(_)) => Some("FAILED"),
            (SourceState::Ended, None) => Some("ended"),
            (SourceState::Paused, None) => Some("paused"),
            (SourceState::Capturing, None) => None,
        },
        lost: lost(source),
        lost_rate: change.per_second(before.map(lost), lost(source)),
    }
}

fn of_lane(change: Change<'_>, at: usize, lane: &LaneStatus) -> Row {
    let before = change.lane(at, lane.lane);
    let rate =
        |counter: fn(&LaneStatus) -> u64| change.per_second(before.map(counter), counter(lane));
    let lost = |lane: &LaneStatus| lane.pool_full + lane.kernel;
    Row {
        name: format!("  lane {}", lane.lane),
        rates: [
            rate(|lane| lane.seen),
            rate(|lane| lane.captured),
            rate(|lane| lane.unwanted),
        ],
        bits: rate(|lane| lane.bytes).map(|bytes| bytes * 8.0),
        chunks: (lane.chunks_in_use, lane.chunks),
        state: lane.paused.then_some("paused"),
        lost: lost(lane),
        lost_rate: rate(lost),
    }
}

impl Row {
    fn cells(self, name: usize, wide: bool) -> Vec<Cell> {
        let (used, all) = self.chunks;
        let (pool, mood) = match self.state {
            Some("FAILED") => ("FAILED".to_owned(), Mood::Bad),
            Some(state) => (
                format!("{state:<12} {:>3}%", percent(used, all)),
                Mood::Warn,
            ),
            None if percent(used, all) >= NEARLY_FULL => (bar(used, all), Mood::Warn),
            None => (bar(used, all), Mood::Plain),
        };
        let lost = loss_mood(self.lost, self.lost_rate);
        let mut cells = vec![Cell::left(self.name, name)];
        cells.extend(self.rates.map(|one| Cell::right(rate(one), NUMBER)));
        if wide {
            cells.push(Cell::right(rate(self.bits), BITS.1));
        }
        cells.push(Cell::left(pool, BAR).mood(mood));
        cells.push(Cell::right(rate(self.lost_rate), LOST).mood(lost));
        cells.push(Cell::right(short(self.lost), LOST).mood(lost));
        cells
    }
}
