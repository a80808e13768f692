// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result of a run in virtual time.

use ringtap_pool::counters::{Counters, Dropped};

use super::reader::PacketRecord;

/// Counters of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOutcome {
    /// Packets that the link brought.
    pub arrived: u64,
    /// Packets in the pool.
    pub captured: u64,
    /// Packets that no rule wanted.
    pub filtered: u64,
    /// Packets that found the ring full because capture was too slow.
    pub nic: u64,
    /// Packets that found the ring full because no chunk was free.
    pub pool_full: u64,
    /// Most chunks in use at a time.
    pub max_chunks: u32,
}

/// Counters of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderOutcome {
    /// Packets that it read.
    pub delivered: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets that it lost past its credit.
    pub overrun: u64,
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOutcome {
    /// By lane.
    pub lanes: Vec<LaneOutcome>,
    /// By reader.
    pub readers: Vec<ReaderOutcome>,
    /// Packets that a reader finished before an earlier one of the same flow was finished, if the
    /// experiment counts them.
    pub disordered_packets: u64,
    /// Chunks of each lane.
    pub chunks: u32,
}

impl SimOutcome {
    /// The counters of all lanes and readers.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for lane in &self.lanes {
            counters += Counters {
                offered: lane.arrived,
                filtered: lane.filtered,
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

    /// Share of the packets that were lost; exact up to 2^53 packets.
    pub fn loss(&self) -> f64 {
        let counters = self.counters();
        counters.dropped.total() as f64 / counters.offered.max(1) as f64
    }
}

/// Number of packets that were finished before an earlier one of their flow.
pub(super) fn disorder(records: impl Iterator<Item = Vec<PacketRecord>>) -> u64 {
    let mut records: Vec<_> = records.flatten().collect();
    records.sort_unstable();
    let flows = records.chunk_by(|a, b| (a.lane, a.flow) == (b.lane, b.flow));
    let disordered = flows.map(|flow| {
        let mut latest_ps = 0;
        let late = flow.iter().filter(|record| {
            latest_ps = latest_ps.max(record.done_ps);
            record.done_ps < latest_ps
        });
        late.count() as u64
    });
    disordered.sum()
}
