// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of every packet: one seat's account, and everybody's.
#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{
    CongestionStatus, GroupStatus, HubStatus, LaneSnapshot, LaneStatus, ReaderStatus, Snapshot,
    SourceSnapshot, SourceState, SourceStatus,
};
use ringtap_pool::classify::Place;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::source::{Counts, LaneCounts};

use super::{Inlet, Seat, now_ns};
use crate::capture::{Capture, Stage};
use crate::engine::Engine;
use crate::group::{Group, division_word, policy_word};
use crate::membership::SeatId;

impl Engine {
    /// A seat's account, counted from its beginning.
    pub(crate) fn snapshot(&mut self, id: SeatId) -> Option<Snapshot> {
        // What came back meanwhile decides what was missed.
        self.captures
            .iter_mut()
            .for_each(|capture| while capture.step() {});
        let seat = self.seats.taken.get(&id)?;
        let sources = seat.inlets.iter().enumerate().map(|(at, inlet)| {
            let snapshot = of_inlet(inlet, &mut self.captures[inlet.capture]);
            match &seat.relay {
                Some(relay) => relay.seen_from_outside(at, snapshot),
                None => snapshot,
            }
        });
        Some(Snapshot {
            sources: sources.collect(),
        })
    }

    /// Packets that a seat lost because it was past its credit.
    pub(super) fn lost_by(&self, seat: &Seat) -> u64 {
        let lost = |inlet: &Inlet| -> u64 {
            let capture = &self.captures[inlet.capture];
            let lanes = capture.lanes();
            lanes
                .map(|lane| capture.distributor.missed(inlet.reader, lane).packets)
                .sum()
        };
        let relayed = seat.relay.as_ref().map_or(0, |relay| relay.lost());
        seat.inlets.iter().map(lost).sum::<u64>() + relayed
    }

    /// Notes who lost packets since this was called last.
    pub(crate) fn note_losses(&mut self, now: u64) {
        let lost: Vec<_> = self
            .seats
            .taken
            .values()
            .map(|seat| self.lost_by(seat))
            .collect();
        for (seat, lost) in self.seats.taken.values_mut().zip(lost) {
            if lost > seat.lost {
                (seat.lost, seat.last_loss_ns) = (lost, now);
            }
        }
    }

    /// Everybody's counters.
    pub(crate) fn status(&mut self) -> HubStatus {
        let now = now_ns();
        self.note_losses(now);
        let ids: Vec<_> = self.seats.taken.keys().copied().collect();
        ids.iter().for_each(|id| self.note_unordered(*id));
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
            departed_slow_reader: self.seats.departed_slow_reader,
        }
    }

    fn of_group(&self, group: &Group, members: usize) -> GroupStatus {
        let (moved_buckets, unordered_moves) = self.membership.moved_buckets(&group.name);
        let mut status = GroupStatus {
            name: group.name.clone(),
            balance: division_word(group),
            delivery: group.delivery.word().to_owned(),
            filter: group.filter_text.clone(),
            members: u32::try_from(members).unwrap_or(u32::MAX),
            most_members: group.most_members,
            policy: policy_word(group.policy),
            offload_percent: group.offload_percent,
            moved_buckets,
            unordered_moves,
            ..GroupStatus::default()
        };
        if let Some(buddies) = self.membership.buddies(&group.name) {
            for capture in &self.captures {
                let counts = capture.distributor.buddy_counts(buddies.group);
                status.offloaded_chunks += counts.offloaded_chunks;
                status.offloaded_packets += counts.offloaded_packets;
                status.disordered_packets += counts.disordered_packets;
            }
        }
        status
    }

    fn of_reader(&mut self, id: SeatId, now: u64) -> Option<ReaderStatus> {
        let seat = self.seats.taken.get(&id)?;
        let mut status = ReaderStatus {
            reader: id.0,
            name: seat.name.clone(),
            group: seat.group.clone(),
            pid: seat.peer.pid,
            uid: seat.peer.uid,
            delivery: seat.delivery.word().to_owned(),
            attached_ns: seat.attached_ns,
            slow_reader: seat.lost,
            last_loss_ns: seat.last_loss_ns,
            not_in_source: match &seat.place {
                Place::Source => None,
                Place::Reader(why) => Some(why.clone()),
            },
            buckets: self.membership.buckets_of(id),
            ..ReaderStatus::default()
        };
        for inlet in &seat.inlets {
            let capture = &self.captures[inlet.capture];
            let distributor = &capture.distributor;
            status.corrupt |= distributor.is_corrupt(inlet.reader);
            status.helped_chunks += distributor.helped_chunks(inlet.reader);
            for lane in capture.lanes() {
                let held = distributor.held(inlet.reader, lane);
                status.lag_chunks += held.saturating_sub(1);
                let credit = distributor.credit(inlet.reader, lane);
                status.credit_chunks = status.credit_chunks.max(credit);
                if held > 1 {
                    let age = age_ms(capture, inlet.reader, lane, now);
                    status.lag_ms = status.lag_ms.max(age);
                }
            }
            if let Some(progress) = distributor.progress(inlet.reader) {
                status.delivered += progress.delivered.load(Relaxed);
                status.filtered += progress.filtered.load(Relaxed);
                status.bytes += progress.bytes.load(Relaxed);
            }
        }
        if let Some(relay) = &seat.relay {
            relay.fill(&mut status);
        }
        Some(status)
    }
}

