// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers wait for others, and give up waiting.

use super::super::tests::{Bench, bench, drain};
use super::*;
use crate::distributor::ReaderOptions;
use crate::reader::{Next, Reader};

const LANE: LaneId = LaneId(0);

fn plain(bench: &mut Bench) -> (ReaderId, Reader) {
    bench.reader(ReaderOptions::default())
}

/// Writes a chunk of ten packets, and lets the distributor see it.
fn fill(bench: &mut Bench, chunks: u64) {
    for _ in 0..chunks {
        bench.write(10);
        bench.distributor.step().unwrap();
    }
}

/// A lane of chunks of ten packets, and two readers, who have read three packets.
fn begun(chunks: u32) -> (Bench, (ReaderId, Reader), (ReaderId, Reader)) {
    let mut bench = bench(chunks);
    bench.writer.limit_packets(10);
    let (mut busy, mut idle) = (plain(&mut bench), plain(&mut bench));
    bench.write(3);
    bench.distributor.step().unwrap();
    assert_eq!((drain(&mut busy.1), drain(&mut idle.1)), ((3, 0), (3, 0)));
    (bench, busy, idle)
}

/// The same, and the second reader follows the first: it waits since the chunk that both were
/// reading, behind which so many more were filled.
fn following(chunks: u32, filled: u64) -> (Bench, (ReaderId, Reader), (ReaderId, Reader)) {
    let (mut bench, leader, follower) = begun(chunks);
    bench.distributor.hold_back(follower.0);
    bench.write(7);
    fill(&mut bench, filled);
    bench.distributor.follow(follower.0, leader.0);
    bench.distributor.step().unwrap();
    (bench, leader, follower)
}

#[test]
fn a_reader_that_is_held_back_keeps_what_it_has_and_gets_nothing_new() {
    let (mut bench, _busy, (id, mut idle)) = begun(20);
    bench.distributor.hold_back(id);
    assert!(
        !bench.distributor.is_held_back(id),
        "it reads the chunk that is filled"
    );
    bench.write(7);
    assert_eq!(drain(&mut idle), (7, 0));
    fill(&mut bench, 2);
    assert!(bench.distributor.is_held_back(id));
    assert_eq!(drain(&mut idle), (0, 0));
    assert_eq!(
        bench.distributor.held(id, LANE),
        3,
        "what waits for it counts"
    );
}

#[test]
fn it_goes_on_when_the_other_is_done_with_what_came_before_and_loses_nothing() {
    let (mut bench, (_, mut busy), (id, mut idle)) = following(20, 3);
    fill(&mut bench, 2);
    assert_eq!(drain(&mut idle), (7, 0), "the rest of what it had");
    // The fourth chunk is the last one that began before.
    for _ in 0..4 {
        assert!(matches!(busy.try_next(), Ok(Next::Batch(_))));
        bench.distributor.step().unwrap();
        assert_eq!(drain(&mut idle), (0, 0));
    }
    assert!(matches!(busy.try_next(), Ok(Next::Batch(_))));
    bench.distributor.step().unwrap();
    assert_eq!(drain(&mut idle), (50, 0));
    assert!(!bench.distributor.follows(id));
    assert_eq!(bench.distributor.take_unordered(id), 0);
    drain(&mut busy);
    bench.distributor.step().unwrap();
    assert_eq!(bench.distributor.chunks_in_use(LANE), 1, "the open one");
}

#[test]
fn past_its_credit_it_loses_and_order_is_kept() {
    let (mut bench, (_, mut busy), (id, mut idle)) = following(30, 2);
    bench.distributor.set_credit(id, 4);
    fill(&mut bench, 4);
    // It gives its first chunk back, and has the second to fourth, and the rest of the last.
    assert_eq!(drain(&mut idle), (7, 0));
    assert_eq!(drain(&mut busy), (67, 0));
    bench.distributor.step().unwrap();
    assert_eq!(drain(&mut idle).0, 30);
    fill(&mut bench, 1);
    assert_eq!(drain(&mut idle), (10, 30), "it is told what it lost");
    assert_eq!(bench.distributor.missed(id, LANE).packets, 30);
    assert_eq!(bench.distributor.take_unordered(id), 0);
    assert!(!bench.distributor.follows(id));
}

#[test]
fn it_waits_for_nobody_who_left() {
    let (mut bench, (leader, busy), (id, mut idle)) = following(20, 2);
    fill(&mut bench, 1);
    drop(busy);
    bench.distributor.remove_reader(leader);
    assert_eq!(drain(&mut idle), (37, 0));
    assert_eq!(
        (
            bench.distributor.follows(id),
            bench.distributor.take_unordered(id)
        ),
        (false, 0)
    );
    let (_, mut third) = plain(&mut bench);
    bench.distributor.hold_back(id);
    fill(&mut bench, 1);
    bench.distributor.follow(id, leader);
    fill(&mut bench, 1);
    drop(idle);
    bench.distributor.remove_reader(id);
    assert_eq!(
        drain(&mut third).0,
        20,
        "what waited for one who left is nobody's"
    );
}

#[test]
fn a_lane_without_traffic_is_not_waited_for_for_ever() {
    let (mut bench, (leader, mut busy), (id, mut idle)) = begun(20);
    bench.distributor.hold_back(id);
    bench.write(7);
    bench.write(3);
    bench.distributor.step().unwrap();
    bench.distributor.follow(id, leader);
    bench.distributor.step().unwrap();
    assert_eq!(drain(&mut idle), (7, 0));
    bench.distributor.let_go(id, HeldBack::OnQuietLanes);
    let waits = "the other has more than the open chunk";
    assert_eq!(drain(&mut idle), (0, 0), "{waits}");
    assert_eq!(drain(&mut busy), (10, 0));
    bench.distributor.step().unwrap();
    assert_eq!(drain(&mut idle), (0, 0), "who knows whether it is done");
    bench.distributor.let_go(id, HeldBack::OnQuietLanes);
    assert_eq!(drain(&mut idle), (3, 0));
    assert_eq!(bench.distributor.take_unordered(id), 1);
    assert!(!bench.distributor.follows(id));
}

#[test]
fn nothing_ends_while_somebody_waits() {
    let (mut bench, (_, mut busy), (_, mut idle)) = following(20, 2);
    assert!(!bench.distributor.is_drained());
    drop(bench.writer);
    while bench.distributor.step().unwrap() {}
    drain(&mut busy);
    while bench.distributor.step().unwrap() {}
    assert!(bench.distributor.is_drained());
    assert_eq!(drain(&mut idle), (27, 0));
}
