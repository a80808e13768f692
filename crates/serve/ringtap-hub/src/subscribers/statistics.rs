// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of one subscriber, for its reader, and of the whole hub, for `status`.

use std::sync::atomic::Ordering::Relaxed;

use ringtap_filter::Place;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{
    CongestionStatus, GroupStatus, HubStatus, LaneSnapshot, LaneStatus, ReaderStatus, Snapshot,
    SourceSnapshot, SourceState, SourceStatus,
};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_ipc::time::now_ns;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::number::{to_u32, to_u64};
use ringtap_pool::source::{Counts, LaneCounts};

use super::{SourceReader, Subscriber};
use crate::capture::{Capture, Stage};
use crate::engine::Engine;
use crate::group::{Group, division_word, policy_word};

impl Engine {
    /// A subscriber's counters since its start.
    pub(crate) fn snapshot(&mut self, id: SubscriptionId) -> Option<Snapshot> {
        // Take returned chunks first: they decide which packets count as missed.
        self.captures
            .iter_mut()
            .for_each(|capture| while capture.step() {});
        let subscriber = self.subscribers.all.get(&id)?;
        let sources = subscriber
            .source_readers
            .iter()
            .enumerate()
            .map(|(at, source_reader)| {
                let snapshot =
                    of_endpoint(source_reader, &mut self.captures[source_reader.capture]);
                match &subscriber.relay {
                    Some(relay) => relay.as_private(at, snapshot),
                    None => snapshot,
                }
            });
        Some(Snapshot {
            sources: sources.collect(),
        })
    }

    /// Packets that a subscriber lost because it was past its credit.
    pub(super) fn lost_by(&self, subscriber: &Subscriber) -> u64 {
        let lost = |source_reader: &SourceReader| -> u64 {
            let capture = &self.captures[source_reader.capture];
            let lanes = capture.lanes();
            lanes
                .map(|lane| {
                    capture
                        .distributor
                        .missed(source_reader.reader, lane)
                        .packets
                })
                .sum()
        };
        let relayed = subscriber.relay.as_ref().map_or(0, |relay| relay.lost());
        subscriber.source_readers.iter().map(lost).sum::<u64>() + relayed
    }

    /// Those of the packets that a subscriber lost which it lost because many chunks came at once.
    fn lost_in_bursts(&self, subscriber: &Subscriber) -> u64 {
        let lost = |one: &SourceReader| -> u64 {
            let capture = &self.captures[one.capture];
            let missed = |lane| capture.distributor.missed(one.reader, lane);
            capture.lanes().map(|lane| missed(lane).in_bursts).sum()
        };
        subscriber.source_readers.iter().map(lost).sum()
    }

    /// Stores the time of losses since the last call.
    pub(crate) fn note_losses(&mut self, now: u64) {
        let lost: Vec<_> = self
            .subscribers
            .all
            .values()
            .map(|subscriber| self.lost_by(subscriber))
            .collect();
        for (subscriber, lost) in self.subscribers.all.values_mut().zip(lost) {
            if lost > subscriber.lost {
                (subscriber.lost, subscriber.last_loss_ns) = (lost, now);
            }
        }
    }

    /// The counters of the whole hub.
    pub(crate) fn status(&mut self) -> HubStatus {
        let now = now_ns();
        self.note_losses(now);
        let ids: Vec<_> = self.subscribers.all.keys().copied().collect();
        let sources = self.captures.iter_mut().map(of_source).collect();
        let groups = self.membership.groups();
        let groups = groups.map(|(group, members)| self.of_group(group, members));
        let groups = groups.collect();
        let readers = ids
            .into_iter()
            .filter_map(|id| self.of_reader(id, now))
            .collect();
        HubStatus {
            time_ns: now,
            started_ns: self.started_ns,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: Peer::this_process().pid,
            sources,
            groups,
            readers,
            departed_overrun: self.subscribers.departed_overrun,
            readers_after: None,
        }
    }

    fn of_group(&self, group: &Group, members: usize) -> GroupStatus {
        let mut status = GroupStatus {
            name: group.name.clone(),
            balance: division_word(group),
            delivery: group.delivery.word().to_owned(),
            filter: group.filter_text.clone(),
            members: to_u32(members),
            most_members: group.most_members,
            policy: policy_word(group.policy),
            offload_percent: group.offload_percent,
            ..GroupStatus::default()
        };
        if let Some(number) = self.membership.chunk_share(&group.name) {
            for capture in &self.captures {
                let counts = capture.buddies.counts(number);
                status.offloaded_chunks += counts.offloaded_chunks;
                status.offloaded_packets += counts.offloaded_packets;
                status.disordered_packets += counts.disordered_packets;
            }
        }
        status
    }

