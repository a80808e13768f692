// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub thread: steps the distributor when something happened, sleeps in between.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use ringtap_pool::distributor::{Distributor, Returns};
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::source::{Counts, Source, SourceError, Status};
use ringtap_pool::wake::{FIRST_SLEEP, Signal};
use ringtap_shared::event::{Event, sleep_until_readable};

use super::{Order, Snapshot};

/// How often counters are read again to find a moment between two packets.
const STEADY_TRIES: usize = 16;

/// How the hub goes to sleep: armed, it looks once more, then sleeps briefly, then for good.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Awake,
    Armed,
    ShortSleep,
}

/// The state of the hub thread.
pub(super) struct Hub {
    source: Box<dyn Source>,
    distributor: Distributor,
    inbox: Receiver<Order>,
    event: Event,
    failed: Sender<SourceError>,
    readers: BTreeMap<ReaderId, Event>,
    stage: Stage,
    phase: Phase,
}

/// How far a session has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The source may write.
    Running,
    /// The source has stopped; readers that nothing may be lost to still get the rest.
    Draining,
    /// All is delivered and settled.
    Ended,
}

impl Hub {
    pub(super) fn new(
        source: Box<dyn Source>,
        distributor: Distributor,
        inbox: Receiver<Order>,
        (event, readers): (Event, BTreeMap<ReaderId, Event>),
        failed: Sender<SourceError>,
    ) -> Self {
        let (phase, stage) = (Phase::Awake, Stage::Running);
        Hub {
            source,
            distributor,
            inbox,
            event,
            failed,
            readers,
            stage,
            phase,
        }
    }

    /// Runs until it is told to leave.
    pub(super) fn run(mut self) {
        while self.obey() {
            if self.step() {
                self.phase = Phase::Awake;
                continue;
            }
            self.sleep();
        }
        self.stop_source();
    }

    /// Moves what can be moved; tells whether anything was.
    fn step(&mut self) -> bool {
        if self.stage == Stage::Ended {
            return false;
        }
        let moved = match self.distributor.step() {
            Ok(moved) => moved,
            Err(error) => {
                self.fail(error.into());
                self.finish();
                return true;
            }
        };
        if moved {
            self.wake_sleepers();
        } else if self.stage == Stage::Draining && self.distributor.is_drained() {
            self.finish();
        }
        moved
    }

    fn wake_sleepers(&mut self) {
        let readers = &self.readers;
        self.distributor.wake_sleepers(|id| {
            if let Some(event) = readers.get(&id) {
                event.signal();
            }
        });
    }

    /// Does what was ordered; `false` once it shall leave.
    fn obey(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Leave) | Err(TryRecvError::Disconnected) => return false,
                Ok(order) => self.carry_out(order),
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Counts(reader, reply) => {
                let _gone = reply.send(self.snapshot(reader));
            }
            Order::Stop | Order::Leave => self.stop_source(),
        }
    }

    fn snapshot(&mut self, reader: Option<ReaderId>) -> Snapshot {
        let lanes = 0..self.distributor.geometry().lane_count;
        let slow_reader = match reader {
            Some(id) => lanes
                .map(|lane| self.distributor.missed(id, LaneId(lane)).packets)
                .collect(),
            None => Vec::new(),
        };
        Snapshot {
            source: self.steady_counts(),
            slow_reader,
            ended: self.stage == Stage::Ended,
        }
    }

    /// Counters between two packets where such a moment can be found.
    fn steady_counts(&mut self) -> Counts {
        let mut counts = self.source.counts();
        for _ in 0..STEADY_TRIES {
            let again = self.source.counts();
            if again == counts {
                break;
            }
            counts = again;
        }
        counts
    }

    fn sleep(&mut self) {
        self.phase = match self.phase {
            Phase::Awake => {
                self.distributor.arm(Returns::WhenDry);
                Phase::Armed
            }
            Phase::Armed => self.sleep_for(Some(FIRST_SLEEP), Phase::ShortSleep),
            Phase::ShortSleep => self.sleep_for(None, Phase::ShortSleep),
        };
    }

    /// Sleeps; tells the next phase: awake if somebody signalled, else `then`.
    fn sleep_for(&mut self, timeout: Option<Duration>, then: Phase) -> Phase {
        let (source, event) = (self.source.wake_fd(), self.event.as_fd());
        let running = self.stage == Stage::Running;
        let fds = [event, source];
        match sleep_until_readable(&fds[..if running { 2 } else { 1 }], timeout) {
            Ok(false) => return then,
            Ok(true) => {}
            Err(error) => self.fail(error.into()),
        }
        self.event.clear();
        if running {
            self.source.clear_wake();
            match self.source.status() {
                Status::Running => {}
                Status::Ended => self.stop_source(),
                Status::Failed(error) => self.fail(error),
            }
        }
        self.wake_sleepers();
        Phase::Awake
    }

    fn fail(&mut self, error: SourceError) {
        let _gone = self.failed.send(error);
        self.stop_source();
    }

    /// Stops the source: nothing is written any more.
    fn stop_source(&mut self) {
        if self.stage == Stage::Running {
            self.source.stop();
            self.stage = Stage::Draining;
        }
    }

    /// All is delivered: settles the open chunks and tells readers that nothing follows.
    fn finish(&mut self) {
        self.distributor.finish();
        self.stage = Stage::Ended;
        for event in self.readers.values() {
            event.signal();
        }
    }
}
