// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a group's pool: a device of the host, or a copy of what readers still had of one that left.
//!
//! The addresses stay, in this process and in readers, so that all that points into the pool stays valid.
//!
//! Invariants
//! - A chunk that a reader may still have is never mapped with other content. The host leaves its number out.
#![allow(
    unsafe_code,
    reason = "maps other memory in place of the pool's, with the same chunks"
)]

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};

use ringtap_hub::{Handle, MemoryStep};
use ringtap_ipc::mapping::{Access, Mapping};
use ringtap_ipc::memfd::SealedPool;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::pool_memory::PoolMemory;
use ringtap_pool::control::ControlRegionError;
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::format::{Geometry, SEALED, chunk};
use ringtap_pool::ids::ChunkId;
use ringtap_pool::number::to_usize;
use ringtap_pool::passed::PassedLane;
use ringtap_pool::reader::ChunkBatch;
use ringtap_pool::view::{Pool, PoolError};
use ringtap_pool::wake::Signal;

use crate::messages::GuestPool;

/// The lane of a group, for the agent's thread and its hub's.
pub(super) type GroupLane = Arc<Mutex<PassedLane<ChunkBatch>>>;

/// A part of a device as a file, and where in it the part begins.
pub(super) type DeviceFile = (Arc<OwnedFd>, u64);

/// Reason why the memory of a subscription cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemoryError {
    #[error("its device is not mapped")]
    NotMapped,
    #[error("its device is no file")]
    NoFile,
    #[error(transparent)]
    Map(#[from] io::Error),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error("it has another size")]
    OtherSize,
    #[error(transparent)]
    Control(#[from] ControlRegionError),
}

/// The memory of a group.
pub(super) struct GroupMemory {
    /// The pool, whose memory is replaced.
    pub(super) pool: Pool,
    pub(super) lane: GroupLane,
    /// Tells readers; absent until the hub has started.
    hub: Option<Handle>,
    /// Number of the memory.
    number: u32,
    /// The device that is mapped, and where in it; `None`: the copy.
    device: Option<(u64, u64)>,
    /// The last copy.
    copy: Arc<OwnedFd>,
    /// What the readers have done with the memory.
    steps: Option<Receiver<MemoryStep>>,
    /// Every reader knows the memory.
    is_told: bool,
    /// The memory before has left, and readers may still have it mapped.
    awaits_readers: bool,
}

impl GroupMemory {
    /// Memory without a device, and the hub's ends of the lane.
    pub(super) fn new(geometry: Geometry, signal: Arc<dyn Signal>) -> io::Result<(Self, LaneEnds)> {
        let epoch = RandomState::new().hash_one(geometry.chunk_count) | 1;
        let header = geometry.header(epoch);
        let copy = SealedPool::filled(&geometry, |bytes| put(bytes, 0, &header))?;
        let bytes = to_usize(geometry.region_bytes());
        let mapping = Arc::new(Mapping::new(&copy, bytes, Access::Read)?);
        let pool = Pool::open(mapping.region(), epoch).map_err(io::Error::other)?;
        let (lane, ends) = PassedLane::new(pool.clone(), signal);
        let memory = GroupMemory {
            pool,
            lane: Arc::new(Mutex::new(lane)),
            hub: None,
            number: 0,
            device: None,
            copy: Arc::new(copy),
            steps: None,
            is_told: true,
            awaits_readers: false,
        };
        Ok((memory, ends))
    }

    /// Descriptor of the memory at first, for readers.
    pub(super) fn file(&self) -> io::Result<OwnedFd> {
        self.copy.try_clone()
    }

    /// The hub has started.
    pub(super) fn serve(&mut self, hub: Handle) {
        self.hub = Some(hub);
    }

    /// What the host is to make of its part.
    pub(super) fn wanted(&self) -> GuestPool {
        let mut lane = lock(&self.lane);
        let _corrupt = lane.take_back();
        GuestPool {
            chunks: self.pool.geometry().chunk_count,
            epoch: self.pool.epoch(),
            begins_at: lane.counts().delivered,
            without: runs(lane.out()).collect(),
        }
    }

    /// Maps a part of a device, which the host has made a pool.
    ///
    /// # Errors
    ///
    /// The memory cannot be mapped, or is no pool of the group's size.
    pub(super) fn enter(
        &mut self,
        device: (u64, u64),
        file: DeviceFile,
    ) -> Result<(), MemoryError> {
        if self.device != Some(device) {
            let out: Vec<_> = lock(&self.lane).out().collect();
            let bytes = self.pool.geometry().chunk_bytes();
            let parts = runs(out.into_iter()).map(|[first, count]| {
                let first = to_usize(first) * bytes;
                first..first + to_usize(count) * bytes
            });
            let parts: Vec<Range<usize>> = parts.collect();
            let kept = (!parts.is_empty()).then(|| (Arc::clone(&self.copy), parts));
            self.change(file, kept, false)?;
            self.device = Some(device);
        }
        let there = Pool::open(self.pool.region().clone(), self.pool.epoch())?;
        if there.geometry() == self.pool.geometry() {
            Ok(())
        } else {
            Err(MemoryError::OtherSize)
        }
    }

    /// Whether the memory is in this device.
    pub(super) fn is_in(&self, device: u64) -> bool {
        self.device.is_some_and(|(of, _)| of == device)
    }

    /// The device goes; its writer has ended. What readers still have of it is copied.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        if self.device.take().is_none() {
            return Ok(());
        }
        let lane = lock(&self.lane);
        let (geometry, epoch) = (*self.pool.geometry(), self.pool.epoch());
        let copy = SealedPool::filled(&geometry, |bytes| {
            put(bytes, 0, &geometry.header(epoch));
            for id in lane.out() {
                copy_chunk(&self.pool, id, bytes);
            }
        })?;
        drop(lane);
        self.copy = Arc::new(copy);
        self.change((Arc::clone(&self.copy), 0), None, true)?;
        self.awaits_readers = true;
        Ok(())
    }

    /// Maps memory, and tells the readers.
    fn change(
        &mut self,
        file: DeviceFile,
        kept: Option<(Arc<OwnedFd>, Vec<Range<usize>>)>,
        goes: bool,
    ) -> io::Result<()> {
        self.number += 1;
        let number = self.number;
        let memory = PoolMemory { number, file, kept };
        // SAFETY: the pool's region is a whole mapping, made in `new`. What readers may have of it is in the
        // memory or in what is kept.
        unsafe { memory.map_over(self.pool.region()) }?;
        if let Some(hub) = &self.hub {
            self.steps = Some(hub.set_memory(0, memory, goes));
            (self.is_told, self.awaits_readers) = (false, false);
        }
        Ok(())
    }

    /// Whether every reader knows the memory, so that it gets what is written there.
    pub(super) fn is_told(&mut self) -> bool {
        self.look();
        self.is_told
    }

    /// Whether no reader needs the memory before.
    pub(super) fn is_settled(&mut self) -> bool {
        self.look();
        self.is_told && !self.awaits_readers
    }

    fn look(&mut self) {
        while let Some(steps) = &self.steps {
            match steps.try_recv() {
                Ok(MemoryStep::Told) => self.is_told = true,
                Ok(MemoryStep::Taken) => self.awaits_readers = false,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.steps = None;
                    (self.is_told, self.awaits_readers) = (true, false);
                }
            }
        }
    }
}

