// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the slots of one lane's packets, which the kernel received into the pool.
//!
//! Invariants
//! - Every packet is captured, filtered or counted as lost.

use std::sync::Arc;

use ringtap_pool::format::flag;
use ringtap_pool::ids::ChunkId;
use ringtap_pool::number::to_u32;
use ringtap_pool::writer::{CellLayout, LaneCounters, LaneWriter, PacketMeta};

use super::cells::{CellPosition, CellShare, Cells, ChunkStage};
use super::layout::{CellStamp, STAMP_BYTES};
use super::statistics::{LaneStatistics, Settled};
use crate::classifier::LaneClassifier;
use crate::clock;
use crate::source::NewLane;

/// Length of the two MAC addresses; a VLAN tag follows them.
pub(crate) const ADDRESSES: usize = 12;
pub(crate) const TAG: usize = 4;

/// Captures the packets of one lane and counts them.
pub(crate) struct LaneCapture {
    pub(crate) cells: Cells,
    pub(crate) statistics: Arc<LaneStatistics>,
    writer: LaneWriter,
    classifier: LaneClassifier,
    queue: u16,
    lane: Arc<LaneCounters>,
    settled: Settled,
    last_time_ns: u64,
    /// Buffer for packets that span several cells.
    gathered: Vec<u8>,
}

impl LaneCapture {
    /// Captures the packets of a receive queue into a lane.
    pub(crate) fn new(
        lane: NewLane,
        layout: CellLayout,
        share: CellShare,
        statistics: Arc<LaneStatistics>,
        queue: u16,
    ) -> std::io::Result<Self> {
        // The monitor of the interface reads it again every second.
        clock::read()?;
        let mut writer = lane.writer;
        writer.divide(layout);
        Ok(LaneCapture {
            cells: Cells::new(layout, share),
            lane: writer.counters(),
            writer,
            classifier: lane.classifier,
            statistics,
            queue,
            settled: Settled::default(),
            last_time_ns: 0,
            gathered: Vec::new(),
        })
    }

    /// Takes a recycled chunk whose cells can be given to the kernel.
    pub(crate) fn next_chunk(&mut self) -> Option<ChunkId> {
        let LaneCapture { cells, writer, .. } = self;
        cells
            .take_back()
            .or_else(|| std::iter::from_fn(|| writer.take_free()).find(|id| cells.returned(*id)))
    }

