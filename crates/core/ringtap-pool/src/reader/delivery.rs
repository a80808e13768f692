// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entries of a reader's delivery queue; `docs/internals/format.md` writes them down.
#![forbid(unsafe_code)]

use crate::ids::{ChunkId, LaneId};

/// What the distributor tells a reader through its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A chunk, the first slot in it that is meant for this reader, and whether only the
    /// first bytes of each packet are (the policy says how many).
    Chunk {
        chunk: ChunkId,
        from: u32,
        cut: bool,
    },
    /// So many packets that this reader wanted on a lane are lost, just before what is delivered
    /// next on it.
    Lost { lane: LaneId, packets: u64 },
}

const LOST: u64 = 1 << 63;
const CUT: u64 = 1 << 62;
const LANE_BITS: u32 = 14;
const COUNT_BITS: u32 = 48;

/// Most packets that one [`Delivery::Lost`] can tell of.
pub(crate) const MOST_LOST: u64 = (1 << COUNT_BITS) - 1;

impl Delivery {
    pub(crate) fn to_entry(self) -> u64 {
        match self {
            Delivery::Chunk { chunk, from, cut } => {
                u64::from(chunk.0) | (u64::from(from) << 32) | if cut { CUT } else { 0 }
            }
            Delivery::Lost { lane, packets } => {
                LOST | (u64::from(lane.0) << COUNT_BITS) | packets.min(MOST_LOST)
            }
        }
    }

    pub(crate) fn from_entry(entry: u64) -> Self {
        let low = |value: u64| u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0);
        if entry & LOST == 0 {
            return Delivery::Chunk {
                chunk: ChunkId(low(entry)),
                from: low((entry & !CUT) >> 32),
                cut: entry & CUT != 0,
            };
        }
        Delivery::Lost {
            lane: LaneId(low(entry >> COUNT_BITS) & ((1 << LANE_BITS) - 1)),
            packets: entry & MOST_LOST,
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
            let delivery = Delivery::Chunk {
                chunk,
                from: 16_383,
                cut,
            };
            assert_eq!(Delivery::from_entry(delivery.to_entry()), delivery);
        }
        let lost = Delivery::Lost {
            lane: LaneId(9_999),
            packets: MOST_LOST,
        };
        assert_eq!(Delivery::from_entry(lost.to_entry()), lost);
    }
}
