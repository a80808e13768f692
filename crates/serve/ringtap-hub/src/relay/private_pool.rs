// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private pools of one reader: the relay writes, the reader reads.

use std::io;

use ringtap_ipc::memfd::{Reclaimable, SealedPool, SharedMemory};
use ringtap_ipc::subscription::{Endpoint, EndpointFiles};
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::Policy;
use ringtap_pool::format::Geometry;
use ringtap_pool::number::{to_u32, to_u64};
use ringtap_pool::private::PrivatePool;
use ringtap_pool::source::Facts;

/// Makes the private pool for the packets of `endpoint`, and returns the memory to free at its end.
pub(super) fn make(
    endpoint: &Endpoint,
    pool_bytes: u64,
    for_other_user: bool,
) -> io::Result<(PrivatePool, Endpoint, Vec<Reclaimable>)> {
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
        wanted: super::all_classified(&endpoint.wanted),
        files: Some(EndpointFiles {
            pool: pool.file.try_clone()?,
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
