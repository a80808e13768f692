// SPDX-License-Identifier: MIT OR Apache-2.0
//! One worker of the *analysis engine*: reads its share of the flows and runs all analyses on it.
//!
//! Invariants
//! - Nothing on a packet's way takes a lock or waits for another thread.
//! - Each captured packet is counted as analysed or as skipped.

mod kernel;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringtap::{Batch, CapabilitySet, Capture, Next, limit_thread};
use ringtap_filter::hash::Link;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::now_ns;
use ringtap_pool::format::flag;

use crate::analysis::{AnalysisKind, AnalysisPlan, CountedIn, Meter};
use crate::board::{PlanBoard, SnapshotRequest};
use crate::export::ExportQueues;
use crate::flows::{FlowChange, FlowCounters, FlowMeter, FlowOptions, PACKETS_TOGETHER};
use crate::interval::Interval;
use crate::ledger::{KernelLedger, ProbeLedger};
use crate::library::SlotMessage;
use crate::merge::WorkerResult;
use crate::packet::{Dissected, Secret};
use crate::plan::ProbePlan;
use crate::record::Record;

/// Longest time without a look at the clock and the commands.
const TICK: Duration = Duration::from_millis(50);
/// Flows that one look at the clock may end before packets have their turn again.
const ENDS_OF_TICK: usize = 4096;
/// Records that are sent together.
const RECORDS_TOGETHER: usize = 512;

/// A message of a worker to the probe.
pub(crate) enum WorkerReport {
    /// The worker's part of an interval.
    Part(WorkerResult),
    /// A message about a process of a library; `None`: the host of all processes has ended.
    Library(Option<SlotMessage>),
    /// The capture has ended, and so has the worker.
    Ended(usize, Option<Box<Capture>>, Result<(), ringtap::Error>),
}

/// State of a worker that other threads may read at any time.
#[derive(Debug, Default)]
pub(crate) struct WorkerStatus {
    /// The worker's counts, set between two batches. A worker that finds it locked sets it after the next batch.
    pub(crate) ledger: Mutex<ProbeLedger>,
    /// Changes of the plan that the worker has followed; all once it has ended.
    pub(crate) followed: AtomicU64,
}

/// Settings with which a worker starts.
pub(crate) struct WorkerSetup {
    pub(crate) number: usize,
    /// The analyses of the worker.
    pub(crate) place: CountedIn,
    /// Number of all workers, which share the memory for flows.
    pub(crate) workers: u32,
    pub(crate) link: Link,
    /// Index of the captured interface, if the capture is of one.
    pub(crate) interface: Option<u32>,
    pub(crate) secret: Secret,
    pub(crate) outlets: Arc<ExportQueues>,
    pub(crate) reports: SyncSender<WorkerReport>,
    pub(crate) board: Arc<PlanBoard>,
    pub(crate) status: Arc<WorkerStatus>,
}

/// A worker.
pub(crate) struct ProbeWorker {
    setup: WorkerSetup,
    headers: ringtap::Headers,
    flows: Vec<NamedFlows>,
    meters: Vec<IntervalMeter>,
    /// The flows that bring the keys of analyses, instead of each packet.
    feeder: Option<usize>,
    records: Vec<Record>,
    /// The worker's own counts.
    ledger: ProbeLedger,
    /// Counts of flow meters that ended before.
    ended_flows: FlowCounters,
    /// Changes of the plan, and requests for results, that the worker has followed.
    generation: u64,
    snapshot: Option<SnapshotRequest>,
}

struct NamedFlows {
    name: String,
    meter: FlowMeter,
    /// Position of the account of the analysis.
    account: usize,
}

struct IntervalMeter {
    plan: AnalysisPlan,
    /// Position of the account of the analysis.
    account: usize,
    meter: Meter,
    interval: Interval,
    seen: Interval,
}

