// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of losses by reason, and the faults below it.

use ringtap_ipc::protocol::{BridgeStatus, ReaderStatus, SourceStatus};
use ringtap_pool::counters::{Scope, Term};

use super::cells::{Column, StatusTable, TableCell, loss_emphasis, plain, rate};
use crate::change::{StatusChange, account, source_losses};
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
    let loss = |place: &str, term: &Term, before, packets| LossRow {
        place: place.to_owned(),
        reason: term.reason().unwrap_or_default(),
        packets,
        rate: change.per_second(before, packets),
    };
    let mut losses = Vec::new();
    for (at, source) in change.now.sources.iter().enumerate() {
        for term in source_losses() {
            let counter = |source: &SourceStatus| term.count(&account(source));
            let before = change.source(at).map(counter);
            losses.push(loss(&source.device, term, before, counter(source)));
        }
    }
    for bridge in &change.now.bridges {
        let before = change.bridge(&bridge.way);
        for term in Term::losses_of(&[Scope::Bridge]) {
            let counter = |bridge: &BridgeStatus| term.count(&bridge.counters);
            losses.push(loss(
                &bridge.way,
                term,
                before.map(counter),
                counter(bridge),
            ));
        }
    }
    for reader in &change.now.readers {
        let place = format!("reader {} {}", reader.reader, reader.name);
        let before = change.reader(reader.reader);
        // A reader's other losses are those of its sources.
        for term in Term::losses_of(&[Scope::Reader]) {
            let counter = |reader: &ReaderStatus| term.count(&reader.counters);
            losses.push(loss(&place, term, before.map(counter), counter(reader)));
        }
    }
    let before = change.before.map(|before| before.departed_overrun);
    let now = change.now.departed_overrun;
    let departed =
        Term::losses_of(&[Scope::Reader]).map(|term| loss("readers that left", term, before, now));
    losses.extend(departed);
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
