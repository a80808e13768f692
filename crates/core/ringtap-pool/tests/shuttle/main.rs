// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real writer, distributor and readers under Shuttle: random schedules with a switch of threads
//! before any access to shared memory. All accesses are in one order; `tests/loom` models weak memory.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p ringtap-pool --release --test shuttle`.
#![cfg(shuttle)]

use std::sync::Arc;

use ringtap_pool::distributor::{Distributor, ReaderOptions, Returns};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::reader::{ChunkBatch, NextBatch, Reader};
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::Signal;
use ringtap_pool::writer::{LaneCounters, LaneWriter, PacketMeta};
use shuttle::scheduler::RandomScheduler;
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Config, Runner, thread};

/// Three of these fill a chunk of 4096 bytes.
const PACKET_BYTES: usize = 1300;
const PACKETS: u64 = 10;
const SCHEDULES: usize = 1000;
/// Makes the schedules the same in each run.
const SEED: u64 = 1;

/// A signal that stays until a wait takes it, like an eventfd.
#[derive(Default)]
struct Doorbell(Mutex<bool>, Condvar);

impl Signal for Doorbell {
    fn signal(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
}

impl Doorbell {
    fn wait(&self) {
        let mut rang = self.0.lock().unwrap();
        while !*rang {
            rang = self.1.wait(rang).unwrap();
        }
        *rang = false;
    }
}

/// Runs `model` in many random orders of its threads' accesses.
fn in_random_order(model: impl Fn() + Send + Sync + 'static) {
    let scheduler = RandomScheduler::new_from_seed(SEED, SCHEDULES);
    Runner::new(scheduler, Config::default()).run(model);
}

/// A lane and its distributor, with the driver's signal.
struct World {
    writer: LaneWriter,
    distributor: Distributor,
    driver: Arc<Doorbell>,
}

fn world(chunks: u32) -> World {
    let geometry = Geometry::contiguous(4096, chunks + 1, 1, 1500).unwrap();
    let pool = Pool::on_heap(geometry);
    let share = source::share(&geometry, LaneId(0));
    let driver = Arc::new(Doorbell::default());
    let signal: Arc<dyn Signal> = driver.clone();
    // SAFETY: on the heap, and this is its only lane.
    let (writer, ends) = unsafe { source::lane(&pool, LaneId(0), share, signal.clone()) };
    World {
        writer,
        distributor: Distributor::new(pool, vec![ends], signal),
        driver,
    }
}

/// Writes a packet that consists of its sequence number.
fn write_one(writer: &mut LaneWriter) {
    let meta = PacketMeta {
        wire_length: PACKET_BYTES.try_into().unwrap(),
        ..PacketMeta::default()
    };
    let fill = u8::try_from(writer.counters().captured()).unwrap();
    let _counted = writer.write(&meta, [&[fill; PACKET_BYTES][..]]);
}

/// Runs `write`, then ends the writer and tells the driver; returns the number of captured packets.
fn start_writing(
    mut writer: LaneWriter,
    driver: &Arc<Doorbell>,
    ended: &Arc<Mutex<bool>>,
    write: impl FnOnce(&mut LaneWriter) + Send + 'static,
) -> thread::JoinHandle<u64> {
    let (driver, ended) = (driver.clone(), ended.clone());
    thread::spawn(move || {
        write(&mut writer);
        writer.close();
        *ended.lock().unwrap() = true;
        driver.signal();
        let counters = writer.counters();
        assert_eq!(counters.captured() + counters.pool_full(), PACKETS);
        counters.captured()
    })
}

fn write_all(writer: &mut LaneWriter) {
    (0..PACKETS).for_each(|_| write_one(writer));
}

/// Checks that each packet consists of its sequence number and that the lane has counted it; returns the
/// number of packets.
fn check(batch: &ChunkBatch, counters: &LaneCounters) -> u64 {
    let mut count = 0;
    let end = batch.first_sequence + u64::try_from(batch.len()).unwrap();
    assert!(counters.captured() >= end, "read before it is counted");
    let bytes = end * u64::try_from(PACKET_BYTES).unwrap();
    assert!(counters.bytes() >= bytes, "its bytes, too");
    for packet in batch.packets() {
        let packet = packet.unwrap();
        let fill = u8::try_from(packet.sequence).unwrap();
        assert!(packet.data.iter().all(|byte| *byte == fill), "overwritten");
        count += 1;
    }
    count
}

/// Reads to the end as `Waiter` does, and signals `taken` after each batch; returns the numbers of
/// packets read and reported as lost.
fn read(
    mut reader: Reader,
    counters: &LaneCounters,
    doorbell: &Doorbell,
    taken: &Doorbell,
) -> (u64, u64) {
    let sleeper = reader.sleeper();
    let (mut read, mut lost, mut is_armed) = (0, 0, false);
    loop {
        match reader.try_next().unwrap() {
            NextBatch::Batch(batch) => {
                lost += batch.gap.map_or(0, |gap| gap.packets);
                // Other threads run while the batch is held.
                thread::yield_now();
                read += check(&batch, counters);
                taken.signal();
            }
            NextBatch::Ended => return (read, lost),
            NextBatch::Empty if is_armed => doorbell.wait(),
            NextBatch::Empty => {
                sleeper.arm();
                is_armed = true;
                continue;
            }
        }
        sleeper.disarm();
        is_armed = false;
    }
}

/// Steps as the hub's thread does, until the writer has ended and every chunk is delivered.
fn drive(
    distributor: &mut Distributor,
    driver: &Doorbell,
    doorbells: &[(ReaderId, Arc<Doorbell>)],
    has_ended: impl Fn() -> bool,
) {
    let wake = |distributor: &mut Distributor| {
        distributor.wake_sleepers(|id| {
            let (_, doorbell) = doorbells.iter().find(|(other, _)| *other == id).unwrap();
            doorbell.signal();
        });
    };
    loop {
        let ended = has_ended();
        let mut moved = false;
        while distributor.step().unwrap() {
            moved = true;
        }
        wake(distributor);
        if ended && distributor.is_drained() {
            distributor.finish();
            doorbells.iter().for_each(|(_, doorbell)| doorbell.signal());
            return;
        }
        if moved {
            continue;
        }
        distributor.arm(Returns::WhenDry);
        moved = distributor.step().unwrap();
        wake(distributor);
        if !moved && !has_ended() {
            driver.wait();
        }
    }
}

/// A prompt reader and one with little credit: each packet is read intact or counted, none of the
/// threads sleeps over news, and every chunk comes back.
#[test]
fn every_packet_is_read_or_counted_and_nobody_sleeps_over_one() {
    in_random_order(|| {
        let World {
            writer,
            mut distributor,
            driver,
        } = world(4);
        let small = ReaderOptions {
            credit: Some(1),
            ..ReaderOptions::default()
        };
        let (mut doorbells, mut readers) = (Vec::new(), Vec::new());
        for options in [ReaderOptions::default(), small] {
            let (id, reader) = distributor.add_reader(&options).unwrap();
            let doorbell = Arc::new(Doorbell::default());
            doorbells.push((id, doorbell.clone()));
            let counters = writer.counters();
            readers.push((
                id,
                thread::spawn(move || read(reader, &counters, &doorbell, &Doorbell::default())),
            ));
        }
        let ended = Arc::new(Mutex::new(false));
        let writing = start_writing(writer, &driver, &ended, write_all);
        let has_ended = || *ended.lock().unwrap();
        drive(&mut distributor, &driver, &doorbells, has_ended);
        let captured = writing.join().unwrap();
        for (id, reading) in readers {
            let (read, lost) = reading.join().unwrap();
            let missed = distributor.missed(id, LaneId(0)).packets;
            assert_eq!(read + missed, captured);
            assert!(lost <= missed, "{lost} of {missed}");
        }
        while distributor.step().unwrap() {}
        assert_eq!(distributor.chunks_in_use(LaneId(0)), 0);
    });
}

/// A reader is removed while another thread holds a batch of it: its chunks come back, and the other
/// reader loses nothing that the pool had room for.
#[test]
fn a_reader_that_is_removed_while_it_reads_gives_its_chunks_back() {
    in_random_order(|| {
        let World {
            writer,
            mut distributor,
            driver,
        } = world(4);
        let (leaving, mut reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
        let (id, other) = distributor.add_reader(&ReaderOptions::default()).unwrap();
        let doorbell = Arc::new(Doorbell::default());
        let doorbells = [
            (id, doorbell.clone()),
            (leaving, Arc::new(Doorbell::default())),
        ];
        let counters = writer.counters();
        let reading =
            thread::spawn(move || read(other, &counters, &doorbell, &Doorbell::default()));
        let ended = Arc::new(Mutex::new(false));
        let writing = start_writing(writer, &driver, &ended, write_all);
        let holding = thread::spawn(move || {
            let mut kept = Vec::new();
            for _ in 0..20 {
                if let Ok(NextBatch::Batch(batch)) = reader.try_next() {
                    kept.push(batch);
                }
            }
            drop(reader);
            thread::yield_now();
        });
        distributor.step().unwrap();
        thread::yield_now();
        distributor.remove_reader(leaving);
        let has_ended = || *ended.lock().unwrap();
        drive(&mut distributor, &driver, &doorbells, has_ended);
        let captured = writing.join().unwrap();
        holding.join().unwrap();
        let (read, _) = reading.join().unwrap();
        let missed = distributor.missed(id, LaneId(0)).packets;
        assert_eq!(read + missed, captured);
        while distributor.step().unwrap() {}
        assert_eq!(distributor.chunks_in_use(LaneId(0)), 0);
    });
}

/// The writer waits until each packet was read: nothing but the packet wakes the reader.
#[test]
fn each_packet_in_an_open_chunk_wakes_its_reader() {
    in_random_order(|| {
        let World {
            writer,
            mut distributor,
            driver,
        } = world(4);
        let (id, reader) = distributor.add_reader(&ReaderOptions::default()).unwrap();
        let [doorbell, taken] = [(), ()].map(|()| Arc::new(Doorbell::default()));
        let doorbells = [(id, doorbell.clone())];
        let reading = thread::spawn({
            let (taken, counters) = (taken.clone(), writer.counters());
            move || read(reader, &counters, &doorbell, &taken)
        });
        let ended = Arc::new(Mutex::new(false));
        let writing = start_writing(writer, &driver, &ended, move |writer| {
            for number in 0..PACKETS {
                // Later and later, so that driver and reader fall asleep before.
                (0..10 * number).for_each(|_| thread::yield_now());
                write_one(writer);
                taken.wait();
            }
        });
        let has_ended = || *ended.lock().unwrap();
        drive(&mut distributor, &driver, &doorbells, has_ended);
        assert_eq!(writing.join().unwrap(), PACKETS);
        assert_eq!(reading.join().unwrap(), (PACKETS, 0));
    });
}
