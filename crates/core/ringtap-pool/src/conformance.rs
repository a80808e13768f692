// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suite that every source must pass.
//!
//! A source's tests implement [`Harness`] and call [`check`]. The suite's packets are numbered
//! Ethernet frames of the experimental type 0x88b5, to distinguish them from neighbour discovery and
//! other packets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::counters::Counters;
use crate::distributor::{Distributor, Policy, ReaderOptions};
use crate::ids::LaneId;
use crate::number::to_usize;
use crate::reader::{NextBatch, Packet, Reader};
use crate::source::{Counts, Source, Status};
use crate::wake::NoSignal;

/// Size of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolSize {
    /// Room for all offered packets.
    Ample,
    /// The fewest chunks that the source allows, far too few for the offered packets.
    Tiny,
}

/// Number of frames in most checks; few under miri, which is slow.
const MANY: u32 = if cfg!(miri) { 50 } else { 3000 };
/// Number of frames that exceed every tiny pool.
const FLOOD: u32 = if cfg!(miri) { 150 } else { 20_000 };
/// Number of different frame lengths, from 60 bytes on.
const LENGTHS: u32 = if cfg!(miri) { 200 } else { 1441 };

/// Number of counter readings between two steps of the distributor, under traffic.
const LOOKS: u32 = if cfg!(miri) { 1 } else { 100 };
/// Number of sources that are stopped under traffic.
const STOPS: u32 = if cfg!(miri) { 1 } else { 15 };

/// Longest silence of a source that will deliver all packets, even on a busy machine.
const LONG: Duration = Duration::from_secs(30);
/// Silence after which a source that may lose packets counts as finished.
const SHORT: Duration = Duration::from_millis(300);

/// A check that runs under traffic; the flag is set once all frames were offered.
pub type UnderTraffic<'a> = &'a mut dyn FnMut(Box<dyn Source>, &AtomicBool);

/// Creates a source and traffic for it.
pub trait Harness {
    /// Opens the source, offers these frames to it in order, and returns when the source has them or
    /// lost them. A file source may write the file first.
    fn capture(&mut self, frames: &[Vec<u8>], size: PoolSize) -> Box<dyn Source>;

    /// Opens the source and runs `suite` on it while another thread offers these frames; the flag is
    /// set once all were offered. A source that has its packets from the start needs no thread.
    fn capture_under_traffic(&mut self, frames: &[Vec<u8>], suite: UnderTraffic<'_>) {
        let source = self.capture(frames, PoolSize::Ample);
        suite(source, &AtomicBool::new(true));
    }

    /// Whether no packet is lost before the source counts it (in a kernel queue).
    fn lossless(&self) -> bool {
        true
    }
}

/// Runs every check.
///
/// # Panics
///
/// If the source breaks a rule: the message says which.
pub fn check(harness: &mut dyn Harness) {
    every_packet_comes_once_in_order_and_whole(harness);
    an_exhausted_pool_is_counted(harness);
    an_overrun_is_charged_alone(harness);
    counters_hold_while_packets_come(harness);
    counters_are_final_after_a_stop_under_traffic(harness);
    what_was_captured_before_a_stop_is_delivered(harness);
}

/// Numbered frames of many sizes; the other bytes follow from the number.
pub fn frames(count: u32) -> Vec<Vec<u8>> {
    const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    let frame = |number: u32| {
        let length = 60 + (number.wrapping_mul(2_654_435_761) >> 8) % LENGTHS;
        let mut bytes = HEADER.to_vec();
        bytes.extend(number.to_be_bytes());
        bytes.extend((18..length).map(|at| (at ^ number.wrapping_mul(31)).to_le_bytes()[0]));
        bytes
    };
    (0..count).map(frame).collect()
}

fn number(data: &[u8]) -> Option<u32> {
    let ours = data.get(12..14) == Some(&[0x88, 0xb5]);
    let bytes: [u8; 4] = data.get(14..18)?.try_into().ok()?;
    ours.then(|| u32::from_be_bytes(bytes))
}

