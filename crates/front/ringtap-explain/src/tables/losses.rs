// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of losses by reason, and the faults below it.

use super::cells::{Column, StatusTable, TableCell, loss_emphasis, plain, rate};
use crate::change::{BRIDGE_LOSSES, SOURCE_LOSSES, StatusChange};
use crate::text::grouped;

const COLUMNS: [Column; 3] = [
    Column::left("REASON", 12),
    Column::right("PACKETS", 16),
    Column::right("PACKETS/s", 16),
];

struct LossRow {
    place: String,
    reason: &'static str,
    packets: u64,
    rate: Option<f64>,
}

impl LossRow {
    fn row(self) -> Vec<TableCell> {
        let emphasis = loss_emphasis(self.packets, self.rate);
        vec![
            plain(self.place),
            plain(self.reason),
            (grouped(self.packets), emphasis),
            (rate(self.rate), emphasis),
        ]
    }
}

/// The losses other than 0, the fastest-growing first.
pub fn losses(change: StatusChange<'_>) -> StatusTable {
    let loss = |place: &str, reason, before, packets| LossRow {
        place: place.to_owned(),
        reason,
        packets,
        rate: change.per_second(before, packets),
    };
    let mut losses = Vec::new();
    for (at, source) in change.now.sources.iter().enumerate() {
        for (reason, counter) in SOURCE_LOSSES {
            let before = change.source(at).map(counter);
            losses.push(loss(&source.device, reason, before, counter(source)));
        }
    }
    for bridge in &change.now.bridges {
        let before = change.bridge(&bridge.way);
        for (reason, counter) in BRIDGE_LOSSES {
            losses.push(loss(
                &bridge.way,
                reason,
                before.map(counter),
                counter(bridge),
            ));
        }
    }
    for reader in &change.now.readers {
        let place = format!("reader {} {}", reader.reader, reader.name);
        let before = change.reader(reader.reader);
        let before = before.map(|before| before.overrun);
        losses.push(loss(&place, "overrun", before, reader.overrun));
    }
    let before = change.before.map(|before| before.departed_overrun);
    let now = change.now.departed_overrun;
    losses.push(loss("readers that left", "overrun", before, now));
    losses.retain(|loss| loss.packets > 0);
    losses.sort_by(|a, b| {
        let rates = b.rate.unwrap_or(0.0).total_cmp(&a.rate.unwrap_or(0.0));
        rates.then(b.packets.cmp(&a.packets))
    });
    StatusTable {
        first: "LOST BY",
        columns: &COLUMNS,
        rows: losses.into_iter().map(LossRow::row).collect(),
    }
}

/// One sentence for each fault.
pub fn faults(change: StatusChange<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    for source in &change.now.sources {
        let device = &source.device;
        let failure = source.failure.iter();
        faults.extend(failure.map(|reason| format!("{device}: capture failed: {reason}")));
        if !source.balanced {
            faults.push(format!("{device}: the counters do not add up"));
        }
    }
    let corrupt = change.now.readers.iter().filter(|reader| reader.corrupt);
    faults.extend(corrupt.map(|reader| {
        let (number, name) = (reader.reader, &reader.name);
        format!("reader {number} {name} broke the protocol: the hub cut it off")
    }));
    let impossible = change.now.readers.iter().filter(|one| one.impossible);
    faults.extend(impossible.map(|reader| {
        let (number, name) = (reader.reader, &reader.name);
        format!("reader {number} {name} reports impossible numbers")
    }));
    faults
}
