// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers of all subscriptions on the hub's thread: links, unlinks and wakes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ringtap_ipc::protocol::ReaderStatus;
use ringtap_ipc::subscription::{SubscriptionId, Watermark};
use ringtap_ipc::time::now_ns;
use ringtap_pool::distributor::{AddReaderError, Policy, ReaderOptions};
use ringtap_pool::ids::ReaderId;
use ringtap_pool::memory::Region;
use ringtap_pool::wake::Signal;

use super::Engine;
use super::figures::of_reader;
use crate::capture::{Beginning, SourceCapture};

/// Shortest time between two checks of a reader below its watermark.
const LOOK: Duration = Duration::from_micros(250);

/// Which sleepers are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleepers {
    /// Every reader with packets left to read.
    All,
    /// Not those whose source's own signal has most likely woken them; the hub checks them before it
    /// sleeps again.
    WithoutSourceSignal,
}

/// A subscription, with everything that its readers need.
pub(crate) struct NewReader {
    pub(crate) id: SubscriptionId,
    pub(crate) options: ReaderOptions,
    /// Control regions, one per source. The sender keeps a copy of each, and thus frees the memory.
    pub(crate) controls: Vec<Region>,
    /// Wakes the reader; the hub's thread does not wait for it.
    pub(crate) wake: Arc<dyn Signal>,
    /// Sources wake the reader by their own signals, too.
    pub(crate) has_source_signals: bool,
    pub(crate) watermark: Watermark,
    /// Percentage above which the reader's chunk share offloads chunks.
    pub(crate) offload_percent: Option<u8>,
    pub(crate) from_the_first: bool,
}

/// The readers of one subscription.
pub(super) struct ReaderLink {
    new: NewReader,
    /// One for each source that the hub had when the reader attached; likewise below.
    pub(super) readers: Vec<ReaderId>,
    /// Sequence of the subscription's first packet, per source and lane.
    starts: Vec<Vec<u64>>,
    /// The reader's signal is due.
    is_called: bool,
    /// Since when packets wait for a reader that sleeps below its watermark.
    waits_since: Option<Instant>,
    /// Packets lost at the last check, and the time of the last loss.
    pub(super) lost: u64,
    pub(super) last_loss_ns: u64,
}

/// The readers of all subscriptions.
#[derive(Default)]
pub(super) struct ReaderLinks {
    pub(super) all: BTreeMap<SubscriptionId, ReaderLink>,
}

impl Engine {
    /// Adds a reader at every source, or at none.
    pub(crate) fn link(&mut self, new: NewReader) -> Result<Vec<Beginning>, AddReaderError> {
        let id = new.id;
        let mut link = ReaderLink {
            new,
            readers: Vec::new(),
            starts: Vec::new(),
            is_called: false,
            waits_since: None,
            lost: 0,
            last_loss_ns: 0,
        };
        let new = &link.new;
        let mut beginnings = Vec::new();
        for (capture, control) in self.captures.iter_mut().zip(&new.controls) {
            if let Some(share) = new.options.chunk_share {
                capture.buddies.set_threshold(share, new.offload_percent);
            }
            let options = ReaderOptions {
                // A source that cannot drop packets waits for its readers.
                policy: match capture.facts.policy {
                    waits @ Policy::Block => waits,
                    _ => new.options.policy,
                },
                ..new.options
            };
            match capture.add_reader(&options, control, new.from_the_first) {
                Ok((reader, beginning)) => {
                    link.readers.push(reader);
                    link.starts.push(beginning.starts().collect());
                    beginnings.push(beginning);
                }
                Err(error) => {
                    self.remove(&link);
                    return Err(error);
                }
            }
        }
        self.links.all.insert(id, link);
        Ok(beginnings)
    }

    /// Removes a subscription's readers and takes back all chunks that they hold; returns their last
    /// numbers.
    pub(crate) fn unlink(&mut self, id: SubscriptionId) -> ReaderStatus {
        let Some(mut link) = self.links.all.remove(&id) else {
            return ReaderStatus::default();
        };
        link.lost = link.lost(&self.captures);
        let last = of_reader(&link, &self.captures, now_ns()).numbers;
        self.remove(&link);
        last
    }

    fn remove(&mut self, link: &ReaderLink) {
        for (capture, reader) in self.captures.iter_mut().zip(&link.readers) {
            capture.distributor.remove_reader(*reader);
        }
    }

