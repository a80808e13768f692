// SPDX-License-Identifier: MIT OR Apache-2.0
//! Benchmark of the pool alone: a writer and a reader on two cores, with 64-byte packets.
//!
//! The writer stages packets and publishes them in batches, like user-space sources. The reader
//! loads every slot and every payload byte, and steps the distributor, so that two cores suffice.
//! Pool sizes take turns, and every round checks its result. In each round, a plain copy of as many
//! bytes from one core to the other shows what the machine can do.

use std::cell::UnsafeCell;
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use ringtap_pool::distributor::{Distributor, Policy, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::reader::{NextBatch, Packet, Reader};
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::{LaneWriter, PacketMeta};
use rustix::thread::{CpuSet, sched_setaffinity};

const PACKET_BYTES: usize = 64;
const CHUNK_BYTES: u32 = 65_536;

/// Packets per round, in whole batches.
const PACKETS: u64 = 40_000_000;
/// Packets published at a time, as the `pcap` source does.
const BATCH: usize = 64;
/// Number of packets after which the reader steps the distributor (also when it finds none); a chunk
/// holds 682.
const PACKETS_PER_STEP: u64 = 600;
/// 64-bit words of a batch in a pool: payloads, and slots of 32 bytes.
const BATCH_WORDS: usize = BATCH * (PACKET_BYTES + 32) / 8;
/// Number of batches that the plain copy's ring holds: 768 KiB, which stay in a core's cache.
const COPY_SLOTS: usize = 128;
const WRITER_CPU: usize = 0;
const READER_CPU: usize = 1;

const USAGE: &str =
    "usage: pool_bench [ROUNDS [CHUNKS...]]   (7 rounds with 500 and with 5000 chunks)";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A pool with its writer and distributor, used for all rounds of its size.
struct PoolRun {
    chunks: u32,
    writer: LaneWriter,
    distributor: Distributor,
    rates_mpps: Vec<f64>,
    /// Each rate divided by that of the plain copy of the same round.
    of_copy: Vec<f64>,
    max_in_use: u32,
}

fn main() -> Result<()> {
    let arguments: std::result::Result<Vec<u32>, _> = std::env::args()
        .skip(1)
        .map(|argument| argument.parse())
        .collect();
    let arguments = arguments.map_err(|error| format!("{error}\n{USAGE}"))?;
    let (rounds, sizes) = arguments
        .split_first()
        .map_or((7, &[][..]), |(r, s)| (*r, s));
    let sizes = if sizes.is_empty() {
        &[500, 5000]
    } else {
        sizes
    };
    let pools: Result<Vec<_>> = sizes.iter().map(|&chunks| PoolRun::new(chunks)).collect();
    let mut pools = pools?;
    for round in 0..=rounds {
        let copy_mpps = copy_round()?;
        for pool_run in &mut pools {
            let rate_mpps = pool_run.round()?;
            // The first round of a size maps its memory.
            if round > 0 {
                pool_run.rates_mpps.push(rate_mpps);
                pool_run.of_copy.push(rate_mpps / copy_mpps);
            }
        }
    }
    pools.iter_mut().for_each(PoolRun::report);
    Ok(())
}

impl PoolRun {
    fn new(chunks: u32) -> Result<Self> {
        let geometry = Geometry::contiguous(CHUNK_BYTES, chunks + 1, 1, 65_535)?;
        let pool = Pool::on_heap(geometry);
        let ids = source::share(&geometry, LaneId(0));
        // SAFETY: on the heap, and this is its only lane.
        let (writer, ends) = unsafe { source::lane(&pool, LaneId(0), ids, Arc::new(NoSignal)) };
        let distributor = Distributor::new(pool, vec![ends], Arc::new(NoSignal));
        Ok(PoolRun {
            chunks,
            writer,
            distributor,
            rates_mpps: Vec::new(),
            of_copy: Vec::new(),
            max_in_use: 0,
        })
    }

    /// Sends the packets of a round through the pool; returns millions of packets per second.
    fn round(&mut self) -> Result<f64> {
        let blocking = ReaderOptions {
            credit: None,
            policy: Policy::Block,
            ..ReaderOptions::default()
        };
        let (id, mut reader) = self.distributor.add_reader(&blocking)?;
        let (writer, distributor) = (&mut self.writer, &mut self.distributor);
        let start = Barrier::new(2);
        let (found, seconds, max_in_use) = thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let pinned = pin(WRITER_CPU);
                start.wait();
                write(writer);
                pinned
            });
            let pinned = pin(READER_CPU);
            start.wait();
            let begun = Instant::now();
            let read = read(&mut reader, distributor);
            let seconds = begun.elapsed().as_secs_f64();
            writing.join().expect("the writer does not panic")?;
            pinned?;
            read.map(|(found, most)| (found, seconds, most))
        })?;
        self.max_in_use = self.max_in_use.max(max_in_use);
        drop(reader);
        self.distributor.remove_reader(id);
        if found != ReadSums::expected() || self.writer.counters().pool_full() != 0 {
            return Err(format!("packets were lost or changed: {found:?}").into());
        }
        Ok(f64::from(u32::try_from(PACKETS)?) / seconds / 1e6)
    }

    fn report(&mut self) {
        let rates = &mut self.rates_mpps;
        rates.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (rates.first(), rates.last()) else {
            return;
        };
        let (median, rounds) = (rates[rates.len() / 2], rates.len());
        let of_copy = self.of_copy.iter().copied().fold(f64::INFINITY, f64::min);
        let PoolRun {
            chunks, max_in_use, ..
        } = self;
        println!(
            r#"{{"benchmark":"pool","chunks":{chunks},"chunk_bytes":{CHUNK_BYTES},"packet_bytes":{PACKET_BYTES},"packets":{PACKETS},"batch":{BATCH},"rounds":{rounds},"median_mpps":{median:.1},"min_mpps":{least:.1},"max_mpps":{most:.1},"min_of_copy":{of_copy:.3},"max_chunks_in_use":{max_in_use}}}"#
        );
        println!(
            "pool of {chunks} chunks: {median:.0} Mpps (median of {rounds}, {least:.0} to {most:.0}), at most {max_in_use} chunks in use"
        );
    }
}

