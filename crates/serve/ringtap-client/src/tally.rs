// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader counted, and the counters that follows from it and the source's counters.
//!
//! Invariants
//! - Nothing that a hub tells can make the arithmetic fail: sums of lies end at 2^64 - 1.
//! - A reader's place in a lane comes from the sequences of packets, not from its own counting:
//!   so the counters can find that a packet was counted twice or not at all.
#![forbid(unsafe_code)]

use ringtap_ipc::protocol::{LaneSnapshot, Snapshot};
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::to_u64;

use crate::judge::Batch;

/// What a reader counted on one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneTally {
    delivered: u64,
    filtered: u64,
    bytes: u64,
    /// Losses that gaps told of, and packets of the lane that they left out.
    missed: u64,
    left_out: u64,
    /// Sequence of the packet after the last one that was counted.
    position: u64,
}

/// What a reader counted, lane by lane over all sources.
#[derive(Clone, Debug)]
pub struct Tally(Vec<LaneTally>);

impl LaneTally {
    /// Counts a packet that passed the reader's filter.
    #[inline]
    pub fn delivered(&mut self, sequence: u64, wire_length: u32) {
        self.delivered += 1;
        self.bytes += u64::from(wire_length);
        self.position = sequence.wrapping_add(1);
    }

    /// Counts a packet that did not.
    #[inline]
    pub fn filtered(&mut self, sequence: u64) {
        self.filtered += 1;
        self.position = sequence.wrapping_add(1);
    }

    /// The counters of this lane.
    fn counters(&self, counts: &LaneSnapshot) -> Counters {
        let mut counters = Counters {
            offered: counts.seen,
            delivered: self.delivered,
            filtered: self.filtered.saturating_add(counts.unwanted),
            bytes: self.bytes,
            dropped: Dropped {
                nic: 0,
                kernel: counts.kernel,
                pool_full: counts.pool_full,
                overrun: self.missed,
                ..Dropped::default()
            },
            ..Counters::default()
        };
        let position = self.position.max(counts.start);
        // What was left out after the last packet, of which no gap could tell.
        let untold = counts.missed_sequences.saturating_sub(self.left_out);
        if position.saturating_add(untold) == counts.position {
            let lost = counts.missed_packets.saturating_sub(self.missed);
            counters.dropped.overrun = self.missed.saturating_add(lost);
            let others = untold.saturating_sub(lost);
            counters.filtered = counters.filtered.saturating_add(others);
            return counters;
        }
        // Not yet this reader's: what is in the pool, and the packet that is being written.
        let in_pool = counts.position.saturating_sub(position);
        let settled = [counts.unwanted, counts.pool_full, counts.kernel];
        let captured = counts.position.saturating_sub(counts.start);
        let settled = settled.into_iter().fold(captured, u64::saturating_add);
        let in_flight = u64::from(counts.seen.checked_sub(1) == Some(settled));
        counters.offered = counts
            .seen
            .saturating_sub(in_pool.saturating_add(in_flight));
        counters
    }
}

impl Tally {
    /// Nothing was counted yet.
    pub fn new(lanes: u32) -> Self {
        Tally((0..lanes).map(|_| LaneTally::default()).collect())
    }

    /// Notes what the reader misses before a batch, and the whole batch if it is for others.
    #[inline]
    pub fn begin(&mut self, batch: &Batch) {
        if batch.is_for_others || batch.gap().is_some() {
            self.begin_unusual(batch);
        }
    }

    #[cold]
    fn begin_unusual(&mut self, batch: &Batch) {
        if let Some(gap) = batch.gap() {
            let lane = self.at(batch.lane());
            let others = gap.sequences.saturating_sub(gap.packets);
            lane.missed = lane.missed.saturating_add(gap.packets);
            lane.left_out = lane.left_out.saturating_add(gap.sequences);
            lane.filtered = lane.filtered.saturating_add(others);
            lane.position = gap.first_sequence.saturating_add(gap.sequences);
        }
        if batch.is_for_others {
            let packets = to_u64(batch.len());
            let lane = self.at(batch.lane());
            lane.filtered = lane.filtered.saturating_add(packets);
            lane.position = batch.inner.first_sequence().saturating_add(packets);
        }
    }

    /// What was counted on a lane.
    #[inline]
    pub fn at(&mut self, lane: LaneId) -> &mut LaneTally {
        &mut self.0[lane.index()]
    }

