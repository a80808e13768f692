// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running probe: its workers, its exporters, its ledger.

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringtap::{AllCounters, Capture, Counters, Dropped};
use ringtap_capture::meter::KernelMeter;
use ringtap_filter::LinkType;
use ringtap_filter::hash::Link;

use crate::analysis::AnalysisPlace;
use crate::application::PayloadCounters;
use crate::export::{ExportCounters, ExportError, ExportQueue, Exporter, WhenFull};
use crate::flows::FlowCounters;
use crate::merge::Merger;
use crate::outlets::Outlets;
use crate::packet::Secret;
use crate::plan::ProbePlan;
use crate::record::Record;
use crate::worker::{ProbeWorker, WorkerCounters, WorkerReport, WorkerSetup};

/// Parts of intervals that may wait for the probe's own thread.
const REPORTS: usize = 1024;
/// Longest wait for a report before a look at the workers.
const LOOK: Duration = Duration::from_millis(100);

/// How a probe treats its exporters.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// Records that may wait for each exporter.
    pub most_waiting: u32,
    /// Whether workers wait for a slow exporter: only for files.
    pub when_full: WhenFull,
    /// Longest wait for each exporter at the end.
    pub end_limit: Duration,
}

impl ExportOptions {
    /// For live captures, or for files and other sources that wait for their readers.
    pub fn new(is_live: bool) -> Self {
        ExportOptions {
            most_waiting: 100_000,
            when_full: if is_live {
                WhenFull::Drop
            } else {
                WhenFull::Wait
            },
            end_limit: Duration::from_secs(if is_live { 10 } else { 3600 }),
        }
    }
}

/// Why a probe cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Packets of this link type cannot be analysed.
    #[error("link type {0} cannot be analysed: the probe needs Ethernet or IP packets")]
    LinkType(u16),
    /// An exporter cannot start.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A thread cannot start.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
    /// The capture failed.
    #[error(transparent)]
    Capture(#[from] ringtap::Error),
    /// A worker ended by itself.
    #[error("a worker of the probe ended unexpectedly; please report this")]
    Worker,
}

/// Account of a probe: `captured = analysed + not_ip + disabled`.
#[derive(Clone, Debug, Default)]
pub struct ProbeLedger {
    /// Packets that the workers received.
    pub captured: u64,
    /// Packets that all analyses saw.
    pub analysed: u64,
    /// Packets skipped because they are not IP.
    pub not_ip: u64,
    /// Packets skipped because no analysis was on.
    pub disabled: u64,
    /// Flow metering.
    pub flows: FlowCounters,
    /// Workers' parts of results that were lost because the probe was busy.
    pub parts_dropped: u64,
    /// Exporters by name.
    pub exporters: Vec<(String, ExportCounters)>,
    /// The analyses in the kernel, if there are any.
    pub kernel: Option<KernelLedger>,
}

/// Account of the analyses in the kernel: `seen = analysed + not_ip + disabled + full + nested`.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelLedger {
    /// Packets that the programs saw.
    pub seen: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Packets that all analyses counted.
    pub analysed: u64,
    /// Packets skipped because they are not IP.
    pub not_ip: u64,
    /// Packets skipped because no analysis was on.
    pub disabled: u64,
    /// Packets of new flows for which there was no room; `sizes` has counted them.
    pub full: u64,
    /// Packets that met a program that had not ended.
    pub nested: u64,
}

impl KernelLedger {
    /// The account as that of a capture.
    fn counters(&self) -> Counters {
        let dropped = Dropped {
            kernel: self.nested,
            pool_full: self.full,
            ..Dropped::default()
        };
        Counters {
            offered: self.seen,
            delivered: self.seen.saturating_sub(dropped.total()),
            bytes: self.bytes,
            dropped,
            ..Counters::default()
        }
    }
}

/// A probe that runs.
pub struct Probe {
    threads: Vec<JoinHandle<()>>,
    reports: Receiver<WorkerReport>,
    outlets: Arc<Outlets>,
    control: ProbeControl,
    merger: Merger,
    end_limit: Duration,
}

/// Changes and observes a running probe, from any thread.
#[derive(Clone)]
pub struct ProbeControl {
    plan: Arc<Mutex<PlanInForce>>,
    counters: Arc<[Arc<WorkerCounters>]>,
    /// Workers of captures; the worker after them has the meter.
    workers: usize,
    stop_meter: Option<Arc<AtomicBool>>,
}

