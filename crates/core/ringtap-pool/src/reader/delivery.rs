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
    /// Missing packets of a lane, just before the lane's next chunk.
    Missed {
        lane: LaneId,
        packets: u64,
        which: MissedPackets,
    },
}

/// Kind of missing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissedPackets {
    /// Packets that the reader wanted: its losses.
    Lost,
    /// Packets for other members of the reader's group.
    OtherMembers,
}

const MISSED: u64 = 1 << 63;
/// Flag of a chunk entry.
const CUT: u64 = 1 << 62;
/// Flag of a missed entry.
const OTHER_MEMBERS: u64 = 1 << 62;
const LANE_BITS: u32 = 14;
const COUNT_BITS: u32 = 48;

/// Maximum number of packets in one [`DeliveryEntry::Missed`].
pub(crate) const MOST_MISSED: u64 = (1 << COUNT_BITS) - 1;

impl DeliveryEntry {
    pub(crate) fn to_entry(self) -> u64 {
        match self {
            DeliveryEntry::Chunk { chunk, from, cut } => {
                u64::from(chunk.0) | (u64::from(from) << 32) | if cut { CUT } else { 0 }
            }
            DeliveryEntry::Missed {
                lane,
                packets,
                which,
            } => {
                let which = match which {
                    MissedPackets::Lost => 0,
                    MissedPackets::OtherMembers => OTHER_MEMBERS,
                };
                let lane = u64::from(lane.0) << COUNT_BITS;
                MISSED | which | lane | packets.min(MOST_MISSED)
            }
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
        DeliveryEntry::Missed {
            lane: LaneId(low(entry >> COUNT_BITS) & ((1 << LANE_BITS) - 1)),
            packets: entry & MOST_MISSED,
            which: match entry & OTHER_MEMBERS {
                0 => MissedPackets::Lost,
                _ => MissedPackets::OtherMembers,
            },
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
        for which in [MissedPackets::Lost, MissedPackets::OtherMembers] {
            let missed = DeliveryEntry::Missed {
                lane: LaneId(9_999),
                packets: MOST_MISSED,
                which,
            };
            assert_eq!(DeliveryEntry::from_entry(missed.to_entry()), missed);
        }
    }
}
