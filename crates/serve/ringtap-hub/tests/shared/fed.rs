// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source in memory whose packets the test captures; other processes may map its pool.
#![allow(dead_code, reason = "several test programs use parts of this file")]

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};

use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_pool::counters::Counters;
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{self, Counts, Facts, Pause, RuleLoader, Source, Status, Unclassified};
use ringtap_pool::view::Pool;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

const PACKET_BYTES: usize = 60;

pub(crate) struct FedSource {
    facts: Facts,
    pool: SealedPool,
    lanes: Vec<LaneEnds>,
    event: Event,
    counts: Arc<FedCounts>,
    /// Without one, the source leaves filters to the readers.
    pub(crate) loader: Option<Box<dyn RuleLoader>>,
    /// Whether the source signals readers itself.
    pub(crate) wakes_readers: bool,
    /// Whether the source reports its end.
    pub(crate) has_ended: bool,
    /// Number of times that the hub cleared the source's signal.
    pub(crate) clears: Arc<AtomicU64>,
    /// Pauses that the hub asked for.
    pub(crate) pauses: Arc<Mutex<Vec<Pause>>>,
}

#[derive(Default)]
struct FedCounts {
    captured: AtomicU64,
    in_flight: AtomicU64,
}

/// Captures the packets of a [`FedSource`].
pub(crate) struct Feed {
    writer: Mutex<LaneWriter>,
    counts: Arc<FedCounts>,
}

impl FedSource {
    /// A source with a pool of this many chunks of 4 KiB, the header's included.
    pub(crate) fn new(chunks: u32) -> (Self, Feed) {
        let geometry = Geometry::contiguous(4096, chunks, 1, 1500).expect("it can be");
        let pool = SealedPool::create(geometry).expect("a little memory");
        let event = Event::new().expect("a descriptor");
        let (lane, chunks) = (LaneId(0), source::share(&geometry, LaneId(0)));
        let signal = Arc::new(event.clone());
        // SAFETY: mapped writable, made just now, and this is its only lane.
        let (writer, ends) = unsafe { source::lane(&pool.writable, lane, chunks, signal) };
        let counts = Arc::<FedCounts>::default();
        let feed = Feed {
            writer: Mutex::new(writer),
            counts: Arc::clone(&counts),
        };
        let source = FedSource {
            facts: Facts {
                device: "fed".into(),
                link_type: 1,
                snap_length: 1500,
                ..Facts::default()
            },
            pool,
            lanes: vec![ends],
            event,
            counts,
            loader: None,
            wakes_readers: false,
            has_ended: false,
            clears: Arc::default(),
            pauses: Arc::default(),
        };
        (source, feed)
    }

    /// A source without packets.
    pub(crate) fn quiet() -> Box<dyn Source> {
        Box::new(FedSource::new(5).0)
    }
}

impl Feed {
    /// Captures this many packets of one byte.
    pub(crate) fn write(&self, packets: u64, byte: u8) {
        let mut writer = self.writer.lock().expect("a writer");
        let meta = PacketMeta {
            wire_length: 60,
            ..PacketMeta::default()
        };
        for _ in 0..packets {
            let staged = writer.stage(&meta, [&[byte; PACKET_BYTES][..]]);
            staged.expect("there is room");
            self.counts.captured.fetch_add(1, Release);
        }
        writer.publish();
    }

    /// Counts a packet as offered that [`Feed::end_packet`] captures.
    pub(crate) fn begin_packet(&self) {
        self.counts.in_flight.store(1, Release);
    }

    /// Captures the packet that [`Feed::begin_packet`] began.
    pub(crate) fn end_packet(&self) {
        self.counts.in_flight.store(0, Release);
        self.write(1, 7);
    }
}

impl Source for FedSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn pool(&self) -> Pool {
        self.pool.readable.clone()
    }

    fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pool.file.as_fd())
    }

    fn take_lanes(&mut self) -> Vec<LaneEnds> {
        std::mem::take(&mut self.lanes)
    }

    fn counts(&mut self) -> Counts {
        let captured = self.counts.captured.load(Acquire);
        let lane = Counters {
            offered: captured + self.counts.in_flight.load(Acquire),
            delivered: captured,
            ..Counters::default()
        };
        Counts {
            lanes: vec![lane],
            ..Counts::default()
        }
    }

    fn take_rule_loader(&mut self) -> Box<dyn RuleLoader> {
        self.loader.take().unwrap_or(Box::new(Unclassified))
    }

    fn pause(&mut self, _lane: LaneId, pause: Pause) {
        self.pauses.lock().expect("no panic").push(pause);
    }

    fn status(&mut self) -> Status {
        if self.has_ended {
            Status::Ended
        } else {
            Status::Running
        }
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn readers_wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wakes_readers.then(|| self.event.as_fd())
    }

    fn clear_wake(&mut self) {
        self.clears.fetch_add(1, Release);
        self.event.clear();
    }

    fn stop(&mut self) {}
}
