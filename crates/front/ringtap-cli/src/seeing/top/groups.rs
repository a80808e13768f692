// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the screen that shows groups whose members help each other.
#![forbid(unsafe_code)]

use ratatui::text::Line;
use ringtap_ipc::protocol::GroupStatus;

use super::cells::{Cell, Mood, Palette, rate, short};
use crate::seeing::change::Change;

/// Heads and widths of all columns but the name.
const COLUMNS: [(&str, usize); 7] = [
    ("ABOVE", 6),
    ("CHUNKS/s", 8),
    ("CHUNKS", 7),
    ("PACKETS", 7),
    ("DISORDERED", 10),
    ("BUCKETS", 7),
    ("UNORDERED", 9),
];

/// The lines, `width` columns wide; none if no group may offload.
pub(super) fn lines(change: Change<'_>, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let groups = change.now.groups.iter();
    let rows: Vec<_> = groups
        .filter_map(|group| Some((group, group.offload_percent?)))
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let fixed: usize = COLUMNS.iter().map(|(_, width)| width + 1).sum();
    let name = width.saturating_sub(fixed).max(8);
    let heads = COLUMNS.map(|(head, width)| Cell::right(head, width).mood(Mood::Head));
    let first = Cell::left("OFFLOADS", name).mood(Mood::Head);
    let mut lines = vec![Line::default()];
    lines.push(palette.row([first].into_iter().chain(heads)));
    lines.extend(rows.into_iter().map(|(group, percent)| {
        let first = Cell::left(&group.name, name);
        palette.row([first].into_iter().chain(cells(change, group, percent)))
    }));
    lines
}

fn cells(change: Change<'_>, group: &GroupStatus, percent: u8) -> [Cell; 7] {
    let before = change.group(&group.name);
    let before = before.map(|before| before.offloaded_chunks);
    let broken = |count: u64| match count {
        0 => Mood::Plain,
        _ => Mood::Warn,
    };
    let text = [
        (format!("{percent}%"), Mood::Plain),
        (
            rate(change.per_second(before, group.offloaded_chunks)),
            Mood::Plain,
        ),
        (short(group.offloaded_chunks), Mood::Plain),
        (short(group.offloaded_packets), Mood::Plain),
        (
            short(group.disordered_packets),
            broken(group.disordered_packets),
        ),
        (short(group.moved_buckets), Mood::Plain),
        (short(group.unordered_moves), broken(group.unordered_moves)),
    ];
    let mut at = 0;
    text.map(|(text, mood)| {
        at += 1;
        Cell::right(text, COLUMNS[at - 1].1).mood(mood)
    })
}
