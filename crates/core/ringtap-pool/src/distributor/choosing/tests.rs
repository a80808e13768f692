// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers of a share come, wait and leave.

use super::super::tests::{Fixture, drain, fixture};
use super::*;
use crate::distributor::Policy;
use crate::distributor::{ReaderOptions, Scheduler};
use crate::reader::Reader;
use std::sync::Arc;

/// A lane of chunks of ten packets.
fn tens(chunks: u32) -> Fixture {
    let mut fixture = fixture(chunks);
    fixture.writer.limit_packets(10);
    fixture
}

fn sharer(fixture: &mut Fixture) -> (ReaderId, Reader) {
    fixture.reader(ReaderOptions {
        credit: Some(u32::MAX),
        chunk_share: Some(7),
        ..ReaderOptions::default()
    })
}

/// Writes ten packets to a chunk, and lets the distributor see each.
fn fill(fixture: &mut Fixture, chunks: u64) {
    for _ in 0..chunks {
        fixture.write(10);
        fixture.distributor.step().unwrap();
    }
}

#[test]
fn the_owner_gets_everything_and_nobody_misses_it() {
    let mut fixture = tens(20);
    let (owner, mut one) = sharer(&mut fixture);
    let (other, mut idle) = sharer(&mut fixture);
    fill(&mut fixture, 5);
    assert_eq!((drain(&mut one), drain(&mut idle)), ((50, 0), (0, 0)));
    fill(&mut fixture, 1);
    for (reader, sequences) in [(owner, 0), (other, 50)] {
        let missed = fixture.distributor.missed(reader, LaneId(0));
        assert_eq!((missed.sequences, missed.packets), (sequences, 0));
        assert_eq!(missed.other_members, sequences);
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
    let mut fixture = tens(20);
    fixture.distributor = fixture.distributor.with_scheduler(Arc::new(Stranger));
    let (_, mut one) = sharer(&mut fixture);
    let (_, mut other) = sharer(&mut fixture);
    fill(&mut fixture, 5);
    assert_eq!((drain(&mut one), drain(&mut other)), ((50, 0), (0, 0)));
}

#[test]
fn the_open_chunk_of_a_reader_that_leaves_goes_to_another() {
    let mut fixture = tens(8);
    let (owner, one) = sharer(&mut fixture);
    let (heir, mut other) = sharer(&mut fixture);
    fixture.write(3);
    fixture.distributor.step().unwrap();
    drop(one);
    fixture.distributor.remove_reader(owner);
    fixture.write(4);
    assert_eq!(drain(&mut other), (4, 0), "from where the first one left");
    let missed = fixture.distributor.missed(heir, LaneId(0));
    assert_eq!(
        (missed.sequences, missed.packets),
        (3, 0),
        "that was the other's"
    );
    fill(&mut fixture, 3);
    assert_eq!(drain(&mut other), (30, 0));
    fixture.distributor.remove_reader(heir);
    fill(&mut fixture, 8);
    assert_eq!(
        fixture.writer.counters().pool_full(),
        0,
        "nobody holds anything"
    );
}

#[test]
fn a_reader_that_comes_late_gets_no_packet_twice() {
    let mut fixture = tens(8);
    let (_, mut one) = sharer(&mut fixture);
    fixture.write(3);
    fixture.distributor.step().unwrap();
    let (_, mut late) = sharer(&mut fixture);
    fixture.write(2);
    assert_eq!((drain(&mut one), drain(&mut late)), ((5, 0), (0, 0)));
}

#[test]
fn a_blocking_share_waits_for_the_one_whose_turn_it_is() {
    let mut fixture = tens(8);
    let options = || ReaderOptions {
        credit: Some(2),
        policy: Policy::Block,
        chunk_share: Some(0),
        ..ReaderOptions::default()
    };
    let (_, mut one) = fixture.reader(options());
    let (_, mut idle) = fixture.reader(options());
    fill(&mut fixture, 5);
    assert!(
        !fixture.distributor.is_drained(),
        "the owner has its two chunks"
    );
    let mut read = 0;
    for _ in 0..5 {
        read += drain(&mut one).0;
        fixture.distributor.step().unwrap();
    }
    assert_eq!((read, drain(&mut idle)), (50, (0, 0)));
}
