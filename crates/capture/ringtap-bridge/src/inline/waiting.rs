// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of one lane that wait for their verdicts, in order of arrival.
//!
//! Invariants
//! - Packets leave in order of arrival, whatever the order of the verdicts.
//! - Sequence numbers increase, so binary search finds a verdict's packet.
//! - The number of waiting packets is limited.

use std::collections::VecDeque;
use std::time::Instant;

use ringtap_ipc::verdict::{Lasting, PacketVerdict, Verdict};

/// Maximum number of packets of a lane that wait; beyond it, the oldest waits no longer.
const MAX_WAITING: usize = 2048;

/// Outcome of a packet, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The inline reader decided about the packet, or about its flow.
    Decided(Verdict, Option<Lasting>),
    /// The inline reader did not answer in time.
    NoVerdict(Verdict),
}

struct WaitingPacket {
    sequence: u64,
    fate: Option<Fate>,
    since: Instant,
    bytes: Vec<u8>,
}

/// Waiting packets.
#[derive(Default)]
pub(super) struct WaitingPackets {
    packets: VecDeque<WaitingPacket>,
    /// Sequence after that of the last packet.
    next: u64,
}

impl WaitingPackets {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Appends a packet. With too many, gives the oldest this fate.
    pub(super) fn push(&mut self, sequence: u64, bytes: Vec<u8>, now: Instant, too_many: Fate) {
        if self.packets.len() >= MAX_WAITING {
            let packets = self.packets.iter_mut();
            let oldest = packets.rev().nth(MAX_WAITING - 1);
            oldest.map(|packet| packet.fate.get_or_insert(too_many));
        }
        self.packets.push_back(WaitingPacket {
            sequence,
            fate: None,
            since: now,
            bytes,
        });
        self.next = sequence.wrapping_add(1);
    }

    /// Stores a verdict; `false` if its packet may still come. Ignores a verdict on a packet that does not wait.
    pub(super) fn decide(&mut self, verdict: &PacketVerdict) -> bool {
        if verdict.distance_from(self.next) < PacketVerdict::FAR {
            return false;
        }
        // Verdicts have only the low bits of the sequence, far more values than packets can wait.
        let first = self.packets.front().map_or(0, |packet| packet.sequence);
        let at = self.packets.partition_point(|packet| {
            PacketVerdict::distance(first, packet.sequence) < verdict.distance_from(first)
        });
        if let Some(packet) = self.packets.get_mut(at)
            && verdict.is_of(packet.sequence)
        {
            let fate = Fate::Decided(verdict.verdict, verdict.for_flow);
            packet.fate.get_or_insert(fate);
        }
        true
    }

    /// Takes the oldest packet if it has a fate.
    pub(super) fn pop(&mut self) -> Option<(Fate, Vec<u8>)> {
        let fate = self.packets.front()?.fate?;
        Some((fate, self.packets.pop_front()?.bytes))
    }

    /// Arrival time of the oldest packet.
    pub(super) fn since(&self) -> Option<Instant> {
        self.packets.front().map(|packet| packet.since)
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
            for_flow: None,
        }
    }

    fn decided(verdict: Verdict) -> Fate {
        Fate::Decided(verdict, None)
    }

    fn three() -> WaitingPackets {
        let mut waiting = WaitingPackets::default();
        for sequence in [10, 12, 13] {
            waiting.push(sequence, vec![1], Instant::now(), OPEN);
        }
        waiting
    }

    fn pop(waiting: &mut WaitingPackets) -> Option<Fate> {
        waiting.pop().map(|(fate, _)| fate)
    }

    #[test]
    fn packets_leave_in_order_whatever_the_order_of_verdicts() {
        let mut waiting = three();
        assert!(waiting.decide(&verdict(12, Verdict::Drop)));
        assert_eq!(pop(&mut waiting), None, "the first is undecided");
        assert!(waiting.decide(&verdict(10, Verdict::Pass)));
        assert_eq!(pop(&mut waiting), Some(decided(Verdict::Pass)));
        assert_eq!(pop(&mut waiting), Some(decided(Verdict::Drop)));
        assert_eq!(pop(&mut waiting), None);
    }

    #[test]
    fn verdicts_on_packets_that_do_not_wait_change_nothing() {
        let mut waiting = three();
        for sequence in [0, 9, 11, 1 << 47, u64::MAX] {
            let may_come = !waiting.decide(&verdict(sequence, Verdict::Drop));
            assert!(!may_come || sequence == 1 << 47, "{sequence}");
        }
        assert!(!waiting.decide(&verdict(14, Verdict::Drop)), "it may come");
        assert_eq!(pop(&mut waiting), None);
        waiting.decide(&verdict(10, Verdict::Pass));
        waiting.decide(&verdict(10, Verdict::Drop));
        let first = Some(decided(Verdict::Pass));
        assert_eq!(pop(&mut waiting), first, "the first one counts");
    }

    #[test]
    fn too_many_packets_and_late_ones_wait_no_longer() {
        let mut waiting = three();
        for sequence in 14..14 + 2047 {
            waiting.push(sequence, Vec::new(), Instant::now(), OPEN);
        }
        assert_eq!(pop(&mut waiting), Some(OPEN));
        assert_eq!(pop(&mut waiting), Some(OPEN));
        assert_eq!(pop(&mut waiting), None);
        waiting.give_up(Fate::NoVerdict(Verdict::Drop));
        assert_eq!(pop(&mut waiting), Some(Fate::NoVerdict(Verdict::Drop)));
    }
}
