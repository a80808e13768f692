// SPDX-License-Identifier: MIT OR Apache-2.0
//! The short way to packets beside the long one.

use std::sync::Arc;

use super::*;
use crate::distributor::{Distributor, ReaderOptions};
use crate::format::Geometry;
use crate::ids::LaneId;
use crate::reader::Next;
use crate::source;
use crate::view::Pool;
use crate::wake::NoSignal;
use crate::writer::{LaneWriter, PacketMeta};

struct Bench {
    writers: Vec<LaneWriter>,
    distributor: Distributor,
    reader: Reader,
}

fn bench() -> Bench {
    let geometry = Geometry::contiguous(4096, 9, 2, 1500).unwrap();
    let pool = Pool::on_heap(geometry);
    let lane = |lane| {
        let chunks = source::share(&geometry, lane);
        // SAFETY: on the heap, and each lane has chunks of its own.
        unsafe { source::lane(&pool, lane, chunks, Arc::new(NoSignal)) }
    };
    let (writers, ends) = [LaneId(0), LaneId(1)].map(lane).into_iter().unzip();
    let mut distributor = Distributor::new(pool, ends, Arc::new(NoSignal));
    let (_, reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
    Bench {
        writers,
        distributor,
        reader,
    }
}

impl Bench {
    fn write(&mut self, lane: usize) {
        let meta = PacketMeta::default();
        self.writers[lane].write(&meta, [&[0; 1000]]).unwrap();
    }

    /// Lane, first sequence and number of the packets that a glance takes.
    fn glance(&mut self) -> Option<(u32, u64, usize)> {
        let batch = self.reader.glance()?;
        Some((batch.lane().0, batch.first_sequence(), batch.len()))
    }

    fn next(&mut self) -> Option<(u32, u64, usize)> {
        match self.reader.next().unwrap() {
            Next::Batch(batch) => Some((batch.lane().0, batch.first_sequence(), batch.len())),
            Next::Empty | Next::Ended => None,
        }
    }
}

#[test]
fn a_glance_takes_what_came_into_the_chunk_that_is_read() {
    let mut bench = bench();
    bench.write(1);
    bench.distributor.step().unwrap();
    assert_eq!(bench.glance(), None, "what was delivered is sorted first");
    assert_eq!(bench.next(), Some((1, 0, 1)));
    assert_eq!(bench.glance(), None, "nothing came");
    bench.write(1);
    bench.write(1);
    assert_eq!(bench.glance(), Some((1, 1, 2)));
    assert_eq!((bench.glance(), bench.next()), (None, None));
}

#[test]
fn what_is_more_than_one_lanes_packets_is_left_to_next() {
    let mut bench = bench();
    [0, 1].into_iter().for_each(|lane| bench.write(lane));
    bench.distributor.step().unwrap();
    assert!(bench.next().is_some() && bench.next().is_some());
    [0, 1].into_iter().for_each(|lane| bench.write(lane));
    assert_eq!(bench.glance(), None, "whose turn it is, is not told here");
    assert_eq!(bench.next(), Some((0, 1, 1)));
    assert_eq!(bench.glance(), Some((1, 1, 1)));
    // Two more fit into the chunk, which then has to go back.
    (0..3).for_each(|_| bench.write(0));
    assert_eq!(bench.glance(), Some((0, 2, 1)));
    assert_eq!(bench.glance(), None, "a chunk was left behind");
    bench.distributor.step().unwrap();
    assert_eq!(bench.next(), Some((0, 3, 2)));
}
