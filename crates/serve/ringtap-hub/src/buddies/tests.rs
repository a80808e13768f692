// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thresholds and counters of buddy groups.

use super::*;
use ringtap_pool::distributor::Candidate;
use ringtap_pool::ids::LaneId;

const GROUP: u32 = 7;

/// Reader that gets the next chunk of lane 0 with 20 chunks, when the readers hold these numbers.
fn chosen(groups: &BuddyGroups, held: &[u32]) -> u32 {
    with_next(held, |next| groups.choose(next).0)
}

fn with_next<T>(held: &[u32], then: impl FnOnce(&NextChunk<'_>) -> T) -> T {
    let candidate = |(reader, held): (u32, &u32)| Candidate {
        reader: ReaderId(reader),
        held: *held,
    };
    let candidates: Vec<_> = (0..).zip(held).map(candidate).collect();
    then(&NextChunk {
        share: GROUP,
        lane: LaneId(0),
        lane_chunks: 20,
        candidates: &candidates,
    })
}

#[test]
fn in_basic_mode_the_owner_gets_everything() {
    let groups = BuddyGroups::default();
    assert_eq!(chosen(&groups, &[20, 0]), 0);
    groups.set_threshold(GROUP, Some(20));
    groups.set_threshold(GROUP, None);
    assert_eq!(chosen(&groups, &[20, 0]), 0);
}

#[test]
fn above_the_threshold_the_least_busy_takes_over() {
    let groups = BuddyGroups::default();
    groups.set_threshold(GROUP, Some(20));
    // 20 % of 20 chunks are 4.
    assert_eq!(chosen(&groups, &[4, 0]), 0);
    assert_eq!(chosen(&groups, &[5, 3, 2]), 2);
    assert_eq!(chosen(&groups, &[5, 5, 6]), 0, "nobody is less busy");
}

#[test]
fn offloaded_chunks_and_their_packets_are_counted() {
    let groups = BuddyGroups::default();
    let (helper, chunk) = (ReaderId(1), ChunkId(3));
    with_next(&[5, 0], |next| {
        groups.opened(ChunkId(2), next, ReaderId(0));
        groups.opened(chunk, next, helper);
    });
    assert_eq!(groups.counts(GROUP).offloaded_packets, 0, "it is open");
    groups.sealed(ChunkId(2), 9);
    groups.sealed(chunk, 10);
    groups.sealed(chunk, 10);
    let counts = BuddyCounts {
        chunks: 2,
        offloaded_chunks: 1,
        offloaded_packets: 10,
        disordered_packets: 0,
    };
    assert_eq!(groups.counts(GROUP), counts);
    assert_eq!([0, 1].map(|id| groups.helped_chunks(ReaderId(id))), [0, 1]);
    groups.removed(helper);
    assert_eq!(groups.helped_chunks(helper), 0);
}
