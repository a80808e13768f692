// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chain of two distributors: what the last reader gets, and what it keeps.

use super::*;
use crate::control::control_bytes;
use crate::distributor::Policy;
use crate::format::Geometry;
use crate::number::to_u64;
use crate::reader::{ChunkBatch, NextBatch, Reader};
use crate::source;
use crate::writer::{LaneWriter, PacketMeta};

struct Chain {
    writer: LaneWriter,
    first: Distributor,
    middle: Reader,
    passed: PassedPool<ChunkBatch>,
    last: Reader,
}

/// A writer, its reader from packet 2 on, and a further reader.
fn chain() -> Chain {
    let geometry = Geometry::contiguous(4096, 10, 1, 1500).unwrap();
    let pool = Pool::on_heap(geometry);
    let chunks = source::share(&geometry, LaneId(0));
    // SAFETY: on the heap, and the only lane.
    let (mut writer, ends) = unsafe { source::lane(&pool, LaneId(0), chunks, Arc::new(NoSignal)) };
    let mut first = Distributor::new(pool.clone(), vec![ends], Arc::new(NoSignal));
    write(&mut writer, &mut first, 2);
    let (_, middle) = first.add_reader(&ReaderOptions::default()).unwrap();
    let control = Region::on_heap(control_bytes(&geometry));
    let passed = PassedPool::new(pool.clone(), &middle.starts(), &control).unwrap();
    let last = Reader::open(pool, &control, Policy::DropNewest, Arc::new(NoSignal)).unwrap();
    Chain {
        writer,
        first,
        middle,
        passed,
        last,
    }
}

/// Writes packets, of which three fill a chunk.
fn write(writer: &mut LaneWriter, first: &mut Distributor, packets: u8) {
    for fill in 0..packets {
        let _full = writer.write(&PacketMeta::default(), [&[fill; 1000]]);
        first.step().unwrap();
    }
}

impl Chain {
    fn write(&mut self, packets: u8) {
        write(&mut self.writer, &mut self.first, packets);
    }

    /// Passes everything on; returns the packets that the middle reader missed.
    fn pass(&mut self) -> u64 {
        let mut missed = 0;
        while let NextBatch::Batch(batch) = self.middle.try_next().unwrap() {
            let lost = batch.gap.map_or(0, |gap| gap.packets);
            self.passed
                .distributor
                .charge(self.passed.reader, LaneId(0), lost);
            missed += lost;
            let (chunk, number) = (batch.chunk(), batch.chunk_sequence());
            let first = batch.first_sequence;
            let passed = self.passed.pass(LaneId(0), (chunk, number), first, batch);
            passed.unwrap();
        }
        self.passed.step().unwrap();
        missed
    }

    /// Sequences of the packets that the last reader gets now, and those that it learns it missed.
    fn read(&mut self) -> (Vec<u64>, u64) {
        let (mut sequences, mut missed) = (Vec::new(), 0);
        while let NextBatch::Batch(batch) = self.last.try_next().unwrap() {
            missed += batch.gap.map_or(0, |gap| gap.packets);
            sequences.extend(batch.packets().map(|packet| packet.unwrap().sequence));
        }
        (sequences, missed)
    }
}

#[test]
fn a_further_reader_gets_every_packet_once_from_the_start_in_an_open_chunk_on() {
    let mut chain = chain();
    let mut expected = 2;
    for round in 0..40 {
        chain.write(round % 5 + 1);
        // The further reader sees packets of a passed chunk before the one in the middle does.
        let early = chain.read().0;
        assert_eq!(chain.pass(), 0);
        let sequences = [early, chain.read().0].concat();
        let count = u64::from(round % 5 + 1);
        assert_eq!(sequences, (expected..expected + count).collect::<Vec<_>>());
        expected += count;
        chain.pass();
        assert!(chain.passed.kept.len() <= 1 && !chain.passed.awaits_returns());
    }
}

#[test]
fn a_further_reader_that_returns_nothing_holds_the_credit_of_the_one_in_the_middle() {
    let mut chain = chain();
    let mut missed = 0;
    for _ in 0..30 {
        chain.write(3);
        missed += chain.pass();
    }
    assert!(chain.passed.awaits_returns());
    assert_eq!(
        chain.writer.counters().pool_full(),
        0,
        "the reserve is left"
    );
    // Then it reads all at once, and learns of what it missed.
    let mut read = Vec::new();
    let mut learned = 0;
    for _ in 0..30 {
        let (sequences, of_these) = chain.read();
        read.extend(sequences);
        learned += of_these;
        missed += chain.pass();
        chain.write(3);
        missed += chain.pass();
    }
    let (sequences, of_these) = chain.read();
    read.extend(sequences);
    learned += of_these;
    assert!(read.is_sorted() && missed > 0);
    assert_eq!(learned, missed);
    assert_eq!(to_u64(read.len()) + missed, 180);
    chain.passed.end();
    assert!(matches!(chain.last.try_next(), Ok(NextBatch::Ended)));
}

#[test]
fn a_further_reader_gets_no_packet_that_the_one_in_the_middle_missed() {
    let mut chain = chain();
    let mut missed = 0;
    for _ in 0..30 {
        chain.write(3);
        missed += chain.pass();
    }
    // Two of three packets of the chunk that is being filled are missed; returned chunks give the rest.
    let (mut read, mut learned) = chain.read();
    missed += chain.pass();
    chain.first.step().unwrap();
    chain.write(3);
    missed += chain.pass();
    let (sequences, of_these) = chain.read();
    read.extend(sequences);
    learned += of_these;
    assert!(missed % 3 != 0, "{missed}: a part of a chunk");
    assert_eq!(learned, missed);
    assert_eq!(to_u64(read.len()) + missed, 93);
    assert_eq!(read.last(), Some(&94));
}