    fn of_reader(&mut self, id: SubscriptionId, now: u64) -> Option<ReaderStatus> {
        let subscriber = self.subscribers.all.get(&id)?;
        let mut status = ReaderStatus {
            reader: id.0,
            name: subscriber.name.clone(),
            group: subscriber.group.clone(),
            pid: subscriber.peer.pid,
            uid: subscriber.peer.uid,
            delivery: subscriber.delivery.word().to_owned(),
            attached_ns: subscriber.attached_ns,
            overrun: subscriber.lost,
            overrun_in_bursts: self.lost_in_bursts(subscriber),
            last_loss_ns: subscriber.last_loss_ns,
            not_in_source: match &subscriber.place {
                Place::Source => None,
                Place::Reader(why) => Some(why.clone()),
            },
            buckets: self.membership.buckets_of(id),
            ..ReaderStatus::default()
        };
        let mut guarantee: Option<u32> = None;
        for source_reader in &subscriber.source_readers {
            let capture = &self.captures[source_reader.capture];
            let distributor = &capture.distributor;
            status.corrupt |= distributor.is_corrupt(source_reader.reader);
            status.helped_chunks += capture.buddies.helped_chunks(source_reader.reader);
            for lane in capture.lanes() {
                let held = distributor.held(source_reader.reader, lane);
                status.lag_chunks += held.saturating_sub(1);
                let credit = distributor.credit(source_reader.reader, lane);
                status.credit_chunks = status.credit_chunks.max(credit);
                let chunks = distributor.guarantee(source_reader.reader, lane);
                guarantee = Some(guarantee.map_or(chunks, |least| least.min(chunks)));
                if held > 1 {
                    let age = age_ms(capture, source_reader.reader, lane, now);
                    status.lag_ms = status.lag_ms.max(age);
                }
            }
            if let Some(progress) = distributor.progress(source_reader.reader) {
                status.delivered += progress.delivered.load(Relaxed);
                status.filtered += progress.filtered.load(Relaxed);
                status.other_members += progress.other_members.load(Relaxed);
                status.bytes += progress.bytes.load(Relaxed);
            }
        }
        status.guaranteed_chunks = guarantee.unwrap_or(0);
        if let Some(relay) = &subscriber.relay {
            relay.fill(&mut status);
        }
        Some(status)
    }
}

/// Age in milliseconds of the oldest packet of a lane that a reader holds.
fn age_ms(capture: &Capture, reader: ReaderId, lane: LaneId, now: u64) -> u64 {
    let oldest = capture.distributor.oldest_held(reader, lane);
    let time = oldest.and_then(|id| capture.pool.chunk(id)?.first_time_ns());
    time.map_or(0, |time| now.saturating_sub(time) / 1_000_000)
}

fn of_endpoint(source_reader: &SourceReader, capture: &mut Capture) -> SourceSnapshot {
    let Counts { lanes, nic, kernel } = capture.counts();
    let before = &source_reader.baseline;
    let lane = |(at, now): (usize, &LaneCounts)| {
        let then = before.lanes.get(at).copied().unwrap_or_default();
        let id = LaneId::at(at);
        let missed = capture.distributor.missed(source_reader.reader, id);
        LaneSnapshot {
            start: source_reader.starts.get(at).copied().unwrap_or(0),
            position: now.captured,
            offered: now.offered - then.offered,
            filtered: now.filtered - then.filtered,
            other_members: 0,
            pool_full: now.pool_full - then.pool_full,
            kernel: now.kernel - then.kernel,
            missed_sequences: missed.sequences,
            missed_packets: missed.packets,
            missed_other_members: missed.other_members,
        }
    };
    SourceSnapshot {
        lanes: lanes.iter().enumerate().map(lane).collect(),
        nic: nic.saturating_sub(before.nic),
        kernel: kernel.saturating_sub(before.kernel),
        ended: capture.stage == Stage::Ended,
        failure: capture.failure.clone(),
        is_removed: capture.is_removed,
    }
}

fn of_source(capture: &mut Capture) -> SourceStatus {
    let counts = capture.counts();
    let geometry = *capture.pool.geometry();
    let in_flight = |lane: &LaneCounts| {
        let settled = lane.settled();
        lane.offered == settled || lane.offered == settled + 1
    };
    let lanes = capture
        .lanes()
        .zip(&counts.lanes)
        .map(|(id, lane)| LaneStatus {
            lane: id.0,
            offered: lane.offered,
            captured: lane.captured,
            bytes: lane.bytes,
            filtered: lane.filtered,
            pool_full: lane.pool_full,
            kernel: lane.kernel,
            chunks: capture.distributor.chunks_of(id),
            chunks_in_use: capture.distributor.chunks_in_use(id),
            paused: capture.paused.get(id.index()).copied().unwrap_or(false),
        });
    let lanes: Vec<_> = lanes.collect();
    SourceStatus {
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
        nic: counts.nic,
        kernel: counts.kernel,
        longest_wait_ms: to_u64(capture.longest_wait.as_millis()),
        balanced: counts.lanes.iter().all(in_flight),
        congestion: capture.congestion.map(|marks| CongestionStatus {
            low_percent: marks.low_percent,
            high_percent: marks.high_percent,
        }),
        lanes,
    }
}
