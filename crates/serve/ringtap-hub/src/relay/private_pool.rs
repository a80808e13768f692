// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private pools of one reader: the relay writes, the reader reads.

use std::io;
use std::sync::Arc;

use ringtap_ipc::memfd::{SealedPool, SharedMemory};
use ringtap_ipc::subscription::{Endpoint, EndpointFiles};
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::{Distributor, Policy, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::number::{to_u32, to_usize};
use ringtap_pool::source::{self, Facts};
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::LaneWriter;

pub(super) struct Private {
    pub(super) writers: Vec<LaneWriter>,
    pub(super) distributor: Distributor,
    pub(super) reader: ReaderId,
}

/// Makes the private pool for the packets of `endpoint`.
pub(super) fn make(endpoint: &Endpoint, pool_bytes: u64) -> io::Result<(Private, Endpoint)> {
    let pool = SealedPool::create(sizes(endpoint.pool.geometry(), pool_bytes)?)?;
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
    Ok((private, outer))
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