/// The plan, and the way of a new one to each worker.
struct PlanInForce {
    plan: ProbePlan,
    workers: Vec<Sender<Arc<ProbePlan>>>,
}

impl Probe {
    /// Starts one worker for each capture, and one for the analyses in the kernel if there is a meter.
    ///
    /// # Errors
    ///
    /// Every [`ProbeError`] but [`ProbeError::Capture`] and [`ProbeError::Worker`].
    pub fn start(
        captures: Vec<Capture>,
        meter: Option<KernelMeter>,
        plan: ProbePlan,
        exporters: Vec<Box<dyn Exporter>>,
        options: ExportOptions,
    ) -> Result<Self, ProbeError> {
        let links: Result<Vec<_>, _> = captures.iter().map(link_of).collect();
        let start = |exporter| ExportQueue::start(exporter, options.most_waiting);
        let queues: Result<Vec<_>, _> = exporters.into_iter().map(start).collect();
        let outlets = Arc::new(Outlets::new(queues?, options.when_full));
        let (sender, reports) = mpsc::sync_channel(REPORTS);
        let workers = captures.len();
        let count = u32::try_from(workers).unwrap_or(u32::MAX);
        let secret = Secret::random();
        let (mut threads, mut plans, mut counters) = (Vec::new(), Vec::new(), Vec::new());
        let mut setup = |number, place, link| {
            let (new_plan, next_plans) = mpsc::channel();
            let own = Arc::new(WorkerCounters::default());
            plans.push(new_plan);
            counters.push(Arc::clone(&own));
            let setup = WorkerSetup {
                number,
                place,
                workers: match place {
                    AnalysisPlace::Workers => count,
                    AnalysisPlace::Kernel => 1,
                },
                link,
                secret,
                outlets: Arc::clone(&outlets),
                reports: sender.clone(),
                plans: next_plans,
                counters: own,
            };
            ProbeWorker::new(setup, &plan)
        };
        for (number, (capture, link)) in captures.into_iter().zip(links?).enumerate() {
            let worker = setup(number, AnalysisPlace::Workers, link);
            let builder = thread::Builder::new().name(format!("worker {number}"));
            threads.push(builder.spawn(move || worker.run(capture))?);
        }
        let stop_meter = meter.as_ref().map(KernelMeter::ending);
        if let Some(meter) = meter {
            let worker = setup(workers, AnalysisPlace::Kernel, Link::Ethernet);
            let builder = thread::Builder::new().name("kernel's counts".to_owned());
            threads.push(builder.spawn(move || worker.run_meter(meter))?);
        }
        Ok(Probe {
            threads,
            reports,
            outlets,
            control: ProbeControl {
                plan: Arc::new(Mutex::new(PlanInForce {
                    plan,
                    workers: plans,
                })),
                counters: counters.into(),
                workers,
                stop_meter,
            },
            merger: Merger::new(workers),
            end_limit: options.end_limit,
        })
    }

    /// Changes and observes this probe.
    pub fn control(&self) -> &ProbeControl {
        &self.control
    }

