// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes the chunks that a reader gets on to another distributor, whose readers read them in place.
//!
//! Invariants
//! - A chunk is kept until the other distributor has recycled it: its writer does not reuse it before.
//! - Nothing here writes into the pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::counters::Counters;
use crate::distributor::LaneEnds;
use crate::ids::ChunkId;
use crate::queue::{self, Consumer, PeerCorrupt, Producer};
use crate::view::Pool;
use crate::wake::{Level, Signal, WakeWord};

/// A lane whose chunks come from another distributor. `K` keeps a chunk until it is dropped.
pub struct PassedLane<K> {
    pool: Pool,
    opened: Producer,
    recycled: Consumer,
    wake: WakeWord,
    signal: Arc<dyn Signal>,
    /// Chunks that were not recycled yet. Those of a writer that has ended need not be kept.
    out: BTreeMap<ChunkId, Option<K>>,
    /// The chunk that was passed on last, which is also kept after it was recycled.
    last: Option<LastChunk<K>>,
    /// Packets and bytes of the chunks before the last.
    packets: u64,
    bytes: u64,
}

struct LastChunk<K> {
    id: ChunkId,
    recycled: Option<K>,
}

impl<K> PassedLane<K> {
    /// A lane of `pool`, which is mapped here, and the other distributor's ends of it. `signal` wakes that one.
    pub fn new(pool: Pool, signal: Arc<dyn Signal>) -> (Self, LaneEnds) {
        let chunks = pool.geometry().chunk_count;
        let (open, opened) = queue::pair(chunks);
        let (recycle, recycled) = queue::pair(chunks);
        let wake = WakeWord::on_heap();
        let ends = LaneEnds {
            opened,
            recycle,
            wake: wake.clone(),
            chunks: chunks - 1,
        };
        let lane = PassedLane {
            pool,
            opened: open,
            recycled,
            wake,
            signal,
            out: BTreeMap::new(),
            last: None,
            packets: 0,
            bytes: 0,
        };
        (lane, ends)
    }

    /// Passes a chunk on, after everything before it. A further batch of the chunk that was passed on last
    /// only wakes the other distributor: its readers see the packets already.
    pub fn pass(&mut self, chunk: ChunkId, keep: K) {
        if self.last.as_ref().is_some_and(|last| last.id == chunk) {
            if self.wake.take(Level::Packet) {
                self.signal.signal();
            }
            return;
        }
        self.settle();
        self.last = Some(LastChunk {
            id: chunk,
            recycled: None,
        });
        self.out.insert(chunk, Some(keep));
        // The queue has room for every chunk of the pool.
        let _full = self.opened.push(u64::from(chunk.0));
        if self.wake.take(Level::Chunk) {
            self.signal.signal();
        }
    }

    /// Lets go of the chunks that were recycled.
    ///
    /// # Errors
    ///
    /// The other distributor's index is impossible.
    pub fn take_back(&mut self) -> Result<(), PeerCorrupt> {
        while let Some(entry) = self.recycled.pop()? {
            let Some(id) = u32::try_from(entry).ok().map(ChunkId) else {
                continue;
            };
            let kept = self.out.remove(&id).flatten();
            if let Some(last) = self.last.as_mut().filter(|last| last.id == id) {
                last.recycled = kept;
            }
        }
        Ok(())
    }

    /// The writer of all chunks that were passed on has ended: chunks need not be kept for it.
    pub fn writer_has_ended(&mut self) {
        self.settle();
        self.out.values_mut().for_each(|kept| *kept = None);
        if self.wake.take(Level::Chunk) {
            self.signal.signal();
        }
    }

    /// Chunks that were not recycled yet.
    pub fn out(&self) -> impl Iterator<Item = ChunkId> {
        self.out.keys().copied()
    }

    /// The packets in the pool, as far as readers can see them.
    pub fn counts(&self) -> Counters {
        let (packets, bytes) = self.of_last();
        let delivered = self.packets + packets;
        Counters {
            offered: delivered,
            delivered,
            bytes: self.bytes + bytes,
            ..Counters::default()
        }
    }

    /// Counts the last chunk, to which nothing is added any more.
    fn settle(&mut self) {
        let (packets, bytes) = self.of_last();
        self.packets += packets;
        self.bytes += bytes;
        self.last = None;
    }

    fn of_last(&self) -> (u64, u64) {
        let chunk = self.last.as_ref().and_then(|last| self.pool.chunk(last.id));
        chunk.map_or((0, 0), |chunk| {
            let published = chunk.state().published;
            (u64::from(published), chunk.wire_bytes(0..published))
        })
    }
}

#[cfg(test)]
mod tests;
