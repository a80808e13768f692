// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random operations on lanes, distributor and readers against a naive model.
//!
//! The model knows the bytes of every captured packet. From the packet after its attachment on, a
//! reader must get each packet in order and complete, or a gap that reports it. Received and missed
//! packets must add up to all packets, and every chunk must be recycled. A panic's message contains
//! the failing seed.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;

use ringtap_pool::distributor::{Distributor, MAX_READERS, Policy, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::reader::{ChunkBatch, NextBatch, Reader};
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

const SEEDS: u64 = if cfg!(miri) { 2 } else { 3000 };
const OPERATIONS: u64 = if cfg!(miri) { 40 } else { 400 };

/// Marsaglia's xorshift64: sufficiently random, and equal on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(u64::try_from(limit).unwrap())).unwrap()
    }
}

/// The model of a lane: the length of every captured packet.
struct Lane {
    writer: LaneWriter,
    lengths: Vec<usize>,
    published: usize,
}

/// The model of a reader, per lane: position, received and missed packets.
struct Client {
    id: ReaderId,
    reader: Reader,
    /// Kept batches, with the number of the first packet of each.
    kept: Vec<(ChunkBatch, usize)>,
    policy: Policy,
    place: Vec<Place>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    start: usize,
    at: usize,
    got: usize,
    missed: usize,
}

struct World {
    random: Random,
    lanes: Vec<Lane>,
    distributor: Distributor,
    clients: Vec<Client>,
}

/// Fill byte of packet `number` of a lane.
fn fill(lane: usize, number: usize) -> u8 {
    (lane * 89 + number * 7).to_le_bytes()[0]
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let lane_count = u32::try_from(1 + random.below(3)).unwrap();
        let chunks = lane_count * u32::try_from(2 + random.below(6)).unwrap() + 1;
        let geometry = Geometry::contiguous(4096, chunks, lane_count, 1500).unwrap();
        let pool = Pool::on_heap(geometry);
        let (mut lanes, mut ends) = (Vec::new(), Vec::new());
        for id in (0..lane_count).map(LaneId) {
            let share = source::share(&geometry, id);
            // SAFETY: on the heap, and each lane has its own share.
            let (writer, end) = unsafe { source::lane(&pool, id, share, Arc::new(NoSignal)) };
            lanes.push(Lane {
                writer,
                lengths: Vec::new(),
                published: 0,
            });
            ends.push(end);
        }
        let distributor = Distributor::new(pool, ends, Arc::new(NoSignal))
            .with_guaranteed_readers(u32::try_from(random.below(4)).unwrap());
        World {
            random,
            lanes,
            distributor,
            clients: Vec::new(),
        }
    }

    fn operate(&mut self) {
        match self.random.below(20) {
            0 | 1 => self.attach(),
            2 => self.detach(),
            3 => self.close(),
            4..=9 => self.write(),
            10..=14 => self.read(),
            _ => self.step(),
        }
    }

    fn step(&mut self) {
        self.distributor.step().unwrap();
    }

    fn write(&mut self) {
        let lane = self.random.index(self.lanes.len());
        for _ in 0..self.random.below(30) {
            let length = self.random.index(1600);
            let number = self.lanes[lane].lengths.len();
            let bytes = vec![fill(lane, number); length];
            let (head, tail) = bytes.split_at(self.random.index(length + 1));
            let wire_length = u32::try_from(length).unwrap();
            let meta = PacketMeta {
                time_ns: 1,
                wire_length,
                ..PacketMeta::default()
            };
            if self.lanes[lane].writer.stage(&meta, [head, tail]).is_ok() {
                self.lanes[lane].lengths.push(length);
            }
        }
        if self.random.below(4) > 0 {
            self.lanes[lane].writer.publish();
            self.lanes[lane].published = self.lanes[lane].lengths.len();
        }
    }

    fn close(&mut self) {
        let lane = self.random.index(self.lanes.len());
        self.lanes[lane].writer.close();
        self.lanes[lane].published = self.lanes[lane].lengths.len();
    }

    /// Publishes and steps the distributor first, so that the model knows the first packet of the new
    /// reader.
    fn attach(&mut self) {
        for lane in &mut self.lanes {
            lane.writer.publish();
            lane.published = lane.lengths.len();
        }
        // Blocking readers may delay chunks, which makes the first packet unpredictable.
        while self.distributor.step().unwrap() {}
        if !self.distributor.is_drained() || self.clients.len() >= MAX_READERS.min(6) {
            return;
        }
        let credit =
            (self.random.below(2) == 0).then(|| u32::try_from(self.random.below(4)).unwrap());
        let policy = if self.random.below(3) == 0 {
            Policy::Block
        } else {
            Policy::DropNewest
        };
        let (id, reader) = self
            .distributor
            .add_reader(&ReaderOptions {
                credit,
                policy,
                ..ReaderOptions::default()
            })
            .unwrap();
        let start = |lane: &Lane| Place {
            start: lane.published,
            at: lane.published,
            got: 0,
            missed: 0,
        };
        let place = self.lanes.iter().map(start).collect();
        self.clients.push(Client {
            id,
            reader,
            kept: Vec::new(),
            policy,
            place,
        });
    }

    fn detach(&mut self) {
        if !self.clients.is_empty() {
            let client = self
                .clients
                .swap_remove(self.random.index(self.clients.len()));
            self.distributor.remove_reader(client.id);
        }
    }

    fn read(&mut self) {
        if !self.clients.is_empty() {
            let client = self.random.index(self.clients.len());
            let batches = self.random.below(5);
            for _ in 0..batches {
                let random = &mut self.random;
                let client = &mut self.clients[client];
                client.next(&self.lanes);
                if random.below(2) == 0 && !client.kept.is_empty() {
                    let (batch, first) = client.kept.swap_remove(random.index(client.kept.len()));
                    same(&batch, first, &self.lanes);
                }
            }
        }
    }

    /// Ends everything and checks the counters.
    fn finish(mut self) {
        for lane in &mut self.lanes {
            lane.writer.close();
        }
        loop {
            let mut moved = self.distributor.step().unwrap();
            for client in &mut self.clients {
                while client.next(&self.lanes) {
                    moved = true;
                }
                client.kept.clear();
            }
            if !moved && self.distributor.is_drained() {
                break;
            }
        }
        self.distributor.finish();
        for client in &mut self.clients {
            assert!(!client.next(&self.lanes), "nothing comes after the end");
            client.check(&self.lanes, &self.distributor);
        }
        while self.distributor.step().unwrap() {}
        for lane in (0..).map(LaneId).take(self.lanes.len()) {
            assert_eq!(
                self.distributor.chunks_in_use(lane),
                0,
                "every chunk comes home"
            );
        }
    }
}

