// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of sources and their lanes.

use ringtap_ipc::protocol::{BridgeStatus, LaneStatus, SourceState, SourceStatus};
use ringtap_pool::source::Counters;

use super::cells::{
    Column, Emphasis, StatusTable, TableCell, bar, loss_emphasis, percent, plain, rate, short,
};
use crate::change::{StatusChange, sum, total};

const COLUMNS: [Column; 7] = [
    Column::right("LOST/s", 8),
    Column::right("LOST", 8),
    Column::right("OFFERED/s", 10),
    Column::right("CAPTURED/s", 10),
    Column::right("FILTERED/s", 10),
    Column::wide("BIT/s", 8),
    Column::left("POOL IN USE", 17),
];
/// Percentage of a pool from which losses threaten.
const NEARLY_FULL: u64 = 75;

/// Sources, then (if there are several) their lanes with packets, the busiest first; ways of bridges.
pub fn sources(change: StatusChange<'_>) -> StatusTable {
    let sources = change.now.sources.iter().enumerate();
    let rows = sources.flat_map(|(at, source)| rows(change, at, source));
    let bridges = change.now.bridges.iter();
    let rows = rows.chain(bridges.map(|one| bridge_row(change, one)));
    StatusTable {
        first: "SOURCE",
        columns: &COLUMNS,
        rows: rows.collect(),
    }
}

/// The source, then (if there are several) its lanes with packets, the busiest first.
fn rows(change: StatusChange<'_>, at: usize, source: &SourceStatus) -> Vec<Vec<TableCell>> {
    let before = change.source(at).map(whole);
    let name = source.device.clone();
    let mut rows = vec![row(
        change,
        name,
        before.as_ref(),
        &whole(source),
        state(source),
    )];
    if source.lanes.len() > 1 {
        let rate = |lane: &LaneStatus| {
            let before = change
                .lane(at, lane.lane)
                .map(|before| before.counts.offered);
            change
                .per_second(before, lane.counts.offered)
                .unwrap_or(0.0)
        };
        let used = |lane: &&LaneStatus| {
            lane.counts.offered > 0 || lane.chunks_in_use > 0 || lost(lane) > 0
        };
        let mut lanes: Vec<_> = source.lanes.iter().filter(used).collect();
        lanes.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        rows.extend(lanes.into_iter().map(|lane| {
            let name = format!("  lane {}", lane.lane);
            let state = lane.paused.then_some("paused");
            row(change, name, change.lane(at, lane.lane), lane, state)
        }));
    }
    rows
}

/// A way of a bridge; packets that left by the other interface stand under CAPTURED.
fn bridge_row(change: StatusChange<'_>, bridge: &BridgeStatus) -> Vec<TableCell> {
    let lane = |one: &BridgeStatus| LaneStatus {
        counts: Counters {
            offered: one.offered,
            captured: one.delivered,
            filtered: one.filtered,
            kernel: one.lost(),
            ..Counters::default()
        },
        ..LaneStatus::default()
    };
    let before = change.bridge(&bridge.way).map(lane);
    let mut row = row(
        change,
        bridge.way.clone(),
        before.as_ref(),
        &lane(bridge),
        None,
    );
    // A bridge has no pool, and does not count bits.
    for cell in row.iter_mut().skip(6) {
        *cell = plain("-");
    }
    row
}

/// A source's counters in the form of a lane's; losses outside the lanes count as `kernel`.
fn whole(source: &SourceStatus) -> LaneStatus {
    let mut whole = total(source);
    whole.counts.kernel = sum([whole.counts.kernel, source.nic, source.kernel]);
    whole
}

fn lost(lane: &LaneStatus) -> u64 {
    sum([lane.counts.pool_full, lane.counts.kernel])
}

fn state(source: &SourceStatus) -> Option<&'static str> {
    match (source.state, &source.failure) {
        (_, Some(_)) => Some("FAILED"),
        (SourceState::Ended, None) => Some("ended"),
        (SourceState::Paused, None) => Some("paused"),
        (SourceState::Waiting, None) => Some("waiting"),
        (SourceState::Capturing, None) => None,
    }
}

fn row(
    change: StatusChange<'_>,
    name: String,
    before: Option<&LaneStatus>,
    now: &LaneStatus,
    state: Option<&str>,
) -> Vec<TableCell> {
    let per_second = |counter: fn(&LaneStatus) -> u64| {
        let before = before.map(counter);
        change.per_second(before, counter(now))
    };
    let bits = per_second(|lane| lane.counts.bytes).map(|bytes| bytes * 8.0);
    let (used, all) = (now.chunks_in_use, now.chunks);
    let percent = percent(used, all);
    let pool = match state {
        Some("FAILED") => ("FAILED".to_owned(), Emphasis::Bad),
        Some(state) => (format!("{state:<12} {percent:>3}%"), Emphasis::Warn),
        None if percent >= NEARLY_FULL => (bar(used, all), Emphasis::Warn),
        None => plain(bar(used, all)),
    };
    let lost_rate = per_second(lost);
    let emphasis = loss_emphasis(lost(now), lost_rate);
    vec![
        plain(name),
        (rate(lost_rate), emphasis),
        (short(lost(now)), emphasis),
        plain(rate(per_second(|lane| lane.counts.offered))),
        plain(rate(per_second(|lane| lane.counts.captured))),
        plain(rate(per_second(|lane| lane.counts.filtered))),
        plain(rate(bits)),
        pool,
    ]
}
