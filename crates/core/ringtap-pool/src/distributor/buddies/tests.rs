// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buddies come, help, leave and lie.

use super::super::tests::{Bench, bench, drain};
use super::*;
use crate::distributor::{Policy, ReaderOptions};
use crate::ids::LaneId;
use crate::reader::Reader;

/// A lane of chunks of ten packets.
fn tens(chunks: u32) -> Bench {
    let mut bench = bench(chunks);
    bench.writer.limit_packets(10);
    bench
}

fn buddy(bench: &mut Bench, offload_percent: Option<u8>) -> (ReaderId, Reader) {
    bench.reader(ReaderOptions {
        credit: Some(u32::MAX),
        buddies: Some(Buddies {
            group: 7,
            offload_percent,
        }),
        ..ReaderOptions::default()
    })
}

/// Writes ten packets to a chunk, and lets the distributor see each.
fn fill(bench: &mut Bench, chunks: u64) {
    for _ in 0..chunks {
        bench.write(10);
        bench.distributor.step().unwrap();
    }
}

#[test]
fn the_owner_gets_everything_and_nobody_misses_it() {
    let mut bench = tens(20);
    let (owner, mut one) = buddy(&mut bench, None);
    let (other, mut idle) = buddy(&mut bench, None);
    fill(&mut bench, 5);
    assert_eq!((drain(&mut one), drain(&mut idle)), ((50, 0), (0, 0)));
    fill(&mut bench, 1);
    for (reader, sequences) in [(owner, 0), (other, 50)] {
        let missed = bench.distributor.missed(reader, LaneId(0));
        assert_eq!((missed.sequences, missed.packets), (sequences, 0));
    }
}

#[test]
fn above_the_threshold_the_least_busy_takes_over() {
    let mut bench = tens(20);
    let (owner, mut one) = buddy(&mut bench, Some(20));
    let (other_id, mut other) = buddy(&mut bench, Some(20));
    // More than 4 of 20 chunks: the sixth to tenth go to the other, then by turns.
    fill(&mut bench, 10);
    assert_eq!((drain(&mut one), drain(&mut other)), ((50, 0), (50, 0)));
    let counts = bench.distributor.buddy_counts(7);
    assert_eq!((counts.chunks, counts.offloaded_chunks), (10, 5));
    let helped = [owner, other_id].map(|id| bench.distributor.helped_chunks(id));
    assert_eq!(helped, [0, 5]);
    assert_eq!(counts.offloaded_packets, 40, "the last is still open");
}

#[test]
fn order_that_may_be_broken_is_counted() {
    let mut bench = tens(20);
    let (_, mut one) = buddy(&mut bench, Some(10));
    let (_, mut other) = buddy(&mut bench, Some(10));
    fill(&mut bench, 7);
    assert_eq!(drain(&mut other).0, 30);
    bench.distributor.step().unwrap();
    // The fourth to sixth went to the other; without hashes all is one flow.
    assert_eq!(bench.distributor.buddy_counts(7).disordered_packets, 30);
    assert_eq!(drain(&mut one).0, 40);
    bench.distributor.step().unwrap();
    assert_eq!(bench.distributor.buddy_counts(7).disordered_packets, 30);
}

#[test]
fn the_open_chunk_of_a_buddy_that_leaves_goes_to_another() {
    let mut bench = tens(8);
    let (owner, one) = buddy(&mut bench, None);
    let (heir, mut other) = buddy(&mut bench, None);
    bench.write(3);
    bench.distributor.step().unwrap();
    drop(one);
    bench.distributor.remove_reader(owner);
    bench.write(4);
    assert_eq!(drain(&mut other), (4, 0), "from where the first one left");
    let missed = bench.distributor.missed(heir, LaneId(0));
    assert_eq!(
        (missed.sequences, missed.packets),
        (3, 0),
        "that was the other's"
    );
    fill(&mut bench, 3);
    assert_eq!(drain(&mut other), (30, 0));
    bench.distributor.remove_reader(heir);
    fill(&mut bench, 8);
    assert_eq!(
        bench.writer.counters().pool_full(),
        0,
        "nobody holds anything"
    );
}

#[test]
fn a_buddy_that_comes_late_gets_pool_full_twice() {
    let mut bench = tens(8);
    let (_, mut one) = buddy(&mut bench, Some(0));
    bench.write(3);
    bench.distributor.step().unwrap();
    let (_, mut late) = buddy(&mut bench, Some(0));
    bench.write(2);
    assert_eq!((drain(&mut one), drain(&mut late)), ((5, 0), (0, 0)));
}

#[test]
fn a_blocking_group_waits_for_the_one_whose_turn_it_is() {
    let mut bench = tens(8);
    let options = |offload_percent| ReaderOptions {
        credit: Some(2),
        policy: Policy::Block,
        buddies: Some(Buddies {
            group: 0,
            offload_percent,
        }),
        ..ReaderOptions::default()
    };
    let (_, mut one) = bench.reader(options(None));
    let (_, mut idle) = bench.reader(options(None));
    fill(&mut bench, 5);
    assert!(
        !bench.distributor.is_drained(),
        "the owner has its two chunks"
    );
    let mut read = 0;
    for _ in 0..5 {
        read += drain(&mut one).0;
        bench.distributor.step().unwrap();
    }
    assert_eq!((read, drain(&mut idle)), (50, (0, 0)));
}
