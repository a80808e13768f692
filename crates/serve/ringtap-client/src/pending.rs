// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets of a cursor's batch that are not yet taken, and the count of those that are.
//!
//! Invariants
//! - Each packet is counted once, in the order of its lane: as delivered when it is taken, as
//!   filtered when a later one is taken or the batch is finished.
//! - The batch is kept until all its packets are taken and the caller looks again.

use std::ops::Range;

use ringtap_filter::Program;
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::to_u32;
use ringtap_pool::reader::{CaptureGap, RecvError};

use crate::classified::Batch;
use crate::cursor::CursorPacket;
use crate::tally::{LaneTally, Tally};

/// Initial capacity for packets. They and the rest of a reader's state then usually lie in one
/// memory page.
const FEW: usize = 8;

/// Flag of a packet that follows a capture gap, beside those of [`ringtap_pool::format::flag`].
pub const AFTER_GAP: u16 = 0x100;

/// The rest of a cursor's batch.
pub(crate) struct Pending {
    batch: Option<Batch>,
    packets: Vec<CursorPacket>,
    /// Index of the first packet that is not yet taken.
    at: usize,
    lane: LaneId,
    /// Sequences of the batch that are not yet counted.
    uncounted: Range<u64>,
    /// Per lane, losses before the next packet.
    lost: Vec<u64>,
    /// Some element of `lost` is not 0.
    has_lost: bool,
    /// The last capture gap, its lane and its number.
    gap: Option<(CaptureGap, LaneId, u32)>,
    /// The next packet of that lane is the first one after it.
    follows_gap: bool,
}

// SAFETY: the addresses in `packets` point into the chunk of `batch`, which may change threads.
unsafe impl Send for Pending {}

/// Packets that a program took from a [`Cursor`](crate::Cursor) to keep.
///
/// They stay readable until this is dropped. Several may be dropped in any order, also after their
/// cursor. A reader that keeps more than its credit allows misses packets, which count as overrun.
pub struct KeptPackets {
    packets: Vec<CursorPacket>,
    /// Index of the first packet that was not taken before.
    first: usize,
    _batch: Option<Batch>,
}

// SAFETY: as for `Pending`.
unsafe impl Send for KeptPackets {}

impl KeptPackets {
    /// The packets, consecutive ones of one lane.
    pub fn packets(&self) -> &[CursorPacket] {
        &self.packets[self.first..]
    }
}

