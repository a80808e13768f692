// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo's live table, one line per second.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringtap_explain::change::account;
use ringtap_explain::text::{as_f64, grouped, rounded};
use ringtap_hub::Handle;
use ringtap_ipc::protocol::HubStatus;
use ringtap_send::SendCounters;

use crate::print::line as say;

pub(super) const INTERVAL: Duration = Duration::from_secs(1);

const COLUMNS: [(&str, usize); 7] = [
    ("second", 8),
    ("sent/s", 11),
    ("counted/s", 11),
    ("recorded/s", 11),
    ("group of 2/s", 13),
    ("probe/s", 11),
    ("lost", 8),
];

/// Prints how the counters of sender and hub grow.
pub(super) struct Table<'a> {
    hub: &'a Handle,
    begun: Instant,
    last: (Instant, [u64; 6]),
}

impl<'a> Table<'a> {
    /// Prints the table's head.
    pub(super) fn begin(hub: &'a Handle) -> Result<Self> {
        say("")?;
        print(COLUMNS.map(|(head, _)| head.to_owned()))?;
        let now = Instant::now();
        Ok(Table {
            hub,
            begun: now,
            last: (now, [0; 6]),
        })
    }

    /// Prints the growth since the last line.
    pub(super) fn line(&mut self, sender: SendCounters) -> Result<()> {
        let now = Instant::now();
        let status = self.hub.status().context("the hub ended")?;
        let group = |name: &str| {
            let readers = status.readers.iter().filter(|one| one.group == name);
            readers.map(|one| one.counters.delivered).sum::<u64>()
        };
        let figures = [
            sender.sent,
            group("all"),
            group("flow"),
            group("half"),
            group("probe"),
            lost(&status),
        ];
        let (then, before) = self.last;
        let seconds = (now - then).as_secs_f64();
        let [sent, counted, recorded, shared, probed, lost] =
            std::array::from_fn(|at| figures[at].saturating_sub(before[at]));
        let rate = |packets| grouped(rounded(as_f64(packets) / seconds));
        print([
            format!("{:.0}", (now - self.begun).as_secs_f64()),
            rate(sent),
            rate(counted),
            rate(recorded),
            rate(shared),
            rate(probed),
            grouped(lost),
        ])?;
        self.last = (now, figures);
        Ok(())
    }

    /// Prints a last line, unless the line before is less than half an interval old.
    pub(super) fn last_line(&mut self, sender: SendCounters) -> Result<()> {
        if self.last.0.elapsed() < INTERVAL / 2 {
            Ok(())
        } else {
            self.line(sender)
        }
    }
}

fn print(cells: [String; 7]) -> Result<()> {
    let cells = cells.iter().zip(COLUMNS);
    let cells = cells.map(|(text, (_, width))| format!("{text:>width$}"));
    say(cells.collect::<Vec<_>>().join(" "))
}

/// Packets lost so far, before the readers and by the readers.
fn lost(status: &HubStatus) -> u64 {
    let readers = status.readers.iter();
    let by_readers = readers.map(|one| one.counters.dropped.overrun);
    let before = status
        .sources
        .iter()
        .map(|one| account(one).dropped.total());
    by_readers.chain(before).sum()
}
