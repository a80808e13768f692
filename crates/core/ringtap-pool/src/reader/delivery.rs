// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of a reader's delivery queue, specified in `docs/internals/format.md`.

use crate::ids::{ChunkId, LaneId};

/// One entry of a reader's delivery queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryEntry {
    /// A chunk, its first slot for this reader, and whether the reader gets only the first bytes of
    /// each packet (the policy has the number).
    Chunk {
        chunk: ChunkId,
        from: u32,
        cut: bool,
    },
    /// Packets of a lane that the reader wanted and lost, just before the lane's next chunk.
    Lost { lane: LaneId, packets: u64 },
    /// Packets for other members of the reader's group, just before the lane's next chunk.
    OtherMembers { lane: LaneId, packets: u64 },
}

const MISSED: u64 = 1 << 63;
/// Flag of a chunk entry.
const CUT: u64 = 1 << 62;
/// Flag of an entry of missed packets.
const OTHER_MEMBERS: u64 = 1 << 62;
const LANE_BITS: u32 = 14;
const COUNT_BITS: u32 = 48;

/// Maximum number of missed packets in one entry; a larger number is cut to it.
const MAX_MISSED: u64 = (1 << COUNT_BITS) - 1;

impl DeliveryEntry {
    pub(crate) fn to_entry(self) -> u64 {
        let missed = |lane: LaneId, packets: u64| {
            MISSED | u64::from(lane.0) << COUNT_BITS | packets.min(MAX_MISSED)
        };
        match self {
            DeliveryEntry::Chunk { chunk, from, cut } => {
                u64::from(chunk.0) | (u64::from(from) << 32) | if cut { CUT } else { 0 }
            }
            DeliveryEntry::Lost { lane, packets } => missed(lane, packets),
            DeliveryEntry::OtherMembers { lane, packets } => OTHER_MEMBERS | missed(lane, packets),
        }
    }

    pub(crate) fn from_entry(entry: u64) -> Self {
        let low = |value: u64| u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0);
        if entry & MISSED == 0 {
            return DeliveryEntry::Chunk {
                chunk: ChunkId(low(entry)),
                from: low((entry & !CUT) >> 32),
                cut: entry & CUT != 0,
            };
        }
        let lane = LaneId(low(entry >> COUNT_BITS) & ((1 << LANE_BITS) - 1));
        let packets = entry & MAX_MISSED;
        match entry & OTHER_MEMBERS {
            0 => DeliveryEntry::Lost { lane, packets },
            _ => DeliveryEntry::OtherMembers { lane, packets },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_delivery_survives_the_queue() {
        let chunk = ChunkId(u32::MAX);
        for cut in [false, true] {
            let delivery = DeliveryEntry::Chunk {
                chunk,
                from: 16_383,
                cut,
            };
            assert_eq!(DeliveryEntry::from_entry(delivery.to_entry()), delivery);
        }
        let (lane, packets) = (LaneId(9_999), MAX_MISSED);
        for missed in [
            DeliveryEntry::Lost { lane, packets },
            DeliveryEntry::OtherMembers { lane, packets },
        ] {
            assert_eq!(DeliveryEntry::from_entry(missed.to_entry()), missed);
        }
    }
}