    /// Joins and exports results until the capture has ended; then all is written.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Worker`]. A failure of the capture is part of the outcome, with the ledger.
    pub fn run(mut self) -> Result<ProbeOutcome, ProbeError> {
        let mut records: Vec<Record> = Vec::new();
        let (mut ended, mut running) = (Vec::new(), self.threads.len());
        let mut outcome = Ok(());
        while running > 0 {
            match self.reports.recv_timeout(LOOK) {
                Ok(WorkerReport::Part(part)) => self.merger.add(part, &mut records),
                Ok(WorkerReport::Ended(worker, capture, result)) => {
                    self.merger.end(worker, &mut records);
                    ended.extend(capture.map(|capture| *capture));
                    outcome = outcome.and(result);
                    running -= 1;
                    if !ended.is_empty() && ended.len() == self.control.workers {
                        self.control.stop_meter();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(ProbeError::Worker),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.outlets.send(&mut records);
        }
        self.merger.finish(&mut records);
        self.outlets.send(&mut records);
        for thread in self.threads {
            thread.join().map_err(|_| ProbeError::Worker)?;
        }
        let source = ended.first().map_or(Ok(()), Capture::outcome);
        let mut ledger = self.control.ledger();
        let counters = match (&ledger.kernel, ended.is_empty()) {
            (Some(kernel), true) => Ok(kernel.counters()),
            _ => sum_of(&ended),
        };
        if let Some(outlets) = Arc::into_inner(self.outlets) {
            ledger.exporters = outlets.finish(self.end_limit);
        }
        Ok(ProbeOutcome {
            ledger,
            counters: counters?,
            result: outcome.and(source),
        })
    }
}

/// What a probe did.
#[derive(Debug)]
pub struct ProbeOutcome {
    /// The probe's own account.
    pub ledger: ProbeLedger,
    /// The account of the capture.
    pub counters: Counters,
    /// How the capture ended.
    pub result: Result<(), ringtap::Error>,
}

impl ProbeControl {
    /// The ledger now, without exporters.
    pub fn ledger(&self) -> ProbeLedger {
        let mut ledger = ProbeLedger::default();
        let (workers, meters) = self.counters.split_at(self.workers);
        for worker in self.counters.iter() {
            ledger.parts_dropped += worker.parts_dropped.load(Relaxed);
            ledger.flows += FlowCounters {
                flows: worker.flows.load(Relaxed),
                records: worker.flow_records.load(Relaxed),
                evicted: worker.evicted.load(Relaxed),
                not_sampled: worker.not_sampled.load(Relaxed),
                payload: PayloadCounters {
                    no_room: worker.payload_no_room.load(Relaxed),
                    unread: worker.payload_unread.load(Relaxed),
                },
            };
        }
        ledger.kernel = meters.first().map(|meter| KernelLedger {
            seen: meter.captured.load(Relaxed),
            bytes: meter.kernel_bytes.load(Relaxed),
            analysed: meter.analysed.load(Relaxed),
            not_ip: meter.not_ip.load(Relaxed),
            disabled: meter.disabled.load(Relaxed),
            full: meter.kernel_full.load(Relaxed),
            nested: meter.kernel_nested.load(Relaxed),
        });
        for worker in workers {
            ledger.captured += worker.captured.load(Relaxed);
            ledger.analysed += worker.analysed.load(Relaxed);
            ledger.not_ip += worker.not_ip.load(Relaxed);
            ledger.disabled += worker.disabled.load(Relaxed);
        }
        ledger
    }

    /// Ends the analyses in the kernel; captures end by their own controls.
    pub fn stop_meter(&self) {
        if let Some(stop) = &self.stop_meter {
            stop.store(true, Relaxed);
        }
    }

    /// The plan now.
    pub fn plan(&self) -> ProbePlan {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.plan.clone()
    }

    /// Changes the plan; the workers follow after their present batch. Analyses that stay the same go on
    /// without a gap, the others end with their results.
    pub fn change(&self, change: impl FnOnce(&mut ProbePlan)) {
        let mut in_force = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut in_force.plan);
        let plan = Arc::new(in_force.plan.clone());
        for worker in &in_force.workers {
            // A worker that has ended needs no plan.
            let _ended = worker.send(Arc::clone(&plan));
        }
    }
}

/// Number of workers for this machine: one for each usable processor, at most 16.
pub fn usual_workers() -> NonZeroU32 {
    let processors = thread::available_parallelism().map_or(1, |count| count.get().min(16));
    let processors = u32::try_from(processors).unwrap_or(1);
    NonZeroU32::new(processors).unwrap_or(NonZeroU32::MIN)
}

fn link_of(capture: &Capture) -> Result<Link, ProbeError> {
    let link_type = capture.facts().link_type;
    Link::of(LinkType(link_type)).ok_or(ProbeError::LinkType(link_type))
}

/// The counters of all workers together; they balance if those of each worker do.
fn sum_of(captures: &[Capture]) -> Result<Counters, ringtap::Error> {
    let all: Result<Vec<AllCounters>, _> = captures.iter().map(Capture::all_counters).collect();
    let mut all = all?.into_iter().map(|one| one.total);
    let Some(mut sum) = all.next() else {
        return Ok(Counters::default());
    };
    let excess = |counters: &Counters| {
        let balance = counters.balance();
        balance.offered.wrapping_sub(balance.accounted)
    };
    let mut unexplained = excess(&sum);
    for worker in all {
        unexplained = unexplained.wrapping_add(excess(&worker));
        sum.delivered += worker.delivered;
        sum.bytes += worker.bytes;
        sum.dropped.overrun += worker.dropped.overrun;
    }
    if captures.len() > 1 {
        // What a worker counts for other members, they count themselves.
        sum.other_members = 0;
    }
    sum.offered = sum.balance().accounted.wrapping_add(unexplained);
    Ok(sum)
}