/// Age of the oldest packet of a lane that a reader holds, in milliseconds.
fn age_ms(capture: &Capture, reader: ReaderId, lane: LaneId, now: u64) -> u64 {
    let oldest = capture.distributor.oldest_held(reader, lane);
    let time = oldest.and_then(|id| capture.pool.chunk(id)?.first_time_ns());
    time.map_or(0, |time| now.saturating_sub(time) / 1_000_000)
}

fn of_inlet(inlet: &Inlet, capture: &mut Capture) -> SourceSnapshot {
    let Counts { lanes, nic, kernel } = capture.counts();
    let before = &inlet.baseline;
    let lane = |(at, now): (usize, &LaneCounts)| {
        let then = before.lanes.get(at).copied().unwrap_or_default();
        let id = LaneId::at(at);
        let missed = capture.distributor.missed(inlet.reader, id);
        LaneSnapshot {
            start: inlet.starts.get(at).copied().unwrap_or(0),
            position: now.captured,
            seen: now.seen - then.seen,
            unwanted: now.unwanted - then.unwanted,
            no_chunk: now.no_chunk - then.no_chunk,
            kernel: now.kernel - then.kernel,
            missed_sequences: missed.sequences,
            missed_packets: missed.packets,
        }
    };
    SourceSnapshot {
        lanes: lanes.iter().enumerate().map(lane).collect(),
        nic: nic.saturating_sub(before.nic),
        kernel: kernel.saturating_sub(before.kernel),
        ended: capture.stage == Stage::Ended,
        failure: capture.failure.clone(),
    }
}

fn of_source(capture: &mut Capture) -> SourceStatus {
    let counts = capture.counts();
    let geometry = *capture.pool.geometry();
    let in_flight = |lane: &LaneCounts| {
        let settled = lane.settled();
        lane.seen == settled || lane.seen == settled + 1
    };
    let lanes = capture
        .lanes()
        .zip(&counts.lanes)
        .map(|(id, lane)| LaneStatus {
            lane: id.0,
            seen: lane.seen,
            captured: lane.captured,
            bytes: lane.bytes,
            unwanted: lane.unwanted,
            no_chunk: lane.no_chunk,
            kernel: lane.kernel,
            chunks: capture.distributor.chunks_of(id),
            chunks_in_use: capture.distributor.chunks_in_use(id),
            paused: capture.paused.get(id.index()).copied().unwrap_or(false),
        });
    let lanes: Vec<_> = lanes.collect();
    SourceStatus {
        device: capture.facts.device.clone(),
        state: match capture.stage {
            Stage::Running if lanes.iter().any(|lane| lane.paused) => SourceState::Paused,
            Stage::Running => SourceState::Capturing,
            _ => SourceState::Ended,
        },
        failure: capture.failure.clone(),
        notes: capture.facts.notes.clone(),
        offered_from: capture.facts.offered_from.clone(),
        pool_bytes: geometry.region_bytes(),
        chunk_bytes: geometry.chunk_size,
        nic: counts.nic,
        kernel: counts.kernel,
        balanced: counts.lanes.iter().all(in_flight),
        congestion: capture.congestion.map(|marks| CongestionStatus {
            low_percent: marks.low_percent,
            high_percent: marks.high_percent,
        }),
        lanes,
    }
}
