// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private pools of one reader: the relay writes, the reader reads.

use std::io;
use std::sync::Arc;

use ringtap_ipc::memfd::{Reclaimable, SealedPool, SharedMemory};
use ringtap_ipc::subscription::{Endpoint, EndpointFiles};
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::{Distributor, Policy, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::number::{to_u32, to_u64, to_usize};
use ringtap_pool::source::{self, Facts};
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::LaneWriter;

pub(super) struct Private {
    pub(super) writers: Vec<LaneWriter>,
    pub(super) distributor: Distributor,
    pub(super) reader: ReaderId,
}

/// Makes the private pool for the packets of `endpoint`, and returns the memory to free at its end.
pub(super) fn make(
    endpoint: &Endpoint,
    pool_bytes: u64,
    for_other_user: bool,
) -> io::Result<(Private, Endpoint, Vec<Reclaimable>)> {
    let geometry = sizes(endpoint.pool.geometry(), pool_bytes)?;
    let mut reclaimable = Vec::new();
    let pool = match for_other_user {
        true => {
            let (pool, memory) = SealedPool::for_other_user(geometry)?;
            reclaimable.push(memory);
            pool
        }
        false => SealedPool::create(geometry)?,
    };
    let geometry = *pool.readable.geometry();
    let (mut writers, mut ends) = (Vec::new(), Vec::new());
    for lane in (0..geometry.lane_count).map(LaneId) {
        let chunks = source::share(&geometry, lane);
        // The relay is both writer and distributor, so it needs no signal from itself.
        // SAFETY: mapped writable, made just now, and each lane has chunks of its own.
        let (writer, end) =
            unsafe { source::lane(&pool.writable, lane, chunks, Arc::new(NoSignal)) };
        writers.push(writer);
        ends.push(end);
    }
    let mut distributor = Distributor::new(pool.readable.clone(), ends, Arc::new(NoSignal));
    let memory = SharedMemory::create(control_bytes(&geometry))?;
    reclaimable.push(memory.reclaimable()?);
    let options = ReaderOptions {
        // The pool has only this reader, which may hold all chunks.
        credit: Some(u32::MAX),
        ..ReaderOptions::default()
    };
    let starts = vec![0; ends_of(&geometry)];
    let reader = distributor
        .add_reader_at(&options, &memory.region, &starts)
        .map_err(io::Error::other)?;
    let outer = Endpoint {
        facts: Facts {
            policy: Policy::DropNewest,
            ..endpoint.facts.clone()
        },
        wanted: super::all_classified(&endpoint.wanted),
        files: Some(EndpointFiles {
            pool: pool.file.try_clone()?,
            control: memory.file,
        }),
        pool: pool.readable,
        control: memory.region,
        wake: None,
    };
    let private = Private {
        writers,
        distributor,
        reader,
    };
    Ok((private, outer, reclaimable))
}

/// Bytes of a private pool for a source's pool of this geometry, with its control region.
pub(crate) fn bytes(inner: &Geometry, pool_bytes: u64) -> io::Result<u64> {
    let geometry = sizes(inner, pool_bytes)?;
    Ok(geometry.region_bytes() + to_u64(control_bytes(&geometry)))
}

fn ends_of(geometry: &Geometry) -> usize {
    to_usize(geometry.lane_count)
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