    /// Begins a batch of packets, which are published together.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.classifier.begin();
    }

    /// Publishes the batch.
    pub(crate) fn end(&mut self) {
        self.settle_staged();
        self.writer.publish();
        self.classifier.end();
        // Seal at once: the readers then return the chunk as soon as they have read it.
        if self.cells.open_is_used_up() {
            self.cells.spent();
            self.writer.close();
        }
        self.settle();
    }

    /// Publishes and seals the open chunk at the end of capture.
    pub(crate) fn finish(&mut self) {
        self.settle_staged();
        self.cells.spent();
        self.writer.close();
        self.classifier.end();
        self.settle();
    }

    /// Prefetches the packet at this address.
    #[inline]
    pub(crate) fn prefetch(&self, address: u64) {
        if let Some(CellPosition { chunk, at }) = self.cells.locate(address) {
            self.writer.prefetch(chunk, at - STAMP_BYTES);
        }
    }

    /// Bytes of a received packet that has no slot yet.
    #[inline]
    pub(crate) fn bytes(&mut self, position: CellPosition, length: usize) -> Option<&mut [u8]> {
        // SAFETY: the kernel gave this cell back (`position` is that of a received piece), and no slot
        // refers to it before this borrow ends.
        unsafe { self.writer.cell(position.chunk, position.at, length) }
    }

    /// Reads the stamp in front of a packet and takes over its counts.
    #[inline]
    pub(crate) fn stamp(&mut self, position: CellPosition) -> Option<CellStamp> {
        let at = position.at.checked_sub(STAMP_BYTES)?;
        let front = CellPosition { at, ..position };
        let stamp = CellStamp::from_bytes(self.bytes(front, STAMP_BYTES)?.first_chunk()?);
        self.account(&stamp);
        Some(stamp)
    }

    /// Takes over the program's counts from a stamp.
    #[inline]
    pub(crate) fn account(&mut self, stamp: &CellStamp) {
        let settled = &mut self.settled;
        settled.offered = settled.offered.max(stamp.offered);
        let [a, b, c, d, ..] = settled.filtered.to_le_bytes();
        let step = stamp
            .filtered
            .wrapping_sub(u32::from_le_bytes([a, b, c, d]));
        // Stamps may be slightly out of order where several CPUs serve the queue.
        if step.cast_signed() > 0 {
            settled.filtered += u64::from(step);
        }
    }

    /// Captures a packet that lies in one cell of this lane, if a rule wants it.
    #[inline]
    pub(crate) fn note(&mut self, position: CellPosition, length: usize, stamp: &CellStamp) {
        let Some(meta) = self.classify(position, length, stamp) else {
            return;
        };
        let is_open = match self.cells.stage(position.chunk) {
            ChunkStage::Open => true,
            ChunkStage::Fresh => self.open(position.chunk),
            _ => false,
        };
        let in_place = is_open && position.at.is_multiple_of(8);
        if in_place && self.writer.stage_in_place(&meta, position.at, length) {
            return;
        }
        self.copy_cell(&meta, position, length);
    }

    /// Classifies a whole packet; counts it and returns `None` if no rule wants it.
    #[inline]
    fn classify(
        &mut self,
        position: CellPosition,
        length: usize,
        stamp: &CellStamp,
    ) -> Option<PacketMeta> {
        if !self.classifier.has_rules() {
            return Some(self.meta(stamp, length, (u64::MAX, None)));
        }
        // SAFETY: as in `bytes`, which would borrow the classifier, too.
        let data = unsafe { self.writer.cell(position.chunk, position.at, length) }?;
        let wire = to_u32(length);
        let verdict = self.classifier.classify(data, wire)?;
        Some(self.meta(stamp, length, (verdict.mask, verdict.hash)))
    }

    #[inline]
    fn meta(&mut self, stamp: &CellStamp, length: usize, who: (u64, Option<u32>)) -> PacketMeta {
        let tag = match stamp.tag {
            None => 0,
            Some(_) => flag::VLAN_RESTORED,
        };
        let (time_ns, clock) = if stamp.is_nic_time {
            (stamp.time_ns, flag::NIC_TIME)
        } else {
            (self.host_time_ns(stamp.time_ns), 0)
        };
        PacketMeta {
            time_ns,
            wire_length: to_u32(length),
            flags: tag | clock,
            queue: self.queue,
            mask: who.0,
            hash: who.1,
        }
    }

    /// The host's time of a packet, which never goes back on a lane.
    #[inline]
    fn host_time_ns(&mut self, tai_ns: u64) -> u64 {
        let time_ns = tai_ns.saturating_add_signed(-clock::tai_minus_utc_ns());
        self.last_time_ns = self.last_time_ns.max(time_ns);
        self.last_time_ns
    }

    /// Copies a packet whose chunk is sealed or whose offset is not 8-byte aligned.
    #[cold]
    fn copy_cell(&mut self, meta: &PacketMeta, position: CellPosition, length: usize) {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        gathered.extend_from_slice(self.bytes(position, length).unwrap_or_default());
        self.stage_copy(meta, &gathered);
        self.gathered = gathered;
    }

    /// Copies a packet into the pool, if a rule wants it.
    pub(crate) fn copy(&mut self, bytes: &[u8], stamp: &CellStamp) {
        let wire = to_u32(bytes.len());
        if let Some(verdict) = self.classifier.classify(bytes, wire) {
            let meta = self.meta(stamp, bytes.len(), (verdict.mask, verdict.hash));
            self.stage_copy(&meta, bytes);
        }
    }

    fn stage_copy(&mut self, meta: &PacketMeta, bytes: &[u8]) {
        if self.writer.stage_copy(meta, [bytes]) {
            return;
        }
        // The open chunk is full: open the next one.
        let opened = match self.cells.oldest_fresh() {
            Some(id) => self.open(id),
            None => false,
        };
        if !opened || !self.writer.stage_copy(meta, [bytes]) {
            self.lose();
        }
    }

    fn open(&mut self, chunk: ChunkId) -> bool {
        self.cells.opened(chunk);
        // The chunk before this one is sealed.
        self.settle_staged();
        self.writer.open(chunk)
    }

    /// Counts a packet that found no room in the pool.
    #[cold]
    pub(crate) fn lose(&mut self) {
        self.settled.pool_full += 1;
        self.writer.count_lost(1);
    }

    /// Counts the staged packets: a reader that sees a packet finds it counted.
    fn settle_staged(&mut self) {
        self.settled.captured = self.writer.next_sequence();
        self.settled.bytes = self.writer.wire_bytes();
        self.statistics.settle(self.settled);
    }

    fn settle(&mut self) {
        self.settled.captured = self.lane.captured();
        self.settled.bytes = self.lane.bytes();
        self.settled.filtered_here = self.classifier.filtered();
        self.settled.shunted = self.classifier.shunted();
        self.statistics.settle(self.settled);
    }
}
