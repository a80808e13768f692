// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers of a share come, wait and leave.

use super::super::tests::{Bench, bench, drain};
use super::*;
use crate::distributor::Policy;
use crate::distributor::{ReaderOptions, Scheduler};
use crate::reader::Reader;
use std::sync::Arc;

/// A lane of chunks of ten packets.
fn tens(chunks: u32) -> Bench {
    let mut bench = bench(chunks);
    bench.writer.limit_packets(10);
    bench
}

fn sharer(bench: &mut Bench) -> (ReaderId, Reader) {
    bench.reader(ReaderOptions {
        credit: Some(u32::MAX),
        chunk_share: Some(7),
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
    let (owner, mut one) = sharer(&mut bench);
    let (other, mut idle) = sharer(&mut bench);
    fill(&mut bench, 5);
    assert_eq!((drain(&mut one), drain(&mut idle)), ((50, 0), (0, 0)));
    fill(&mut bench, 1);
    for (reader, sequences) in [(owner, 0), (other, 50)] {
        let missed = bench.distributor.missed(reader, LaneId(0));
        assert_eq!((missed.sequences, missed.packets), (sequences, 0));
    }
}

/// Names a reader that does not exist.
struct Stranger;

impl Scheduler for Stranger {
    fn choose(&self, _next: &NextChunk<'_>) -> ReaderId {
        ReaderId(1000)
    }
}

#[test]
fn a_scheduler_cannot_name_a_stranger() {
    let mut bench = tens(20);
    bench.distributor = bench.distributor.with_scheduler(Arc::new(Stranger));
    let (_, mut one) = sharer(&mut bench);
    let (_, mut other) = sharer(&mut bench);
    fill(&mut bench, 5);
    assert_eq!((drain(&mut one), drain(&mut other)), ((50, 0), (0, 0)));
}

#[test]
fn the_open_chunk_of_a_reader_that_leaves_goes_to_another() {
    let mut bench = tens(8);
    let (owner, one) = sharer(&mut bench);
    let (heir, mut other) = sharer(&mut bench);
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
fn a_reader_that_comes_late_gets_no_packet_twice() {
    let mut bench = tens(8);
    let (_, mut one) = sharer(&mut bench);
    bench.write(3);
    bench.distributor.step().unwrap();
    let (_, mut late) = sharer(&mut bench);
    bench.write(2);
    assert_eq!((drain(&mut one), drain(&mut late)), ((5, 0), (0, 0)));
}

#[test]
fn a_blocking_share_waits_for_the_one_whose_turn_it_is() {
    let mut bench = tens(8);
    let options = || ReaderOptions {
        credit: Some(2),
        policy: Policy::Block,
        chunk_share: Some(0),
        ..ReaderOptions::default()
    };
    let (_, mut one) = bench.reader(options());
    let (_, mut idle) = bench.reader(options());
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