    /// Packets that passed the reader's filter so far.
    pub fn packets(&self) -> u64 {
        self.0.iter().map(|lane| lane.delivered).sum()
    }

    /// Packets that did not.
    pub fn filtered(&self) -> u64 {
        let lanes = self.0.iter().map(|lane| lane.filtered);
        lanes.fold(0, u64::saturating_add)
    }

    /// Bytes on the wire of those that passed.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|lane| lane.bytes).sum()
    }

    /// Counters for each lane, counted over all sources.
    pub fn lanes(&self, snapshot: &Snapshot) -> Vec<(LaneId, Counters)> {
        let counts = snapshot.sources.iter().flat_map(|source| &source.lanes);
        let lanes = (0..).map(LaneId).zip(self.0.iter().zip(counts));
        lanes
            .map(|(id, (lane, counts))| (id, lane.counters(counts)))
            .collect()
    }

    /// The counters as far as the reader knows by itself, when its hub cannot tell any more: what it
    /// took, left out, and was told that it lost. What was lost before any reader is missing in it.
    pub fn alone(&self) -> Counters {
        let mut total = Counters::default();
        for lane in &self.0 {
            let known = [lane.delivered, lane.filtered, lane.missed];
            total += Counters {
                offered: known.into_iter().fold(0, u64::saturating_add),
                delivered: lane.delivered,
                filtered: lane.filtered,
                bytes: lane.bytes,
                dropped: Dropped {
                    overrun: lane.missed,
                    ..Dropped::default()
                },
                ..Counters::default()
            };
        }
        total
    }

    /// The reader's counters: all lanes, and what was lost before any of them.
    pub fn total(&self, snapshot: &Snapshot) -> Counters {
        let mut total = Counters::default();
        for (_, counters) in self.lanes(snapshot) {
            total += counters;
        }
        for source in &snapshot.sources {
            let (nic, kernel) = (source.nic, source.kernel);
            total += Counters {
                offered: nic.saturating_add(kernel),
                dropped: Dropped {
                    nic,
                    kernel,
                    ..Dropped::default()
                },
                ..Counters::default()
            };
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use ringtap_ipc::protocol::SourceSnapshot;

    use super::*;

    fn snapshot(seen: u64, captured: u64, pool_full: u64, slow: u64, ended: bool) -> Snapshot {
        let lane = LaneSnapshot {
            position: captured,
            seen,
            pool_full,
            missed_sequences: slow,
            missed_packets: slow,
            ..LaneSnapshot::default()
        };
        Snapshot {
            sources: vec![SourceSnapshot {
                lanes: vec![lane],
                ended,
                ..SourceSnapshot::default()
            }],
        }
    }

    fn read(packets: u64) -> Tally {
        let mut tally = Tally::new(1);
        (0..packets).for_each(|sequence| tally.0[0].delivered(sequence, 64));
        tally
    }

    #[test]
    fn what_is_still_in_the_pool_is_not_yet_offered_to_the_reader() {
        let counters = read(60).total(&snapshot(105, 100, 5, 0, false));
        assert_eq!(counters.offered, 65);
        assert!(counters.balance().holds());
    }

    #[test]
    fn the_end_counts_what_was_lost_after_the_last_packet() {
        let counters = read(60).total(&snapshot(105, 100, 5, 40, true));
        assert_eq!((counters.offered, counters.dropped.overrun), (105, 40));
        assert!(counters.balance().holds());
    }

    #[test]
    fn a_packet_counted_twice_unbalances_the_counters() {
        let mut tally = read(100);
        tally.0[0].delivered(99, 64);
        assert!(
            !tally
                .total(&snapshot(100, 100, 0, 0, true))
                .balance()
                .holds()
        );
    }

    #[test]
    fn a_packet_that_the_source_lost_unbalances_the_counters() {
        assert!(
            !read(100)
                .total(&snapshot(102, 100, 0, 0, true))
                .balance()
                .holds()
        );
    }

    #[test]
    fn a_packet_that_the_reader_forgot_unbalances_the_counters() {
        let mut tally = read(100);
        tally.0[0].delivered -= 1;
        assert!(
            !tally
                .total(&snapshot(100, 100, 0, 0, true))
                .balance()
                .holds()
        );
    }
}
