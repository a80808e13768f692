// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakes sleeping readers: at once, or when enough packets wait for them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ringtap_pool::wake::Signal as _;

use super::{SourceReader, Subscriber, Subscribers};
use crate::capture::Capture;

/// Shortest time between two checks of a reader below its watermark.
const LOOK: Duration = Duration::from_micros(250);

/// Which sleepers are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleepers {
    /// Every reader with packets left to read.
    All,
    /// Only readers of sources without a signal of their own. A source's own signal has most likely
    /// woken its readers; the hub checks them before it sleeps again.
    WithoutSourceSignal,
}

impl Subscribers {
    /// Wakes the sleepers with enough waiting packets; returns the time until the next check of those
    /// with too few.
    pub(crate) fn wake(
        &mut self,
        sleepers: Sleepers,
        captures: &mut [Capture],
        now: Instant,
    ) -> Option<Duration> {
        let mut look_again = None;
        for subscriber in self
            .all
            .values_mut()
            .filter(|subscriber| subscriber.watermark.packets > 1)
        {
            if let Some(left) = subscriber.still_waits(captures, now) {
                let soon = (left / 4).max(LOOK).min(left);
                look_again = Some(look_again.map_or(soon, |other: Duration| other.min(soon)));
            }
        }
        for (at, capture) in captures.iter_mut().enumerate() {
            if sleepers == Sleepers::WithoutSourceSignal && capture.readers_wake.is_some() {
                continue;
            }
            // Ascending, so that one pass over the subscribers finds all of them.
            let mut woken = Vec::new();
            capture
                .distributor
                .wake_sleepers(|reader| woken.push(reader));
            if woken.is_empty() {
                continue;
            }
            for subscriber in self.all.values() {
                let is_woken = |one: &SourceReader| {
                    one.capture == at && woken.binary_search(&one.reader).is_ok()
                };
                if subscriber.source_readers.iter().any(is_woken) {
                    subscriber.doorbell.signal();
                }
            }
        }
        look_again
    }
}

impl Subscriber {
    /// Time left for a sleeper below its watermark; `None` if it must be woken, or no packet waits.
    fn still_waits(&mut self, captures: &mut [Capture], now: Instant) -> Option<Duration> {
        let waiting: u64 = self
            .source_readers
            .iter()
            .map(|source_reader| waiting(source_reader, captures))
            .sum();
        let since = match waiting {
            0 => None,
            _ => Some(*self.waits_since.get_or_insert(now)),
        };
        self.waits_since = since;
        let left = since.map(|since| {
            let limit = self.watermark.time_limit;
            limit.saturating_sub(now.saturating_duration_since(since))
        });
        let enough = waiting >= u64::from(self.watermark.packets);
        let left = left.filter(|left| !enough && !left.is_zero());
        for source_reader in &self.source_readers {
            let distributor = &mut captures[source_reader.capture].distributor;
            distributor.defer(source_reader.reader, left.is_some());
        }
        if left.is_none() {
            self.waits_since = None;
        }
        left
    }
}

/// Packets that wait for a reader at a source, by the reader's own counters.
fn waiting(source_reader: &SourceReader, captures: &[Capture]) -> u64 {
    let capture = &captures[source_reader.capture];
    let Some(progress) = capture.distributor.progress(source_reader.reader) else {
        return 0;
    };
    let counters = [
        &progress.delivered,
        &progress.filtered,
        &progress.other_members,
    ];
    let taken = counters
        .into_iter()
        .map(|counter| counter.load(Relaxed))
        .fold(0, u64::saturating_add);
    let offered = capture
        .lanes()
        .zip(&source_reader.starts)
        .map(|(lane, start)| {
            let missed = capture
                .distributor
                .missed(source_reader.reader, lane)
                .packets;
            (capture.distributor.position(lane) - start).saturating_sub(missed)
        });
    offered.sum::<u64>().saturating_sub(taken)
}
