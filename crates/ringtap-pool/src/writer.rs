// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writing end of a lane, for sources in user space; `bpf/lane.h` is its twin in eBPF.
//!
//! Invariants
//! - Slots grow up from the chunk's header, payloads down from its end; they never meet.
//! - Slot and payload are complete before they are published, and not touched afterwards.
//! - Every packet is either captured (and has a sequence number) or counted as `no_chunk`.

use std::sync::Arc;

use crate::format::{self, CHUNK_HEADER_SIZE, SLOT_SIZE, Slot};
use crate::free::FreeChunks;
use crate::ids::{ChunkId, LaneId, widen};
use crate::memory::Piece;
use crate::publish;
use crate::queue::{Producer, PushError};
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};
use crate::view::Pool;
use crate::wake::{Level, Signal, WakeWord};

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketMeta {
    /// Nanoseconds since 1970, UTC.
    pub time_ns: u64,
    /// Length on the wire in bytes.
    pub wire_length: u32,
    /// Bits of [`format::flag`].
    pub flags: u8,
    /// Receive queue.
    pub queue: u16,
}

/// What a lane counted since it began. One thread adds, any thread reads.
#[derive(Debug, Default)]
pub struct LaneCounters {
    captured: AtomicU64,
    no_chunk: AtomicU64,
}

impl LaneCounters {
    /// Packets in the pool, which is also the sequence of the next one.
    pub fn captured(&self) -> u64 {
        self.captured.load(Acquire)
    }

    /// Packets lost because no chunk was free.
    pub fn no_chunk(&self) -> u64 {
        self.no_chunk.load(Relaxed)
    }
}

/// A packet was lost because no chunk was free; it is counted.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("no chunk is free")]
pub struct NoChunk;

/// The writing end of a lane.
pub struct LaneWriter {
    pool: Pool,
    lane: LaneId,
    opened: Producer,
    free: FreeChunks,
    open: Option<Open>,
    chunk_sequence: u64,
    sequence: u64,
    lost: u64,
    counters: Arc<LaneCounters>,
    wake: WakeWord,
    signal: Arc<dyn Signal>,
}

/// What a [`LaneWriter`] is made of.
pub struct LaneWriterParts {
    /// The lane's number.
    pub lane: LaneId,
    /// The capture queue: told of every chunk when it is opened.
    pub opened: Producer,
    /// The lane's own chunks.
    pub free: FreeChunks,
    /// Where the other side says that it sleeps.
    pub wake: WakeWord,
    /// What wakes it.
    pub signal: Arc<dyn Signal>,
}

/// The chunk that is being filled.
struct Open {
    piece: Piece<'static>,
    staged: u32,
    published: u32,
    /// Lowest byte that a payload occupies.
    floor: usize,
}

impl LaneWriter {
    /// The writing end of a lane.
    ///
    /// # Safety
    ///
    /// The pool's region must be mapped writable, and until it is dropped this writer must be
    /// the only one that writes into the chunks of `parts.free` and those recycled to it.
    pub unsafe fn new(pool: Pool, parts: LaneWriterParts) -> Self {
        let LaneWriterParts {
            lane,
            opened,
            free,
            wake,
            signal,
        } = parts;
        LaneWriter {
            pool,
            lane,
            opened,
            free,
            open: None,
            chunk_sequence: 0,
            sequence: 0,
            lost: 0,
            counters: Arc::default(),
            wake,
            signal,
        }
    }

    /// The lane's counters, for other threads.
    pub fn counters(&self) -> Arc<LaneCounters> {
        Arc::clone(&self.counters)
    }

    /// Puts one packet, its bytes in parts, behind those staged before; nobody sees it yet.
    ///
    /// Bytes past the pool's snap length, or past what a chunk can hold, are cut off.
    ///
    /// # Errors
    ///
    /// [`NoChunk`]: counted; the packet is lost. See [`LaneWriter::has_room`] for sources that
    /// can wait.
    #[inline]
    pub fn stage<const N: usize>(
        &mut self,
        meta: &PacketMeta,
        parts: [&[u8]; N],
    ) -> Result<(), NoChunk> {
        let length = self.captured_length(parts.iter().map(|part| part.len()).sum());
        if !self.fits(length) && !self.change_chunk() {
            self.lost += 1;
            self.counters.no_chunk.store(self.lost, Relaxed);
            return Err(NoChunk);
        }
        let Some(open) = self.open.as_mut() else {
            return Err(NoChunk);
        };
        open.put(meta, length, parts);
        self.sequence += 1;
        Ok(())
    }

    /// Whether a packet of this many bytes would find a place now; takes a new chunk if need be.
    pub fn has_room(&mut self, length: usize) -> bool {
        let length = self.captured_length(length);
        self.fits(length) || self.change_chunk()
    }

