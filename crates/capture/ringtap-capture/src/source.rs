// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common part of sources whose lanes are written by threads of this process: pool, lanes, threads,
//! rules, status and stop. A [`ThreadedDriver`] adds what differs.
//!
//! Invariants
//! - No other process can map the pool writable: it is a sealed memfd.
//! - A thread publishes and seals its open chunk before its end becomes visible.
//! - After a stop no thread writes, and the counters are final.
#![allow(unsafe_code, reason = "promises to be each lane's only writer")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::JoinHandle;

use ringtap_filter::flow::FlowSettings;
use ringtap_filter::{FilterLocation, LinkType, Rules};
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_ipc::thread::join;
use ringtap_net::confine::limit_source_thread;
use ringtap_net::rights::{CapabilitySet, WHILE_CAPTURING};
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{
    self, Counts, Facts, FlowRules, LossUpdate, Pause, RuleLoader, Source, SourceDriver,
    SourceError, Status,
};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::Signal;
use ringtap_pool::writer::{LaneCounters, LaneWriter};
use rustix::event::epoll;

use crate::CaptureError;
use crate::classifier::{LaneClassifier, LaneRules, SourceFlows};
use crate::monitor::InterfaceMonitor;

/// The part that differs between sources.
pub trait ThreadedDriver: Send {
    /// As [`SourceDriver::counts`].
    fn counts(&mut self) -> Counts;

    /// As [`Source::update_losses`].
    fn loss_update(&self) -> Option<LossUpdate> {
        None
    }

    /// Makes the threads end after the packets that are already captured.
    fn stop(&mut self);

    /// Makes the counters final: the threads have ended.
    fn finish(&mut self) {}

    /// Pauses or resumes capture on a lane.
    fn pause(&mut self, lane: LaneId, pause: Pause) {
        let _cannot = (lane, pause);
    }

    /// Work for new rules beyond the lanes' classifiers, if it can take long. It runs after the lanes
    /// use the rules.
    fn rules_hook(&self) -> Option<RulesHook> {
        None
    }

    /// The monitor of the source's interface, if it has one.
    fn monitor(&self) -> Option<&InterfaceMonitor> {
        None
    }

    /// Whether no packets can come now.
    fn is_waiting(&self) -> bool {
        self.monitor().is_some_and(InterfaceMonitor::is_waiting)
    }

    /// As [`SourceDriver::take_notes`].
    fn take_notes(&mut self) -> Vec<String> {
        let monitor = self.monitor();
        monitor.map_or_else(Vec::new, InterfaceMonitor::take_notes)
    }
}

/// Updates a source after its rules changed.
pub type RulesHook = Box<dyn FnMut(&Rules) + Send>;

/// The writing side of a lane.
pub struct NewLane {
    /// The lane's number.
    pub id: LaneId,
    /// Writes into the lane's chunks.
    pub writer: LaneWriter,
    /// Classifies packets by the source's rules.
    pub classifier: LaneClassifier,
    /// The lane's rules.
    pub rules: Arc<LaneRules>,
    /// Counts packets by outcome.
    pub totals: LaneTotals,
}

/// Counters of a lane whose packets all pass its classifier and its writer.
#[derive(Clone, Debug)]
pub struct LaneTotals {
    counters: Arc<LaneCounters>,
    rules: Arc<LaneRules>,
}

impl LaneTotals {
    /// Reads the counters; a packet counts as offered once its outcome is known.
    #[must_use]
    pub fn counts(&self) -> Counters {
        let mut counts = Counters {
            delivered: self.counters.captured(),
            bytes: self.counters.bytes(),
            filtered: self.rules.filtered(),
            shunted: self.rules.shunted(),
            dropped: Dropped {
                pool_full: self.counters.pool_full(),
                ..Dropped::default()
            },
            ..Counters::default()
        };
        counts.offered = counts.accounted();
        counts
    }
}

/// Creates all lanes of a pool.
///
/// # Safety
///
/// The pool is mapped writable, and no other code creates lanes of it.
unsafe fn lanes(
    pool: &Pool,
    signal: &Arc<dyn Signal>,
    packets_per_chunk: Option<u32>,
) -> (Vec<NewLane>, Vec<LaneEnds>) {
    let lane = |id| {
        let chunks = source::share(pool.geometry(), id);
        // SAFETY: the caller's promise; `share` gives each lane chunks of its own.
        let (mut writer, ends) = unsafe { source::lane(pool, id, chunks, Arc::clone(signal)) };
        if let Some(packets) = packets_per_chunk {
            writer.limit_packets(packets);
        }
        let rules = Arc::new(LaneRules::default());
        let lane = NewLane {
            id,
            classifier: LaneClassifier::new(Arc::clone(&rules)),
            totals: LaneTotals {
                counters: writer.counters(),
                rules: Arc::clone(&rules),
            },
            rules,
            writer,
        };
        (lane, ends)
    };
    (0..pool.geometry().lane_count)
        .map(LaneId)
        .map(lane)
        .unzip()
}

