// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writing end of a lane for user-space sources; `bpf/lane.h` is the eBPF counterpart.
//!
//! Invariants
//! - Slots grow up from the chunk's header, payloads down from its end; they never meet.
//! - Slot and payload are complete before they are published, and not touched afterwards.
//! - Every packet is either captured (and has a sequence number) or counted as `pool_full`.

mod cells;
mod free;
mod open;

use std::sync::Arc;

use crate::format::Slot;
use crate::gap::CaptureGap;
use crate::ids::{ChunkId, LaneId};
use crate::number::to_usize;
use crate::queue::{Consumer, Producer, PushError};
use crate::sync::{AtomicU64, Ordering::*};
use crate::view::Pool;
use crate::wake::{Level, Signal, WakeWord};
pub use cells::{Cell, CellLayout};
use free::FreeChunks;
use open::{ChunkHeader, Open};

/// Metadata of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketMeta {
    /// Nanoseconds since 1970, UTC.
    pub time_ns: u64,
    /// Length on the wire in bytes.
    pub wire_length: u32,
    /// Bits of [`flag`](crate::format::flag).
    pub flags: u8,
    /// Receive queue.
    pub queue: u16,
    /// Readers that want the packet; all of them unless a rule selects fewer.
    pub mask: u64,
    /// Flow hash, if one was computed.
    pub hash: Option<u32>,
}

impl PacketMeta {
    /// The metadata of a captured packet, for a copy that all readers want.
    pub fn from_slot(slot: &Slot) -> Self {
        PacketMeta {
            time_ns: slot.time_ns,
            wire_length: slot.wire_length,
            flags: slot.flags,
            queue: slot.queue,
            mask: u64::MAX,
            hash: slot.hash(),
        }
    }
}

impl Default for PacketMeta {
    fn default() -> Self {
        PacketMeta {
            time_ns: 0,
            wire_length: 0,
            flags: 0,
            queue: 0,
            mask: u64::MAX,
            hash: None,
        }
    }
}

/// Counters of a lane. One thread adds, any thread reads.
#[derive(Debug, Default)]
pub struct LaneCounters {
    captured: AtomicU64,
    bytes: AtomicU64,
    pool_full: AtomicU64,
}

impl LaneCounters {
    /// Packets in the pool; equals the sequence number of the next packet.
    pub fn captured(&self) -> u64 {
        self.captured.load(Acquire)
    }

    /// Bytes on the wire of these packets.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Packets lost because no chunk was free.
    pub fn pool_full(&self) -> u64 {
        self.pool_full.load(Relaxed)
    }
}

/// A packet was lost and counted because no chunk was free.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("no chunk is free")]
pub struct PoolFull;

/// The writing end of a lane.
pub struct LaneWriter {
    pool: Pool,
    lane: LaneId,
    /// Maximum number of bytes kept of a packet.
    limit: usize,
    /// End of the payloads in a chunk; cells may follow.
    end: usize,
    /// Maximum number of packets in a chunk.
    max_packets: u32,
    opened: Producer,
    free: FreeChunks,
    open: Option<Open>,
    chunk_sequence: u64,
    /// Sequence number of the first packet in the open chunk.
    sequence: u64,
    /// Bytes on the wire of all packets before it.
    bytes: u64,
    lost: u64,
    /// The last capture gap.
    gap: Option<CaptureGap>,
    counters: Arc<LaneCounters>,
    wake: WakeWord,
    signal: Arc<dyn Signal>,
}

impl LaneWriter {
    /// Creates the writing end of a lane with these chunks, and with its ends of the capture queue and the
    /// recycle queue. `signal` wakes the other side, which announces its sleep in `wake`.
    ///
    /// # Safety
    ///
    /// The pool's region must be mapped writable. Until this writer is dropped, no other code may
    /// write into these chunks or into those recycled to it.
    pub(crate) unsafe fn new(
        pool: Pool,
        lane: LaneId,
        chunks: Vec<ChunkId>,
        (opened, recycled): (Producer, Consumer),
        wake: WakeWord,
        signal: Arc<dyn Signal>,
    ) -> Self {
        let geometry = *pool.geometry();
        LaneWriter {
            limit: to_usize(geometry.snap_length.min(geometry.max_payload())),
            end: geometry.chunk_bytes(),
            max_packets: u32::MAX,
            pool,
            lane,
            opened,
            free: FreeChunks::new(chunks, recycled, geometry),
            open: None,
            chunk_sequence: 0,
            sequence: 0,
            bytes: 0,
            lost: 0,
            gap: None,
            counters: Arc::default(),
            wake,
            signal,
        }
    }

    /// Limits the packets of each later chunk to `most`, at least one; a chunk has exactly this many if
    /// they fit.
    pub fn limit_packets(&mut self, most: u32) {
        self.max_packets = most.max(1);
    }

    /// Lets the first packet have this sequence number.
    pub(crate) fn begin_at(&mut self, sequence: u64) {
        self.sequence = sequence;
        self.counters.captured.store(sequence, Release);
    }

    /// Counters of the lane, for other threads.
    pub fn counters(&self) -> Arc<LaneCounters> {
        Arc::clone(&self.counters)
    }