impl ProbeWorker {
    pub(crate) fn new(setup: WorkerSetup) -> Self {
        let generation = setup.board.generation();
        let plan = setup.board.posted().plan;
        let is_in_kernel = setup.place == CountedIn::Kernel;
        let mut worker = ProbeWorker {
            headers: plan.headers,
            flows: Vec::new(),
            meters: Vec::new(),
            feeder: None,
            records: Vec::new(),
            ledger: ProbeLedger {
                kernel: is_in_kernel.then(KernelLedger::default),
                ..ProbeLedger::default()
            },
            ended_flows: FlowCounters::default(),
            generation,
            snapshot: None,
            setup,
        };
        worker.follow(&plan);
        worker
    }

    /// Reads the capture to its end, and reports it.
    pub(crate) fn run(mut self, mut capture: Capture) {
        // Packets are foreign, and nDPI is C. The kernel refuses no thread to give up rights.
        let _keeps_them = limit_thread(CapabilitySet::empty());
        let outcome = self.read(&mut capture);
        self.end_of_capture();
        let ended = WorkerReport::Ended(self.setup.number, Some(Box::new(capture)), outcome);
        let _probe_is_gone = self.setup.reports.send(ended);
    }

    fn read(&mut self, capture: &mut Capture) -> Result<(), ringtap::Error> {
        loop {
            match capture.next(Some(TICK))? {
                Next::Batch(batch) => self.batch(capture, &batch)?,
                Next::Empty => {}
                Next::Ended => return Ok(()),
            }
            self.between_batches();
        }
    }

    #[inline(never)]
    fn batch(&mut self, capture: &mut Capture, batch: &Batch) -> Result<(), ringtap::Error> {
        let (mut captured, mut not_ip) = (0, 0);
        let (link, headers, secret) = (self.setup.link, self.headers, self.setup.secret);
        let mut together = Vec::with_capacity(PACKETS_TOGETHER);
        for packet in capture.packets(batch) {
            let packet = packet.map_err(|error| *error)?;
            let slot = packet.slot();
            captured += 1;
            let (data, wire_length) = (packet.data, slot.wire_length);
            match Dissected::new(slot.time_ns, data, wire_length, link, headers, &secret) {
                Some(mut dissected) => {
                    dissected.marks.is_sent = slot.flags & flag::OUT != 0;
                    together.push(dissected);
                }
                None => not_ip += 1,
            }
            if together.len() == PACKETS_TOGETHER {
                self.packets(&mut together);
            }
        }
        self.packets(&mut together);
        self.count_analysed(captured - not_ip);
        self.ledger.skipped.not_ip += not_ip;
        self.ledger.captured += captured;
        Ok(())
    }

    fn packets(&mut self, packets: &mut Vec<Dissected>) {
        let is_boundary = |packet: &Dissected| {
            let mut meters = self.meters.iter();
            meters.any(|one| !one.interval.holds(packet.time_ns))
        };
        if self.feeder.is_some() && packets.iter().any(is_boundary) {
            // What the flows brought before the boundary is taken before a packet behind it is counted.
            for one in packets.chunks_mut(1) {
                self.enter_intervals(one[0].time_ns);
                self.meter(one);
            }
        } else {
            self.meter(packets);
        }
        packets.clear();
        if let Some(feeder) = self.feeder {
            let meters = &mut self.meters;
            self.flows[feeder]
                .meter
                .take_some_changes(|change| add(meters, change));
        }
        if self.records.len() >= RECORDS_TOGETHER {
            self.setup.outlets.send(&mut self.records);
        }
    }

    fn meter(&mut self, packets: &mut [Dissected]) {
        for flows in &mut self.flows {
            flows.meter.packets(packets, &mut self.records);
        }
        packets.iter().for_each(|packet| self.packet(packet));
    }

    #[cold]
    fn enter_intervals(&mut self, time_ns: u64) {
        for at in 0..self.meters.len() {
            if !self.meters[at].interval.holds(time_ns) {
                self.next_interval(at, time_ns);
            }
        }
    }

    /// Adds what the flows brought to the analyses that count keys.
    fn feed(&mut self) {
        let Some(feeder) = self.feeder else { return };
        let meters = &mut self.meters;
        self.flows[feeder]
            .meter
            .take_changes(|change| add(meters, change));
    }

