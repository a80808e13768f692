// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery, credit and recycling with hand-made traffic.

use super::*;
use crate::number::to_u64;
use crate::reader::NextBatch;
use crate::source;
use crate::wake::NoSignal;
use crate::writer::{LaneWriter, PacketMeta};

pub(super) struct Fixture {
    pub(super) writer: LaneWriter,
    pub(super) distributor: Distributor,
}

/// One lane with this many chunks of 4096 bytes; ten packets of 300 bytes fill a chunk.
pub(super) fn fixture(chunks: u32) -> Fixture {
    fixture_with(chunks, Arc::new(NoSignal))
}

/// Like [`fixture`], with a signal for the driver.
pub(super) fn fixture_with(chunks: u32, signal: Arc<dyn Signal>) -> Fixture {
    let geometry = Geometry::contiguous(4096, chunks + 1, 1, 65_535).unwrap();
    let pool = Pool::on_heap(geometry);
    let ids = source::share(&geometry, LaneId(0));
    // SAFETY: on the heap, and this is its only lane.
    let (writer, ends) = unsafe { source::lane(&pool, LaneId(0), ids, Arc::clone(&signal)) };
    Fixture {
        writer,
        distributor: Distributor::new(pool, vec![ends], signal),
    }
}

impl Fixture {
    /// Guarantees shares to this many readers.
    fn guaranteed(mut self, readers: u32) -> Self {
        self.distributor = self.distributor.with_guaranteed_readers(readers);
        self
    }

    pub(super) fn write(&mut self, packets: u64) {
        for time_ns in 0..packets {
            let meta = PacketMeta {
                time_ns,
                wire_length: 300,
                ..PacketMeta::default()
            };
            let _counted = self.writer.write(&meta, [&[7; 300]]);
        }
    }

    pub(super) fn reader(&mut self, options: ReaderOptions) -> (ReaderId, Reader) {
        self.distributor.add_reader(&options).unwrap()
    }
}

/// Reads everything; returns the numbers of packets and of packets missing in gaps.
pub(super) fn drain(reader: &mut Reader) -> (u64, u64) {
    let (mut read, mut missing) = (0, 0);
    while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
        missing += batch.gap.map_or(0, |gap| gap.packets);
        read += u64::try_from(batch.packets().map(Result::unwrap).count()).unwrap();
    }
    (read, missing)
}

#[test]
fn packets_of_an_open_chunk_are_read_at_once() {
    let mut fixture = fixture(4);
    let (_, mut reader) = fixture.reader(ReaderOptions::default());
    fixture.write(1);
    fixture.distributor.step().unwrap();
    assert_eq!(drain(&mut reader), (1, 0));
    fixture.write(1);
    assert_eq!(
        drain(&mut reader),
        (1, 0),
        "no step is needed within a chunk"
    );
}

#[test]
fn a_chunk_comes_back_when_every_reader_moved_past_it() {
    let mut fixture = fixture(4);
    let (_, mut first) = fixture.reader(ReaderOptions::default());
    let (_, mut second) = fixture.reader(ReaderOptions::default());
    fixture.write(15);
    fixture.distributor.step().unwrap();
    assert_eq!(fixture.distributor.chunks_in_use(LaneId(0)), 2);
    drain(&mut first);
    fixture.distributor.step().unwrap();
    assert_eq!(fixture.distributor.chunks_in_use(LaneId(0)), 2);
    drain(&mut second);
    fixture.distributor.step().unwrap();
    assert_eq!(
        fixture.distributor.chunks_in_use(LaneId(0)),
        1,
        "the open one"
    );
}

