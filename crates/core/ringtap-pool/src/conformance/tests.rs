// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the suite on a minimal source, and on sources that break its rules.

use std::os::fd::BorrowedFd;

use super::*;
use crate::counters::{Counters, Dropped};
use crate::distributor::LaneEnds;
use crate::format::Geometry;
use crate::source::{self, Facts};
use crate::view::Pool;
use crate::writer::{LaneWriter, PacketMeta};

/// Chunk size and number of chunks for all frames; smaller under miri.
const CHUNK: u32 = if cfg!(miri) { 4096 } else { 16_384 };
const AMPLE: u32 = if cfg!(miri) { 20 } else { 600 };

/// Fault of a test source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Swaps,
    Forgets,
    Miscounts,
    MiscountsBytes,
}

/// A source that has all its packets from its creation.
struct Memory {
    facts: Facts,
    pool: Pool,
    lanes: Vec<LaneEnds>,
    writer: Option<LaneWriter>,
    counts: Counters,
}

impl Memory {
    fn new(frames: &[Vec<u8>], chunks: u32, fault: Fault) -> Self {
        let geometry = Geometry::contiguous(CHUNK, chunks + 1, 1, 65_535).unwrap();
        let pool = Pool::on_heap(geometry);
        let chunks = source::share(&geometry, LaneId(0));
        // SAFETY: on the heap, and this is its only lane.
        let (mut writer, ends) =
            unsafe { source::lane(&pool, LaneId(0), chunks, Arc::new(NoSignal)) };
        let mut order: Vec<_> = frames.iter().collect();
        match fault {
            Fault::Swaps => order.swap(10, 11),
            Fault::Forgets => drop(order.remove(20)),
            Fault::None | Fault::Miscounts | Fault::MiscountsBytes => {}
        }
        for (time_ns, frame) in (1..).zip(order) {
            let wire_length = u32::try_from(frame.len()).unwrap();
            let meta = PacketMeta {
                time_ns,
                wire_length,
                ..PacketMeta::default()
            };
            let _counted = writer.write(&meta, [frame.as_slice()]);
        }
        let counters = writer.counters();
        let counts = Counters {
            offered: counters.captured()
                + counters.pool_full()
                + u64::from(fault == Fault::Miscounts),
            delivered: counters.captured(),
            bytes: counters.bytes() + u64::from(fault == Fault::MiscountsBytes),
            dropped: Dropped {
                pool_full: counters.pool_full(),
                ..Dropped::default()
            },
            ..Counters::default()
        };
        let facts = Facts {
            device: "memory".into(),
            ..Facts::default()
        };
        Memory {
            facts,
            pool,
            lanes: vec![ends],
            writer: Some(writer),
            counts,
        }
    }
}

impl Source for Memory {
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn pool(&self) -> Pool {
        self.pool.clone()
    }
    fn take_lanes(&mut self) -> Vec<LaneEnds> {
        std::mem::take(&mut self.lanes)
    }
    fn counts(&mut self) -> Counts {
        Counts {
            lanes: vec![self.counts],
            ..Counts::default()
        }
    }
    fn status(&mut self) -> Status {
        // All packets were written at creation.
        Status::Ended
    }
    fn wake_fd(&self) -> BorrowedFd<'_> {
        unreachable!("the suite does not sleep")
    }
    fn clear_wake(&mut self) {}
    fn stop(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            writer.close();
        }
    }
}

struct InMemory(Fault);

impl Harness for InMemory {
    fn capture(&mut self, frames: &[Vec<u8>], size: PoolSize) -> Box<dyn Source> {
        let chunks = if size == PoolSize::Ample { AMPLE } else { 4 };
        Box::new(Memory::new(frames, chunks, self.0))
    }
}

#[test]
fn a_source_in_memory_conforms() {
    check(&mut InMemory(Fault::None));
}

#[test]
#[should_panic(expected = "order is kept")]
fn a_source_that_swaps_packets_is_found() {
    check(&mut InMemory(Fault::Swaps));
}

#[test]
#[should_panic(expected = "nothing is lost")]
fn a_source_that_forgets_a_packet_is_found() {
    check(&mut InMemory(Fault::Forgets));
}

#[test]
#[should_panic(expected = "bytes are those of what was captured")]
fn a_source_that_miscounts_bytes_is_found() {
    check(&mut InMemory(Fault::MiscountsBytes));
}

#[test]
#[should_panic(expected = "accounts for what it saw")]
fn a_source_that_miscounts_is_found() {
    check(&mut InMemory(Fault::Miscounts));
}
