// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private delivery: a thread copies packets that pass a reader's filter into a private pool.
//!
//! The reader maps only the private pool, which holds no other packets. A thread for each reader, because the time that a
//! copy takes must not delay the chunks of others.
//!
//! Invariants
//! - Each packet of the subscription is copied, counted as filtered, or counted as lost.
//! - The hub never waits for the thread: the hub asks it to end, and the thread signals its end.

mod counters;
mod worker;

use std::io;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard};

use ringtap_filter::FilterLocation;
use ringtap_ipc::doorbell::HubDoorbell;
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::{Reclaimable, SealedPool, SharedMemory};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::subscription::{Endpoint, EndpointFiles, Subscription, Wanted};
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::Policy;
use ringtap_pool::format::Geometry;
use ringtap_pool::number::{to_u32, to_u64};
use ringtap_pool::private::PrivatePool;
use ringtap_pool::source::Facts;
use ringtap_pool::wake::Signal as _;

use crate::background;
use crate::budgets::{Charge, ReaderMemory};
use crate::group::Group;
pub(crate) use counters::RelayCounters;
use worker::Worker;

/// State that the relay's thread and the hub share.
struct Common {
    counters: Mutex<RelayCounters>,
    /// New filters, one per endpoint, until the thread has taken them.
    wanted: Mutex<Option<Vec<Wanted>>>,
    stop: AtomicBool,
    /// The thread reads and copies no more.
    has_ended: AtomicBool,
}

/// A relay. Its thread ends soon after this is dropped.
pub(crate) struct Relay {
    common: Arc<Common>,
    doorbell: Arc<HubDoorbell>,
}

/// Marks the end of the thread, also after a panic.
struct EndMark {
    common: Arc<Common>,
    hub: Event,
}

impl Drop for EndMark {
    fn drop(&mut self) {
        // Pairs with the load in `Relay::has_ended`: the thread's reads are over.
        self.common.has_ended.store(true, Release);
        self.hub.signal();
    }
}

impl Relay {
    /// Starts to copy from `inner`; returns the subscription to the private pools.
    ///
    /// `doorbell` is the hub's end of the doorbell of `inner`; it wakes the relay. The thread signals
    /// `hub` when it ends. With `charge`, the reader is of another user: the charge ends when the
    /// reader's memory is free again.
    pub(crate) fn start(
        inner: Subscription,
        doorbell: Arc<HubDoorbell>,
        group: &Group,
        hub: Event,
        charge: Option<Charge>,
    ) -> io::Result<(Self, Subscription)> {
        let (worker, private, memory) = Worker::new(inner, group, charge.is_some())?;
        let reader_memory = ReaderMemory { memory, charge };
        let common = Arc::new(Common {
            counters: Mutex::new(worker.counters.clone()),
            wanted: Mutex::default(),
            stop: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        let end = EndMark {
            common: Arc::clone(&common),
            hub,
        };
        background::spawn("relay", move || {
            worker.run(&end.common);
            // The hub takes back its chunks whatever the reader does with its own memory.
            drop(end);
            reader_memory.reclaim();
        })?;
        Ok((Relay { common, doorbell }, private))
    }

    /// Makes the thread end; does not wait for it.
    pub(crate) fn stop(&self) {
        self.common.stop.store(true, Relaxed);
        self.doorbell.signal();
    }

    /// Whether the thread has ended, so that the chunks that it read can be taken back.
    pub(crate) fn has_ended(&self) -> bool {
        self.common.has_ended.load(Acquire)
    }

    /// Copies only packets that pass these filters from now on.
    pub(crate) fn set_wanted(&self, wanted: Vec<Wanted>) {
        *lock(&self.common.wanted) = Some(wanted);
        self.doorbell.signal();
    }

    /// The counters at the thread's last step.
    pub(crate) fn counters(&self) -> MutexGuard<'_, RelayCounters> {
        lock(&self.common.counters)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The `wanted` of a reader behind a relay: every packet in its pool belongs to the reader.
pub(crate) fn all_classified(wanted: &Wanted) -> Wanted {
    Wanted {
        mask: u64::MAX,
        group: 0,
        marks: 0,
        place: FilterLocation::Source,
        filter: wanted.filter.clone(),
        from: vec![0; wanted.from.len()],
    }
}

/// Makes the private pool for the packets of `endpoint`, and returns the memory to free at its end.
fn make_pool(
    endpoint: &Endpoint,
    pool_bytes: u64,
    for_other_user: bool,
) -> io::Result<(PrivatePool, Endpoint, Vec<Reclaimable>)> {
    let geometry = sizes(endpoint.pool.geometry(), pool_bytes)?;
    let mut reclaimable = Vec::new();
    let pool = if for_other_user {
        let (pool, memory) = SealedPool::for_other_user(geometry)?;
        reclaimable.push(memory);
        pool
    } else {
        SealedPool::create(geometry)?
    };
    let memory = SharedMemory::create(control_bytes(pool.readable.geometry()))?;
    reclaimable.push(memory.reclaimable()?);
    // SAFETY: the only writable mapping of the pool, made just now.
    let private =
        unsafe { PrivatePool::new(&pool.writable, pool.readable.clone(), &memory.region) };
    let private = private.map_err(io::Error::other)?;
    let outer = Endpoint {
        facts: Facts {
            policy: Policy::DropNewest,
            ..endpoint.facts.clone()
        },
        wanted: all_classified(&endpoint.wanted),
        files: Some(EndpointFiles {
            pool: pool.file.try_clone()?,
            offset: 0,
            control: memory.file,
        }),
        pool: pool.readable,
        control: memory.region,
        wake: None,
    };
    Ok((private, outer, reclaimable))
}

/// Bytes of a private pool for a source's pool of this geometry, with its control region.
pub(crate) fn bytes(inner: &Geometry, pool_bytes: u64) -> io::Result<u64> {
    let geometry = sizes(inner, pool_bytes)?;
    Ok(geometry.region_bytes() + to_u64(control_bytes(&geometry)))
}

/// Geometry of a pool with as many lanes and chunks as large as the source's.
fn sizes(inner: &Geometry, pool_bytes: u64) -> io::Result<Geometry> {
    let chunks = pool_bytes / u64::from(inner.chunk_size);
    let chunks = to_u32(chunks);
    let least = inner.lane_count.saturating_mul(4).saturating_add(1);
    Geometry::contiguous(
        inner.chunk_size,
        chunks.max(least),
        inner.lane_count,
        inner.snap_length,
    )
    .map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