#[test]
fn a_backlog_is_that_of_readers_that_must_lose_nothing() {
    let mut fixture = fixture(8).guaranteed(2);
    let (_, _other) = fixture.reader(ReaderOptions::default());
    fixture.write(25);
    fixture.distributor.step().unwrap();
    assert_eq!(fixture.distributor.backlog(LaneId(0)), 3, "all in use");
    let policy = Policy::Block;
    let (id, mut reader) = fixture.reader(ReaderOptions {
        policy,
        ..ReaderOptions::default()
    });
    assert_eq!(fixture.distributor.backlog(LaneId(0)), 1);
    // More than the lane has: the reader may hold every chunk, and loses nothing of what was written.
    fixture.write(200);
    fixture.distributor.step().unwrap();
    fixture.writer.close();
    fixture.distributor.step().unwrap();
    let backlog = fixture.distributor.backlog(LaneId(0));
    assert!(backlog >= 5, "{backlog}");
    assert_eq!(drain(&mut reader).1, 0);
    assert_eq!(fixture.distributor.missed(id, LaneId(0)).packets, 0);
}

#[test]
fn a_overrun_loses_alone_and_to_the_packet() {
    let mut fixture = fixture(8);
    let (slow, mut overrun) = fixture.reader(ReaderOptions {
        credit: Some(2),
        ..Default::default()
    });
    let (fast, mut fast_reader) = fixture.reader(ReaderOptions::default());
    let mut fast_read = 0;
    for _ in 0..100 {
        fixture.write(10);
        fixture.distributor.step().unwrap();
        fast_read += drain(&mut fast_reader).0;
    }
    fixture.writer.close();
    fixture.distributor.step().unwrap();
    fixture.distributor.finish();
    fast_read += drain(&mut fast_reader).0;
    assert_eq!(fast_read, 1000);
    assert_eq!(fixture.distributor.missed(fast, LaneId(0)).packets, 0);
    let lost = fixture.distributor.missed(slow, LaneId(0)).packets;
    let (read, _) = drain(&mut overrun);
    assert_eq!(read + lost, 1000);
    assert!(lost > 900, "two chunks of ten at most: {read} read");
}

#[test]
fn losses_because_the_driver_came_late_are_told_from_those_of_a_slow_reader() {
    let credit = ReaderOptions {
        credit: Some(2),
        ..Default::default()
    };
    // Steps come in time; the reader reads nothing.
    let mut bench_in_time = fixture(16);
    let (slow, _kept) = bench_in_time.reader(credit);
    for _ in 0..10 {
        bench_in_time.write(12);
        assert_eq!(bench_in_time.distributor.waits_since_ns(), Some(0));
        bench_in_time.distributor.step().unwrap();
        assert_eq!(bench_in_time.distributor.waits_since_ns(), None);
    }
    let missed = bench_in_time.distributor.missed(slow, LaneId(0));
    assert!(missed.packets > 0 && missed.in_bursts == 0, "{missed:?}");
    // The reader reads everything; each step comes after seven chunks.
    let mut late = fixture(16);
    let (prompt, mut reader) = late.reader(credit);
    for _ in 0..5 {
        late.write(7 * 12);
        late.distributor.step().unwrap();
        drain(&mut reader);
    }
    let missed = late.distributor.missed(prompt, LaneId(0));
    assert!(
        missed.packets > 0 && missed.in_bursts == missed.packets,
        "{missed:?}"
    );
}

#[test]
fn a_reader_with_credit_again_gets_the_rest_of_the_open_chunk() {
    let mut fixture = fixture(8);
    let (id, mut reader) = fixture.reader(ReaderOptions {
        credit: Some(1),
        ..Default::default()
    });
    let per_chunk = 12;
    fixture.write(per_chunk + 3);
    fixture.distributor.step().unwrap();
    let (read, _) = drain(&mut reader);
    fixture.distributor.step().unwrap();
    fixture.write(2);
    let (rest, missing) = drain(&mut reader);
    assert_eq!(read + rest + missing, per_chunk + 5);
    assert_eq!(rest, 2);
    assert_eq!(fixture.distributor.missed(id, LaneId(0)).packets, missing);
}