impl Pending {
    pub(crate) fn new(lanes: u32) -> Self {
        Pending {
            batch: None,
            packets: Vec::with_capacity(FEW),
            at: 0,
            lane: LaneId(0),
            uncounted: 0..0,
            lost: (0..lanes).map(|_| 0).collect(),
            has_lost: false,
            gap: None,
            follows_gap: false,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.packets.len()
    }

    /// Replaces the batch.
    #[inline]
    pub(crate) fn load(
        &mut self,
        batch: Batch,
        source: u32,
        tally: &mut Tally,
    ) -> Result<(), RecvError> {
        tally.begin(&batch);
        (self.lane, self.at) = (batch.lane(), 0);
        self.packets.clear();
        if let Some(gap) = batch.capture_gap() {
            self.note_gap(gap);
        }
        let listed = self.list(&batch, source);
        if listed.is_err() {
            self.packets.clear();
        }
        self.batch = Some(batch);
        listed
    }

    #[cold]
    fn note_gap(&mut self, gap: CaptureGap) {
        let number = self
            .gap
            .map_or(1, |(_, _, number)| number.saturating_add(1));
        (self.gap, self.follows_gap) = (Some((gap, self.lane, number)), true);
    }

    /// The last capture gap before the packets given so far, its lane, and its number from 1.
    pub(crate) fn gap(&self) -> Option<(CaptureGap, LaneId, u32)> {
        self.gap
    }

    #[inline]
    fn list(&mut self, batch: &Batch, source: u32) -> Result<(), RecvError> {
        let mut lost_before = match batch.gap() {
            None if !self.has_lost => 0,
            gap => self.lost_before(gap.map_or(0, |gap| gap.packets)),
        };
        let mut sequences = None;
        for packet in batch.packets() {
            let received = packet.map_err(|error| *error)?;
            let packet = received.packet;
            let first = sequences.get_or_insert(packet.sequence..packet.sequence);
            first.end = packet.sequence.saturating_add(1);
            if !received.is_ours() {
                continue;
            }
            let slot = packet.slot();
            self.packets.push(CursorPacket {
                time_ns: slot.time_ns,
                sequence: packet.sequence,
                lost_before: std::mem::take(&mut lost_before),
                data: packet.data.as_ptr(),
                captured_bytes: to_u32(packet.data.len()),
                wire_bytes: slot.wire_length,
                lane: self.lane.0,
                hash: slot.hash,
                source,
                queue: slot.queue,
                flags: u16::from(slot.flags),
            });
        }
        if self.follows_gap {
            self.mark_first();
        }
        self.uncounted = sequences.unwrap_or(0..0);
        if lost_before > 0 {
            self.carry_lost(lost_before);
        }
        Ok(())
    }

    /// Marks the lane's first packet after the gap.
    #[cold]
    fn mark_first(&mut self) {
        let is_its_lane = self.gap.is_some_and(|(_, lane, _)| lane == self.lane);
        if let Some(packet) = self.packets.first_mut().filter(|_| is_its_lane) {
            packet.flags |= AFTER_GAP;
            self.follows_gap = false;
        }
    }

    /// Number of packets lost before the next packet of the lane, plus `more`.
    #[cold]
    fn lost_before(&mut self, more: u64) -> u64 {
        let lost = std::mem::take(&mut self.lost[self.lane.index()]);
        self.has_lost = self.lost.iter().any(|lost| *lost > 0);
        lost.saturating_add(more)
    }

    /// Adds packets lost before the next packet of the lane.
    #[cold]
    fn carry_lost(&mut self, packets: u64) {
        let lost = &mut self.lost[self.lane.index()];
        *lost = lost.saturating_add(packets);
        self.has_lost |= packets > 0;
    }

    #[inline]
    pub(crate) fn take_one(&mut self, tally: &mut Tally) -> Option<&CursorPacket> {
        let packet = self.packets.get(self.at)?;
        self.at += 1;
        count(self.batch.as_ref(), packet, &mut self.uncounted, tally);
        Some(packet)
    }

    /// The packets that are not yet taken.
    #[inline]
    pub(crate) fn rest(&self) -> &[CursorPacket] {
        &self.packets[self.at..]
    }

    /// Takes all packets that are left.
    pub(crate) fn take_all(&mut self, tally: &mut Tally) -> &[CursorPacket] {
        let rest = &self.packets[self.at..];
        self.at = self.packets.len();
        for packet in rest {
            count(self.batch.as_ref(), packet, &mut self.uncounted, tally);
        }
        rest
    }

    /// Takes all packets that are left, with their batch.
    pub(crate) fn take_kept(&mut self, tally: &mut Tally) -> KeptPackets {
        let first = self.at;
        let _counted = self.take_all(tally);
        self.count_rest(tally);
        self.at = 0;
        let few = Vec::with_capacity(FEW);
        KeptPackets {
            packets: std::mem::replace(&mut self.packets, few),
            first,
            _batch: self.batch.take(),
        }
    }

    /// Counts the packets after the last one taken, and releases the batch.
    pub(crate) fn finish(&mut self, tally: &mut Tally) {
        self.count_rest(tally);
        self.packets.clear();
        (self.batch, self.at) = (None, 0);
    }

    fn count_rest(&mut self, tally: &mut Tally) {
        let rest = std::mem::take(&mut self.uncounted);
        // Without a source, there is no lane.
        if self.batch.is_some() {
            skip(self.batch.as_ref(), rest, tally.at(self.lane));
        }
    }

    /// Removes packets that are not yet taken and do not pass this filter.
    pub(crate) fn filter(&mut self, filter: &Program) {
        let Some(batch) = &self.batch else { return };
        let mut data = batch.packets().flatten().map(|received| received.packet);
        let (mut carried, mut after_gap, mut kept) = (0_u64, 0, self.at);
        for index in self.at..self.packets.len() {
            let mut packet = self.packets[index];
            packet.lost_before = packet.lost_before.saturating_add(carried);
            packet.flags |= after_gap;
            let passes = data
                .find(|one| one.sequence == packet.sequence)
                .is_some_and(|one| filter.matches(one.data, packet.wire_bytes));
            if passes {
                (carried, after_gap) = (0, 0);
                self.packets[kept] = packet;
                kept += 1;
            } else {
                (carried, after_gap) = (packet.lost_before, packet.flags & AFTER_GAP);
            }
        }
        self.packets.truncate(kept);
        self.follows_gap |= after_gap != 0;
        self.carry_lost(carried);
    }
}

#[inline]
fn count(
    batch: Option<&Batch>,
    packet: &CursorPacket,
    uncounted: &mut Range<u64>,
    tally: &mut Tally,
) {
    let lane = tally.at(LaneId(packet.lane));
    skip(batch, uncounted.start..packet.sequence, lane);
    lane.delivered(packet.sequence, packet.wire_bytes);
    uncounted.start = packet.sequence.saturating_add(1);
}

/// Counts packets of a batch that are not for this reader.
#[inline]
fn skip(batch: Option<&Batch>, sequences: Range<u64>, lane: &mut LaneTally) {
    if !sequences.is_empty() {
        let other_members = batch.map_or(0, |batch| batch.count_other_members(sequences.clone()));
        lane.skipped(sequences, other_members);
    }
}
