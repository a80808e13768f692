// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a chunk's header states of the packets before it.
#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;

use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

const LANE: LaneId = LaneId(0);
const CHUNKS: u32 = 4;
const PACKETS_OF_A_CHUNK: u32 = 3;

fn lane() -> (LaneWriter, Distributor) {
    let geometry = Geometry::contiguous(4096, CHUNKS + 1, 1, 100).unwrap();
    let pool = Pool::on_heap(geometry);
    let share = source::share(&geometry, LANE);
    // SAFETY: on the heap, and this is its only lane.
    let (mut writer, ends) = unsafe { source::lane(&pool, LANE, share, Arc::new(NoSignal)) };
    writer.limit_packets(PACKETS_OF_A_CHUNK);
    (
        writer,
        Distributor::new(pool, vec![ends], Arc::new(NoSignal)),
    )
}

/// Captures packets; returns how many were lost for want of a chunk.
fn write(writer: &mut LaneWriter, packets: u32) -> u64 {
    let lost = |_: &u32| {
        writer
            .write(&PacketMeta::default(), [&[7; 60][..]])
            .is_err()
    };
    (0..packets).filter(lost).map(|_| 1).sum()
}

/// Losses before each chunk with packets that the reader has not read, as the chunks state them.
fn losses(distributor: &mut Distributor, reader: &mut Reader, pool: &Pool) -> Vec<u64> {
    while distributor.step().unwrap() {}
    let mut losses = Vec::new();
    while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
        losses.push(pool.chunk(batch.chunk()).unwrap().lost_before());
    }
    while distributor.step().unwrap() {}
    losses
}

#[test]
fn a_chunk_states_all_losses_of_its_lane_before_it() {
    let (mut writer, mut distributor) = lane();
    let options = ReaderOptions {
        credit: Some(u32::MAX),
        ..ReaderOptions::default()
    };
    let (_, mut reader) = distributor.add_reader(&options).unwrap();
    let pool = reader.pool().clone();
    let mut lost = 0;
    for more in [1, 5, 2] {
        let before = lost;
        lost += write(&mut writer, CHUNKS * PACKETS_OF_A_CHUNK + more);
        assert!(lost > before, "the pool is too small");
        let stated = losses(&mut distributor, &mut reader, &pool);
        assert!(!stated.is_empty() && stated.iter().all(|one| *one == before));
        assert_eq!(writer.counters().pool_full(), lost);
    }
}