/// Results of one reader.
#[derive(Default)]
struct SuiteReading {
    /// The suite's frames as read, per lane.
    frames: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Number of packets read.
    packets: u64,
    /// Bytes of these packets on the wire.
    bytes: u64,
    bytes_of_lanes: BTreeMap<u32, u64>,
    /// Number of packets missing in gaps.
    missing: u64,
    next_sequence: BTreeMap<u32, u64>,
    last_time_ns: BTreeMap<u32, u64>,
}

impl SuiteReading {
    fn read(&mut self, reader: &mut Reader) -> ReadProgress {
        let mut progress = ReadProgress::Nothing;
        loop {
            let batch = match reader
                .try_next()
                .expect("a source delivers readable chunks")
            {
                NextBatch::Batch(batch) => batch,
                NextBatch::Empty => return progress,
                NextBatch::Ended => return ReadProgress::Ended,
            };
            progress = ReadProgress::Some;
            self.missing += batch.gap.map_or(0, |gap| gap.packets);
            let lane = batch.lane.0;
            if let Some(gap) = batch.gap {
                *self.next_sequence.entry(lane).or_default() += gap.sequences;
            }
            for packet in batch.packets() {
                self.packet(lane, &packet.expect("a source writes readable slots"));
            }
        }
    }

    fn packet(&mut self, lane: u32, packet: &Packet<'_>) {
        let expected = self.next_sequence.entry(lane).or_default();
        assert_eq!(
            packet.sequence, *expected,
            "sequences are without holes on lane {lane}"
        );
        *expected += 1;
        let time = self.last_time_ns.entry(lane).or_default();
        assert!(
            packet.slot().time_ns >= *time,
            "time runs forward on lane {lane}"
        );
        *time = packet.slot().time_ns;
        self.packets += 1;
        let bytes = u64::from(packet.slot().wire_length);
        self.bytes += bytes;
        *self.bytes_of_lanes.entry(lane).or_default() += bytes;
        if number(packet.data).is_some() {
            self.frames
                .entry(lane)
                .or_default()
                .push(packet.data.to_vec());
        }
    }