#[test]
fn a_late_reader_begins_with_the_next_packet() {
    let mut fixture = fixture(8);
    fixture.write(3);
    fixture.distributor.step().unwrap();
    let (_, mut reader) = fixture.reader(ReaderOptions::default());
    fixture.write(2);
    fixture.distributor.step().unwrap();
    assert_eq!(drain(&mut reader), (2, 0));
}

#[test]
fn a_reader_that_leaves_gives_back_everything() {
    let mut fixture = fixture(8);
    let (id, reader) = fixture.reader(ReaderOptions::default());
    fixture.write(60);
    fixture.distributor.step().unwrap();
    drop(reader);
    fixture.distributor.remove_reader(id);
    assert_eq!(
        fixture.distributor.chunks_in_use(LaneId(0)),
        1,
        "the open one"
    );
}

#[test]
fn with_nobody_reading_chunks_go_round() {
    let mut fixture = fixture(3);
    for _ in 0..50 {
        fixture.write(10);
        fixture.distributor.step().unwrap();
    }
    assert_eq!(fixture.writer.counters().pool_full(), 0);
}

#[test]
fn a_full_pool_is_counted_and_found_again() {
    let mut fixture = fixture(3);
    let (_, mut reader) = fixture.reader(ReaderOptions {
        policy: Policy::Block,
        ..Default::default()
    });
    fixture.write(100);
    let counters = fixture.writer.counters();
    assert_eq!(counters.captured() + counters.pool_full(), 100);
    assert!(counters.pool_full() > 0);
    fixture.distributor.step().unwrap();
    drain(&mut reader);
    fixture.distributor.step().unwrap();
    let before = counters.pool_full();
    fixture.write(5);
    assert_eq!(counters.pool_full(), before);
}

#[test]
fn the_end_comes_after_the_last_packet() {
    let mut fixture = fixture(4);
    let (_, mut reader) = fixture.reader(ReaderOptions::default());
    fixture.write(3);
    fixture.writer.close();
    fixture.distributor.step().unwrap();
    fixture.distributor.finish();
    assert_eq!(drain(&mut reader), (3, 0));
    assert!(matches!(reader.try_next(), Ok(NextBatch::Ended)));
}

/// Writes packets that belong to bits 1 and 2 in turn.
fn write_by_turns(fixture: &mut Fixture, packets: u64) {
    for sequence in 0..packets {
        let meta = PacketMeta {
            wire_length: 300,
            mask: 1 + sequence % 2,
            ..PacketMeta::default()
        };
        let _counted = fixture.writer.write(&meta, [&[7; 300]]);
    }
}

#[test]
fn a_reader_is_charged_only_for_packets_that_it_wanted() {
    let mut fixture = fixture(8);
    let options = ReaderOptions {
        credit: Some(1),
        mask: 2,
        ..ReaderOptions::default()
    };
    let (id, mut reader) = fixture.reader(options);
    for _ in 0..10 {
        write_by_turns(&mut fixture, 10);
        fixture.distributor.step().unwrap();
    }
    let held = drain(&mut reader).0;
    fixture.distributor.step().unwrap();
    write_by_turns(&mut fixture, 1);
    fixture.distributor.step().unwrap();
    let NextBatch::Batch(batch) = reader.try_next().unwrap() else {
        panic!("the open chunk was leased again")
    };
    let gap = batch.gap.unwrap();
    assert_eq!(gap.first_sequence, held);
    assert_eq!(gap.packets, gap.sequences / 2, "every other one is ours");
    let missed = fixture.distributor.missed(id, LaneId(0));
    assert_eq!(
        (missed.sequences, missed.packets),
        (gap.sequences, gap.packets)
    );
}