    /// Lets readers see all that was staged, and wakes whoever waits for it.
    #[inline]
    pub fn publish(&mut self) {
        let Some(open) = self
            .open
            .as_mut()
            .filter(|open| open.staged != open.published)
        else {
            return;
        };
        open.published = open.staged;
        publish::publish(open.state(), open.staged);
        self.counters.captured.store(self.sequence, Release);
        if self.wake.take(Level::Packet) {
            self.signal.signal();
        }
    }

    /// Stages and publishes one packet.
    ///
    /// # Errors
    ///
    /// [`NoChunk`]: counted; the packet is lost.
    pub fn write<const N: usize>(
        &mut self,
        meta: &PacketMeta,
        parts: [&[u8]; N],
    ) -> Result<(), NoChunk> {
        self.stage(meta, parts)?;
        self.publish();
        Ok(())
    }

    /// Publishes and seals what is open: nothing follows for now.
    pub fn close(&mut self) {
        if let Some(open) = self.open.take() {
            publish::seal(open.state(), open.staged);
        }
        self.counters.captured.store(self.sequence, Release);
        if self.wake.take(Level::Chunk) {
            self.signal.signal();
        }
    }

    fn captured_length(&self, length: usize) -> usize {
        let geometry = self.pool.geometry();
        length.min(widen(geometry.snap_length.min(geometry.max_payload())))
    }

    #[inline]
    fn fits(&self, length: usize) -> bool {
        self.open.as_ref().is_some_and(|open| open.fits(length))
    }

    /// Seals the open chunk and opens the one that was freed last.
    #[cold]
    fn change_chunk(&mut self) -> bool {
        if let Some(open) = self.open.take() {
            publish::seal(open.state(), open.staged);
            self.counters.captured.store(self.sequence, Release);
        }
        let opened = match self.free.take() {
            Ok(Some(id)) => self.open_chunk(id),
            // A corrupt recycling side cannot give chunks back: as if none were free.
            Ok(None) | Err(_) => false,
        };
        if self.wake.take(Level::Chunk) {
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
        let open = Open {
            piece,
            staged: 0,
            published: 0,
            floor: piece.bytes(),
        };
        open.put_header(self.lane, self.sequence, self.chunk_sequence, self.lost);
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

impl Open {
    #[inline]
    fn fits(&self, length: usize) -> bool {
        let slots_end = CHUNK_HEADER_SIZE + (widen(self.staged) + 1) * SLOT_SIZE;
        self.floor >= slots_end + length.next_multiple_of(8)
    }

    fn state(&self) -> &AtomicU32 {
        self.piece.word32(format::chunk::STATE)
    }

    fn put_header(&self, lane: LaneId, first: u64, chunk_sequence: u64, lost: u64) {
        let word = |at| self.piece.word64(at);
        self.piece
            .word32(format::chunk::LANE)
            .store(lane.0.to_le(), Relaxed);
        word(format::chunk::FIRST_SEQUENCE).store(first.to_le(), Relaxed);
        word(format::chunk::CHUNK_SEQUENCE).store(chunk_sequence.to_le(), Relaxed);
        word(format::chunk::LOST_BEFORE).store(lost.to_le(), Relaxed);
        publish::publish(self.state(), 0);
    }

    /// Copies a packet of `length` bytes that is known to fit.
    #[inline]
    fn put<const N: usize>(&mut self, meta: &PacketMeta, length: usize, parts: [&[u8]; N]) {
        self.floor -= length.next_multiple_of(8);
        let mut at = self.floor;
        let mut left = length;
        for part in parts {
            let bytes = part.len().min(left);
            // SAFETY: `LaneWriter::new` promised that the region is writable and these chunks
            // ours; what is below the floor is not published, so nobody reads it.
            unsafe { self.piece.write(at, &part[..bytes]) };
            at += bytes;
            left -= bytes;
        }
        let slot = self.slot(meta, length);
        if let Some(words) = self
            .piece
            .words(CHUNK_HEADER_SIZE + widen(self.staged) * SLOT_SIZE)
        {
            publish::put_slot(words, slot);
        }
        self.staged += 1;
    }

    #[inline]
    fn slot(&self, meta: &PacketMeta, length: usize) -> Slot {
        Slot {
            time_ns: meta.time_ns,
            mask: u64::MAX,
            hash: 0,
            wire_length: meta.wire_length,
            // A chunk has at most 2^19 bytes.
            captured_length: u32::try_from(length).unwrap_or(0),
            flags: meta.flags,
            payload: u16::try_from(self.floor / 8).unwrap_or(0),
            queue: meta.queue,
        }
    }
}
