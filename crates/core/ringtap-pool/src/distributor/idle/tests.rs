// SPDX-License-Identifier: MIT OR Apache-2.0
//! What resting readers cost, and that they miss exactly what they do not get.

use std::sync::Arc;

use super::super::STEP_CHUNKS;
use super::super::resting::Seen;
use super::super::signs::Signs;
use super::super::tests::{Fixture, drain, fixture};
use super::*;
use crate::distributor::{Missing, ReaderOptions};
use crate::format::Geometry;
use crate::ids::{LaneId, ReaderId};
use crate::number::{to_u32, to_u64, to_usize};
use crate::reader::{NextBatch, Reader};
use crate::source;
use crate::view::Pool;
use crate::wake::NoSignal;
use crate::writer::{LaneWriter, PacketMeta};

/// Packets of a chunk.
const CHUNK: u64 = 10;

/// Work of the distributor.
#[derive(Clone, Copy, Debug)]
struct Work {
    lease_tries: u64,
    slots_read: u64,
    looks: u64,
}

impl Work {
    fn of(fixture: &Fixture) -> Self {
        Work {
            lease_tries: fixture.distributor.lease_tries,
            slots_read: fixture.distributor.slots.slots_read,
            looks: fixture.distributor.signs.looks,
        }
    }
}

