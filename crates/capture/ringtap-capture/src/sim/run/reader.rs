// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader in virtual time: each packet keeps it busy for a while.

use ringtap_pool::distributor::Distributor;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::reader::{NextBatch, Reader, Sleeper};

use super::ReaderOutcome;
use crate::CaptureError;

/// The time at which a packet was finished; ordered by flow, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketRecord {
    pub(super) lane: u32,
    pub(super) flow: u32,
    pub(super) sequence: u64,
    pub(super) done_ps: u64,
}

/// A reader and its clock.
pub(super) struct VirtualReader {
    pub(super) id: ReaderId,
    reader: Reader,
    sleeper: Sleeper,
    /// Mask of its own packets.
    mask: u64,
    service_ps: u64,
    /// Time at which it has finished the packets that it took.
    pub(super) done_ps: Option<u64>,
    delivered: u64,
    bytes: u64,
    /// Absent where no packet can be out of order.
    records: Option<Vec<PacketRecord>>,
}

impl VirtualReader {
    pub(super) fn new(
        id: ReaderId,
        reader: Reader,
        mask: u64,
        service_ps: u64,
        records: bool,
    ) -> Self {
        VirtualReader {
            id,
            sleeper: reader.sleeper(),
            reader,
            mask,
            service_ps,
            done_ps: None,
            delivered: 0,
            bytes: 0,
            records: records.then(Vec::new),
        }
    }

    /// Wakes the reader, unless it is busy.
    pub(super) fn wake(&mut self, now_ps: u64) -> Result<(), CaptureError> {
        if self.done_ps.is_some() {
            return Ok(());
        }
        self.sleeper.disarm();
        self.read(now_ps)
    }

    /// Returns what is finished and takes the next packets; sleeps if there are none.
    pub(super) fn read(&mut self, now_ps: u64) -> Result<(), CaptureError> {
        self.done_ps = None;
        let mut is_armed = false;
        loop {
            let found = self.reader.try_next();
            let batch = match found.map_err(|error| CaptureError::Run(error.to_string()))? {
                NextBatch::Batch(batch) => batch,
                NextBatch::Empty if !is_armed => {
                    self.sleeper.arm();
                    is_armed = true;
                    continue;
                }
                NextBatch::Empty | NextBatch::Ended => return Ok(()),
            };
            if is_armed {
                self.sleeper.disarm();
                is_armed = false;
            }
            let lane = batch.lane.0;
            let mut done_ps = now_ps;
            for packet in batch.packets() {
                let packet = packet.map_err(|error| CaptureError::Run(error.to_string()))?;
                if packet.slot().mask & self.mask == 0 {
                    continue;
                }
                done_ps += self.service_ps;
                self.delivered += 1;
                self.bytes += u64::from(packet.slot().wire_length);
                if let Some(records) = &mut self.records {
                    records.push(PacketRecord {
                        lane,
                        flow: packet.slot().hash().unwrap_or(0),
                        sequence: packet.sequence,
                        done_ps,
                    });
                }
            }
            if done_ps > now_ps {
                self.done_ps = Some(done_ps);
                return Ok(());
            }
        }
    }

    pub(super) fn take_records(&mut self) -> Vec<PacketRecord> {
        self.records.take().unwrap_or_default()
    }

    pub(super) fn outcome(&self, distributor: &Distributor) -> ReaderOutcome {
        let lanes = (0..distributor.geometry().lane_count).map(LaneId);
        let missed = lanes.map(|lane| distributor.missed(self.id, lane).packets);
        ReaderOutcome {
            delivered: self.delivered,
            bytes: self.bytes,
            overrun: missed.sum(),
        }
    }
}