    /// Changes how many chunks of a lane a subscription's readers may hold.
    pub(crate) fn set_credit(&mut self, id: SubscriptionId, chunks: u32) {
        let readers = self.links.all.get(&id).map(|link| &link.readers);
        for (capture, reader) in self.captures.iter_mut().zip(readers.into_iter().flatten()) {
            capture.distributor.set_credit(*reader, chunks);
        }
    }
}

impl ReaderLinks {
    /// Wakes all readers with the next call of [`ReaderLinks::wake`].
    pub(super) fn call_all(&mut self) {
        for link in self.all.values_mut() {
            link.is_called = true;
        }
    }

    /// Stores the time of losses since the last call.
    pub(super) fn note_losses(&mut self, captures: &[SourceCapture], now: u64) {
        for link in self.all.values_mut() {
            let lost = link.lost(captures);
            if lost > link.lost {
                (link.lost, link.last_loss_ns) = (lost, now);
            }
        }
    }

    /// Wakes the sleepers with enough waiting packets; returns the time until the next check of those
    /// with too few.
    pub(super) fn wake(
        &mut self,
        sleepers: Sleepers,
        captures: &mut [SourceCapture],
        now: Instant,
    ) -> Option<Duration> {
        let mut look_again: Option<Duration> = None;
        let mut look_after = |time: Duration| {
            look_again = Some(look_again.map_or(time, |other| other.min(time)));
        };
        let low = |link: &&mut ReaderLink| link.new.watermark.packets > 1;
        for link in self.all.values_mut().filter(low) {
            if let Some(left) = link.still_waits(captures, now) {
                look_after((left / 4).max(LOOK).min(left));
            }
        }
        let all_have_signals = self.all.values().all(|link| link.new.has_source_signals);
        let without = sleepers == Sleepers::WithoutSourceSignal && all_have_signals;
        for (at, capture) in captures.iter_mut().enumerate() {
            if without && capture.wakes_readers {
                continue;
            }
            // Ascending, so that one pass over the subscriptions finds all of them.
            let mut woken = Vec::new();
            capture
                .distributor
                .wake_sleepers(|reader| woken.push(reader));
            if woken.is_empty() {
                continue;
            }
            for link in self.all.values_mut() {
                // A reader that attached before the source came has none there.
                let reader = link.readers.get(at);
                link.is_called |= reader.is_some_and(|one| woken.binary_search(one).is_ok());
            }
        }
        for link in self.all.values_mut().filter(|link| link.is_called) {
            link.new.wake.signal();
            link.is_called = false;
        }
        look_again
    }
}

impl ReaderLink {
    /// Packets that the readers lost because they were past their credit.
    pub(super) fn lost(&self, captures: &[SourceCapture]) -> u64 {
        let lost = |(capture, reader): (&SourceCapture, &ReaderId)| -> u64 {
            let missed = |lane| capture.distributor.missed(*reader, lane).packets;
            capture.lanes().map(missed).sum()
        };
        captures.iter().zip(&self.readers).map(lost).sum()
    }

    /// Time left for a sleeper below its watermark; `None` if it must be woken, or no packet waits.
    fn still_waits(&mut self, captures: &mut [SourceCapture], now: Instant) -> Option<Duration> {
        let readers = captures.iter().zip(self.readers.iter().zip(&self.starts));
        let waiting: u64 = readers
            .map(|(capture, (reader, starts))| waiting(capture, *reader, starts))
            .sum();
        let since = match waiting {
            0 => None,
            _ => Some(*self.waits_since.get_or_insert(now)),
        };
        self.waits_since = since;
        let left = since.map(|since| {
            let limit = Duration::from_millis(self.new.watermark.time_limit_ms.into());
            limit.saturating_sub(now.saturating_duration_since(since))
        });
        let enough = waiting >= u64::from(self.new.watermark.packets);
        let left = left.filter(|left| !enough && !left.is_zero());
        for (capture, reader) in captures.iter_mut().zip(&self.readers) {
            capture.distributor.defer(*reader, left.is_some());
        }
        if left.is_none() {
            self.waits_since = None;
        }
        left
    }
}

/// Packets that wait for a reader at a source, by the reader's own counters.
fn waiting(capture: &SourceCapture, reader: ReaderId, starts: &[u64]) -> u64 {
    let distributor = &capture.distributor;
    let Some(progress) = distributor.progress(reader) else {
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
    let offered = capture.lanes().zip(starts).map(|(lane, start)| {
        let missed = distributor.missed(reader, lane).packets;
        (distributor.position(lane) - start).saturating_sub(missed)
    });
    offered.sum::<u64>().saturating_sub(taken)
}
