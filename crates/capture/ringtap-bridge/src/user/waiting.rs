// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of one port that wait for their verdicts, in order of arrival.
//!
//! Invariants
//! - Packets leave in order of arrival, whatever the order of the verdicts.
//! - Sequence numbers do not decrease, so binary search finds a verdict's packet.

use std::collections::VecDeque;
use std::time::Instant;

use ringtap_ipc::verdict::{PacketVerdict, Verdict};

use ringtap_capture::xdp::ring::RingPiece;

/// Outcome of a packet, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The inline reader decided.
    Decided(Verdict),
    /// The inline reader did not see the packet, or did not answer in time.
    NoVerdict(Verdict),
}

#[derive(Clone, Copy, Debug)]
struct WaitingPacket {
    /// Sequence number of the packet in the mirror, or of the next packet there.
    sequence: u64,
    fate: Option<Fate>,
    since: Instant,
    pieces: usize,
}

/// Waiting packets.
#[derive(Default)]
pub(super) struct WaitingPackets {
    packets: VecDeque<WaitingPacket>,
    pieces: VecDeque<RingPiece>,
}

impl WaitingPackets {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Number of cells of the waiting packets.
    pub(super) fn cells(&self) -> usize {
        self.pieces.len()
    }

    /// Appends a packet.
    pub(super) fn push(
        &mut self,
        pieces: &[RingPiece],
        sequence: u64,
        fate: Option<Fate>,
        now: Instant,
    ) {
        self.pieces.extend(pieces);
        self.packets.push_back(WaitingPacket {
            sequence,
            fate,
            since: now,
            pieces: pieces.len(),
        });
    }

    /// Stores a verdict; ignores a verdict on a packet that does not wait.
    pub(super) fn decide(&mut self, verdict: &PacketVerdict) {
        // Verdicts have only the low bits of the sequence, far more values than packets can wait.
        let first = self.packets.front().map_or(0, |packet| packet.sequence);
        let at = self.packets.partition_point(|packet| {
            PacketVerdict::distance(first, packet.sequence) < verdict.distance_from(first)
        });
        let same = self.packets.range_mut(at..);
        let mut same = same.take_while(|packet| verdict.is_of(packet.sequence));
        if let Some(packet) = same.find(|packet| packet.fate.is_none()) {
            packet.fate = Some(Fate::Decided(verdict.verdict));
        }
    }

    /// Takes the oldest packet if it has a fate; stores its pieces in `pieces`.
    pub(super) fn pop(&mut self, pieces: &mut Vec<RingPiece>) -> Option<Fate> {
        let fate = self.packets.front()?.fate?;
        let count = self.packets.pop_front()?.pieces;
        pieces.clear();
        pieces.extend(self.pieces.drain(..count.min(self.pieces.len())));
        Some(fate)
    }

    /// Arrival time of the oldest packet.
    pub(super) fn since(&self) -> Option<Instant> {
        self.packets.front().map(|packet| packet.since)
    }

    /// Gives the oldest packet this fate, unless it has one.
    pub(super) fn give_up_first(&mut self, fate: Fate) {
        if let Some(packet) = self.packets.front_mut() {
            packet.fate.get_or_insert(fate);
        }
    }

    /// Gives all packets without a verdict this fate.
    pub(super) fn give_up(&mut self, fate: Fate) {
        for packet in &mut self.packets {
            packet.fate.get_or_insert(fate);
        }
    }
}

#[cfg(test)]
mod tests {
    use ringtap_pool::ids::LaneId;

    use super::*;

    const OPEN: Fate = Fate::NoVerdict(Verdict::Pass);

    fn verdict(sequence: u64, verdict: Verdict) -> PacketVerdict {
        PacketVerdict {
            lane: LaneId(0),
            sequence,
            verdict,
        }
    }

    fn piece(address: u64) -> RingPiece {
        RingPiece {
            address,
            length: 60,
            goes_on: false,
        }
    }

    fn three() -> WaitingPackets {
        let mut waiting = WaitingPackets::default();
        let now = Instant::now();
        waiting.push(&[piece(1)], 10, None, now);
        waiting.push(&[piece(2), piece(3)], 11, Some(OPEN), now);
        waiting.push(&[piece(4)], 11, None, now);
        waiting
    }

    #[test]
    fn packets_leave_in_order_whatever_the_order_of_verdicts() {
        let mut waiting = three();
        let mut pieces = Vec::new();
        waiting.decide(&verdict(11, Verdict::Drop));
        assert_eq!(waiting.pop(&mut pieces), None, "the first is undecided");
        waiting.decide(&verdict(10, Verdict::Pass));
        assert_eq!(waiting.pop(&mut pieces), Some(Fate::Decided(Verdict::Pass)));
        assert_eq!(waiting.pop(&mut pieces), Some(OPEN));
        assert_eq!(pieces, [piece(2), piece(3)]);
        assert_eq!(waiting.pop(&mut pieces), Some(Fate::Decided(Verdict::Drop)));
        assert!(waiting.is_empty() && waiting.cells() == 0);
    }

    #[test]
    fn verdicts_on_packets_that_do_not_wait_are_passed_over() {
        let mut waiting = three();
        for sequence in [0, 9, 12, 1 << 47, u64::MAX] {
            waiting.decide(&verdict(sequence, Verdict::Drop));
        }
        assert_eq!(waiting.pop(&mut Vec::new()), None);
        waiting.decide(&verdict(10, Verdict::Pass));
        waiting.decide(&verdict(10, Verdict::Drop));
        let first = waiting.pop(&mut Vec::new());
        assert_eq!(
            first,
            Some(Fate::Decided(Verdict::Pass)),
            "the first one counts"
        );
    }

    #[test]
    fn who_waits_too_long_waits_no_longer() {
        let mut waiting = three();
        let mut pieces = Vec::new();
        waiting.give_up_first(OPEN);
        assert_eq!(waiting.pop(&mut pieces), Some(OPEN));
        assert_eq!(waiting.pop(&mut pieces), Some(OPEN));
        assert_eq!(waiting.pop(&mut pieces), None);
        waiting.give_up(Fate::NoVerdict(Verdict::Drop));
        let last = waiting.pop(&mut pieces);
        assert_eq!(last, Some(Fate::NoVerdict(Verdict::Drop)));
    }
}