/// Batches on their way from one core to the other.
struct CopyRing {
    slots: Vec<UnsafeCell<[u64; BATCH_WORDS]>>,
    written: Line,
    read: Line,
}

/// A counter on a cache line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

// SAFETY: one thread writes a slot, and the other one reads it only once `written` passed it; the
// writer uses it again only once `read` passed it.
unsafe impl Sync for CopyRing {}

impl CopyRing {
    fn slot(&self, batch: u64) -> *mut [u64; BATCH_WORDS] {
        let at = usize::try_from(batch).unwrap_or(0) % COPY_SLOTS;
        self.slots[at].get()
    }
}

/// Copies the bytes of a round from one core to the other, which adds their words; returns millions
/// of packets per second.
fn copy_round() -> Result<f64> {
    let ring = CopyRing {
        slots: (0..COPY_SLOTS)
            .map(|_| UnsafeCell::new([0; BATCH_WORDS]))
            .collect(),
        written: Line(AtomicU64::new(0)),
        read: Line(AtomicU64::new(0)),
    };
    let source: [u64; BATCH_WORDS] = std::array::from_fn(|at| u64::try_from(at).unwrap_or(0));
    let batches = PACKETS / BATCH as u64;
    let start = Barrier::new(2);
    let (sum, seconds) = thread::scope(|scope| -> Result<_> {
        let writing = scope.spawn(|| {
            let pinned = pin(WRITER_CPU);
            start.wait();
            for batch in 0..batches {
                while batch - ring.read.0.load(Acquire) >= COPY_SLOTS as u64 {
                    std::hint::spin_loop();
                }
                // SAFETY: the reader has left this slot, and comes back only after the store below.
                unsafe { *ring.slot(batch) = *black_box(&source) };
                ring.written.0.store(batch + 1, Release);
            }
            pinned
        });
        let pinned = pin(READER_CPU);
        start.wait();
        let (begun, mut sum) = (Instant::now(), 0u64);
        for batch in 0..batches {
            while ring.written.0.load(Acquire) <= batch {
                std::hint::spin_loop();
            }
            // SAFETY: the writer filled this slot, and comes back only after the store below.
            let words = unsafe { &*ring.slot(batch) };
            sum = black_box(words.iter().copied().fold(sum, u64::wrapping_add));
            ring.read.0.store(batch + 1, Release);
        }
        let seconds = begun.elapsed().as_secs_f64();
        writing.join().expect("the writer does not panic")?;
        pinned?;
        Ok((sum, seconds))
    })?;
    let expected = source.iter().sum::<u64>().wrapping_mul(batches);
    if sum != expected {
        return Err(format!("the plain copy changed bytes: {sum}, not {expected}").into());
    }
    Ok(f64::from(u32::try_from(PACKETS)?) / seconds / 1e6)
}

