// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the screen that shows losses by reason, and what else is wrong.
#![forbid(unsafe_code)]

use ratatui::text::Line;
use ringtap_ipc::protocol::{HubStatus, SourceStatus};

use super::cells::{Cell, Mood, Palette, loss_mood, rate};
use crate::report::grouped;
use crate::seeing::change::Change;

const REASON: usize = 12;
const NUMBER: usize = 16;
const FIXED: usize = REASON + 1 + 2 * (NUMBER + 1);

/// One of a source's counters.
type Counter = fn(&SourceStatus) -> u64;

struct Loss {
    place: String,
    reason: &'static str,
    lost: u64,
    rate: Option<f64>,
}

/// The lines, `width` columns wide.
pub(super) fn lines(change: Change<'_>, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let losses = losses(change);
    if losses.is_empty() {
        lines.push(palette.line("nothing lost", Mood::Plain));
    } else {
        let place = width.saturating_sub(FIXED).max(8);
        let heads = ["PACKETS", "PACKETS/s"].map(|head| Cell::right(head, NUMBER));
        let names = [Cell::left("LOST BY", place), Cell::left("REASON", REASON)];
        let cells = names.into_iter().chain(heads);
        lines.push(palette.row(cells.map(|cell| cell.mood(Mood::Head))));
        for loss in losses {
            let mood = loss_mood(loss.lost, loss.rate);
            lines.push(palette.row([
                Cell::left(loss.place, place),
                Cell::left(loss.reason, REASON),
                Cell::right(grouped(loss.lost), NUMBER).mood(mood),
                Cell::right(rate(loss.rate), NUMBER).mood(mood),
            ]));
        }
    }
    lines.extend(
        faults(change.now)
            .into_iter()
            .map(|fault| palette.line(fault, Mood::Bad)),
    );
    lines
}

/// Those that there were, the fastest first.
fn losses(change: Change<'_>) -> Vec<Loss> {
    let mut losses = Vec::new();
    let mut add = |place: &str, reason, before: Option<u64>, lost| {
        if lost > 0 {
            losses.push(Loss {
                place: place.to_owned(),
                reason,
                lost,
                rate: change.per_second(before, lost),
            });
        }
    };
    let reasons: [(&str, Counter); 3] = [
        ("nic", |source| source.nic),
        ("kernel", |source| {
            source.kernel + source.lanes.iter().map(|lane| lane.kernel).sum::<u64>()
        }),
        ("pool_full", |source| {
            source.lanes.iter().map(|lane| lane.pool_full).sum()
        }),
    ];
    for (at, source) in change.now.sources.iter().enumerate() {
        for (reason, counter) in reasons {
            let before = change.source(at).map(counter);
            add(&source.device, reason, before, counter(source));
        }
    }
    for reader in &change.now.readers {
        let place = format!("reader {} {}", reader.reader, reader.name);
        let before = change.reader(reader.reader).map(|before| before.overrun);
        add(&place, "overrun", before, reader.overrun);
    }
    let departed = change.now.departed_overrun;
    add("readers that left", "overrun", change.departed(), departed);
    losses.sort_by(|a, b| {
        let rates = b.rate.unwrap_or(0.0).total_cmp(&a.rate.unwrap_or(0.0));
        rates.then(b.lost.cmp(&a.lost))
    });
    losses
}

fn faults(now: &HubStatus) -> Vec<String> {
    let of_source = |source: &SourceStatus| {
        let failed = source.failure.as_ref();
        let failed = failed.map(|why| format!("{}: capture failed: {why}", source.device));
        let unbalanced = format!("{}: the counters does not balance", source.device);
        failed
            .into_iter()
            .chain((!source.balanced).then_some(unbalanced))
    };
    let corrupt = now.readers.iter().filter(|reader| reader.corrupt);
    let corrupt = corrupt.map(|reader| {
        format!(
            "reader {} {} broke the rules: it gets nothing any more",
            reader.reader, reader.name
        )
    });
    now.sources
        .iter()
        .flat_map(of_source)
        .chain(corrupt)
        .collect()
}
