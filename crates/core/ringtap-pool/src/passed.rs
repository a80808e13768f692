// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes the chunks that a reader gets on to one further reader, which reads them in place.
//!
//! Invariants
//! - A chunk is kept until the further reader has returned it: its writer does not reuse it before.
//! - Nothing here writes into the pool. What the further reader writes is checked as by any distributor.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::control;
use crate::distributor::{AddReaderError, DistributeError, Distributor, LaneEnds, ReaderOptions};
use crate::ids::{ChunkId, LaneId, ReaderId};
use crate::memory::Region;
use crate::queue::{self, Consumer, Producer};
use crate::view::Pool;
use crate::wake::{NoSignal, WakeWord};

/// A pool whose chunks come from another distributor. `K` keeps a chunk until it is dropped.
pub struct PassedPool<K> {
    /// Hands the chunks to the further reader.
    pub distributor: Distributor,
    /// The further reader, which may hold all chunks that are passed to it.
    pub reader: ReaderId,
    pool: Pool,
    lanes: Vec<PassedLane>,
    kept: BTreeMap<ChunkId, K>,
}

struct PassedLane {
    opened: Producer,
    recycled: Consumer,
    /// Number of the lane's last chunk.
    last: Option<u64>,
}

impl<K> PassedPool<K> {
    /// Passes chunks of `pool` to the reader with this control region, which no other code of this machine
    /// uses and which is cleared: it gets every packet from these sequences on, one a lane.
    ///
    /// # Errors
    ///
    /// [`AddReaderError::Control`]: the control region is too small.
    pub fn new(pool: Pool, starts: &[u64], control: &Region) -> Result<Self, AddReaderError> {
        control::clear(control);
        let chunks = pool.geometry().chunk_count;
        let (mut lanes, mut ends) = (Vec::new(), Vec::new());
        for _ in starts {
            let (open, opened) = queue::pair(chunks);
            let (recycle, recycled) = queue::pair(chunks);
            lanes.push(PassedLane {
                opened: open,
                recycled,
                last: None,
            });
            ends.push(LaneEnds {
                opened,
                recycle,
                wake: WakeWord::on_heap(),
                chunks,
            });
        }
        let mut distributor = Distributor::new(pool.clone(), ends, Arc::new(NoSignal));
        distributor.begin_at(starts);
        let options = ReaderOptions {
            credit: Some(u32::MAX),
            ..ReaderOptions::default()
        };
        let reader = distributor.add_reader_at(&options, control, starts)?;
        Ok(PassedPool {
            distributor,
            reader,
            pool,
            lanes,
            kept: BTreeMap::new(),
        })
    }

    /// Passes on a lane's chunk with this number, from packet `first` on. A further batch of the chunk
    /// that was passed on last changes nothing: the reader sees its packets already.
    ///
    /// # Errors
    ///
    /// As for [`Distributor::step`].
    pub fn pass(
        &mut self,
        lane: LaneId,
        (chunk, number): (ChunkId, u64),
        first: u64,
        keep: K,
    ) -> Result<(), DistributeError> {
        if let Some(passed) = self.lanes.get_mut(lane.index())
            && passed.last.replace(number) != Some(number)
        {
            self.kept.insert(chunk, keep);
            self.distributor.begin_next_at(lane, first);
            // The queue has room for every chunk of the pool, and is empty after each step.
            let _full = passed.opened.push(u64::from(chunk.0));
        }
        self.step()
    }

    /// Moves chunks to the further reader, and releases those that it has returned.
    ///
    /// # Errors
    ///
    /// As for [`Distributor::step`].
    pub fn step(&mut self) -> Result<(), DistributeError> {
        self.distributor.step()?;
        for lane in &mut self.lanes {
            while let Some(entry) = lane.recycled.pop()? {
                self.kept.retain(|chunk, _| u64::from(chunk.0) != entry);
            }
        }
        Ok(())
    }

    /// Whether the further reader has not returned a chunk that gets no more packets.
    pub fn awaits_returns(&self) -> bool {
        let sealed = |chunk: &ChunkId| {
            self.pool
                .chunk(*chunk)
                .is_some_and(|one| one.state().sealed)
        };
        self.kept.keys().any(sealed)
    }

    /// Tells the further reader that no packet follows.
    pub fn end(&mut self) {
        while self.distributor.step().unwrap_or(false) {}
        self.distributor.finish();
    }
}

#[cfg(test)]
mod tests;