#[test]
fn packets_for_other_members_are_told_from_losses_and_from_filtered_packets() {
    let (mine, other, group) = (1, 2, 4);
    let mut fixture = fixture(8);
    let options = ReaderOptions {
        credit: Some(1),
        mask: mine,
        group,
        ..ReaderOptions::default()
    };
    let (id, mut reader) = fixture.reader(options);
    let masks = [mine | group, other | group, 8, other | group];
    let mut cycle = masks.into_iter().cycle();
    let mut write = |fixture: &mut Fixture, packets: usize| {
        for mask in cycle.by_ref().take(packets) {
            let meta = PacketMeta {
                mask,
                ..PacketMeta::default()
            };
            fixture.writer.write(&meta, [&[7; 300]]).unwrap();
        }
    };
    for _ in 0..10 {
        write(&mut fixture, 10);
        fixture.distributor.step().unwrap();
    }
    let _held = drain(&mut reader);
    fixture.distributor.step().unwrap();
    write(&mut fixture, 1);
    fixture.distributor.step().unwrap();
    let NextBatch::Batch(batch) = reader.try_next().unwrap() else {
        panic!("the open chunk was leased again")
    };
    let gap = batch.gap.unwrap();
    let sequences = gap.first_sequence..gap.first_sequence + gap.sequences;
    let count = |bits: u64| {
        let mask = |sequence: &u64| masks[usize::try_from(sequence % 4).unwrap()];
        to_u64(sequences.clone().filter(|at| mask(at) & bits != 0).count())
    };
    assert!(gap.sequences > 60, "{gap:?}");
    assert_eq!(
        (gap.packets, gap.other_members),
        (count(mine), count(other))
    );
    let missed = fixture.distributor.missed(id, LaneId(0));
    let reported = Missing {
        sequences: gap.sequences,
        packets: gap.packets,
        other_members: gap.other_members,
        ..missed
    };
    assert_eq!(missed, reported);
}

#[test]
fn slow_readers_together_cannot_starve_a_fast_one() {
    // Each round fills a chunk: both stopped readers hold their maximum well before the end.
    let (chunks, rounds) = if cfg!(miri) { (16, 50) } else { (64, 500) };
    let mut fixture = fixture(chunks).guaranteed(3);
    let mut lost = 0;
    let (_, _asleep) = fixture.reader(ReaderOptions::default());
    let (_, mut stops_later) = fixture.reader(ReaderOptions::default());
    let (fast, mut fast_reader) = fixture.reader(ReaderOptions::default());
    for round in 0..rounds {
        fixture.write(10);
        lost += u64::from(
            fixture.distributor.chunks_in_use(LaneId(0))
                == fixture.distributor.chunks_of(LaneId(0)),
        );
        fixture.distributor.step().unwrap();
        drain(&mut fast_reader);
        if round < rounds / 2 {
            drain(&mut stops_later);
        }
    }
    assert_eq!(
        fixture.distributor.missed(fast, LaneId(0)),
        Missing::default()
    );
    assert_eq!(lost, 0, "there was always a free chunk");
}

/// Sum of the shared chunks that stopped readers hold, one after the other.
fn stopped_one_after_the_other(readers: u32) -> Vec<u32> {
    let mut fixture = fixture(520).guaranteed(4);
    let all: Vec<_> = (0..readers)
        .map(|_| fixture.reader(ReaderOptions::default()))
        .collect();
    let mut held = Vec::new();
    let mut running = all;
    while !running.is_empty() {
        let (id, _stopped) = running.remove(0);
        for _ in 0..600 {
            fixture.write(12);
            fixture.distributor.step().unwrap();
            for (_, reader) in &mut running {
                drain(reader);
            }
        }
        held.push(fixture.distributor.held(id, LaneId(0)));
    }
    held
}

#[test]
#[cfg_attr(miri, ignore = "too many packets for an interpreter")]
fn each_reader_that_stops_leaves_every_other_its_guarantee() {
    // T = 520 - 64 = 456: 228 shared, and a guarantee of 456 * 3 / 8 / 4 = 42 for each of four.
    let held = stopped_one_after_the_other(6);
    assert_eq!(held[0], 42 + 183, "four fifths of the shared half");
    assert!(held[..4].iter().all(|held| *held >= 42), "{held:?}");
    assert!(held[4..].iter().all(|held| *held >= 2), "{held:?}");
    assert!(held.iter().sum::<u32>() <= 456, "{held:?}");
}

