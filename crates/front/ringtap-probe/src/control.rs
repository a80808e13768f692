// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes and observes a running probe, from any thread.
//!
//! Invariants
//! - A worker takes the lock of the plan only after a change, between two batches; nobody holds it for long.

use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringtap::Control;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::now_ns;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::analysis::{AnalysisKind, AnalysisPlace, AnalysisPlan};
use crate::export::ExportAccount;
use crate::ledger::{AnalysisLedger, ProbeLedger};
use crate::library::LibraryLedgers;
use crate::plan::ProbePlan;
use crate::worker::WorkerCounters;

/// Longest wait for workers to follow a command; that of the kernel looks each second.
const FOLLOWING: Duration = Duration::from_secs(5);
/// Time between two looks at the workers.
const FOLLOWING_LOOK: Duration = Duration::from_millis(5);

/// A command to a running probe: of an action, or of `ringtap probe ctl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeCommand {
    /// Switch the analysis of this name on.
    Enable(String),
    /// Switch the analysis of this name off; its results so far appear.
    Disable(String),
    /// Change the time between the results of this analysis.
    Period(String, Duration),
    /// Give the results of this analysis now, or of all, without those of flows.
    Snapshot(Option<String>),
    /// Read the configuration again.
    Reload,
    /// Give the ledger and the analyses as JSON.
    Status,
}

/// Why a probe did not carry out a command; the message says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(pub(crate) String);

/// Reads the configuration again; returns notes about what does not change while the probe runs.
pub type PlanReader = Box<dyn Fn() -> Result<(ProbePlan, Vec<String>), String> + Send>;

/// Changes and observes a running probe, from any thread.
pub struct ProbeControl {
    pub(crate) board: Arc<PlanBoard>,
    /// Of the workers of captures; the worker after them has the meter.
    pub(crate) counters: Vec<Arc<WorkerCounters>>,
    /// Number of captures.
    pub(crate) workers: usize,
    pub(crate) stop_meter: Option<Arc<AtomicBool>>,
    pub(crate) exports: Vec<Arc<ExportAccount>>,
    pub(crate) libraries: LibraryLedgers,
    pub(crate) is_live: bool,
    /// The captures of all workers.
    pub(crate) captures: Vec<Arc<dyn Control>>,
    /// The plan of the configuration, to which actions return, and its reader.
    pub(crate) configured: Mutex<(ProbePlan, Option<PlanReader>)>,
}

/// The plan in force, for all workers.
pub(crate) struct PlanBoard {
    generation: AtomicU64,
    posted: Mutex<PostedPlan>,
}

/// A plan, and the last request for results.
#[derive(Clone)]
pub(crate) struct PostedPlan {
    pub(crate) plan: Arc<ProbePlan>,
    pub(crate) snapshot: Option<SnapshotRequest>,
}

/// A request for the results of one analysis or all; requests differ in their times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotRequest {
    pub(crate) time_ns: u64,
    pub(crate) analysis: Option<String>,
}

impl PlanBoard {
    pub(crate) fn new(plan: ProbePlan) -> Self {
        let posted = PostedPlan {
            plan: Arc::new(plan),
            snapshot: None,
        };
        PlanBoard {
            generation: AtomicU64::new(0),
            posted: Mutex::new(posted),
        }
    }

    /// Number of changes so far.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        // Pairs with the release in `change`: a worker that sees the number finds the change.
        self.generation.load(Acquire)
    }

    pub(crate) fn posted(&self) -> PostedPlan {
        lock(&self.posted).clone()
    }

    fn change<R>(&self, change: impl FnOnce(&mut PostedPlan) -> R) -> R {
        let mut posted = lock(&self.posted);
        let result = change(&mut posted);
        // Pairs with the acquire in `generation`.
        self.generation.fetch_add(1, Release);
        result
    }
}

impl ProbeControl {
    /// Ends the analyses in the kernel; captures end by their own controls.
    pub(crate) fn stop_meter(&self) {
        if let Some(stop) = &self.stop_meter {
            stop.store(true, Relaxed);
        }
    }

    /// Sets how [`ProbeCommand::Reload`] reads the configuration.
    pub fn reload_by(&self, reader: PlanReader) {
        lock(&self.configured).1 = Some(reader);
    }

    /// The ledger now.
    pub fn ledger(&self) -> ProbeLedger {
        let mut ledger = ProbeLedger::default();
        let (workers, meters) = self.counters.split_at(self.workers);
        for worker in workers {
            worker.add_packets_to(&mut ledger);
        }
        for worker in &self.counters {
            worker.add_flows_to(&mut ledger);
        }
        ledger.kernel = meters.first().map(|meter| meter.in_kernel());
        let exports = self.exports.iter();
        ledger.exporters = exports.map(|export| export.counters()).collect();
        let libraries = lock(&self.libraries).clone().into_iter();
        ledger.libraries = libraries.map(|one| one.of(ledger.captured)).collect();
        ledger.skipped.not_captured = self.losses().not_captured;
        ledger.analyses = self.analyses(&ledger);
        ledger
    }