/// Creates a pool in this process's own memory, and its lanes.
pub(crate) fn on_heap(
    geometry: Geometry,
    signal: &Arc<dyn Signal>,
    packets_per_chunk: Option<u32>,
) -> (Pool, Vec<NewLane>, Vec<LaneEnds>) {
    let pool = Pool::on_heap(geometry);
    // SAFETY: memory of this process is writable, and the pool was just made.
    let (lanes, ends) = unsafe { lanes(&pool, signal, packets_per_chunk) };
    (pool, lanes, ends)
}

/// When a file's first packet is read, or a simulated link begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceStart {
    /// When the source is opened.
    #[default]
    AtOnce,
    /// When the source has rules, so that they see every packet, before the snap length cuts it.
    WithRules,
}

/// A source before its threads are started.
pub struct SourceSetup {
    /// The device, for error messages.
    device: String,
    /// The source's memory.
    pub pool: SealedPool,
    event: Event,
    ends: Vec<LaneEnds>,
    rules: Vec<Arc<LaneRules>>,
}

/// A thread of a source: its name, and its work until it is stopped.
pub type SourceThread = (String, Box<dyn FnOnce() -> Result<(), CaptureError> + Send>);

impl SourceSetup {
    /// Creates the pool of a source.
    pub fn new(device: impl Into<String>, geometry: Geometry) -> Result<Self, CaptureError> {
        let device = device.into();
        let pool = SealedPool::create(geometry)
            .map_err(CaptureError::system(&device, "making the pool"))?;
        Ok(SourceSetup {
            event: Event::new().map_err(CaptureError::system(&device, "making an event"))?,
            device,
            pool,
            ends: Vec::new(),
            rules: Vec::new(),
        })
    }

    /// Creates the lanes; returns none on later calls.
    pub fn lanes(&mut self, packets_per_chunk: Option<u32>) -> Vec<NewLane> {
        if !self.ends.is_empty() {
            return Vec::new();
        }
        let signal: Arc<dyn Signal> = Arc::new(self.event.clone());
        // SAFETY: `writable` is mapped writable, and this function makes lanes of it only once.
        let (lanes, ends) = unsafe { lanes(&self.pool.writable, &signal, packets_per_chunk) };
        self.ends = ends;
        self.rules = lanes.iter().map(|lane| Arc::clone(&lane.rules)).collect();
        lanes
    }

    /// Creates the only lane.
    ///
    /// # Errors
    ///
    /// [`CaptureError::System`]: the pool has none, or it was made already.
    pub fn lane(&mut self, packets_per_chunk: Option<u32>) -> Result<NewLane, CaptureError> {
        let lane = self
            .lanes(packets_per_chunk)
            .pop()
            .ok_or(io::ErrorKind::NotFound);
        lane.map_err(CaptureError::system(&self.device, "making a lane"))
    }

    /// Starts the threads and returns the source.
    pub fn start(
        self,
        facts: Facts,
        driver: Box<dyn ThreadedDriver>,
        workers: Vec<SourceThread>,
    ) -> Result<Source, CaptureError> {
        // Threads of files and simulations need no rights.
        let keeps = match facts.interface {
            Some(_) => WHILE_CAPTURING,
            None => CapabilitySet::empty(),
        };
        let device = facts.device.clone();
        let (sender, outcome) = mpsc::channel();
        self.assemble(facts, driver, outcome, |source| {
            for (name, work) in workers {
                let (sender, event) = (sender.clone(), source.event.clone());
                let thread = std::thread::Builder::new().name(name).spawn(move || {
                    limit_source_thread(keeps);
                    if let Err(error) = work() {
                        let _nobody_asks = sender.send(error);
                    }
                    drop(sender);
                    event.signal();
                });
                let thread = thread.map_err(CaptureError::system(&device, "starting a thread"))?;
                source.threads.push(thread);
            }
            drop(sender);
            Ok(())
        })
    }

