// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buddy groups as the scheduler of a distributor.

use std::sync::Arc;

use ringtap_hub::buddies::BuddyGroups;
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::PacketMeta;

const GROUP: u32 = 7;

/// Takes all packets that wait for a reader; returns their number.
fn drain(reader: &mut Reader) -> usize {
    let mut read = 0;
    while let NextBatch::Batch(batch) = reader.try_next().expect("the hub is sound") {
        read += batch.packets().count();
    }
    read
}

#[test]
fn order_that_may_be_broken_is_counted() {
    let geometry = Geometry::contiguous(4096, 21, 1, 65_535).expect("it is sound");
    let pool = Pool::on_heap(geometry);
    let chunks = source::share(&geometry, LaneId(0));
    // SAFETY: on the heap, and this is its only lane.
    let (mut writer, ends) = unsafe { source::lane(&pool, LaneId(0), chunks, Arc::new(NoSignal)) };
    writer.limit_packets(10);
    let groups = Arc::new(BuddyGroups::default());
    groups.set_threshold(GROUP, Some(10));
    let distributor = Distributor::new(pool, vec![ends], Arc::new(NoSignal));
    let mut distributor = distributor.with_scheduler(groups.clone());
    let options = ReaderOptions {
        credit: Some(u32::MAX),
        chunk_share: Some(GROUP),
        ..ReaderOptions::default()
    };
    let (owner, mut one) = distributor.add_reader(&options).expect("there is room");
    let (helper, mut other) = distributor.add_reader(&options).expect("there is room");
    for _ in 0..7 {
        for _ in 0..10 {
            let _written = writer.write(&PacketMeta::default(), [&[7; 300]]);
        }
        distributor.step().expect("the lane is sound");
    }
    // The fourth to sixth chunk went to the helper; without hashes all packets are one flow.
    assert_eq!(drain(&mut other), 30);
    distributor.step().expect("the lane is sound");
    assert_eq!(groups.counts(GROUP).disordered_packets, 30);
    assert_eq!(drain(&mut one), 40);
    distributor.step().expect("the lane is sound");
    let counts = groups.counts(GROUP);
    assert_eq!((counts.chunks, counts.offloaded_chunks), (7, 3));
    assert_eq!(
        (counts.offloaded_packets, counts.disordered_packets),
        (30, 30)
    );
    assert_eq!([owner, helper].map(|id| groups.helped_chunks(id)), [0, 3]);
}