    /// The accounts of the plan's analyses, then of those that it had before.
    fn analyses(&self, ledger: &ProbeLedger) -> Vec<AnalysisLedger> {
        let mut sums = BTreeMap::new();
        for (at, counters) in self.counters.iter().enumerate() {
            let place = if at < self.workers {
                AnalysisPlace::Workers
            } else {
                AnalysisPlace::Kernel
            };
            counters.add_analyses_to(place, &mut sums);
        }
        let plan = self.plan();
        let planned = plan
            .analyses
            .iter()
            .map(|one| (one.place, one.name.clone()));
        let planned = planned.map(|key| (sums.remove(&key).unwrap_or_default(), key));
        let mut all: Vec<_> = planned.collect();
        all.extend(sums.into_iter().map(|(key, sums)| (sums, key)));
        let all = all.into_iter();
        all.map(|(sums, (place, name))| AnalysisLedger::new(name, place, sums, ledger))
            .collect()
    }

    /// Packets that the captures lost so far. Those before all workers are in each worker's counters.
    pub(crate) fn losses(&self) -> CaptureLosses {
        let mut losses = CaptureLosses::default();
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        for (worker, capture) in self.captures.iter().enumerate() {
            for source in capture.snapshot().unwrap_or_default().sources {
                for lane in &source.lanes {
                    add(&mut losses.others, lane.missed_packets);
                    if worker == 0 {
                        add(&mut losses.not_captured, lane.pool_full);
                        add(&mut losses.others, lane.kernel);
                    }
                }
                if worker == 0 {
                    add(&mut losses.others, source.nic.saturating_add(source.kernel));
                }
            }
        }
        losses
    }

    /// The plan now.
    pub fn plan(&self) -> Arc<ProbePlan> {
        self.board.posted().plan
    }

    /// Carries out a command; returns what to tell the user. The workers follow after their present batch.
    /// Analyses that stay the same go on without a gap, the others end with their results.
    ///
    /// # Errors
    ///
    /// Every [`CommandError`]; nothing has changed then.
    pub fn carry_out(&self, command: &ProbeCommand) -> Result<String, CommandError> {
        match command {
            ProbeCommand::Enable(name) => {
                self.change(name, |one| one.enabled = true)?;
                Ok(format!("{name}: on"))
            }
            ProbeCommand::Disable(name) => {
                self.change(name, |one| one.enabled = false)?;
                Ok(format!("{name}: off"))
            }
            ProbeCommand::Period(name, every) => {
                if matches!(self.find(name)?.kind, AnalysisKind::Flows(_)) {
                    return Err(CommandError(format!(
                        "\"{name}\" gives flow records, which have no period: change its idle and active time-outs"
                    )));
                }
                self.change(name, |one| one.every = Some(*every))?;
                Ok(format!("{name}: every {every:?}"))
            }
            ProbeCommand::Snapshot(analysis) => self.snapshot(analysis.as_deref()),
            ProbeCommand::Reload => self.reload(),
            ProbeCommand::Status => Ok(self.status().to_string()),
        }
    }

    /// Carries out a command, and waits until all workers follow it, at most for [`FOLLOWING`].
    ///
    /// # Errors
    ///
    /// As for [`ProbeControl::carry_out`].
    pub fn apply(&self, command: &ProbeCommand) -> Result<String, CommandError> {
        let mut done = self.carry_out(command)?;
        if *command != ProbeCommand::Status {
            let late = self.late_workers(FOLLOWING);
            if !late.is_empty() {
                done.push_str(&format!(
                    "; not yet in these workers, which did not answer for {FOLLOWING:?}: {}",
                    late.join(", ")
                ));
            }
        }
        Ok(done)
    }

    /// Waits until all workers have followed the changes so far; returns those that have not after `limit`.
    fn late_workers(&self, limit: Duration) -> Vec<String> {
        let (wanted, begun) = (self.board.generation(), Instant::now());
        loop {
            let counters = self.counters.iter().enumerate();
            let late = counters.filter(|(_, one)| one.followed.load(Relaxed) < wanted);
            let late = late.map(|(at, _)| {
                if at < self.workers {
                    at.to_string()
                } else {
                    "kernel".to_owned()
                }
            });
            let late: Vec<_> = late.collect();
            if late.is_empty() || begun.elapsed() >= limit {
                return late;
            }
            std::thread::sleep(FOLLOWING_LOOK);
        }
    }

    /// Undoes a command of an action: the analysis has the other state, or its period of the configuration.
    pub(crate) fn undo(&self, command: &ProbeCommand) -> Result<String, CommandError> {
        match command {
            ProbeCommand::Enable(name) => self.carry_out(&ProbeCommand::Disable(name.clone())),
            ProbeCommand::Disable(name) => self.carry_out(&ProbeCommand::Enable(name.clone())),
            ProbeCommand::Period(name, _) => {
                let configured = find(&lock(&self.configured).0, name)?.every;
                self.change(name, |one| one.every = configured)?;
                Ok(format!("{name}: every {configured:?}"))
            }
            ProbeCommand::Snapshot(_) | ProbeCommand::Reload | ProbeCommand::Status => {
                Ok(String::new())
            }
        }
    }

