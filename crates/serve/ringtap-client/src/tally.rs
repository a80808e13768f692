// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts a reader's packets, and computes its counters from them and the source's.
//!
//! Invariants
//! - No value from a hub makes the arithmetic fail: sums saturate at 2^64 - 1.
//! - A reader's position in a lane comes from the packets' sequences, not from its own count. So the
//!   counters reveal a packet that was counted twice or not at all.

use std::ops::Range;

use ringtap_ipc::protocol::{LaneSnapshot, Snapshot, SourceSnapshot};
use ringtap_ipc::subscription::Recipient;
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::to_u64;
use ringtap_pool::reader::Packet;

use crate::classified::{Batch, ReceivedPacket};
use crate::receive_error::ReceiveError;

/// A reader's counts on one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneTally {
    /// What the reader itself has counted; of `offered`, nothing.
    own: Counters,
    /// Packets for other members, and all packets of the lane, as gaps reported them.
    missed_other_members: u64,
    left_out: u64,
    /// Packets in gaps that did not pass the filter; part of `filtered`.
    left_out_filtered: u64,
    /// Sequence after that of the last counted packet.
    position: u64,
}

/// Packets that a hub did not deliver to a reader, and that no gap has reported to it yet.
struct Unreported {
    /// All packets.
    sequences: u64,
    /// What became of them.
    counters: Counters,
}

/// A reader's counts on each lane, counted over all sources.
#[derive(Clone, Debug)]
pub struct Tally(Vec<LaneTally>);

impl LaneTally {
    /// Counts a packet that passed the reader's filter.
    #[inline]
    pub fn delivered(&mut self, sequence: u64, wire_length: u32) {
        self.own.delivered += 1;
        self.own.bytes += u64::from(wire_length);
        self.position = sequence.wrapping_add(1);
    }

    /// Counts a packet under its recipient.
    #[inline]
    pub fn count(&mut self, received: &ReceivedPacket<'_>) {
        let ReceivedPacket { packet, recipient } = received;
        match recipient {
            Recipient::ThisReader => {
                self.delivered(packet.sequence, packet.slot().wire_length);
                return;
            }
            Recipient::OtherMember => self.own.other_members += 1,
            Recipient::NoMember => self.own.filtered += 1,
        }
        self.position = packet.sequence.wrapping_add(1);
    }

    /// Counts packets that are not for this reader, of which `other_members` are for other members.
    #[inline]
    pub(crate) fn skipped(&mut self, sequences: Range<u64>, other_members: u64) {
        let packets = sequences.end.saturating_sub(sequences.start);
        let filtered = packets.saturating_sub(other_members);
        self.own.filtered = self.own.filtered.saturating_add(filtered);
        self.own.other_members = self.own.other_members.saturating_add(other_members);
        self.position = sequences.end;
    }

    /// Packets that the hub did not deliver to this reader, after those that a gap reported.
    fn unreported(&self, counts: &LaneSnapshot) -> Unreported {
        let sequences = counts.missed_sequences.saturating_sub(self.left_out);
        let lost = counts
            .missed_packets
            .saturating_sub(self.own.dropped.overrun);
        let other_members = counts
            .missed_other_members
            .saturating_sub(self.missed_other_members);
        let counters = Counters {
            filtered: sequences.saturating_sub(lost.saturating_add(other_members)),
            other_members,
            dropped: Dropped {
                overrun: lost,
                ..Dropped::default()
            },
            ..Counters::default()
        };
        Unreported {
            sequences,
            counters,
        }
    }

    /// Packets of the lane that lie in the pool and that this reader has not read: not yet offered to it.
    fn unread(&self, counts: &LaneSnapshot) -> u64 {
        // What no gap reported lies after the last packet read.
        let left_out = self.unreported(counts).sequences;
        let position = self.position.max(counts.start).saturating_add(left_out);
        counts.position.saturating_sub(position)
    }

    /// The counters of this lane; `ended`: its source writes no more packets.
    fn counters(&self, counts: &LaneSnapshot, ended: bool) -> Counters {
        let mut counters = Counters {
            delivered: 0,
            bytes: 0,
            ..counts.counters
        };
        counters += self.own;
        counters += self.unreported(counts).counters;
        name_withheld(&mut counters, counts);
        // The packet being written, which the source has counted but not published.
        let in_flight = !ended && counts.counters.offered.checked_sub(1) == Some(settled(counts));
        let later = self.unread(counts).saturating_add(in_flight.into());
        counters.offered = counters.offered.saturating_sub(later);
        counters
    }
}