    /// The source, once `start` has started its threads.
    fn assemble(
        self,
        facts: Facts,
        driver: Box<dyn ThreadedDriver>,
        outcome: Receiver<CaptureError>,
        start: impl FnOnce(&mut ThreadedSource) -> Result<(), CaptureError>,
    ) -> Result<Source, CaptureError> {
        let wake = match driver.monitor() {
            Some(monitor) => any_of([self.event.as_fd(), monitor.as_fd()]),
            None => self.event.as_fd().try_clone_to_owned(),
        };
        let wake = wake.map_err(CaptureError::system(&self.device, "making an epoll set"))?;
        let pool_file = self.pool.file.try_clone();
        let pool_file =
            pool_file.map_err(CaptureError::system(&self.device, "sharing the pool"))?;
        let rules = SourceRules {
            device: facts.device.clone(),
            link_type: LinkType(facts.link_type),
            lanes: self.rules,
            flows: None,
            hook: driver.rules_hook(),
        };
        let update_losses = driver.loss_update();
        let mut threaded = ThreadedSource {
            event: self.event,
            threads: Vec::new(),
            outcome,
            failure: None,
            has_ended: false,
            driver,
        };
        start(&mut threaded)?;
        Ok(Source {
            driver: Box::new(threaded),
            facts,
            pool: self.pool.readable,
            pool_file: Some(pool_file),
            pool_is_map: false,
            lanes: self.ends,
            rules: Box::new(rules),
            update_losses,
            wake,
            readers_wake: None,
        })
    }

    /// Signals the hub and the readers of the source.
    #[must_use]
    pub fn event(&self) -> Event {
        self.event.clone()
    }
}

/// Descriptor that becomes readable when either one does.
pub(crate) fn any_of(fds: [BorrowedFd<'_>; 2]) -> io::Result<OwnedFd> {
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in fds {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&events, fd, data, epoll::EventFlags::IN)?;
    }
    Ok(events)
}

/// The driver of a source whose lanes are written by threads of this process.
struct ThreadedSource {
    event: Event,
    threads: Vec<JoinHandle<()>>,
    /// Failures of threads; disconnected when the last thread has ended.
    outcome: Receiver<CaptureError>,
    /// The monitor's failure, until it is reported.
    failure: Option<CaptureError>,
    has_ended: bool,
    driver: Box<dyn ThreadedDriver>,
}

/// The rules of all lanes, and the driver's hook for changes.
struct SourceRules {
    device: String,
    link_type: LinkType,
    lanes: Vec<Arc<LaneRules>>,
    /// The table of flows in force.
    flows: Option<Arc<SourceFlows>>,
    hook: Option<RulesHook>,
}

impl SourceRules {
    /// The table in force if it suits these settings, else a new one.
    fn table_for(&self, settings: &FlowSettings) -> Arc<SourceFlows> {
        match &self.flows {
            Some(table) if table.fits(settings) => Arc::clone(table),
            _ => {
                let lanes = self.lanes.iter().map(|lane| lane.withheld()).collect();
                Arc::new(SourceFlows::new(settings, self.link_type, lanes))
            }
        }
    }
}

impl RuleLoader for SourceRules {
    fn classify(&mut self, rules: &Rules) -> Result<Vec<FilterLocation>, SourceError> {
        if let Some(settings) = &rules.flows {
            let checked = settings.check();
            checked.map_err(|error| format!("{}: {error}", self.device))?;
        }
        let mut places = Vec::new();
        let flows = rules.flows.as_ref().map(|it| self.table_for(it));
        for lane in &self.lanes {
            places = lane.set(rules, flows.clone(), &self.device, self.link_type)?;
        }
        if let Some((table, settings)) = flows.as_ref().zip(rules.flows.as_ref()) {
            table.apply(settings);
        }
        self.flows = flows;
        if let Some(hook) = &mut self.hook {
            hook(rules);
        }
        Ok(places)
    }

    fn flow_rules(&self) -> Option<Arc<dyn FlowRules>> {
        let table = self.flows.clone()?;
        Some(table)
    }
}

impl SourceDriver for ThreadedSource {
    fn counts(&mut self) -> Counts {
        self.driver.counts()
    }

    fn pause(&mut self, lane: LaneId, pause: Pause) {
        self.driver.pause(lane, pause);
    }

    fn status(&mut self) -> Status {
        if let Some(error) = self.failure.take() {
            return error.into_status();
        }
        match self.outcome.try_recv() {
            Ok(error) => error.into_status(),
            Err(TryRecvError::Empty) if !self.has_ended => {
                if self.driver.is_waiting() {
                    Status::Waiting
                } else {
                    Status::Running
                }
            }
            Err(_) => Status::Ended,
        }
    }

    fn detached_count(&self) -> u64 {
        self.driver.monitor().map_or(0, InterfaceMonitor::repairs)
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.driver.take_notes()
    }

    fn clear_wake(&mut self) {
        self.event.clear();
        if !self.has_ended
            && let Some(monitor) = self.driver.monitor()
        {
            monitor.clear();
            self.failure = monitor.take_failure();
            self.has_ended = self.failure.is_some();
        }
    }

    fn stop(&mut self) {
        self.driver.stop();
        for thread in self.threads.drain(..) {
            join(thread);
        }
        self.driver.finish();
        self.has_ended = true;
    }
}

impl Drop for ThreadedSource {
    fn drop(&mut self) {
        self.stop();
    }
}
