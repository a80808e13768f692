// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time-stamp order over two lanes.

use std::sync::Arc;

use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::ReaderId;
use ringtap_pool::number::to_u64;
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

use super::*;

struct TwoLanes {
    writers: Vec<LaneWriter>,
    distributor: Distributor,
    id: ReaderId,
    reader: Reader,
}

fn two_lanes() -> TwoLanes {
    let geometry = Geometry::contiguous(4096, 21, 2, 1500).unwrap();
    let pool = Pool::on_heap(geometry);
    let lane = |lane| {
        let chunks = source::share(&geometry, lane);
        // SAFETY: on the heap, and each lane has chunks of its own.
        unsafe { source::lane(&pool, lane, chunks, Arc::new(NoSignal)) }
    };
    let (writers, ends) = [LaneId(0), LaneId(1)].map(lane).into_iter().unzip();
    let mut distributor = Distributor::new(pool, ends, Arc::new(NoSignal));
    let (id, reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
    TwoLanes {
        writers,
        distributor,
        id,
        reader,
    }
}

impl TwoLanes {
    fn write(&mut self, lane: usize, time_ns: u64) {
        let meta = PacketMeta {
            time_ns,
            wire_length: 60,
            ..PacketMeta::default()
        };
        self.writers[lane].write(&meta, [&[0; 60]]).unwrap();
    }

    fn take(&mut self, merge: &mut Merge) -> Vec<u64> {
        self.take_all(merge, false)
    }

    fn take_all(&mut self, merge: &mut Merge, is_leaving: bool) -> Vec<u64> {
        let mut taken = Vec::new();
        self.distributor.step().unwrap();
        let turn = |reader: &mut Reader, merge: &mut Merge| {
            merge.turn(std::iter::once(reader), is_leaving)
        };
        while let Turn::Of(_, lane, until) = turn(&mut self.reader, merge).unwrap() {
            let batch = self.reader.try_next_of(lane, until).unwrap().unwrap();
            let times: Vec<_> = batch.packets().map(|p| p.unwrap().slot().time_ns).collect();
            merge.gave(times.iter().copied());
            taken.extend(times);
        }
        taken
    }
}

#[test]
fn lanes_come_out_in_the_order_of_time() {
    let mut fixture = two_lanes();
    for (lane, time) in [(0, 1), (0, 4), (1, 2), (1, 3), (1, 9), (0, 9), (0, 10)] {
        fixture.write(lane, time);
    }
    let mut merge = Merge::new(Duration::ZERO);
    assert_eq!(fixture.take(&mut merge), [1, 2, 3, 4, 9, 9, 10]);
    let (packets, late) = (7, 0);
    assert_eq!(merge.order, Order { packets, late });
}

#[test]
fn a_packet_waits_for_its_window_and_what_comes_too_late_is_counted() {
    let mut fixture = two_lanes();
    let (now, hour) = (now_ns(), Duration::from_secs(3600));
    fixture.write(0, now - nanoseconds(hour));
    fixture.write(0, now);
    let mut merge = Merge::new(hour);
    let older = [now - nanoseconds(hour)];
    assert_eq!(
        fixture.take(&mut merge),
        older,
        "of the other one lane 1 may have an earlier one"
    );
    merge.window = Duration::ZERO;
    assert_eq!(fixture.take(&mut merge), [now]);
    fixture.write(1, now - 5);
    assert_eq!(fixture.take(&mut merge), [now - 5]);
    let (packets, late) = (3, 1);
    assert_eq!(merge.order, Order { packets, late });
}

#[test]
fn packets_of_a_file_or_of_virtual_time_wait_for_the_other_lane() {
    let mut fixture = two_lanes();
    let mut merge = Merge::new(Duration::from_secs(3600));
    fixture.write(0, 1);
    fixture.write(0, 3);
    assert!(fixture.take(&mut merge).is_empty(), "lane 1 may follow");
    fixture.write(1, 2);
    assert_eq!(fixture.take(&mut merge), [1, 2]);
    merge.window = Duration::from_millis(1);
    assert!(fixture.take(&mut merge).is_empty(), "lane 1 may follow");
    std::thread::sleep(merge.window);
    assert_eq!(fixture.take(&mut merge), [3], "it was waited for");
    assert_eq!(merge.order.late, 0);
}

#[test]
fn who_leaves_gets_what_waited_in_its_order() {
    let mut fixture = two_lanes();
    let now = now_ns();
    fixture.write(0, now + 1);
    fixture.write(0, now + 3);
    let mut merge = Merge::new(Duration::from_secs(3600));
    assert!(fixture.take(&mut merge).is_empty(), "lane 1 may follow");
    fixture.write(1, now + 2);
    assert_eq!(fixture.take(&mut merge), [now + 1, now + 2]);
    assert_eq!(fixture.take_all(&mut merge, true), [now + 3]);
    assert_eq!(merge.order.late, 0);
}

#[test]
fn the_horizon_ends_a_hold_before_the_window_does() {
    let mut fixture = two_lanes();
    let now = now_ns();
    fixture.reader.merge_by_time();
    fixture.write(0, now);
    fixture.write(0, now + 2);
    let mut merge = Merge::new(Duration::from_secs(3600));
    assert!(fixture.take(&mut merge).is_empty(), "lane 1 may follow");
    fixture.distributor.set_horizon(now + 1);
    assert_eq!(fixture.take(&mut merge), [now]);
    fixture.write(1, now + 3);
    assert_eq!(fixture.take(&mut merge), [now + 2]);
    assert_eq!(merge.order.late, 0);
}

#[test]
fn a_lane_that_is_not_delivered_yet_keeps_the_horizon_back() {
    let mut fixture = two_lanes();
    let now = now_ns();
    fixture.reader.merge_by_time();
    assert!(fixture.distributor.wants_horizon());
    fixture.write(0, now + 2);
    fixture.distributor.step().unwrap();
    // The hub has not seen this lane's first chunk.
    fixture.write(1, now + 1);
    fixture.distributor.set_horizon(now + 3);
    let mut merge = Merge::new(Duration::from_secs(3600));
    let turn = merge.turn(std::iter::once(&mut fixture.reader), false);
    assert!(matches!(turn.unwrap(), Turn::Hold(_)));
    assert_eq!(fixture.take(&mut merge), [now + 1]);
    fixture.distributor.set_horizon(now + 3);
    assert_eq!(fixture.take(&mut merge), [now + 2]);
    assert_eq!(merge.order.late, 0);
}

#[test]
fn a_clock_that_was_set_back_holds_no_packet() {
    let mut fixture = two_lanes();
    let tomorrow = now_ns() + nanoseconds(Duration::from_secs(86_400));
    fixture.write(0, tomorrow);
    let mut merge = Merge::new(Duration::from_secs(3600));
    assert_eq!(fixture.take(&mut merge), [tomorrow]);
}

#[test]
fn a_merge_holds_few_chunks() {
    let mut fixture = two_lanes();
    let now = now_ns();
    let mut merge = Merge::new(Duration::from_secs(3600));
    let (mut written, mut taken) = (0, 0);
    // The lane has 10 chunks; each holds 42 packets of this size.
    while written < 2_000 {
        fixture.write(0, now + written);
        written += 1;
        taken += to_u64(fixture.take(&mut merge).len());
    }
    let missed = fixture.distributor.missed(fixture.id, LaneId(0)).packets;
    assert_eq!(missed, 0, "holding costs no packet");
    assert!(taken > 0 && taken < written, "{taken} of {written}");
    assert_eq!(merge.order.late, 0);
}
