// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chain of two distributors: what the last reader gets, and what it keeps.

use super::*;
use crate::distributor::{Distributor, Policy, ReaderOptions};
use crate::format::Geometry;
use crate::ids::{LaneId, ReaderId};
use crate::number::to_u64;
use crate::reader::{ChunkBatch, NextBatch, Reader, RecvError};
use crate::source;
use crate::wake::NoSignal;
use crate::writer::{LaneWriter, PacketMeta};

struct Chain {
    writer: LaneWriter,
    first: Distributor,
    middle: Reader,
    passed: PassedLane<ChunkBatch>,
    second: Distributor,
    last: Reader,
    id: ReaderId,
}

/// A writer, its reader, and a further reader.
fn chain() -> Chain {
    let geometry = Geometry::contiguous(4096, 40, 1, 1500).unwrap();
    let pool = Pool::on_heap(geometry);
    let chunks = source::share(&geometry, LaneId(0));
    // SAFETY: on the heap, and the only lane.
    let (writer, ends) = unsafe { source::lane(&pool, LaneId(0), chunks, Arc::new(NoSignal)) };
    let mut first = Distributor::new(pool.clone(), vec![ends], Arc::new(NoSignal));
    let all = ReaderOptions {
        credit: Some(u32::MAX),
        ..ReaderOptions::default()
    };
    let (_, middle) = first.add_reader(&all).unwrap();
    let (passed, ends) = PassedLane::new(pool.clone(), Arc::new(NoSignal));
    let mut second = Distributor::new(pool, vec![ends], Arc::new(NoSignal));
    let options = ReaderOptions {
        policy: Policy::DropNewest,
        ..ReaderOptions::default()
    };
    let (id, last) = second.add_reader(&options).unwrap();
    Chain {
        writer,
        first,
        middle,
        passed,
        second,
        last,
        id,
    }
}

impl Chain {
    /// Writes packets, of which three fill a chunk.
    fn write(&mut self, packets: u64) {
        for _ in 0..packets {
            let meta = PacketMeta {
                wire_length: 1000,
                ..PacketMeta::default()
            };
            let _full = self.writer.write(&meta, [&[7; 1000]]);
            self.first.step().unwrap();
        }
    }

    /// Passes everything on.
    fn pass(&mut self) {
        while let NextBatch::Batch(batch) = self.middle.try_next().unwrap() {
            self.passed.pass(batch.chunk(), batch);
        }
        while self.second.step().unwrap() {}
        self.passed.take_back().unwrap();
    }

    /// Number of packets that the last reader gets now.
    fn read(&mut self) -> u64 {
        let mut packets = 0;
        while let NextBatch::Batch(batch) = self.last.try_next().unwrap() {
            packets += to_u64(batch.packets().map(Result::unwrap).count());
        }
        packets
    }
}

#[test]
fn a_further_reader_gets_every_packet_once_and_its_chunks_come_back() {
    let mut chain = chain();
    let mut total = 0;
    for round in 0..40 {
        let count = round % 5 + 1;
        chain.write(count);
        // The further reader sees packets of a passed chunk before the one in the middle does.
        let early = chain.read();
        chain.pass();
        assert_eq!(early + chain.read(), count);
        chain.pass();
        total += count;
        let counts = chain.passed.counts();
        assert_eq!((counts.delivered, counts.bytes), (total, total * 1000));
        assert!(chain.passed.out().count() <= 1, "only the open chunk");
    }
    assert_eq!(chain.writer.counters().pool_full(), 0);
}

#[test]
fn a_further_reader_that_returns_nothing_leaves_the_reserve_to_others() {
    let mut chain = chain();
    for _ in 0..60 {
        chain.write(3);
        chain.pass();
    }
    assert_eq!(chain.writer.counters().pool_full(), 0);
    // Misses in a chunk are counted when it is full.
    chain.writer.close();
    chain.pass();
    let missed = chain.second.missed(chain.id, LaneId(0)).packets;
    assert!(missed > 0);
    assert_eq!(chain.read() + missed, 180);
}

#[test]
fn what_readers_still_have_stays_out_when_its_writer_has_ended() {
    let mut chain = chain();
    chain.write(2);
    chain.pass();
    let NextBatch::Batch(batch) = chain.last.try_next().unwrap() else {
        panic!("no packets")
    };
    chain.writer.close();
    chain.passed.writer_has_ended();
    assert_eq!(chain.passed.counts().delivered, 2);
    assert_eq!(chain.passed.out().collect::<Vec<_>>(), [batch.chunk()]);
    drop(batch);
    assert_eq!(chain.read(), 0);
    chain.pass();
    assert_eq!(chain.passed.out().count(), 0);
    assert_eq!(chain.passed.counts().delivered, 2);
}

#[test]
fn a_reader_finds_nothing_before_it_has_the_new_memory_and_ends_without_it() {
    let mut chain = chain();
    chain.write(1);
    chain.pass();
    chain.second.set_memory(1);
    assert_eq!(chain.read(), 0);
    assert!(!chain.second.is_memory_taken());
    assert_eq!(chain.last.new_memory(), Some(1));
    chain.last.has_mapped(1);
    assert!(chain.second.is_memory_taken());
    assert_eq!((chain.last.new_memory(), chain.read()), (None, 1));
    chain.second.set_memory(2);
    chain.second.lose_memory();
    assert!(chain.second.is_memory_taken());
    let lost = chain.last.try_next().err();
    assert_eq!(lost, Some(RecvError::MemoryLost));
}
