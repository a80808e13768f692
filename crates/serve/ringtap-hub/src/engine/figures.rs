// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of all sources and readers at one moment, from which the control thread answers questions.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use ringtap_ipc::protocol::{BuddyCounts, LaneStatus, ReaderStatus, SourceState, SourceStatus};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::distributor::Missing;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::number::to_u64;

use super::links::ReaderLink;
use crate::capture::{SourceCapture, Stage};

/// All figures at one moment.
pub(crate) struct Figures {
    pub(crate) time_ns: u64,
    pub(crate) sources: Vec<SourceFigures>,
    pub(crate) readers: HashMap<SubscriptionId, ReaderFigures>,
    /// Time that the hub's thread spent on them.
    pub(crate) took: Duration,
    /// Longest step of the hub's thread.
    pub(crate) longest_step: Duration,
}

pub(crate) struct SourceFigures {
    pub(crate) status: SourceStatus,
    /// Every chunk is delivered and settled.
    pub(crate) ended: bool,
    /// Per group.
    pub(crate) buddies: Vec<BuddyCounts>,
}

pub(crate) struct ReaderFigures {
    /// The numbers of the reader's status.
    pub(crate) numbers: ReaderStatus,
    /// Missed packets per source and lane.
    pub(crate) missed: Vec<Vec<Missing>>,
}

pub(super) fn reader_figures(
    link: &ReaderLink,
    captures: &[SourceCapture],
    now: u64,
) -> ReaderFigures {
    let mut numbers = ReaderStatus {
        counters: Counters {
            dropped: Dropped {
                overrun: link.lost,
                ..Dropped::default()
            },
            ..Counters::default()
        },
        last_loss_ns: link.last_loss_ns,
        ..ReaderStatus::default()
    };
    let mut guarantee: Option<u32> = None;
    let mut missed = Vec::new();
    for (capture, reader) in captures.iter().zip(&link.readers) {
        let (distributor, reader) = (&capture.distributor, *reader);
        numbers.corrupt |= distributor.is_corrupt(reader);
        numbers.helped_chunks += capture.buddies.helped_chunks(reader);
        for lane in capture.lanes() {
            let held = distributor.held(reader, lane);
            numbers.lag_chunks += held.saturating_sub(1);
            let credit = distributor.credit(reader, lane);
            numbers.credit_chunks = numbers.credit_chunks.max(credit);
            let chunks = distributor.guarantee(reader, lane);
            guarantee = Some(guarantee.map_or(chunks, |least| least.min(chunks)));
            if held > 1 {
                numbers.lag_ms = numbers.lag_ms.max(age_ms(capture, reader, lane, now));
            }
        }
        if let Some(progress) = distributor.progress(reader) {
            for (sum, counter) in [
                (&mut numbers.counters.delivered, &progress.delivered),
                (&mut numbers.counters.filtered, &progress.filtered),
                (&mut numbers.counters.other_members, &progress.other_members),
                (&mut numbers.counters.bytes, &progress.bytes),
            ] {
                *sum = sum.saturating_add(counter.load(Acquire));
            }
        }
        let lanes = capture.lanes();
        let of_lanes: Vec<_> = lanes.map(|lane| distributor.missed(reader, lane)).collect();
        numbers.overrun_in_bursts += of_lanes.iter().map(|lane| lane.in_bursts).sum::<u64>();
        missed.push(of_lanes);
    }
    // A reader whose credit is below the guarantee cannot hold more than its credit.
    numbers.guaranteed_chunks = guarantee.unwrap_or(0).min(numbers.credit_chunks);
    // After the reader's counters: they count no packet that is not captured yet. A reader reports the sum over
    // its sources.
    limit_packets(&mut numbers, link.captured(captures));
    // A reader reports what it has read: the rest was counted when its chunks went to no reader or others.
    for lane in missed.iter().flatten() {
        numbers.counters.filtered +=
            lane.sequences - (lane.packets + lane.other_members).min(lane.sequences);
        numbers.counters.other_members += lane.other_members;
    }
    ReaderFigures { numbers, missed }
}

/// Reduces the packets that a reader reports to this many together; the others are unread.
pub(crate) fn limit_packets(numbers: &mut ReaderStatus, possible: u64) {
    let mut left = possible;
    for reported in [
        &mut numbers.counters.delivered,
        &mut numbers.counters.filtered,
        &mut numbers.counters.other_members,
    ] {
        numbers.impossible |= *reported > left;
        *reported = left.min(*reported);
        left -= *reported;
    }
    numbers.unread = left;
}

/// Age in milliseconds of the oldest packet of a lane that a reader holds.
fn age_ms(capture: &SourceCapture, reader: ReaderId, lane: LaneId, now: u64) -> u64 {
    let oldest = capture.distributor.oldest_held(reader, lane);
    let time = oldest.and_then(|id| capture.pool.chunk(id)?.first_time_ns());
    time.map_or(0, |time| now.saturating_sub(time) / 1_000_000)
}

pub(super) fn source_figures(capture: &mut SourceCapture, groups: u32) -> SourceFigures {
    let counts = capture.counts();
    let geometry = *capture.pool.geometry();
    let in_flight = |lane: &Counters| {
        let settled = lane.accounted();
        lane.offered == settled || lane.offered == settled + 1
    };
    let lanes = capture
        .lanes()
        .zip(&counts.lanes)
        .map(|(id, lane)| LaneStatus {
            lane: id.0,
            counters: *lane,
            chunks: capture.distributor.chunks_of(id),
            chunks_in_use: capture.distributor.chunks_in_use(id),
            paused: capture.paused.get(id.index()).copied().unwrap_or(false),
        });
    let lanes: Vec<_> = lanes.collect();
    let status = SourceStatus {
        device: capture.facts.device.clone(),
        state: match capture.stage {
            Stage::Running if capture.is_waiting => SourceState::Waiting,
            Stage::Running if lanes.iter().any(|lane| lane.paused) => SourceState::Paused,
            Stage::Running => SourceState::Capturing,
            _ => SourceState::Ended,
        },
        failure: capture.failure.clone(),
        is_removed: capture.is_removed,
        detached_count: capture.detached_count(),
        notes: capture.all_notes(),
        offered_from: capture.facts.offered_from.clone(),
        pool_bytes: geometry.region_bytes(),
        chunk_bytes: geometry.chunk_size,
        dropped: counts.dropped,
        longest_wait_ms: to_u64(capture.longest_wait.as_millis()),
        balanced: counts.lanes.iter().all(in_flight),
        congestion: capture.congestion,
        lanes,
    };
    SourceFigures {
        status,
        ended: capture.stage == Stage::Ended,
        buddies: (0..groups)
            .map(|group| capture.buddies.counts(group))
            .collect(),
    }
}
