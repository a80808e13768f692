// SPDX-License-Identifier: MIT OR Apache-2.0
//! The readers' progress, and the live table that shows it, one line per second.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use ringtap_client::{Batch, Control, Tally};
use ringtap_send::SendCounters;

use crate::print::line as say;
use crate::report::{as_f64, grouped, rounded};
use crate::session::{Consumer, Flow};

/// Time between two lines.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Packets that each reader took so far, for the table only.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub(super) counted: AtomicU64,
    pub(super) recorded: AtomicU64,
    /// By the members of the group.
    pub(super) shared: [AtomicU64; 2],
}

/// A reader that reports its progress.
pub(super) trait Progress: Consumer {
    /// Packets that passed its filter so far.
    fn packets(&self) -> u64;
}

/// A reader that updates the board after each batch.
pub(super) struct Watched<'a, C> {
    pub(super) consumer: C,
    pub(super) place: &'a AtomicU64,
}

impl<C: Progress> Consumer for Watched<'_, C> {
    fn batch(&mut self, batch: &Batch) -> Result<Flow> {
        let flow = self.consumer.batch(batch)?;
        self.place.store(self.consumer.packets(), Relaxed);
        Ok(flow)
    }

    fn tally(&self) -> &Tally {
        self.consumer.tally()
    }

    fn idle(&mut self) -> Result<()> {
        self.consumer.idle()
    }

    fn tick(&mut self) -> Result<Flow> {
        self.consumer.tick()
    }
}

/// The live table.
pub(super) struct Table<'a> {
    board: &'a Board,
    readers: Vec<Arc<dyn Control>>,
    begun: Instant,
    last: (Instant, [u64; 5]),
}

impl<'a> Table<'a> {
    /// Prints the head.
    pub(super) fn begin(board: &'a Board, readers: Vec<Arc<dyn Control>>) -> Result<Self> {
        let [second, sent, counted, recorded, shared, lost] = [
            "second",
            "sent/s",
            "counted/s",
            "recorded/s",
            "group of 2/s",
            "lost",
        ];
        say(format_args!(
            "\n{second:>8} {sent:>12} {counted:>12} {recorded:>12} {shared:>13} {lost:>8}"
        ))?;
        let now = Instant::now();
        Ok(Table {
            board,
            readers,
            begun: now,
            last: (now, [0; 5]),
        })
    }

    /// Prints the progress since the last line.
    pub(super) fn line(&mut self, sender: SendCounters) -> Result<()> {
        let now = Instant::now();
        let figures = [
            sender.sent,
            self.board.counted.load(Relaxed),
            self.board.recorded.load(Relaxed),
            self.board.shared.iter().map(|one| one.load(Relaxed)).sum(),
            self.lost()?,
        ];
        let (then, before) = self.last;
        let seconds = (now - then).as_secs_f64();
        let since = |place: usize| figures[place].saturating_sub(before[place]);
        let rate = |place| grouped(rounded(as_f64(since(place)) / seconds));
        say(format_args!(
            "{:>8} {:>12} {:>12} {:>12} {:>13} {:>8}",
            format!("{:.0}", (now - self.begun).as_secs_f64()),
            rate(0),
            rate(1),
            rate(2),
            rate(3),
            grouped(since(4)),
        ))?;
        self.last = (now, figures);
        Ok(())
    }

    /// Prints a last line, unless the previous one is less than half an interval old.
    pub(super) fn last_line(&mut self, sender: SendCounters) -> Result<()> {
        match self.last.0.elapsed() < INTERVAL / 2 {
            true => Ok(()),
            false => self.line(sender),
        }
    }

    /// Packets lost so far: before the readers, and by any of them.
    fn lost(&self) -> Result<u64> {
        let mut lost = 0;
        for (place, reader) in self.readers.iter().enumerate() {
            for source in reader.snapshot()?.sources {
                let lanes = || source.lanes.iter();
                lost += lanes().map(|lane| lane.missed_packets).sum::<u64>();
                if place == 0 {
                    lost += lanes()
                        .map(|lane| lane.pool_full + lane.kernel)
                        .sum::<u64>();
                    lost += source.nic + source.kernel;
                }
            }
        }
        Ok(lost)
    }
}
