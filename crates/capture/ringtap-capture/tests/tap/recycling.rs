// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recycled chunks: the tap accepts only those that the lane filled, and only once.

use std::collections::BTreeSet;

use ringtap_device::ChunkOptions;
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::source::Source;
use ringtap_testkit::{Namespace, require_root, require_tool, with};

use crate::support::{attach, options, python, sending};

const CHUNKS: u32 = 12;

/// Chunks that a lane has opened since the last call.
fn opened(lane: &mut LaneEnds) -> Vec<u64> {
    std::iter::from_fn(|| lane.opened.pop().unwrap()).collect()
}

#[test]
fn a_chunk_comes_back_once_and_to_its_own_lane() {
    require_root!();
    require_tool!("ip", "python3", "taskset");
    let net = Namespace::with_veth("recycling");
    // Each packet opens a chunk, and seals the one before.
    let mut tap = attach(
        &net,
        &with(options("rx0"), |it| {
            it.on.pool.chunk_bytes = Some(4096);
            it.on.pool.chunks = ChunkOptions {
                per_lane: Some(CHUNKS),
                packets: Some(1),
            };
            it.on.snap_length = Some(100);
        }),
    );
    let mut lanes = tap.take_lanes();
    let is_alone = std::thread::available_parallelism().unwrap().get() < 2;
    python(&net, "0", &sending("tx0", 4));
    let first = opened(&mut lanes[0]);
    let mut wrong = vec![0, u64::MAX, u64::from(tap.pool().geometry().chunk_count)];
    if !is_alone {
        python(&net, "1", &sending("tx0", 2));
        wrong.push(opened(&mut lanes[1])[0]);
    }
    let used: BTreeSet<_> = first.iter().chain(&wrong).copied().collect();
    let never = (1..).find(|chunk| !used.contains(chunk)).unwrap();
    let [one, two, ..] = first[..] else {
        panic!("four packets open more than {first:?}");
    };
    // Taken over with the first packets, before both are opened and sealed again.
    wrong.splice(..0, [one, never]);
    let refused = u64::try_from(wrong.len()).unwrap();
    for number in [one].into_iter().chain(wrong).chain([two]) {
        lanes[0].recycle.push(number).unwrap();
    }
    python(&net, "0", &sending("tx0", CHUNKS + 10));
    assert_eq!(tap.refused(), refused);
    let second = opened(&mut lanes[0]);
    let distinct: BTreeSet<_> = second.iter().copied().collect();
    assert_eq!(
        distinct.len(),
        second.len(),
        "none was used twice: {second:?}"
    );
    let again: BTreeSet<_> = first
        .iter()
        .filter(|chunk| distinct.contains(chunk))
        .collect();
    assert_eq!(again, BTreeSet::from([&one, &two]), "{first:?}, {second:?}");
}
