// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run in virtual time came to.
#![forbid(unsafe_code)]

use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::distributor::BuddyCounts;
use ringtap_pool::ids::{LaneId, ReaderId};

use super::reader::Note;

/// What became of a queue's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOutcome {
    /// The lane.
    pub lane: LaneId,
    /// Packets that the link brought.
    pub arrived: u64,
    /// Packets in the pool.
    pub captured: u64,
    /// Packets that no rule wanted.
    pub unwanted: u64,
    /// Packets that found the ring full because capture was too slow.
    pub nic: u64,
    /// Packets that found the ring full because no chunk was free.
    pub pool_full: u64,
    /// Most chunks in use at a time.
    pub most_chunks: u32,
}

/// What a reader got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderOutcome {
    /// The reader.
    pub reader: ReaderId,
    /// Packets that it read.
    pub delivered: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets that it lost past its credit.
    pub overrun: u64,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Per lane.
    pub lanes: Vec<LaneOutcome>,
    /// Per reader.
    pub readers: Vec<ReaderOutcome>,
    /// What the group of readers did.
    pub buddies: BuddyCounts,
    /// Packets that were done with before an earlier one of the same flow: to the packet, where
    /// [`BuddyCounts`] goes by chunks.
    pub disordered_packets: u64,
    /// Buckets of flows that busy readers gave away.
    pub moved_buckets: u64,
    /// How often their new owner did not wait for the former one, a lane each.
    pub unordered_moves: u64,
    /// When the last reader was done, in picoseconds after the first packet.
    pub end_ps: u64,
    /// Chunks of each lane.
    pub chunks: u32,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
}

impl Outcome {
    /// Where every packet went, over all lanes and readers.
    pub fn counters(&self) -> Counters {
        let lanes = self.lanes.iter();
        let mut counters = Counters::default();
        for lane in lanes {
            counters += Counters {
                offered: lane.arrived,
                filtered: lane.unwanted,
                dropped: Dropped {
                    nic: lane.nic,
                    pool_full: lane.pool_full,
                    ..Dropped::default()
                },
                ..Counters::default()
            };
        }
        for reader in &self.readers {
            counters.delivered += reader.delivered;
            counters.bytes += reader.bytes;
            counters.dropped.overrun += reader.overrun;
        }
        counters
    }

    /// Share of the packets that were lost.
    pub fn loss(&self) -> f64 {
        let counters = self.counters();
        if counters.offered == 0 {
            return 0.0;
        }
        // Exact up to 2^53 packets.
        counters.dropped.total() as f64 / counters.offered as f64
    }
}

/// Packets that were done with before an earlier one of their flow was.
pub(super) fn disorder(notes: impl Iterator<Item = Vec<Note>>) -> u64 {
    let mut notes: Vec<_> = notes.flatten().collect();
    notes.sort_unstable();
    let (mut broken, mut flow, mut latest_ps) = (0, None, 0);
    for note in notes {
        if flow != Some((note.lane, note.flow)) {
            flow = Some((note.lane, note.flow));
            latest_ps = 0;
        }
        broken += u64::from(note.done_ps < latest_ps);
        latest_ps = latest_ps.max(note.done_ps);
    }
    broken
}
