// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader's right to a chunk, and its return to the distributor.
//!
//! Invariants
//! - A chunk is returned once: when the reader has moved past it and no batch of it is left.
//! - Batches may be dropped in any order, by any thread, and after their reader.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::error::RecvError;
use crate::control::ControlRegion;
use crate::ids::ChunkId;
use crate::queue::{Producer, PushError};
use crate::view::{Chunk, Pool};
use crate::wake::Signal;

/// State shared by a reader and its batches, which may outlive the reader.
pub(super) struct LeaseHome {
    pub(super) pool: Pool,
    pub(super) control: ControlRegion,
    pub(super) distributor: Arc<dyn Signal>,
    returns: Mutex<Producer>,
    /// Why chunks cannot be returned any more.
    failure: OnceLock<RecvError>,
}

/// A lease of one chunk; dropping its last handle returns the chunk.
pub(super) struct Lease {
    home: Arc<LeaseHome>,
    id: ChunkId,
}

impl LeaseHome {
    pub(super) fn new(pool: Pool, control: ControlRegion, distributor: Arc<dyn Signal>) -> Self {
        LeaseHome {
            returns: Mutex::new(Producer::new(control.returns.clone())),
            pool,
            control,
            distributor,
            failure: OnceLock::new(),
        }
    }

    /// Fails once a chunk could not be returned.
    pub(super) fn check(&self) -> Result<(), RecvError> {
        self.failure.get().map_or(Ok(()), |error| Err(*error))
    }

    fn take_back(&self, chunk: ChunkId) {
        let mut returns = self.returns.lock().unwrap_or_else(PoisonError::into_inner);
        let pushed = returns.push(u64::from(chunk.0));
        drop(returns);
        let failure = match pushed {
            Ok(()) if self.control.hub().wants_returns.take() => {
                return self.distributor.signal();
            }
            Ok(()) => return,
            Err(PushError::PeerCorrupt(corrupt)) => RecvError::PeerCorrupt(corrupt),
            // The queue has room for every chunk of the pool.
            Err(PushError::Full) => RecvError::BadChunk(chunk),
        };
        let _first_one_counts = self.failure.set(failure);
    }
}

impl Lease {
    pub(super) fn new(home: Arc<LeaseHome>, id: ChunkId) -> Arc<Self> {
        Arc::new(Lease { home, id })
    }

    pub(super) fn id(&self) -> ChunkId {
        self.id
    }

    /// The leased chunk; present, since the reader checked its number.
    #[inline]
    pub(super) fn chunk(&self) -> Option<Chunk<'_>> {
        self.home.pool.chunk(self.id)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.home.take_back(self.id);
    }
}
