// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of groups with an offload threshold.

use ratatui::text::Line;
use ringtap_ipc::protocol::GroupStatus;

use super::table::{Column, Palette, TableCell, loss_emphasis, plain, rate, short};
use crate::seeing::change::StatusChange;

const COLUMNS: [Column<'static>; 5] = [
    Column::right("ABOVE", 6),
    Column::right("CHUNKS/s", 8),
    Column::right("CHUNKS", 7),
    Column::right("PACKETS", 7),
    Column::right("DISORDERED", 10),
];

/// The lines, `width` columns wide; none if no group has a threshold.
pub(super) fn lines(
    change: StatusChange<'_>,
    width: usize,
    palette: Palette,
) -> Vec<Line<'static>> {
    let groups = change.now.groups.iter();
    let row = |group| row(change, group);
    let rows: Vec<_> = groups.filter_map(row).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![Line::default()];
    lines.extend(palette.table(width, "OFFLOADS", &COLUMNS, rows));
    lines
}

fn row(change: StatusChange<'_>, group: &GroupStatus) -> Option<Vec<TableCell>> {
    let before = change.group(&group.name);
    let before = before.map(|before| before.offloaded_chunks);
    Some(vec![
        plain(&group.name),
        plain(format!("{}%", group.offload_percent?)),
        plain(rate(change.per_second(before, group.offloaded_chunks))),
        plain(short(group.offloaded_chunks)),
        plain(short(group.offloaded_packets)),
        (
            short(group.disordered_packets),
            loss_emphasis(group.disordered_packets, None),
        ),
    ])
}
