// SPDX-License-Identifier: MIT OR Apache-2.0
//! One reader writes random values into its control region while another reader reads honestly.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use ringtap_ipc::memfd::SharedMemory;
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::{Distributor, ReaderOptions, Returns};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::{LaneWriter, PacketMeta};
use ringtap_testkit::Script;

const LANE: LaneId = LaneId(0);
/// Offsets of the reader's words and its return queue, as in `docs/internals/format.md`.
const RETURNS_TAIL: u64 = 132;
const RETURNS: u64 = 192 + 64 + 64 * 8;
const RETURN_PLACES: u32 = 32;

struct HostileReader {
    id: ReaderId,
    file: File,
    tail: u32,
}

struct HostileRun {
    writer: LaneWriter,
    distributor: Distributor,
    honest: Honest,
    hostile: HostileReader,
}

struct Honest {
    id: ReaderId,
    reader: Reader,
    next: u64,
    read: u64,
    missing: u64,
}

impl Honest {
    /// Reads all packets; each must carry the content that its number implies.
    fn read(&mut self) {
        while let NextBatch::Batch(batch) = self.reader.try_next().expect("nobody lied to this one")
        {
            if let Some(gap) = batch.gap {
                assert_eq!(gap.first_sequence, self.next);
                self.next += gap.sequences;
                self.missing += gap.packets;
            }
            for packet in batch.packets() {
                let packet = packet.expect("the writer is honest");
                assert_eq!(packet.sequence, self.next);
                assert_eq!(packet.data[..8], self.next.to_le_bytes());
                assert_eq!(packet.slot().time_ns, self.next);
                self.next += 1;
                self.read += 1;
            }
        }
    }
}

fn add_hostile_reader(distributor: &mut Distributor) -> HostileReader {
    let memory = SharedMemory::create(control_bytes(distributor.geometry()));
    let memory = memory.expect("a little memory");
    let now = distributor.position(LANE);
    let options = ReaderOptions::default();
    let id = distributor.add_reader_at(&options, &memory.region, &[now]);
    HostileReader {
        id: id.expect("there is a place"),
        file: File::from(memory.file),
        tail: 0,
    }
}

impl HostileReader {
    fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).expect("its own memory");
    }

    /// Returns a chunk as an honest reader would, even one that the reader does not hold.
    fn give_back(&mut self, chunk: u64) {
        let place = u64::from(self.tail % RETURN_PLACES);
        self.write(RETURNS + 8 * place, &chunk.to_le_bytes());
        self.tail = self.tail.wrapping_add(1);
        self.write(RETURNS_TAIL, &self.tail.to_le_bytes());
    }
}

impl HostileRun {
    fn new() -> Self {
        let geometry = Geometry::contiguous(4096, 17, 1, 2000).expect("it can be");
        let pool = Pool::on_heap(geometry);
        let chunks = source::share(&geometry, LANE);
        // SAFETY: on the heap, and this is its only lane.
        let (writer, ends) = unsafe { source::lane(&pool, LANE, chunks, Arc::new(NoSignal)) };
        let mut distributor = Distributor::new(pool, vec![ends], Arc::new(NoSignal));
        let added = distributor.add_reader(&ReaderOptions::default());
        let (id, reader) = added.expect("there is a place");
        let hostile = add_hostile_reader(&mut distributor);
        let honest = Honest {
            id,
            reader,
            next: 0,
            read: 0,
            missing: 0,
        };
        HostileRun {
            writer,
            distributor,
            honest,
            hostile,
        }
    }

    fn capture(&mut self, packets: usize) {
        let counters = self.writer.counters();
        for _ in 0..packets {
            let number = counters.captured();
            let mut data = [7; 300];
            data[..8].copy_from_slice(&number.to_le_bytes());
            let meta = PacketMeta {
                time_ns: number,
                wire_length: 300,
                ..PacketMeta::default()
            };
            let _counted = self.writer.write(&meta, [&data]);
        }
    }

    fn look_at_the_hostile_reader(&mut self) {
        self.distributor.arm(Returns::Wanted);
        self.distributor.wake_sleepers(|_| {});
        let hostile = self.hostile.id;
        let _seen = (
            self.distributor.is_corrupt(hostile),
            self.distributor.held(hostile, LANE),
            self.distributor.oldest_held(hostile, LANE),
            self.distributor.credit(hostile, LANE),
        );
    }

    fn turn(&mut self, script: &mut Script<'_>) {
        let control = control_bytes(self.distributor.geometry());
        match script.byte() % 9 {
            0 | 1 => self.capture(script.below(40)),
            2 => drop(self.distributor.step().expect("no lane lied")),
            3 | 4 => {
                let at = script.below(control / 4) * 4;
                let at = u64::try_from(at).expect("it fits");
                self.hostile.write(at, &script.word().to_le_bytes()[..4]);
            }
            5 => self.hostile.give_back(u64::from(script.byte() % 20)),
            6 => self.hostile.give_back(script.word()),
            7 => self.look_at_the_hostile_reader(),
            _ => {
                self.distributor.remove_reader(self.hostile.id);
                self.hostile = add_hostile_reader(&mut self.distributor);
            }
        }
        self.honest.read();
    }

    /// Removes the lying reader: all its chunks are free again, and every packet is accounted for.
    fn finish(mut self) {
        self.distributor.remove_reader(self.hostile.id);
        self.writer.close();
        while self.distributor.step().expect("no lane lied") {
            self.honest.read();
        }
        self.distributor.finish();
        self.honest.read();
        let _taken_back = self.distributor.step().expect("no lane lied");
        let missed = self.distributor.missed(self.honest.id, LANE).packets;
        let captured = self.writer.counters().captured();
        assert_eq!(self.honest.read + missed, captured);
        assert!(self.honest.missing <= missed);
        assert_eq!(self.distributor.chunks_in_use(LANE), 0);
    }
}

/// A chunk of the pool that the reader does not hold, one that it returned already, and one outside the pool.
#[test]
fn a_return_of_a_chunk_that_the_reader_does_not_hold_cuts_it_off() {
    for wrong in 0..3 {
        let mut run = HostileRun::new();
        run.capture(40);
        while run.distributor.step().expect("no lane lied") {}
        let held = run.distributor.oldest_held(run.hostile.id, LANE);
        let held = u64::from(held.expect("it got a chunk").0);
        // Chunk 0 is the pool's header.
        let chunk = [0, held, 17][wrong];
        if chunk == held {
            run.hostile.give_back(held);
            while run.distributor.step().expect("no lane lied") {}
            assert!(
                !run.distributor.is_corrupt(run.hostile.id),
                "the first time is right"
            );
        }
        run.hostile.give_back(chunk);
        while run.distributor.step().expect("no lane lied") {}
        assert!(run.distributor.is_corrupt(run.hostile.id), "{chunk}");
        assert!(!run.distributor.is_corrupt(run.honest.id));
        // It gets no more chunks.
        let before = run.distributor.held(run.hostile.id, LANE);
        run.capture(40);
        while run.distributor.step().expect("no lane lied") {}
        assert_eq!(run.distributor.held(run.hostile.id, LANE), before);
        run.honest.read();
        run.finish();
    }
}

/// Runs the script in these bytes.
pub(crate) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut run = HostileRun::new();
    while !script.is_empty() {
        run.turn(&mut script);
    }
    run.finish();
}