    /// Appends one packet, given in parts, without publishing it.
    ///
    /// Cuts the packet to the pool's snap length or to the capacity of a chunk.
    ///
    /// # Errors
    ///
    /// [`PoolFull`]: the packet is lost and counted. Sources that can wait call
    /// [`LaneWriter::has_room`] before.
    #[inline]
    pub fn stage<const N: usize>(
        &mut self,
        meta: &PacketMeta,
        parts: [&[u8]; N],
    ) -> Result<(), PoolFull> {
        if self.offer(meta, parts) {
            return Ok(());
        }
        self.count_lost(1);
        Err(PoolFull)
    }

    /// Returns `false` without counting a loss if no chunk is free.
    #[inline]
    fn offer<const N: usize>(&mut self, meta: &PacketMeta, parts: [&[u8]; N]) -> bool {
        let length = self.captured_length(parts.iter().map(|part| part.len()).sum());
        if !self.fits(length) && !self.change_chunk() {
            return false;
        }
        if let Some(open) = self.open.as_mut() {
            open.put(meta, length, parts);
        }
        true
    }

    /// Whether a packet of this length has room now; opens a new chunk if necessary.
    #[inline]
    pub fn has_room(&mut self, length: usize) -> bool {
        let length = self.captured_length(length);
        self.fits(length) || self.change_chunk()
    }

    /// Publishes the staged packets and wakes sleepers.
    #[inline]
    pub fn publish(&mut self) {
        let Some(open) = self.open.as_mut() else {
            return;
        };
        // First: a reader that sees a packet finds it counted.
        let captured = self.sequence + u64::from(open.staged());
        let bytes = self.bytes + open.wire_bytes();
        self.counters.bytes.store(bytes, Relaxed);
        self.counters.captured.store(captured, Release);
        if !open.publish() {
            return;
        }
        if self.wake.take(Level::Packet) {
            self.signal.signal();
        }
    }

    /// Stages and publishes one packet.
    ///
    /// # Errors
    ///
    /// [`PoolFull`]: the packet is lost and counted.
    pub fn write<const N: usize>(
        &mut self,
        meta: &PacketMeta,
        parts: [&[u8]; N],
    ) -> Result<(), PoolFull> {
        self.stage(meta, parts)?;
        self.publish();
        Ok(())
    }

    /// Publishes and seals the open chunk.
    pub fn close(&mut self) {
        self.seal();
        if self.wake.take(Level::Chunk) {
            self.signal.signal();
        }
    }

    /// Tells readers that nothing was captured for this long before the next packet: the capture before,
    /// which had `after` packets, has ended, and another one begins. Gaps without a packet between them
    /// become one.
    pub fn capture_gap(&mut self, after: u64, duration_ns: u64) {
        self.close();
        let gap = CaptureGap {
            sequence: self.sequence,
            duration_ns: duration_ns.max(1),
            after,
        };
        self.gap = Some(match self.gap {
            Some(before) if before.sequence == gap.sequence => CaptureGap {
                duration_ns: before.duration_ns.saturating_add(gap.duration_ns),
                ..before
            },
            _ => gap,
        });
    }

    /// Number of bytes kept of a packet of this length.
    #[inline]
    pub fn captured_length(&self, length: usize) -> usize {
        length.min(self.limit)
    }

    #[inline]
    fn fits(&self, length: usize) -> bool {
        self.open.as_ref().is_some_and(|open| open.fits(length))
    }

    fn seal(&mut self) {
        if let Some(open) = self.open.take() {
            self.sequence += u64::from(open.staged());
            self.bytes += open.wire_bytes();
            self.counters.bytes.store(self.bytes, Relaxed);
            self.counters.captured.store(self.sequence, Release);
            open.seal();
        }
    }

    /// Seals the open chunk and opens the one that was freed last.
    #[cold]
    fn change_chunk(&mut self) -> bool {
        let had_open = self.open.is_some();
        self.seal();
        let opened = self.free.take().is_some_and(|id| self.open_chunk(id));
        // A writer that retries without a change wakes no sleeper.
        if (had_open || opened) && self.wake.take(Level::Chunk) {
            self.signal.signal();
        }
        opened
    }

    fn open_chunk(&mut self, id: ChunkId) -> bool {
        let Some(chunk) = self.pool.chunk(id) else {
            return false;
        };
        // SAFETY: `self.pool` keeps the region, and `open` lives no longer than `self`.
        let piece = unsafe { chunk.0.outlive() };
        let header = ChunkHeader {
            lane: self.lane,
            first_sequence: self.sequence,
            chunk_sequence: self.chunk_sequence,
            lost_before: self.lost,
            gap: self.gap,
        };
        // SAFETY: `new`'s caller promised a writable region; a free chunk belongs to this writer.
        let open = unsafe { Open::new(piece, &header, self.end, self.max_packets) };
        match self.opened.push(u64::from(id.0)) {
            Ok(()) => {}
            // The queue has room for every chunk of the pool: only a corrupt peer gets here.
            Err(PushError::Full | PushError::PeerCorrupt(_)) => return false,
        }
        self.chunk_sequence += 1;
        self.open = Some(open);
        true
    }
}

impl Drop for LaneWriter {
    fn drop(&mut self) {
        self.close();
    }
}