/// Compares a batch with the model; `first` is the number of its first packet.
fn same(batch: &ChunkBatch, first: usize, lanes: &[Lane]) {
    let lane = batch.lane.index();
    for (number, packet) in (first..).zip(batch.packets().map(Result::unwrap)) {
        assert_eq!(packet.sequence, u64::try_from(number).unwrap());
        let length = lanes[lane].lengths[number];
        assert_eq!(packet.slot().wire_length, u32::try_from(length).unwrap());
        let kept = length.min(1500);
        assert_eq!(packet.data.len(), kept, "cut at the snap length only");
        assert!(packet.data.iter().all(|byte| *byte == fill(lane, number)));
    }
}

impl Client {
    /// Takes a batch, if there is one, compares it with the model and keeps it.
    fn next(&mut self, lanes: &[Lane]) -> bool {
        let batch = match self.reader.try_next().unwrap() {
            NextBatch::Batch(batch) => batch,
            NextBatch::Empty | NextBatch::Ended => return false,
        };
        let lane = batch.lane.index();
        let place = &mut self.place[lane];
        if let Some(gap) = batch.gap {
            assert_eq!(gap.first_sequence, u64::try_from(place.at).unwrap());
            assert_eq!(gap.packets, gap.sequences, "it wants all of them");
            let packets = usize::try_from(gap.packets).unwrap();
            place.at += packets;
            place.missed += packets;
        }
        let first = place.at;
        same(&batch, first, lanes);
        place.at += batch.len();
        place.got += batch.len();
        self.kept.push((batch, first));
        true
    }

    fn check(&self, lanes: &[Lane], distributor: &Distributor) {
        for (id, (place, lane)) in (0..).map(LaneId).zip(self.place.iter().zip(lanes)) {
            let charged = usize::try_from(distributor.missed(self.id, id).packets).unwrap();
            assert_eq!(
                place.start + place.got + charged,
                lane.lengths.len(),
                "{id}, {}",
                self.id
            );
            assert!(
                place.missed <= charged,
                "gaps tell of no more than was charged"
            );
            assert!(
                self.policy == Policy::DropNewest || charged == 0,
                "who blocks loses nothing"
            );
        }
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    for seed in 0..SEEDS {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..OPERATIONS {
                world.operate();
            }
            world.finish();
        });
        assert!(run.is_ok(), "seed {seed}");
    }
}