/// Moves the packets that flow rules withheld out of `filtered`, by which a reader counts all packets that it finds
/// to be for nobody. What it has yet to read may be among them: then as many as `filtered` has.
fn name_withheld(counters: &mut Counters, counts: &LaneSnapshot) {
    let shunted = counts.withheld_packets.min(counters.filtered);
    counters.filtered -= shunted;
    counters.shunted = counters.shunted.saturating_add(shunted);
    let others = counts.withheld_other_members.min(counters.filtered);
    counters.filtered -= others;
    counters.other_members = counters.other_members.saturating_add(others);
}

/// Packets of a lane with a final outcome at the source.
fn settled(counts: &LaneSnapshot) -> u64 {
    // A copy that found no room never had a position in the lane.
    let not_copied = counts
        .missed_packets
        .saturating_sub(counts.missed_sequences);
    counts.counters.accounted().saturating_add(not_copied)
}

impl Tally {
    /// A tally of this many lanes, with all counts 0.
    pub fn new(lanes: u32) -> Self {
        Tally((0..lanes).map(|_| LaneTally::default()).collect())
    }

    /// Counts the packets missing before a batch, and then its packets. `each` gets those for this reader;
    /// the count ends before the first one for which it returns `false`.
    ///
    /// # Errors
    ///
    /// [`ReceiveError::Corrupt`]; the packets before the damaged one are counted.
    #[inline]
    pub fn count_batch(
        &mut self,
        batch: &Batch,
        mut each: impl FnMut(&Packet<'_>) -> bool,
    ) -> Result<(), ReceiveError> {
        self.begin(batch);
        let lane = self.at(batch.lane());
        for received in batch.packets() {
            let received = received.map_err(|error| *error)?;
            if received.is_ours() && !each(&received.packet) {
                break;
            }
            lane.count(&received);
        }
        Ok(())
    }

    /// Counts the packets missing before a batch, and the whole batch if it is for other readers.
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
            let end = gap.first_sequence.saturating_add(gap.sequences);
            let not_lost = gap.first_sequence.saturating_add(gap.packets)..end;
            lane.own.dropped.overrun = lane.own.dropped.overrun.saturating_add(gap.packets);
            lane.missed_other_members = lane.missed_other_members.saturating_add(gap.other_members);
            lane.left_out = lane.left_out.saturating_add(gap.sequences);
            let before = lane.own.filtered;
            lane.skipped(not_lost, gap.other_members);
            lane.left_out_filtered += lane.own.filtered - before;
        }
        if batch.is_for_others {
            let first = batch.inner.first_sequence;
            let all = first..first.saturating_add(to_u64(batch.len()));
            let other_members = batch.count_other_members(all.clone());
            self.at(batch.lane()).skipped(all, other_members);
        }
    }

    /// The tally of a lane.
    #[inline]
    pub fn at(&mut self, lane: LaneId) -> &mut LaneTally {
        &mut self.0[lane.index()]
    }

    /// Packets that passed the reader's filter.
    pub fn packets(&self) -> u64 {
        self.0.iter().map(|lane| lane.own.delivered).sum()
    }

    /// Packets that did not pass the reader's filter.
    pub fn filtered(&self) -> u64 {
        let lanes = self.0.iter().map(|lane| lane.own.filtered);
        lanes.fold(0, u64::saturating_add)
    }

    /// Packets for other members of the reader's group.
    pub fn other_members(&self) -> u64 {
        let lanes = self.0.iter().map(|lane| lane.own.other_members);
        lanes.fold(0, u64::saturating_add)
    }

    /// Packets of `filtered` and of `other_members` that lay in chunks which the reader did not get. The
    /// hub counts them, too, whether or not the reader has learned of them.
    pub(crate) fn left_out(&self) -> (u64, u64) {
        let lanes = self.0.iter();
        lanes.fold((0, 0), |(filtered, members): (u64, u64), lane| {
            (
                filtered.saturating_add(lane.left_out_filtered),
                members.saturating_add(lane.missed_other_members),
            )
        })
    }

    /// Bytes on the wire of the packets that passed.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|lane| lane.own.bytes).sum()
    }

    /// Counters of each lane, counted over all sources.
    pub fn lanes<'a>(&self, snapshot: &'a Snapshot) -> Vec<(LaneId, Counters)> {
        let of_source = |source: &'a SourceSnapshot| {
            let lanes = source.lanes.iter();
            lanes.map(|counts| (counts, source.ended))
        };
        let counts = snapshot.sources.iter().flat_map(of_source);
        let lanes = (0..).map(LaneId).zip(self.0.iter().zip(counts));
        lanes
            .map(|(id, (lane, (counts, ended)))| (id, lane.counters(counts, ended)))
            .collect()
    }

    /// The hub's counters of a lane for a reader behind this one, which gets copies of its packets.
    /// `copied`: those of the lane's packets for which its pool had room.
    pub fn of_copies(&self, lane: LaneId, counts: &LaneSnapshot, copied: u64) -> LaneSnapshot {
        let tally = self.0.get(lane.index()).copied().unwrap_or_default();
        let mut all = tally.own;
        all += tally.unreported(counts).counters;
        let source = &counts.counters;
        LaneSnapshot {
            start: 0,
            position: copied,
            counters: Counters {
                // Packets that were not read yet were not offered to that reader yet.
                offered: source.offered.saturating_sub(tally.unread(counts)),
                delivered: copied,
                filtered: source.filtered.saturating_add(all.filtered),
                other_members: all.other_members,
                ..*source
            },
            missed_sequences: 0,
            missed_packets: (all.dropped.overrun)
                .saturating_add(all.delivered.saturating_sub(copied)),
            missed_other_members: 0,
            ..*counts
        }
    }

    /// The counters as far as the reader knows them, for use after the hub has left. Losses before the
    /// reader are missing.
    pub fn alone(&self) -> Counters {
        let mut total = Counters::default();
        for lane in &self.0 {
            total += lane.own;
        }
        total.offered = total.accounted();
        total
    }

    /// The reader's counters: the sum of all sources.
    pub fn total(&self, snapshot: &Snapshot) -> Counters {
        let mut total = Counters::default();
        for counters in self.sources(snapshot) {
            total += counters;
        }
        total
    }

    /// The counters of each source: the sum of its lanes, and its losses before any lane.
    pub fn sources(&self, snapshot: &Snapshot) -> Vec<Counters> {
        let mut lanes = self.lanes(snapshot).into_iter();
        let source = |source: &SourceSnapshot| {
            let mut total = Counters {
                offered: source.dropped.total(),
                dropped: source.dropped,
                ..Counters::default()
            };
            for (_, counters) in lanes.by_ref().take(source.lanes.len()) {
                total += counters;
            }
            total
        };
        snapshot.sources.iter().map(source).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(
        offered: u64,
        delivered: u64,
        filtered: u64,
        pool_full: u64,
        kernel: u64,
    ) -> Counters {
        Counters {
            offered,
            delivered,
            filtered,
            dropped: Dropped {
                pool_full,
                kernel,
                ..Dropped::default()
            },
            ..Counters::default()
        }
    }

    fn snapshot(offered: u64, captured: u64, pool_full: u64, slow: u64, ended: bool) -> Snapshot {
        let lane = LaneSnapshot {
            position: captured,
            counters: source(offered, captured, 0, pool_full, 0),
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
    fn a_reader_of_copies_is_offered_the_packets_that_were_read() {
        let mut tally = Tally::new(1);
        tally.0[0] = LaneTally {
            own: Counters {
                delivered: 22,
                filtered: 12,
                other_members: 5,
                dropped: Dropped {
                    overrun: 1,
                    ..Dropped::default()
                },
                ..Counters::default()
            },
            left_out: 1,
            position: 140,
            ..LaneTally::default()
        };
        let inner = LaneSnapshot {
            start: 100,
            position: 150,
            counters: source(54, 50, 1, 2, 1),
            missed_sequences: 9,
            missed_packets: 9,
            ..LaneSnapshot::default()
        };
        let lane = tally.of_copies(LaneId(0), &inner, 20);
        assert_eq!((lane.start, lane.position), (0, 20));
        assert_eq!(
            lane.counters.offered, 52,
            "two packets are still to be looked at"
        );
        assert_eq!(
            (lane.counters.filtered, lane.counters.other_members),
            (13, 5)
        );
        let missed = (lane.missed_sequences, lane.missed_packets);
        assert_eq!(
            missed,
            (0, 11),
            "lost at the relay: 1 reported, 8 not yet, 2 not copied"
        );
        assert_eq!(lane.counters.offered, settled(&lane));
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
        tally.0[0].own.delivered -= 1;
        assert!(
            !tally
                .total(&snapshot(100, 100, 0, 0, true))
                .balance()
                .holds()
        );
    }
}
