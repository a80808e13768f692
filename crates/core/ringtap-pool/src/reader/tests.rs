// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches that are kept and released late, in any order.

use std::sync::Arc;

use super::*;
use crate::distributor::{Distributor, ReaderOptions};
use crate::format::{self, Geometry};
use crate::ids::{LaneId, ReaderId};
use crate::source;
use crate::view::Pool;
use crate::wake::NoSignal;
use crate::writer::{LaneWriter, PacketMeta};

struct Fixture {
    writers: Vec<LaneWriter>,
    distributor: Distributor,
    id: ReaderId,
    reader: Reader,
}

fn fixture() -> Fixture {
    let geometry = Geometry::contiguous(4096, 24, 2, 1500).unwrap();
    let pool = Pool::on_heap(geometry);
    let lane = |lane| {
        let chunks = source::share(&geometry, lane);
        // SAFETY: on the heap, and each lane has chunks of its own.
        unsafe { source::lane(&pool, lane, chunks, Arc::new(NoSignal)) }
    };
    let (writers, ends) = [LaneId(0), LaneId(1)].map(lane).into_iter().unzip();
    let mut distributor = Distributor::new(pool, ends, Arc::new(NoSignal));
    let (id, reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
    Fixture {
        writers,
        distributor,
        id,
        reader,
    }
}

impl Fixture {
    fn write(&mut self, lane: usize, count: u8) {
        for fill in 0..count {
            let bytes = [fill; 1000];
            let meta = PacketMeta::default();
            self.writers[lane].write(&meta, [&bytes]).unwrap();
        }
        self.distributor.step().unwrap();
    }

    fn batch(&mut self) -> Option<ChunkBatch> {
        match self.reader.try_next().unwrap() {
            NextBatch::Batch(batch) => Some(batch),
            NextBatch::Empty | NextBatch::Ended => None,
        }
    }

    /// Chunks that the writers and the reader hold.
    fn in_use(&mut self) -> u32 {
        // Moves past chunks that are read to their end.
        assert!(self.batch().is_none());
        self.distributor.step().unwrap();
        let lanes = [LaneId(0), LaneId(1)];
        lanes
            .map(|lane| self.distributor.chunks_in_use(lane))
            .iter()
            .sum()
    }
}

fn place(batch: &ChunkBatch) -> (u32, u64, usize) {
    (batch.lane.0, batch.first_sequence, batch.len())
}

/// First bytes of all packets.
fn fills(batch: &ChunkBatch) -> Vec<u8> {
    batch
        .packets()
        .map(|packet| packet.unwrap().data[0])
        .collect()
}

#[test]
fn a_packet_by_its_index_and_its_slot_are_those_of_the_iterator() {
    let mut fixture = fixture();
    fixture.write(0, 2);
    let first = fixture.batch().unwrap();
    fixture.write(0, 1);
    let rest = fixture.batch().unwrap();
    for (batch, length) in [(first, 2), (rest, 1)] {
        assert_eq!(batch.slots().len(), length * format::SLOT_SIZE);
        let slots = batch.slots().chunks(format::SLOT_SIZE);
        for (index, (packet, slot)) in batch.packets().zip(slots).enumerate() {
            let packet = packet.unwrap();
            let found = batch.packet(index).unwrap();
            assert_eq!(found.data.as_ptr(), packet.data.as_ptr());
            assert_eq!((found.data, found.sequence), (packet.data, packet.sequence));
            let words = slot
                .as_chunks()
                .0
                .iter()
                .map(|word| u64::from_ne_bytes(*word));
            let words: Vec<_> = words.collect();
            assert_eq!(words, packet.slot().to_words());
        }
        assert!(batch.packet(length).is_none() && batch.packet(usize::MAX).is_none());
    }
}

#[test]
fn an_empty_packet_opens_the_largest_chunk() {
    let geometry = Geometry::contiguous(format::MAX_CHUNK_SIZE, 3, 1, 65_535).unwrap();
    let pool = Pool::on_heap(geometry);
    let chunks = source::share(&geometry, LaneId(0));
    // SAFETY: on the heap, and the only lane.
    let (mut writer, ends) = unsafe { source::lane(&pool, LaneId(0), chunks, Arc::new(NoSignal)) };
    let mut distributor = Distributor::new(pool, vec![ends], Arc::new(NoSignal));
    let (_, mut reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
    for bytes in [&[][..], &[7; 9]] {
        writer.write(&PacketMeta::default(), [bytes]).unwrap();
    }
    distributor.step().unwrap();
    let NextBatch::Batch(batch) = reader.try_next().unwrap() else {
        panic!("two packets wait");
    };
    let lengths = batch.packets().map(|packet| packet.unwrap().data.len());
    assert_eq!(lengths.collect::<Vec<_>>(), [0, 9]);
}

#[test]
fn lanes_take_turns() {
    let mut fixture = fixture();
    for lane in [0, 1, 0] {
        fixture.write(lane, 1);
    }
    let batches = [(); 3].map(|()| fixture.batch().as_ref().map(place));
    assert_eq!(batches, [Some((0, 0, 2)), Some((1, 0, 1)), None]);
}

#[test]
fn kept_batches_go_back_in_any_order_and_each_chunk_once() {
    let mut fixture = fixture();
    // Three packets of this size fill a chunk.
    fixture.write(0, 7);
    let (first, second) = (fixture.batch().unwrap(), fixture.batch().unwrap());
    assert_eq!((place(&first), place(&second)), ((0, 0, 3), (0, 3, 3)));
    assert!(fixture.batch().is_some(), "the open chunk");
    assert_eq!(fixture.in_use(), 3);
    drop(second);
    assert_eq!(fixture.in_use(), 2);
    assert_eq!(fills(&first), [0, 1, 2], "a kept batch stays readable");
    drop(first);
    assert_eq!(fixture.in_use(), 1, "only the open chunk is left");
    // A chunk returned twice would be refused as not leased, or be filled twice.
    for _ in 0..8 {
        fixture.write(0, 3);
        let batches: Vec<_> = std::iter::from_fn(|| fixture.batch()).collect();
        assert_eq!(batches.iter().map(ChunkBatch::len).sum::<usize>(), 3);
    }
}

#[test]
fn batches_of_one_chunk_hold_it_together() {
    let mut fixture = fixture();
    fixture.write(0, 1);
    let first = fixture.batch().unwrap();
    fixture.write(0, 3);
    let rest = fixture.batch().unwrap();
    assert_eq!((place(&first), place(&rest)), ((0, 0, 1), (0, 1, 2)));
    drop(fixture.batch());
    drop(first);
    assert_eq!(fixture.in_use(), 2);
    drop(rest);
    assert_eq!(fixture.in_use(), 1);
}

#[test]
fn a_batch_outlives_its_reader_and_may_change_threads() {
    let mut fixture = fixture();
    fixture.write(1, 4);
    let batch = fixture.batch().unwrap();
    let Fixture {
        mut distributor,
        reader,
        ..
    } = fixture;
    drop(reader);
    distributor.step().unwrap();
    assert_eq!(distributor.chunks_in_use(LaneId(1)), 2);
    let read = std::thread::spawn(move || fills(&batch)).join().unwrap();
    assert_eq!(read, [0, 1, 2]);
    distributor.step().unwrap();
    assert_eq!(distributor.chunks_in_use(LaneId(1)), 1);
}

#[test]
fn kept_batches_count_against_the_credit_and_lose_nothing_that_was_taken() {
    let mut fixture = fixture();
    let mut kept = Vec::new();
    for _ in 0..20 {
        fixture.write(0, 3);
        kept.extend(fixture.batch());
    }
    let taken: usize = kept.iter().map(ChunkBatch::len).sum();
    let missed = fixture.distributor.missed(fixture.id, LaneId(0)).packets;
    assert!(
        missed > 0,
        "a reader that keeps all batches is past its credit"
    );
    kept.clear();
    fixture.write(0, 3);
    let after: Vec<_> = std::iter::from_fn(|| fixture.batch()).collect();
    let gaps = after
        .iter()
        .filter_map(|batch| batch.gap)
        .map(|gap| gap.packets);
    let missed = fixture.distributor.missed(fixture.id, LaneId(0)).packets;
    assert_eq!(gaps.sum::<u64>(), missed);
    let taken = taken + after.iter().map(ChunkBatch::len).sum::<usize>();
    assert_eq!(crate::number::to_u64(taken) + missed, 63);
}

#[test]
fn each_reader_learns_once_of_a_capture_gap_even_if_it_misses_the_chunk_after_it() {
    let mut fixture = fixture();
    let gaps = |reader: &mut Reader| {
        let mut found = Vec::new();
        while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
            found.extend(batch.capture_gap.map(|gap| (batch.first_sequence, gap)));
        }
        found
    };
    let few = ReaderOptions {
        credit: Some(3),
        ..ReaderOptions::default()
    };
    // Keeps all it may hold, and so misses the chunk after the gap.
    let (_, mut slow) = fixture.distributor.add_reader(&few).unwrap();
    fixture.write(0, 4);
    let mut kept = Vec::new();
    for _ in 0..20 {
        if let NextBatch::Batch(batch) = slow.try_next().unwrap() {
            assert_eq!(batch.capture_gap, None);
            kept.push(batch);
        }
        assert_eq!(gaps(&mut fixture.reader), []);
        fixture.write(0, 3);
    }
    assert_eq!(gaps(&mut fixture.reader), []);
    // Two gaps with no packet between them are one.
    fixture.writers[0].capture_gap(5, 1_000);
    fixture.writers[0].capture_gap(0, 200);
    let gap = CaptureGap {
        sequence: 64,
        duration_ns: 1_200,
        after: 5,
    };
    for _ in 0..3 {
        fixture.write(0, 3);
    }
    assert_eq!(gaps(&mut fixture.reader), [(64, gap)]);
    let (_, mut later) = fixture.distributor.add_reader(&few).unwrap();
    kept.clear();
    let before = gaps(&mut slow);
    fixture.write(0, 6);
    let learned = [before, gaps(&mut slow)].concat();
    assert!(
        matches!(learned[..], [(first, found)] if first > 64 && found == gap),
        "{learned:?}"
    );
    assert_eq!(gaps(&mut fixture.reader), []);
    assert_eq!(gaps(&mut later), []);
}

#[test]
fn a_batch_names_all_readers_that_want_one_of_its_packets() {
    let mut fixture = fixture();
    for mask in [2, 8] {
        let meta = PacketMeta {
            mask,
            ..PacketMeta::default()
        };
        fixture.writers[0].write(&meta, [&[0; 60]]).unwrap();
    }
    fixture.distributor.step().unwrap();
    assert_eq!(fixture.batch().unwrap().wanted(), 10);
}
