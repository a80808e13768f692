// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers of all subscriptions on the hub's thread: links, unlinks and wakes them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ringtap_ipc::protocol::ReaderStatus;
use ringtap_ipc::subscription::{SubscriptionId, Watermark};
use ringtap_pool::counters::Counters;
use ringtap_pool::distributor::ReaderOptions;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::memory::Region;
use ringtap_pool::source::Counts;
use ringtap_pool::wake::Signal;

use crate::capture::SourceCapture;

/// Shortest time between two checks of a reader below its watermark.
const LOOK: Duration = Duration::from_micros(250);

/// Time until the next check of readers below their watermarks if there are more than [`MAX_CHECKED`].
const LOOK_IN_TURN: Duration = Duration::from_millis(2);

/// Most readers with a watermark that one call of [`ReaderLinks::wake`] checks. Of more, it checks others in
/// the next call, and may wake a reader before its watermark is reached.
const MAX_CHECKED: usize = 32;

/// Attempts to find the start of a subscription while writers change chunks.
pub(super) const START_TRIES: usize = 10_000;
/// Bytes of published packets that sources may not have counted yet.
const BYTES_IN_FLIGHT: u64 = 64 << 20;

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
    pub(super) new: NewReader,
    /// One for each source that the hub had when the reader attached; likewise below.
    pub(super) readers: Vec<ReaderId>,
    /// The source's counters when the subscription began; `delivered` is the sequence of its first packet.
    pub(super) baselines: Vec<Counts>,
    /// Since when packets wait for a reader that sleeps below its watermark.
    pub(super) waits_since: Option<Instant>,
    /// Packets lost at the last check, and the time of the last loss.
    pub(super) lost: u64,
    pub(super) last_loss_ns: u64,
}

/// The readers of all subscriptions.
///
/// Invariants
/// - A wake-up of some readers looks at no others.
#[derive(Default)]
pub(super) struct ReaderLinks {
    pub(super) all: BTreeMap<SubscriptionId, ReaderLink>,
    /// The subscription of each reader, per source.
    of_readers: Vec<HashMap<ReaderId, SubscriptionId>>,
    /// Subscriptions with a watermark, and the one that is checked next.
    low: Vec<SubscriptionId>,
    next_low: usize,
    /// Number of subscriptions that the sources do not signal.
    without_source_signals: usize,
    /// Subscriptions whose signal is due.
    called: Vec<SubscriptionId>,
}

impl ReaderLinks {
    pub(super) fn add(&mut self, id: SubscriptionId, link: ReaderLink) {
        while self.of_readers.len() < link.readers.len() {
            self.of_readers.push(HashMap::new());
        }
        for (of_source, reader) in self.of_readers.iter_mut().zip(&link.readers) {
            of_source.insert(*reader, id);
        }
        if link.new.watermark.packets > 1 {
            self.low.push(id);
        }
        self.without_source_signals += usize::from(!link.new.has_source_signals);
        self.all.insert(id, link);
    }

    pub(super) fn remove(&mut self, id: SubscriptionId) -> Option<ReaderLink> {
        let link = self.all.remove(&id)?;
        for (of_source, reader) in self.of_readers.iter_mut().zip(&link.readers) {
            of_source.remove(reader);
        }
        self.low.retain(|low| *low != id);
        self.without_source_signals -= usize::from(!link.new.has_source_signals);
        Some(link)
    }

    /// Wakes all readers with the next call of [`ReaderLinks::wake`].
    pub(super) fn call_all(&mut self) {
        self.called.extend(self.all.keys());
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
        let look_again = self.check_watermarks(captures, now);
        let without = sleepers == Sleepers::WithoutSourceSignal && self.without_source_signals == 0;
        for (at, capture) in captures.iter_mut().enumerate() {
            if without && capture.wakes_readers {
                continue;
            }
            let Some(of_source) = self.of_readers.get(at) else {
                continue;
            };
            let called = &mut self.called;
            capture
                .distributor
                .wake_sleepers(|reader| called.extend(of_source.get(&reader)));
        }
        self.called.sort_unstable();
        self.called.dedup();
        for id in self.called.drain(..) {
            if let Some(link) = self.all.get(&id) {
                link.new.wake.signal();
            }
        }
        look_again
    }

    /// Checks readers with a watermark; returns the time until the next check.
    fn check_watermarks(
        &mut self,
        captures: &mut [SourceCapture],
        now: Instant,
    ) -> Option<Duration> {
        let mut look_again: Option<Duration> = None;
        for _ in 0..self.low.len().min(MAX_CHECKED) {
            self.next_low = (self.next_low + 1) % self.low.len();
            let link = self.all.get_mut(&self.low[self.next_low]);
            if let Some(left) = link.and_then(|link| link.still_waits(captures, now)) {
                let time = (left / 4).max(LOOK).min(left);
                look_again = Some(look_again.map_or(time, |other| other.min(time)));
            }
        }
        if self.low.len() > MAX_CHECKED {
            Some(look_again.map_or(LOOK_IN_TURN, |time| time.min(LOOK_IN_TURN)))
        } else {
            look_again
        }
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

    /// Packets of all sources since the subscription began, without those in chunks that the reader did not
    /// get.
    pub(super) fn captured(&self, captures: &[SourceCapture]) -> u64 {
        let readers = captures
            .iter()
            .zip(self.readers.iter().zip(&self.baselines));
        readers
            .map(|(capture, (reader, before))| captured(capture, *reader, before))
            .sum()
    }

    /// Completes a reader's account with what its sources counted since it began, of these counters of each source
    /// now: with their losses, and what no filter takes. Reduces the bytes that it reports to those that they
    /// captured.
    pub(super) fn complete(&self, numbers: &mut ReaderStatus, counts: &[Counts]) {
        let mut possible = 0;
        for (now, before) in counts.iter().zip(&self.baselines) {
            numbers.counters.dropped += now.dropped.since(before.dropped);
            for (now, before) in now.lanes.iter().zip(&before.lanes) {
                let since = now.since(before);
                possible += since.bytes;
                numbers.counters += Counters {
                    delivered: 0,
                    bytes: 0,
                    ..since
                };
            }
        }
        numbers.counters.offered = numbers.counters.accounted();
        // A source may count a packet's bytes just after it has published the packet.
        numbers.impossible |= numbers.counters.bytes > possible.saturating_add(BYTES_IN_FLIGHT);
        numbers.counters.bytes = numbers.counters.bytes.min(possible);
    }

    /// Time left for a sleeper below its watermark; `None` if it must be woken, or no packet waits.
    fn still_waits(&mut self, captures: &mut [SourceCapture], now: Instant) -> Option<Duration> {
        let readers = captures
            .iter()
            .zip(self.readers.iter().zip(&self.baselines));
        let waiting: u64 = readers
            .map(|(capture, (reader, before))| waiting(capture, *reader, before))
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

/// Packets of a source since a reader began, without those in chunks that the reader did not get.
fn captured(capture: &SourceCapture, reader: ReaderId, before: &Counts) -> u64 {
    let of_lane = |(lane, before): (LaneId, &Counters)| {
        let missed = capture.distributor.missed(reader, lane).sequences;
        let position = capture.distributor.position(lane);
        position
            .saturating_sub(before.delivered)
            .saturating_sub(missed)
    };
    capture.lanes().zip(&before.lanes).map(of_lane).sum()
}

/// Packets that wait for a reader at a source, by the reader's own counters.
fn waiting(capture: &SourceCapture, reader: ReaderId, before: &Counts) -> u64 {
    let Some(progress) = capture.distributor.progress(reader) else {
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
    captured(capture, reader, before).saturating_sub(taken)
}
