// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classifies the packets of a pool by recipient.

use std::ops::Range;
use std::sync::Arc;

use ringtap_ipc::subscription::{Recipient, Wanted};
use ringtap_pool::format::flag;
use ringtap_pool::ids::{ChunkId, LaneId};
use ringtap_pool::reader::{self, CaptureGap, Gap, Packet, RecvError};

/// Consecutive packets of one lane, in place.
///
/// A batch may be kept, sent to another thread, and outlive its receiver: the hub sees the reader
/// leave when the last batch is dropped. Dropping a batch releases its packets; batches may be
/// dropped in any order. A reader that keeps more batches than its credit allows misses packets,
/// which count as overrun.
pub struct Batch {
    pub(crate) inner: reader::ChunkBatch,
    /// Which packets are for this reader.
    pub(crate) wanted: Arc<Wanted>,
    /// Number of lanes of the endpoints before this one.
    pub(crate) lanes_before: u32,
    /// All packets are for other readers, so no slot need be read. Computed once: later the chunk may
    /// get packets for this reader, behind those of the batch.
    pub(crate) is_for_others: bool,
}

/// A packet of the pool, and its recipient.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket<'a> {
    /// The packet.
    pub packet: Packet<'a>,
    /// The packet's recipient, as far as this reader knows.
    pub recipient: Recipient,
}

impl ReceivedPacket<'_> {
    /// Whether the packet is for this reader.
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.recipient == Recipient::ThisReader
    }
}

/// Iterator over the packets of a [`Batch`].
pub struct Packets<'a> {
    inner: reader::ChunkPackets<'a>,
    wanted: &'a Wanted,
    classified_from: u64,
}

impl Batch {
    /// A batch of a source with `lanes_before` lanes of other sources before its own.
    #[inline]
    pub(crate) fn new(inner: reader::ChunkBatch, wanted: &Arc<Wanted>, lanes_before: u32) -> Self {
        Batch {
            is_for_others: inner.wanted() & wanted.mask == 0,
            inner,
            wanted: Arc::clone(wanted),
            lanes_before,
        }
    }

    /// The lane, counted over all sources.
    pub fn lane(&self) -> LaneId {
        LaneId(self.lanes_before + self.inner.lane.0)
    }

    /// Packets just before this batch that this reader does not get.
    pub fn gap(&self) -> Option<Gap> {
        self.inner.gap
    }

    /// A time just before this batch in which the source captured nothing.
    pub fn capture_gap(&self) -> Option<CaptureGap> {
        self.inner.capture_gap
    }

    /// Sequence of the first packet.
    pub fn first_sequence(&self) -> u64 {
        self.inner.first_sequence
    }

    /// Number of packets, including those for other readers.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// The chunk that the packets lie in, and the chunk's number in its lane.
    pub fn chunk(&self) -> (ChunkId, u64) {
        (self.inner.chunk(), self.inner.chunk_sequence())
    }

    /// Always false: a batch has at least one packet.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Whether the chunk was still being filled.
    pub(crate) fn is_open(&self) -> bool {
        self.inner.is_open
    }

    /// Number of packets among these sequences that are for other members of the group.
    pub(crate) fn count_other_members(&self, sequences: Range<u64>) -> u64 {
        match self.wanted.group {
            0 => 0,
            group => self.inner.count_masks(sequences, self.wanted.mask, group).1,
        }
    }

    /// The packet at this index, counted from 0 over all packets of the batch; `None` past the last one.
    #[inline]
    pub fn packet(&self, index: usize) -> Option<Packet<'_>> {
        self.inner.packet(index)
    }

    /// The slots of all packets as in the pool, 32 bytes each (`docs/internals/format.md`).
    pub fn slots(&self) -> &[u8] {
        self.inner.slots()
    }

    /// The packets in the order of capture, including those for other readers. Empty if all are for
    /// other readers; [`Tally::begin`](crate::Tally::begin) counts these.
    pub fn packets(&self) -> Packets<'_> {
        let lane = self.inner.lane.index();
        Packets {
            inner: if self.is_for_others {
                self.inner.no_packets()
            } else {
                self.inner.packets()
            },
            wanted: &self.wanted,
            classified_from: self.wanted.classified_from(lane),
        }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<ReceivedPacket<'a>, Box<RecvError>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let packet = match self.inner.next()? {
            Ok(packet) => packet,
            Err(error) => return Some(Err(error)),
        };
        let recipient = self.wanted.recipient(&packet, self.classified_from);
        let packet = packet.marked(self.wanted.marks, flag::MARKED);
        Some(Ok(ReceivedPacket { packet, recipient }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}
