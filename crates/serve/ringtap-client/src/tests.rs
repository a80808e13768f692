// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches, judged and counted while their chunk is still being filled.

use std::sync::Arc;

use ringtap_filter::{Place, Program};
use ringtap_ipc::subscription::Wanted;
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader;
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::PacketMeta;

use crate::judge::Judge;
use crate::tally::Tally;

fn meta(mask: u64) -> PacketMeta {
    PacketMeta {
        mask,
        wire_length: 60,
        ..PacketMeta::default()
    }
}

#[test]
fn a_batch_for_others_stays_one_when_the_chunk_gets_a_packet_for_us() {
    let geometry = Geometry::contiguous(4096, 4, 1, 100).unwrap();
    let pool = Pool::on_heap(geometry);
    let chunks = source::share(&geometry, LaneId(0));
    // SAFETY: on the heap, so writable, and this lane has all chunks.
    let (mut writer, ends) = unsafe { source::lane(&pool, LaneId(0), chunks, Arc::new(NoSignal)) };
    let mut distributor = Distributor::new(pool, vec![ends], Arc::new(NoSignal));
    let (_, mut reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
    let judge = Judge::new(&Wanted {
        mask: 1,
        place: Place::Source,
        filter: Program::everything(),
        from: vec![0],
    });
    let judge = Arc::new(judge);
    writer.write(&meta(2), [&[0; 60]]).unwrap();
    distributor.step().unwrap();
    let reader::Next::Batch(inner) = reader.try_next().unwrap() else {
        panic!("a packet was published");
    };
    let batch = judge.judged(inner, 0);
    assert!(batch.is_for_others);
    writer.write(&meta(1), [&[0; 60]]).unwrap();
    let mut tally = Tally::new(1);
    tally.begin(&batch);
    assert_eq!((tally.filtered(), batch.packets().count()), (1, 0));
}