    fn own(&self) -> usize {
        self.frames.values().map(Vec::len).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadProgress {
    Nothing,
    Some,
    Ended,
}

/// A source with its distributor and readers, all driven by one thread.
struct Run {
    source: Box<dyn Source>,
    distributor: Distributor,
    readers: Vec<(Reader, SuiteReading)>,
}

impl Run {
    fn new(mut source: Box<dyn Source>, readers: &[ReaderOptions]) -> Self {
        let lanes = source.take_lanes();
        assert!(!lanes.is_empty(), "a source has lanes");
        assert!(source.take_lanes().is_empty(), "lanes are given away once");
        let mut distributor = Distributor::new(source.pool(), lanes, Arc::new(NoSignal));
        let reader = |options| {
            let (_, reader) = distributor.add_reader(options).expect("there is a place");
            (reader, SuiteReading::default())
        };
        let readers = readers.iter().map(reader).collect();
        Run {
            source,
            distributor,
            readers,
        }
    }

    /// Reads until all offered packets are accounted for (or the file ended), stops, and reads the rest.
    /// Waits only briefly for packets that may be lost before the source counts them.
    fn read_to_end(&mut self, offered: usize, harness: &dyn Harness) -> Counts {
        let mut last_progress = Instant::now();
        let limit = if harness.lossless() { LONG } else { SHORT };
        while last_progress.elapsed() < limit {
            let moved = self.distributor.step().expect("a source's lanes are sound");
            let ended = match self.source.status() {
                Status::Running | Status::Waiting => false,
                Status::Ended => true,
                Status::Failed(error) | Status::Removed(error) => {
                    panic!("the source failed: {error}")
                }
            };
            let counts = self.source.counts();
            moment_balances(&counts);
            let read = self.read();
            if moved || read {
                last_progress = Instant::now();
            } else if ended || accounted(&counts) >= offered {
                break;
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.finish()
    }

    fn finish(&mut self) -> Counts {
        self.source.stop();
        let counts = self.source.counts();
        while self
            .distributor
            .step()
            .expect("a stopped source's lanes are sound")
            | self.read()
        {}
        self.distributor.finish();
        for (reader, found) in &mut self.readers {
            let progress = found.read(reader);
            assert!(progress == ReadProgress::Ended, "readers learn of the end");
        }
        assert_eq!(
            self.source.counts(),
            counts,
            "counters are final after a stop"
        );
        counts
    }

    fn read(&mut self) -> bool {
        let read =
            |(reader, found): &mut (Reader, SuiteReading)| found.read(reader) == ReadProgress::Some;
        self.readers
            .iter_mut()
            .map(read)
            .fold(false, |any, one| any | one)
    }

    /// A packet is counted before a reader can see it.
    fn has_read_what_is_counted(&self, counts: &Counts) {
        for (_, found) in &self.readers {
            let counted = |lane: &u32| counts.lanes.get(to_usize(u64::from(*lane)));
            for (lane, next) in &found.next_sequence {
                let captured = counted(lane).map_or(0, |count| count.delivered);
                assert!(
                    captured >= *next,
                    "lane {lane} has counted {captured} packets, of which {next} were read"
                );
            }
            for (lane, read) in &found.bytes_of_lanes {
                let bytes = counted(lane).map_or(0, |count| count.bytes);
                assert!(
                    bytes >= *read,
                    "lane {lane} has counted {bytes} bytes, of which {read} were read"
                );
            }
        }
    }

    fn slow(&self, reader: u32) -> u64 {
        let lanes = self.source.pool().geometry().lane_count;
        let id = crate::ids::ReaderId(reader);
        (0..lanes)
            .map(|lane| self.distributor.missed(id, LaneId(lane)).packets)
            .sum()
    }
}

/// Every packet of a source has one outcome in the source's counters.
fn source_balances(counts: &Counts) {
    for (lane, count) in counts.lanes.iter().enumerate() {
        let accounted = count.accounted();
        assert_eq!(
            count.offered, accounted,
            "lane {lane} accounts for what it saw: {count:?}"
        );
    }
}

/// Like [`source_balances`] during capture: one packet per lane may be in transit.
fn moment_balances(counts: &Counts) {
    for (lane, count) in counts.lanes.iter().enumerate() {
        let accounted = count.accounted();
        let on_its_way = count.offered.checked_sub(accounted);
        assert!(
            on_its_way.is_some_and(|packets| packets <= 1),
            "lane {lane} accounts at every moment for what it saw: {count:?}"
        );
    }
}

/// Number of packets with a known outcome.
fn accounted(counts: &Counts) -> usize {
    let settled: u64 = counts.lanes.iter().map(Counters::accounted).sum();
    to_usize(settled + counts.dropped.total())
}

fn captured(counts: &Counts) -> u64 {
    counts.lanes.iter().map(|lane| lane.delivered).sum()
}

fn every_packet_comes_once_in_order_and_whole(harness: &mut dyn Harness) {
    let offered = frames(MANY);
    let source = harness.capture(&offered, PoolSize::Ample);
    let mut run = Run::new(source, &[ReaderOptions::default(); 2]);
    let counts = run.read_to_end(offered.len(), harness);
    source_balances(&counts);
    for (_, found) in &run.readers {
        assert_eq!(
            found.packets,
            captured(&counts),
            "a reader gets all that was captured"
        );
        let bytes: u64 = counts.lanes.iter().map(|lane| lane.bytes).sum();
        assert_eq!(found.bytes, bytes, "bytes are those of what was captured");
        assert_eq!(found.missing, 0);
        if harness.lossless() {
            assert_eq!(
                found.own(),
                offered.len(),
                "nothing is lost, not even before the first read"
            );
        }
        for frames in found.frames.values() {
            let order: Vec<_> = frames.iter().filter_map(|data| number(data)).collect();
            assert!(
                order.is_sorted_by(|a, b| a < b),
                "order is kept within a lane"
            );
            for data in frames {
                let sent = number(data).and_then(|n| offered.get(usize::try_from(n).ok()?));
                assert_eq!(Some(data), sent, "bytes are those that were sent");
            }
        }
    }
}

fn an_exhausted_pool_is_counted(harness: &mut dyn Harness) {
    let offered = frames(FLOOD);
    let source = harness.capture(&offered, PoolSize::Tiny);
    let policy = source.facts().policy;
    let mut run = Run::new(
        source,
        &[ReaderOptions {
            credit: Some(u32::MAX),
            policy,
            ..ReaderOptions::default()
        }],
    );
    let counts = run.read_to_end(offered.len(), harness);
    source_balances(&counts);
    let lost: u64 = counts
        .lanes
        .iter()
        .map(|lane| lane.dropped.pool_full + lane.dropped.kernel)
        .sum();
    let found = &run.readers[0].1;
    assert_eq!(found.packets + run.slow(0), captured(&counts));
    match policy {
        Policy::Block => assert_eq!((lost, found.own()), (0, offered.len()), "files wait"),
        Policy::DropNewest if harness.lossless() => {
            assert!(lost > 0, "a tiny pool cannot hold everything");
        }
        _ => {}
    }
}

fn an_overrun_is_charged_alone(harness: &mut dyn Harness) {
    let offered = frames(MANY);
    let source = harness.capture(&offered, PoolSize::Ample);
    let slow = ReaderOptions {
        credit: Some(1),
        policy: Policy::DropNewest,
        ..ReaderOptions::default()
    };
    let mut run = Run::new(source, &[slow, ReaderOptions::default()]);
    // All is delivered before a reader reads: the slow reader gets one chunk per lane.
    run.distributor.step().expect("a source's lanes are sound");
    let counts = run.read_to_end(offered.len(), harness);
    let (slow, fast) = (&run.readers[0].1, &run.readers[1].1);
    assert_eq!(
        fast.packets,
        captured(&counts),
        "the fast reader loses nothing"
    );
    assert_eq!(
        slow.packets + run.slow(0),
        captured(&counts),
        "losses are counted to the packet"
    );
    assert_eq!(run.slow(1), 0);
    assert!(
        slow.missing <= run.slow(0),
        "gaps report no more than was lost"
    );
}

/// Reads the counters without a pause, so that some readings fall within a packet.
fn counters_hold_while_packets_come(harness: &mut dyn Harness) {
    let offered = frames(MANY);
    harness.capture_under_traffic(&offered, &mut |source, all_offered| {
        let mut run = Run::new(source, &[ReaderOptions::default()]);
        let mut last_progress = Instant::now();
        while !all_offered.load(Relaxed) || last_progress.elapsed() < SHORT {
            for _ in 0..LOOKS {
                let has_read = run.read();
                let counts = run.source.counts();
                moment_balances(&counts);
                run.has_read_what_is_counted(&counts);
                if has_read {
                    last_progress = Instant::now();
                }
            }
            let moved = run.distributor.step().expect("a source's lanes are sound");
            if moved | run.read() {
                last_progress = Instant::now();
            }
        }
        let counts = run.finish();
        source_balances(&counts);
        let (_, found) = &run.readers[0];
        assert_eq!(
            found.packets,
            captured(&counts),
            "all is read that came meanwhile"
        );
    });
}

/// A packet in transit when the source is stopped is counted before the stop returns.
fn counters_are_final_after_a_stop_under_traffic(harness: &mut dyn Harness) {
    let offered = frames(MANY);
    for round in 0..STOPS {
        harness.capture_under_traffic(&offered, &mut |source, all_offered| {
            let mut run = Run::new(source, &[ReaderOptions::default()]);
            // Each round stops at another point of the traffic.
            let enough = u64::from(MANY / STOPS * round);
            let offered = |run: &mut Run| {
                run.source
                    .counts()
                    .lanes
                    .iter()
                    .map(|lane| lane.offered)
                    .sum()
            };
            while !all_offered.load(Relaxed) && u64::lt(&offered(&mut run), &enough) {
                run.distributor.step().expect("a source's lanes are sound");
                run.read();
            }
            let counts = run.finish();
            source_balances(&counts);
            let (_, found) = &run.readers[0];
            assert_eq!(
                found.packets,
                captured(&counts),
                "what was captured is delivered"
            );
            assert_eq!(run.source.counts(), counts, "nothing is counted later");
        });
    }
}

fn what_was_captured_before_a_stop_is_delivered(harness: &mut dyn Harness) {
    let offered = frames(MANY / 6);
    let source = harness.capture(&offered, PoolSize::Ample);
    let mut run = Run::new(source, &[ReaderOptions::default()]);
    let counts = run.finish();
    source_balances(&counts);
    assert_eq!(run.readers[0].1.packets, captured(&counts));
}

#[cfg(test)]
mod tests;
