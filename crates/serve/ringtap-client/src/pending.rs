// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of one batch that were not yet given out, and the account of those that were.
//!
//! Invariants
//! - Each packet is counted once, in the order of its lane: as delivered when it is given out, as
//!   filtered when a later one is, or when the batch is finished.
//! - Bytes are looked at only while the receiver still lends out the batch: see [`Pending::load`].

use std::ops::Range;

use crate::judge::{Batch, Judged};
use crate::tally::Tally;
use ringtap_filter::Program;
use ringtap_pool::ids::LaneId;
use ringtap_pool::number::{to_u32, to_usize};
use ringtap_pool::reader::RecvError;

use crate::lender::Lent;

/// Packets for which there is room beside the rest of a reader's state: mostly one page is touched
/// then for both.
const FEW: usize = 8;

/// What is left of a batch.
pub(crate) struct Pending {
    packets: Vec<Lent>,
    /// The first of them that was not given out.
    at: usize,
    lane: LaneId,
    /// Sequences of the batch that were not yet counted.
    uncounted: Range<u64>,
    /// Per lane, losses that belong before a packet which has not come yet.
    lost: Vec<u64>,
    /// One of them is not 0.
    has_lost: bool,
}

// SAFETY: the addresses in it lead into the pool, which is mapped for the whole process, and are
// followed under the rule of `load` only, whichever thread that happens in.
unsafe impl Send for Pending {}

impl Pending {
    pub(crate) fn new(lanes: u32) -> Self {
        Pending {
            packets: Vec::with_capacity(FEW),
            at: 0,
            lane: LaneId(0),
            uncounted: 0..0,
            lost: (0..lanes).map(|_| 0).collect(),
            has_lost: false,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.packets.len()
    }

    /// Takes over the packets of a batch, in place of those before. The receiver must not be
    /// asked for more, and must not be dropped, before this is finished or given up.
    #[inline]
    pub(crate) fn load(
        &mut self,
        batch: &Batch<'_>,
        source: u32,
        tally: &mut Tally,
    ) -> Result<(), RecvError> {
        tally.begin(batch);
        (self.lane, self.at) = (batch.lane(), 0);
        self.packets.clear();
        let taken = self.take(batch, source);
        if taken.is_err() {
            self.packets.clear();
        }
        taken
    }

    #[inline]
    fn take(&mut self, batch: &Batch<'_>, source: u32) -> Result<(), RecvError> {
        let mut lost_before = match batch.gap() {
            None if !self.has_lost => 0,
            gap => self.lost_before(gap.map_or(0, |gap| gap.packets)),
        };
        let mut sequences = None;
        for packet in batch.packets() {
            let Judged { packet, is_ours } = packet.map_err(|error| *error)?;
            let first = sequences.get_or_insert(packet.sequence..packet.sequence);
            first.end = packet.sequence.saturating_add(1);
            if !is_ours {
                continue;
            }
            let slot = packet.slot();
            self.packets.push(Lent {
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
        self.uncounted = sequences.unwrap_or(0..0);
        if lost_before > 0 {
            self.carry_lost(lost_before);
        }
        Ok(())
    }

    /// What was lost before the next packet of the lane, with `more`.
    #[cold]
    fn lost_before(&mut self, more: u64) -> u64 {
        let lost = std::mem::take(&mut self.lost[self.lane.index()]);
        self.has_lost = self.lost.iter().any(|lost| *lost > 0);
        lost.saturating_add(more)
    }

    /// What was lost before a packet of the lane that is still to come.
    #[cold]
    fn carry_lost(&mut self, packets: u64) {
        let lost = &mut self.lost[self.lane.index()];
        *lost = lost.saturating_add(packets);
        self.has_lost |= packets > 0;
    }

    /// Gives out the next packet.
    #[inline]
    pub(crate) fn one(&mut self, tally: &mut Tally) -> Option<&Lent> {
        let packet = self.packets.get(self.at)?;
        self.at += 1;
        count(packet, &mut self.uncounted, tally);
        Some(packet)
    }

    /// Gives out all packets that are left.
    pub(crate) fn all(&mut self, tally: &mut Tally) -> &[Lent] {
        let rest = &self.packets[self.at..];
        self.at = self.packets.len();
        for packet in rest {
            count(packet, &mut self.uncounted, tally);
        }
        rest
    }

    /// Counts what follows the last packet that was given out: the batch is done with.
    pub(crate) fn finish(&mut self, tally: &mut Tally) {
        let lane = tally.at(self.lane);
        for sequence in std::mem::take(&mut self.uncounted) {
            lane.filtered(sequence);
        }
    }

    /// Keeps of those not yet given out what passes this filter, too.
    pub(crate) fn filter(&mut self, filter: &Program) {
        let mut carried = 0_u64;
        let mut kept = self.at;
        for index in self.at..self.packets.len() {
            let mut packet = self.packets[index];
            let bytes = to_usize(packet.captured_bytes);
            // SAFETY: the address and length of a payload that `load` was lent; by its rule the
            // receiver was not asked for more since, so the lease lasts and nobody writes there.
            let data = unsafe { std::slice::from_raw_parts(packet.data, bytes) };
            packet.lost_before = packet.lost_before.saturating_add(carried);
            if filter.matches(data, packet.wire_bytes) {
                carried = 0;
                self.packets[kept] = packet;
                kept += 1;
            } else {
                carried = packet.lost_before;
            }
        }
        self.packets.truncate(kept);
        self.carry_lost(carried);
    }
}

#[inline]
fn count(packet: &Lent, uncounted: &mut Range<u64>, tally: &mut Tally) {
    let lane = tally.at(LaneId(packet.lane));
    for sequence in uncounted.start..packet.sequence {
        lane.filtered(sequence);
    }
    lane.delivered(packet.sequence, packet.wire_bytes);
    uncounted.start = packet.sequence.saturating_add(1);
}
