// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source whose packets, and the duration of whose rule loading, the test controls.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use ringtap_filter::{Place, Rules};
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{
    self, Counts, Facts, LaneCounts, RuleLoader, Source, SourceError, Status,
};
use ringtap_pool::view::Pool;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

pub(crate) struct Gated {
    facts: Facts,
    pool: SealedPool,
    lanes: Vec<LaneEnds>,
    event: Event,
    captured: Arc<AtomicU64>,
    in_flight: Arc<AtomicU64>,
    loader: Option<Box<dyn RuleLoader>>,
}

/// The test's side of the source.
pub(crate) struct Gate {
    writer: Mutex<LaneWriter>,
    captured: Arc<AtomicU64>,
    in_flight: Arc<AtomicU64>,
    /// Receives each set of rules when its loading starts.
    pub(crate) begun: Receiver<Rules>,
    /// Ends the loading of a set with this outcome.
    pub(crate) outcome: Sender<Result<(), String>>,
}

struct GatedLoader {
    begun: Sender<Rules>,
    outcome: Receiver<Result<(), String>>,
}

impl RuleLoader for GatedLoader {
    fn classify(&mut self, rules: &Rules) -> Result<Vec<Place>, SourceError> {
        self.begun.send(rules.clone())?;
        self.outcome.recv()??;
        Ok(vec![Place::Source; rules.each.len()])
    }
}

impl Gate {
    /// Captures this many packets.
    pub(crate) fn write(&self, packets: u64) {
        let mut writer = self.writer.lock().expect("a writer");
        for _ in 0..packets {
            let meta = PacketMeta::default();
            writer.stage(&meta, [&[7; 60][..]]).expect("there is room");
            self.captured.fetch_add(1, Release);
        }
        writer.publish();
    }

    /// Counts a packet as offered that [`Gate::end_packet`] captures.
    pub(crate) fn begin_packet(&self) {
        self.in_flight.store(1, Release);
    }

    /// Captures the packet that [`Gate::begin_packet`] began.
    pub(crate) fn end_packet(&self) {
        self.in_flight.store(0, Release);
        self.write(1);
    }

    /// Lets the source put this many sets of rules in force.
    pub(crate) fn open(&self, sets: usize) {
        for _ in 0..sets {
            self.outcome.send(Ok(())).expect("the source is there");
        }
    }
}

pub(crate) fn gated() -> (Gated, Gate) {
    let geometry = Geometry::contiguous(4096, 65, 1, 1500).expect("it can be");
    let pool = SealedPool::create(geometry).expect("a little memory");
    let event = Event::new().expect("a descriptor");
    let (lane, chunks) = (LaneId(0), source::share(&geometry, LaneId(0)));
    let signal = Arc::new(event.clone());
    // SAFETY: mapped writable, made just now, and this is its only lane.
    let (writer, ends) = unsafe { source::lane(&pool.writable, lane, chunks, signal) };
    let (begun, outcome) = (mpsc::channel(), mpsc::channel());
    let captured = Arc::new(AtomicU64::new(0));
    let in_flight = Arc::new(AtomicU64::new(0));
    let loader = GatedLoader {
        begun: begun.0,
        outcome: outcome.1,
    };
    let gate = Gate {
        writer: Mutex::new(writer),
        captured: Arc::clone(&captured),
        in_flight: Arc::clone(&in_flight),
        begun: begun.1,
        outcome: outcome.0,
    };
    let source = Gated {
        facts: Facts {
            device: "gated".into(),
            link_type: 1,
            ..Facts::default()
        },
        pool,
        lanes: vec![ends],
        event,
        captured,
        in_flight,
        loader: Some(Box::new(loader)),
    };
    (source, gate)
}

impl Source for Gated {
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
        let captured = self.captured.load(Acquire);
        let lane = LaneCounts {
            offered: captured + self.in_flight.load(Acquire),
            captured,
            ..LaneCounts::default()
        };
        Counts {
            lanes: vec![lane],
            ..Counts::default()
        }
    }

    fn take_rule_loader(&mut self) -> Box<dyn RuleLoader> {
        self.loader.take().expect("it was not taken")
    }

    fn status(&mut self) -> Status {
        Status::Running
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn readers_wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn clear_wake(&mut self) {
        self.event.clear();
    }

    fn stop(&mut self) {}
}