fn pin(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    let pinned = sched_setaffinity(None, &cpus);
    Ok(pinned.map_err(|error| format!("cannot run on core {cpu}: {error}"))?)
}

/// Packets that are written in turn, as if copied from a driver's ring.
fn payloads() -> [[u8; PACKET_BYTES]; BATCH] {
    std::array::from_fn(|at| {
        let number = u8::try_from(at).unwrap_or(0);
        std::array::from_fn(|byte| if byte == 0 { number } else { 0x5a })
    })
}

/// Writes packets whose time stamp is their number.
fn write(writer: &mut LaneWriter) {
    let payloads = payloads();
    let mut meta = PacketMeta {
        wire_length: 64,
        ..PacketMeta::default()
    };
    for _batch in 0..PACKETS / 64 {
        for payload in &payloads {
            while !writer.has_room(PACKET_BYTES) {
                std::hint::spin_loop();
            }
            let _room = writer.stage(&meta, [payload]);
            meta.time_ns += 1;
        }
        writer.publish();
    }
    writer.close();
}

/// Results of a reader: sums over all bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReadSums {
    packets: u64,
    slots: u64,
    payloads: u64,
}

impl ReadSums {
    fn expected() -> Self {
        let words = |payload: &[u8; PACKET_BYTES]| {
            let (words, _) = payload.as_chunks::<8>();
            words
                .iter()
                .map(|word| u64::from_le_bytes(*word))
                .fold(0, u64::wrapping_add)
        };
        let turn = payloads().iter().map(words).fold(0, u64::wrapping_add);
        ReadSums {
            packets: PACKETS,
            slots: PACKETS * (PACKETS - 1) / 2 + PACKETS * 128,
            payloads: turn.wrapping_mul(PACKETS / 64),
        }
    }

    #[inline]
    fn add(&mut self, packet: &Packet<'_>) {
        let slot = packet.slot();
        let lengths = u64::from(slot.wire_length) + u64::from(slot.captured_length);
        self.packets += 1;
        self.slots = self.slots.wrapping_add(slot.time_ns).wrapping_add(lengths);
        let words = packet.data.as_chunks::<8>().0.iter();
        let sum = words
            .map(|word| u64::from_le_bytes(*word))
            .fold(0, u64::wrapping_add);
        self.payloads = self.payloads.wrapping_add(sum);
    }
}

/// Reads all packets and steps the distributor; returns the maximum number of chunks in use.
fn read(reader: &mut Reader, distributor: &mut Distributor) -> Result<(ReadSums, u32)> {
    let (mut found, mut max_in_use) = (ReadSums::default(), 0);
    let mut since_step = 0;
    while found.packets < PACKETS {
        let before = found.packets;
        if let NextBatch::Batch(batch) = reader.try_next()? {
            for packet in batch.packets() {
                found.add(&packet?);
            }
            black_box(found);
        }
        let idle = found.packets == before;
        since_step += found.packets - before;
        if idle || since_step >= PACKETS_PER_STEP {
            distributor.step()?;
            max_in_use = max_in_use.max(distributor.chunks_in_use(LaneId(0)));
            since_step = 0;
        }
        if idle {
            std::hint::spin_loop();
        }
    }
    Ok((found, max_in_use))
}