    fn find(&self, name: &str) -> Result<AnalysisPlan, CommandError> {
        find(&self.plan(), name)
    }

    fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut AnalysisPlan),
    ) -> Result<(), CommandError> {
        self.find(name)?;
        self.board.change(|posted| {
            let analyses = &mut Arc::make_mut(&mut posted.plan).analyses;
            if let Some(one) = analyses.iter_mut().find(|one| one.name == name) {
                change(one);
            }
        });
        Ok(())
    }

    fn snapshot(&self, analysis: Option<&str>) -> Result<String, CommandError> {
        if !self.is_live {
            return Err(CommandError("only a live capture has snapshots".into()));
        }
        let analysis = analysis.map(|name| self.find(name)).transpose()?;
        let request = SnapshotRequest {
            time_ns: now_ns(),
            analysis: analysis.map(|one| one.name),
        };
        self.board.change(|posted| posted.snapshot = Some(request));
        Ok("the results so far are on their way".into())
    }

    fn reload(&self) -> Result<String, CommandError> {
        let refused =
            |why: &str| CommandError(format!("the old configuration stays in force: {why}"));
        let mut configured = lock(&self.configured);
        let reader = configured.1.as_ref().ok_or_else(|| {
            let why = "the probe was started without --config: there is nothing to read again";
            CommandError(why.to_owned())
        })?;
        let (mut plan, mut notes) = reader().map_err(|why| refused(&why))?;
        plan.check(self.workers).map_err(|why| refused(&why))?;
        let is_new_place = plan.needs_packets() && self.workers == 0;
        if is_new_place || in_kernel(&plan) != in_kernel(&configured.0) {
            let why = "what the kernel counts changes with a restart of the probe";
            return Err(refused(why));
        }
        if !self.is_live && plan.needs_payload() && !configured.0.needs_payload() {
            let why = "analyses of payload need a restart of the probe, which reads only headers of its file";
            return Err(refused(why));
        }
        if plan.congestion != configured.0.congestion {
            notes.push("congestion: unchanged: it changes with a restart of the probe".into());
        }
        if plan.libraries != configured.0.libraries {
            notes.push(
                "analyses of libraries: unchanged: they change with a restart of the probe".into(),
            );
            plan.libraries.clone_from(&configured.0.libraries);
        }
        self.board
            .change(|posted| posted.plan = Arc::new(plan.clone()));
        configured.0 = plan;
        let mut text = "the configuration is in force".to_owned();
        notes
            .iter()
            .for_each(|note| text.push_str(&format!("\n{note}")));
        Ok(text)
    }

    fn status(&self) -> Value {
        let mut status = self.ledger().json();
        let plan = self.plan();
        for one in status["analyses"].as_array_mut().into_iter().flatten() {
            // One that the plan has no more is off.
            let planned = plan
                .analyses
                .iter()
                .find(|planned| one["name"] == planned.name);
            let every = planned.and_then(|planned| planned.every);
            one["enabled"] = planned.is_some_and(|planned| planned.enabled).into();
            one["every_seconds"] = every.map(|every| every.as_secs_f64()).into();
        }
        let failures = self.exports.iter().map(|one| one.failure());
        status["failures"] = failures.flatten().collect();
        status
    }
}

/// Packets that captures lost.
#[derive(Clone, Copy, Default)]
pub(crate) struct CaptureLosses {
    /// Those that the capture skipped: workers were behind, or the pool was full.
    pub(crate) not_captured: u64,
    pub(crate) others: u64,
}

/// What the kernel counts.
fn in_kernel(plan: &ProbePlan) -> (u32, Vec<(&str, AnalysisKind)>) {
    let analyses = plan.analyses.iter();
    let analyses = analyses.filter(|one| one.place == AnalysisPlace::Kernel);
    let kinds = analyses.map(|one| (one.name.as_str(), one.kind));
    (plan.kernel_flows, kinds.collect())
}

fn find(plan: &ProbePlan, name: &str) -> Result<AnalysisPlan, CommandError> {
    plan.analysis(name).cloned().map_err(CommandError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_does_not_follow_a_change_is_named() {
        let counters = [0, 1].map(|_| Arc::new(WorkerCounters::default()));
        let control = ProbeControl {
            board: Arc::new(PlanBoard::new(ProbePlan::standard(None))),
            counters: counters.to_vec(),
            workers: 2,
            stop_meter: None,
            exports: Vec::new(),
            libraries: LibraryLedgers::default(),
            is_live: true,
            captures: Vec::new(),
            configured: Mutex::new((ProbePlan::standard(None), None)),
        };
        let off = ProbeCommand::Disable("flows".into());
        control.carry_out(&off).expect("it is there");
        counters[0].followed.store(1, Relaxed);
        assert_eq!(control.late_workers(Duration::ZERO), ["1"]);
        counters[1].followed.store(u64::MAX, Relaxed);
        assert!(control.late_workers(Duration::MAX).is_empty());
    }
}
