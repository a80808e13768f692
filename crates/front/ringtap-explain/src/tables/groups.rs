// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of groups with an offload threshold.

use ringtap_ipc::protocol::GroupStatus;

use super::cells::{Column, StatusTable, TableCell, loss_emphasis, plain, rate, short};
use crate::change::StatusChange;

const COLUMNS: [Column; 5] = [
    Column::right("ABOVE", 6),
    Column::right("CHUNKS/s", 8),
    Column::right("CHUNKS", 7),
    Column::right("PACKETS", 7),
    Column::right("DISORDERED", 10),
];

/// Groups with an offload threshold; `None` if no group has one.
pub fn groups(change: StatusChange<'_>) -> Option<StatusTable> {
    let groups = change.now.groups.iter();
    let row = |group| row(change, group);
    let rows: Vec<_> = groups.filter_map(row).collect();
    (!rows.is_empty()).then_some(StatusTable {
        first: "OFFLOADS",
        columns: &COLUMNS,
        rows,
    })
}

fn row(change: StatusChange<'_>, group: &GroupStatus) -> Option<Vec<TableCell>> {
    let before = change
        .group(&group.name)
        .map(|before| before.buddies.offloaded_chunks);
    Some(vec![
        plain(&group.name),
        plain(format!("{}%", group.offload_percent?)),
        plain(rate(
            change.per_second(before, group.buddies.offloaded_chunks),
        )),
        plain(short(group.buddies.offloaded_chunks)),
        plain(short(group.buddies.offloaded_packets)),
        (
            short(group.buddies.disordered_packets),
            loss_emphasis(group.buddies.disordered_packets, None),
        ),
    ])
}