    /// Counts packets that all analyses saw.
    fn count_analysed(&mut self, packets: u64) {
        if self.flows.is_empty() && self.meters.is_empty() {
            self.ledger.skipped.disabled += packets;
        } else {
            self.ledger.analysed += packets;
        }
        let flows = self.flows.iter().map(|one| one.account);
        for account in flows.chain(self.meters.iter().map(|one| one.account)) {
            self.ledger.analyses[account].analysed += packets;
        }
    }

    /// Counts a packet in the analyses with results at intervals.
    #[inline]
    fn packet(&mut self, packet: &Dissected) {
        for at in 0..self.meters.len() {
            if !self.meters[at].interval.holds(packet.time_ns) {
                self.next_interval(at, packet.time_ns);
            }
            let meter = &mut self.meters[at];
            meter.seen.add(packet.time_ns);
            if self.feeder.is_none() || !meter.plan.kind.counts_keys() {
                meter.meter.packet(packet);
            }
        }
    }

    /// Follows the clock of a live capture and new plans, and sends what is ready.
    fn between_batches(&mut self) {
        if self.setup.outlets.is_live() {
            let now_ns = now_ns();
            for flows in &mut self.flows {
                let records = &mut self.records;
                flows.meter.tick(now_ns, ENDS_OF_TICK, records);
            }
            for at in 0..self.meters.len() {
                if !self.meters[at].interval.holds(now_ns) {
                    self.next_interval(at, now_ns);
                }
            }
        }
        self.ledger.flows = self.flow_counters();
        if let Ok(mut ledger) = self.setup.status.ledger.try_lock() {
            ledger.update(&self.ledger);
        }
        self.setup.outlets.send(&mut self.records);
        if self.setup.board.generation() != self.generation {
            self.follow_board();
        }
    }

    #[cold]
    fn follow_board(&mut self) {
        self.generation = self.setup.board.generation();
        let posted = self.setup.board.posted();
        if self.snapshot != posted.snapshot {
            self.snapshot = posted.snapshot;
            self.take_snapshot();
        }
        self.follow(&posted.plan);
        self.setup.status.followed.store(self.generation, Relaxed);
    }

    /// Divides the present intervals at the time of the request, which is the same for all workers.
    fn take_snapshot(&mut self) {
        let Some(SnapshotRequest { time_ns, analysis }) = self.snapshot.clone() else {
            return;
        };
        for at in 0..self.meters.len() {
            let IntervalMeter { plan, interval, .. } = &mut self.meters[at];
            let is_asked = analysis.as_ref().is_none_or(|name| *name == plan.name);
            if is_asked && (interval.from_ns..interval.to_ns).contains(&time_ns) {
                let to_ns = std::mem::replace(&mut interval.to_ns, time_ns);
                let from_ns = time_ns;
                self.change_interval(at, Interval { from_ns, to_ns });
            }
        }
    }

    /// The counts of all flow meters so far.
    fn flow_counters(&self) -> FlowCounters {
        let mut sum = self.ended_flows;
        for flows in &self.flows {
            sum += flows.meter.counters();
        }
        sum
    }

    /// Reports the interval that is over, and starts the one that holds `time_ns`.
    #[cold]
    fn next_interval(&mut self, at: usize, time_ns: u64) {
        let next = Interval::around(time_ns, self.meters[at].plan.every);
        self.change_interval(at, next);
    }

    fn change_interval(&mut self, at: usize, next: Interval) {
        self.feed();
        let IntervalMeter {
            plan,
            account,
            meter,
            interval,
            seen,
        } = &mut self.meters[at];
        let over = std::mem::replace(interval, next);
        let old = IntervalMeter {
            plan: plan.clone(),
            account: *account,
            meter: meter.take(),
            interval: over,
            seen: std::mem::replace(seen, Interval::NONE),
        };
        self.report(old);
    }