/// Captures chunks; each packet has another mask. A reader that came first reads all; returns the work
/// for the later half of the chunks, without that of readers that come to rest.
fn work_with_idle(idle: u32, chunks: u64) -> Work {
    let mut fixture = fixture(500);
    fixture.distributor = fixture.distributor.with_guaranteed_readers(8);
    fixture.writer.limit_packets(to_u32(CHUNK));
    let (honest, mut reader) = fixture.reader(ReaderOptions::default());
    let options = |at: u32| ReaderOptions {
        // As the hub gives bits to readers.
        mask: 1 << at.min(63),
        user: Some(1 + at % 4),
        ..ReaderOptions::default()
    };
    let _idle: Vec<_> = (0..idle).map(|at| fixture.reader(options(at))).collect();
    let mut before = Work::of(&fixture);
    for chunk in 0..chunks {
        if chunk == chunks / 2 {
            before = Work::of(&fixture);
        }
        for packet in 0..CHUNK {
            let meta = PacketMeta {
                mask: (chunk * CHUNK + packet).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
                ..PacketMeta::default()
            };
            fixture.writer.write(&meta, [&[7; 60]]).unwrap();
        }
        fixture.distributor.step().unwrap();
        fixture.distributor.wake_sleepers(|_| {});
        drain(&mut reader);
    }
    let missed = fixture.distributor.missed(honest, LaneId(0));
    assert_eq!(missed, Missing::default(), "others cost it nothing");
    let after = Work::of(&fixture);
    Work {
        lease_tries: after.lease_tries - before.lease_tries,
        slots_read: after.slots_read - before.slots_read,
        looks: after.looks - before.looks,
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many packets for an interpreter")]
fn the_work_for_a_chunk_does_not_grow_with_the_readers_that_take_nothing() {
    let (chunks, later) = (6000, 3000);
    let alone = work_with_idle(0, chunks);
    let crowd = work_with_idle(240, chunks);
    println!("later half of {chunks} chunks: alone {alone:?}, with 240 idle readers {crowd:?}");
    assert_eq!((alone.lease_tries, alone.slots_read), (later, 0));
    assert_eq!(crowd.lease_tries, later, "a chunk is offered to the reader");
    assert_eq!(crowd.slots_read, later * CHUNK, "each slot is read once");
    // The reader itself, and one in 64 of the others; once for returns, once for sleepers.
    assert!(crowd.looks <= later * 2 * 6, "{crowd:?}");
}

#[test]
fn a_step_moves_a_limited_number_of_chunks_and_says_that_more_wait() {
    let mut fixture = fixture(500);
    fixture.writer.limit_packets(1);
    let (id, mut reader) = fixture.reader(ReaderOptions::default());
    let most = to_u64(STEP_CHUNKS);
    fixture.write(3 * most);
    reader.sleeper().arm();
    for step in 1..=3 {
        assert!(fixture.distributor.step().unwrap());
        assert_eq!(fixture.distributor.is_drained(), step == 3);
        let mut woken = Vec::new();
        fixture.distributor.wake_sleepers(|id| woken.push(id));
        assert_eq!(woken, [id], "its packets do not wait for the other steps");
        assert_eq!(drain(&mut reader).0, most);
        reader.sleeper().arm();
    }
}

#[test]
fn a_burst_that_takes_many_steps_is_one_burst() {
    let mut fixture = fixture(500);
    fixture.writer.limit_packets(1);
    let most = to_u64(STEP_CHUNKS);
    let (id, _reader) = fixture.reader(ReaderOptions {
        credit: Some(to_u32(most + 10)),
        ..ReaderOptions::default()
    });
    fixture.write(4 * most);
    while fixture.distributor.step().unwrap() {}
    fixture.writer.close();
    fixture.distributor.step().unwrap();
    let missed = fixture.distributor.missed(id, LaneId(0));
    assert_eq!(missed.packets, 3 * most - 10);
    assert_eq!(missed.in_bursts, missed.packets, "the driver came late");
    // What comes later finds a reader that did not keep up.
    let mut fixture = fixture_with_credit(2);
    let in_burst = {
        fixture.0.write(10);
        fixture.0.distributor.step().unwrap();
        fixture.0.distributor.missed(fixture.1, LaneId(0)).packets
    };
    for _ in 0..10 {
        fixture.0.write(1);
        fixture.0.distributor.step().unwrap();
    }
    let missed = fixture.0.distributor.missed(fixture.1, LaneId(0));
    // The last chunk of the burst is sealed by the first chunk after it.
    assert_eq!((missed.packets, missed.in_bursts), (17, in_burst + 1));
}

/// A fixture with packets of a chunk each, and a reader with this credit that takes nothing.
fn fixture_with_credit(credit: u32) -> (Fixture, ReaderId) {
    let mut fixture = fixture(50);
    fixture.writer.limit_packets(1);
    let options = ReaderOptions {
        credit: Some(credit),
        ..ReaderOptions::default()
    };
    let (id, _) = fixture.reader(options);
    (fixture, id)
}

#[test]
fn a_quiet_reader_is_looked_at_when_the_driver_asks_for_it_and_in_turn() {
    let mut fixture = fixture(500);
    let mut readers: Vec<_> = (0..100)
        .map(|_| fixture.reader(ReaderOptions::default()))
        .collect();
    let give_back = |fixture: &mut Fixture, reader: &mut Reader, become_quiet: fn(&mut Signs)| {
        fixture.write(15);
        fixture.distributor.step().unwrap();
        become_quiet(&mut fixture.distributor.signs);
        drain(reader);
    };
    let (id, mut reader) = readers.swap_remove(77);
    // Its first return.
    give_back(&mut fixture, &mut reader, |_| {});
    fixture.distributor.step().unwrap();
    let long: fn(&mut Signs) = Signs::all_are_quiet_for_long;
    for (become_quiet, steps) in [(Signs::all_are_quiet as fn(&mut Signs), 64), (long, 1024)] {
        give_back(&mut fixture, &mut reader, become_quiet);
        let held = fixture.distributor.held(id, LaneId(0));
        let taken = (0..steps).find(|_| {
            fixture.distributor.step().unwrap();
            fixture.distributor.held(id, LaneId(0)) < held
        });
        assert!(taken.is_some(), "in its turn");
    }
    give_back(&mut fixture, &mut reader, long);
    let held = fixture.distributor.held(id, LaneId(0));
    fixture.distributor.look_at_all();
    fixture.distributor.step().unwrap();
    assert!(fixture.distributor.held(id, LaneId(0)) < held);
}

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A reader, and what it got.
struct Client {
    id: ReaderId,
    reader: Reader,
    options: ReaderOptions,
    lanes: Vec<Got>,
}

/// What a reader got of a lane, and what gaps reported.
#[derive(Clone, Default)]
struct Got {
    start: u64,
    next: u64,
    sequences: Vec<u64>,
    reported: Missing,
}

/// Lanes whose packets' masks are known.
struct World {
    random: Random,
    writers: Vec<LaneWriter>,
    masks: Vec<Vec<u64>>,
    distributor: Distributor,
    clients: Vec<Client>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let lanes = to_u32(1 + random.below(2));
        let chunks = lanes * to_u32(6 + random.below(30)) + 1;
        let geometry = Geometry::contiguous(4096, chunks, lanes, 1500).unwrap();
        let pool = Pool::on_heap(geometry);
        let (mut writers, mut ends) = (Vec::new(), Vec::new());
        for id in (0..lanes).map(LaneId) {
            let share = source::share(&geometry, id);
            // SAFETY: on the heap, and each lane has its own share.
            let (mut writer, end) = unsafe { source::lane(&pool, id, share, Arc::new(NoSignal)) };
            writer.limit_packets(to_u32(1 + random.below(90)));
            writers.push(writer);
            ends.push(end);
        }
        let distributor = Distributor::new(pool, ends, Arc::new(NoSignal));
        World {
            distributor: distributor.with_guaranteed_readers(to_u32(random.below(5))),
            masks: vec![Vec::new(); writers.len()],
            writers,
            random,
            clients: Vec::new(),
        }
    }

    fn operate(&mut self) {
        match self.random.below(24) {
            0 | 1 => self.attach(),
            2 if self.random.below(3) == 0 && !self.clients.is_empty() => {
                let at = to_usize(self.random.below(to_u64(self.clients.len())));
                let client = self.clients.swap_remove(at);
                self.distributor.remove_reader(client.id);
            }
            3 if !self.clients.is_empty() => {
                let at = to_usize(self.random.below(to_u64(self.clients.len())));
                let credit = to_u32(self.random.below(9));
                self.distributor.set_credit(self.clients[at].id, credit);
            }
            4..=11 => self.write(),
            12..=14 => self.read(),
            _ => drop(self.distributor.step().unwrap()),
        }
    }

    fn attach(&mut self) {
        while self.distributor.step().unwrap() {}
        if self.clients.len() >= 60 {
            return;
        }
        let random = &mut self.random;
        let bit = random.below(6);
        let policy = match random.below(5) {
            0 => Policy::Sample { one_in: 3 },
            1 => Policy::Cut { snap_bytes: 20 },
            _ => Policy::DropNewest,
        };
        let options = ReaderOptions {
            credit: (random.below(2) == 0).then(|| to_u32(random.below(6))),
            policy,
            mask: [1 << bit, 1 << bit, 3 << bit, u64::MAX][to_usize(random.below(4))],
            group: [0, 0, 64, 0x40 | 1 << bit][to_usize(random.below(4))],
            chunk_share: (random.below(5) == 0).then(|| to_u32(random.below(2))),
            user: (random.below(2) == 0).then(|| to_u32(random.below(3))),
        };
        let (id, reader) = self.distributor.add_reader(&options).unwrap();
        let lanes = reader.starts().into_iter().map(|start| Got {
            start,
            next: start,
            ..Got::default()
        });
        self.clients.push(Client {
            id,
            options,
            lanes: lanes.collect(),
            reader,
        });
    }

    fn write(&mut self) {
        let lane = to_usize(self.random.below(to_u64(self.writers.len())));
        for _ in 0..self.random.below(200) {
            let mask = match self.random.below(4) {
                0 => 0x7f,
                1 => 0,
                _ => self.random.below(128),
            };
            let meta = PacketMeta {
                mask,
                ..PacketMeta::default()
            };
            if self.writers[lane].write(&meta, [&[7; 30]]).is_ok() {
                self.masks[lane].push(mask);
            }
        }
    }

    fn read(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let at = to_usize(self.random.below(to_u64(self.clients.len())));
        for _ in 0..self.random.below(8) {
            self.clients[at].next(&self.masks);
        }
    }

    /// Ends everything, and compares what each reader missed with what it did not get.
    fn finish(mut self) {
        self.writers.iter_mut().for_each(LaneWriter::close);
        while self.distributor.step().unwrap() {}
        self.distributor.finish();
        for client in &mut self.clients {
            while client.next(&self.masks) {}
            for (id, (got, masks)) in (0..).map(LaneId).zip(client.lanes.iter().zip(&self.masks)) {
                let missed = self.distributor.missed(client.id, id);
                let all = got.start..to_u64(masks.len());
                let absent: Vec<_> = all.filter(|at| !got.sequences.contains(at)).collect();
                let seen = client.see(masks, absent.into_iter());
                assert_eq!(missed.sequences, seen.sequences);
                match client.options.chunk_share {
                    None => assert_eq!(
                        (missed.packets, missed.other_members),
                        (seen.wanted, seen.other_members)
                    ),
                    Some(_) => assert_eq!(
                        missed.packets + missed.other_members,
                        seen.wanted + seen.other_members
                    ),
                }
                assert!(missed.in_bursts <= missed.packets);
                assert!(got.reported.packets <= missed.packets);
                assert!(got.reported.other_members <= missed.other_members);
            }
        }
        for client in std::mem::take(&mut self.clients) {
            self.distributor.remove_reader(client.id);
        }
        for lane in 0..self.writers.len() {
            assert_eq!(self.distributor.chunks_in_use(LaneId::at(lane)), 0);
            assert_eq!(self.distributor.resting.readers(lane), 0);
        }
    }
}

impl Client {
    /// What the reader sees of these packets.
    fn see(&self, masks: &[u64], sequences: impl Iterator<Item = u64>) -> Seen {
        let mut seen = Seen::default();
        let ReaderOptions { mask, group, .. } = self.options;
        for mask_of_packet in sequences.map(|at| masks[to_usize(at)]) {
            let is_wanted = mask == u64::MAX || mask_of_packet & mask != 0;
            seen.sequences += 1;
            seen.wanted += u64::from(is_wanted);
            seen.other_members += u64::from(!is_wanted && mask_of_packet & group != 0);
        }
        seen
    }

    /// Takes a batch, if there is one; its gap must be what the reader misses there.
    fn next(&mut self, masks: &[Vec<u64>]) -> bool {
        let NextBatch::Batch(batch) = self.reader.try_next().unwrap() else {
            return false;
        };
        let lane = batch.lane.index();
        let first = batch.first_sequence;
        if let Some(gap) = batch.gap {
            let from = self.lanes[lane].next;
            assert_eq!((gap.first_sequence, gap.sequences), (from, first - from));
            let seen = self.see(&masks[lane], from..first);
            let told = (gap.packets, gap.other_members);
            match self.options.chunk_share {
                None => assert_eq!(told, (seen.wanted, seen.other_members)),
                Some(_) => assert_eq!(told.0 + told.1, seen.wanted + seen.other_members),
            }
            let reported = &mut self.lanes[lane].reported;
            reported.packets += gap.packets;
            reported.other_members += gap.other_members;
        } else {
            assert_eq!(first, self.lanes[lane].next, "a gap is reported");
        }
        let got = &mut self.lanes[lane];
        got.next = first + to_u64(batch.len());
        got.sequences.extend(first..got.next);
        true
    }
}

#[test]
fn readers_miss_exactly_what_they_do_not_get_whatever_they_want_and_whenever_they_rest() {
    let (seeds, operations) = if cfg!(miri) { (2, 40) } else { (600, 400) };
    for seed in 0..seeds {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            (0..operations).for_each(|_| world.operate());
            world.finish();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