/// Chunks in order as runs: the first of each, and how many.
fn runs(chunks: impl Iterator<Item = ChunkId>) -> impl Iterator<Item = [u32; 2]> {
    let mut runs: Vec<[u32; 2]> = Vec::new();
    for ChunkId(chunk) in chunks {
        match runs.last_mut() {
            Some([first, count]) if *first + *count == chunk => *count += 1,
            _ => runs.push([chunk, 1]),
        }
    }
    runs.into_iter()
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = to.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Copies a chunk to its place in memory of the size of the pool, and seals the copy.
fn copy_chunk(pool: &Pool, id: ChunkId, to: &mut [u8]) {
    let geometry = pool.geometry();
    let at = to_usize(geometry.chunk_offset(id).0);
    let place = to.get_mut(at..at + geometry.chunk_bytes());
    if let (Some(chunk), Some(place)) = (pool.chunk(id), place) {
        chunk.copy_to(place);
        let sealed = chunk.state().published | SEALED;
        put(place, chunk::STATE, &sealed.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_told_as_runs() {
        let chunks = [1, 2, 3, 7, 9, 10].map(ChunkId);
        let runs: Vec<_> = runs(chunks.into_iter()).collect();
        assert_eq!(runs, [[1, 3], [7, 1], [9, 2]]);
    }
}