    fn report(&mut self, old: IntervalMeter) {
        if old.interval == Interval::NONE {
            return;
        }
        let part = WorkerReport::Part(WorkerResult {
            worker: self.setup.number,
            analysis: old.plan.name,
            interval: old.interval,
            seen: old.seen,
            meter: old.meter,
        });
        let is_lost = if self.setup.outlets.is_live() {
            self.setup.reports.try_send(part).is_err()
        } else {
            self.setup.reports.send(part).is_err()
        };
        if is_lost {
            self.ledger.parts_dropped += 1;
        }
    }

    /// Changes to another plan; analyses that stay the same go on, the others end with their results.
    fn follow(&mut self, plan: &ProbePlan) {
        self.feed();
        self.headers = plan.headers;
        let is_own = |one: &&AnalysisPlan| one.enabled && one.place == self.setup.place;
        let wanted: Vec<_> = plan.analyses.iter().filter(is_own).collect();
        let has_keys = wanted.iter().any(|one| one.kind.counts_keys());
        let has_keys = has_keys && self.setup.place == CountedIn::Workers;
        let mut flows_left = std::mem::take(&mut self.flows);
        let mut meters_left = std::mem::take(&mut self.meters);
        for &one in &wanted {
            if let AnalysisKind::Flows(options) = one.kind {
                let options = self.share_of(options);
                let same = |old: &mut NamedFlows| old.name == one.name && old.meter.change(options);
                let kept = flows_left.iter_mut().position(same);
                self.flows.push(match kept {
                    Some(at) => flows_left.swap_remove(at),
                    None => NamedFlows {
                        name: one.name.clone(),
                        meter: FlowMeter::new(options, self.setup.secret, self.setup.interface),
                        account: self.ledger.position(one),
                    },
                });
            } else if let Some(meter) = Meter::new(one.kind) {
                let same = |old: &IntervalMeter| old.plan == *one;
                self.meters.push(match meters_left.iter().position(same) {
                    Some(at) => meters_left.swap_remove(at),
                    None => IntervalMeter {
                        plan: one.clone(),
                        account: self.ledger.position(one),
                        meter,
                        interval: Interval::NONE,
                        seen: Interval::NONE,
                    },
                });
            }
        }
        if has_keys
            && let Some(first) = self.flows.first_mut()
            && first.meter.counters() == FlowCounters::default()
        {
            first.meter.keep_changes();
        }
        let mut flows = self.flows.iter();
        self.feeder = flows.position(|one| one.meter.keeps_changes());
        self.end(flows_left, meters_left, ExportQueues::send);
    }

    /// A worker's share of the memory for flows.
    fn share_of(&self, options: FlowOptions) -> FlowOptions {
        FlowOptions {
            max_flows: options.max_flows.div_ceil(self.setup.workers.max(1)),
            payload_memory: options.payload_memory / u64::from(self.setup.workers.max(1)),
            ..options
        }
    }

    /// Ends analyses, and sends their records with `send`, a few at a time.
    fn end(
        &mut self,
        flows: Vec<NamedFlows>,
        meters: Vec<IntervalMeter>,
        send: fn(&ExportQueues, &mut Vec<Record>),
    ) {
        for mut old in flows {
            while old.meter.finish_some(RECORDS_TOGETHER, &mut self.records) {
                send(&self.setup.outlets, &mut self.records);
            }
            self.ended_flows += old.meter.counters();
        }
        for old in meters {
            self.report(old);
        }
        self.ledger.flows = self.flow_counters();
        lock(&self.setup.status.ledger).update(&self.ledger);
        send(&self.setup.outlets, &mut self.records);
    }

    fn end_of_capture(&mut self) {
        self.feed();
        self.feeder = None;
        let flows = std::mem::take(&mut self.flows);
        let meters = std::mem::take(&mut self.meters);
        self.end(flows, meters, ExportQueues::send_last);
        self.setup.status.followed.store(u64::MAX, Relaxed);
    }
}

/// Adds what a flow brought to the analyses that count keys.
fn add(meters: &mut [IntervalMeter], change: FlowChange) {
    let FlowChange {
        key,
        bytes,
        packets,
    } = change;
    let fed = meters.iter_mut().filter(|one| one.plan.kind.counts_keys());
    fed.for_each(|one| one.meter.key(&key, bytes, packets));
}