#[test]
fn a_guarantee_goes_to_the_next_reader_when_a_reader_leaves() {
    let mut fixture = fixture(64).guaranteed(2);
    let readers: Vec<_> = (0..8)
        .map(|_| fixture.reader(ReaderOptions::default()))
        .collect();
    let guarantees = |fixture: &Fixture| -> Vec<u32> {
        let of = |(id, _): &(ReaderId, Reader)| fixture.distributor.guarantee(*id, LaneId(0));
        readers.iter().map(of).collect()
    };
    // Of T = 56 chunks, 28 are for guarantees: 10 for each of two readers, 2 for each other one.
    assert_eq!(guarantees(&fixture), [10, 10, 2, 2, 2, 2, 0, 0]);
    fixture.distributor.remove_reader(readers[0].0);
    assert_eq!(guarantees(&fixture), [0, 10, 10, 2, 2, 2, 2, 0]);
}

#[test]
fn a_strained_reader_gets_a_sample_of_chunks() {
    let mut fixture = fixture(64);
    let (id, mut reader) = fixture.reader(ReaderOptions {
        credit: Some(8),
        policy: Policy::Sample { one_in: 4 },
        ..ReaderOptions::default()
    });
    fixture.write(4 * 12);
    fixture.distributor.step().unwrap();
    assert_eq!(fixture.distributor.missed(id, LaneId(0)).packets, 0);
    fixture.write(8 * 12);
    fixture.distributor.step().unwrap();
    assert_eq!(
        fixture.distributor.held(id, LaneId(0)),
        6,
        "two of the next eight"
    );
    fixture.writer.close();
    fixture.distributor.step().unwrap();
    fixture.distributor.finish();
    let (read, _) = drain(&mut reader);
    assert_eq!(
        read + fixture.distributor.missed(id, LaneId(0)).packets,
        12 * 12
    );
}

#[test]
fn a_strained_reader_gets_the_beginning_of_packets() {
    let mut fixture = fixture(64);
    let (_, mut reader) = fixture.reader(ReaderOptions {
        credit: Some(4),
        policy: Policy::Cut { snap_bytes: 100 },
        ..ReaderOptions::default()
    });
    fixture.write(4 * 12);
    fixture.distributor.step().unwrap();
    let mut lengths = Vec::new();
    while let NextBatch::Batch(batch) = reader.try_next().unwrap() {
        lengths.extend(batch.packets().map(|packet| packet.unwrap().data.len()));
    }
    assert_eq!(lengths, [[300; 24], [100; 24]].concat());
}

#[test]
fn more_readers_than_bits_in_a_word_each_get_everything() {
    let mut fixture = fixture(8);
    let mut readers: Vec<_> = (0..100)
        .map(|_| fixture.reader(ReaderOptions::default()))
        .collect();
    fixture.write(25);
    fixture.distributor.step().unwrap();
    for (_, reader) in &mut readers {
        assert_eq!(drain(reader), (25, 0));
    }
    fixture.distributor.remove_reader(readers[65].0);
    drop(readers);
}

#[test]
fn a_reader_cannot_begin_where_nothing_can_be_read() {
    let mut fixture = fixture(8);
    fixture.write(15);
    fixture.distributor.step().unwrap();
    let geometry = *fixture.distributor.geometry();
    let mut begin = |start| {
        let memory = Region::on_heap(control::control_bytes(&geometry));
        fixture
            .distributor
            .add_reader_at(&ReaderOptions::default(), &memory, &[start])
    };
    assert!(begin(9).is_err(), "that chunk is sealed");
    assert!(begin(16).is_err(), "that packet is not there");
    assert!(begin(12).is_ok());
}
