// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes and observes a running probe, from any thread.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringtap::{Control, Dropped};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::now_ns;
use serde_json::Value;

use crate::action::ProbeCommand;
use crate::analysis::{AnalysisKind, AnalysisPlan, CountedIn};
use crate::board::{PlanBoard, SnapshotRequest};
use crate::config::ConfigError;
use crate::export::ExportStatus;
use crate::ledger::ProbeLedger;
use crate::library::LibraryLedgers;
use crate::plan::{PlanError, ProbePlan};
use crate::worker::WorkerStatus;

/// Longest wait for workers to follow a command; that of the kernel looks each second.
const FOLLOWING: Duration = Duration::from_secs(5);
/// Time between two looks at the workers.
const FOLLOWING_LOOK: Duration = Duration::from_millis(5);

/// Why a probe did not carry out a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The plan has no such analysis.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The analysis of this name has no results at intervals.
    #[error(
        "\"{0}\" gives flow records, which have no period: change its idle and active time-outs"
    )]
    NoPeriod(String),
    /// The capture is a file.
    #[error("only a live capture has snapshots")]
    NoSnapshots,
    /// The probe has no configuration.
    #[error("the probe was started without --config: there is nothing to read again")]
    NoConfiguration,
    /// The new configuration cannot come into force.
    #[error("the old configuration stays in force: {0}")]
    Reload(#[from] ReloadError),
    /// No probe answers at a socket.
    #[error(
        "{}: no live probe of this user answers there ({reason}): name its --control", .socket.display()
    )]
    NoProbe {
        /// The socket.
        socket: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },
    /// A probe in another process refused the command.
    #[error("{0}")]
    Refused(String),
}

/// Why a new configuration cannot come into force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// It is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It needs another number of workers.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The kernel would count something else.
    #[error("what the kernel counts changes with a restart of the probe")]
    Kernel,
    /// The capture reads no payload.
    #[error(
        "analyses of payload need a restart of the probe, which reads only headers of its file"
    )]
    Payload,
}

/// Reads the configuration again; returns notes about what does not change while the probe runs.
pub type PlanReader = Box<dyn Fn() -> Result<(ProbePlan, Vec<String>), ConfigError> + Send>;

/// Changes and observes a running probe, from any thread.
pub struct ProbeControl {
    pub(crate) board: Arc<PlanBoard>,
    /// Of the workers of captures; the worker after them has the meter.
    pub(crate) status: Vec<Arc<WorkerStatus>>,
    /// Number of captures.
    pub(crate) workers: usize,
    pub(crate) stop_meter: Option<Arc<AtomicBool>>,
    pub(crate) exports: Vec<Arc<ExportStatus>>,
    pub(crate) libraries: LibraryLedgers,
    pub(crate) is_live: bool,
    /// The captures of all workers.
    pub(crate) captures: Vec<Arc<dyn Control>>,
    /// The plan of the configuration, to which actions return, and its reader.
    pub(crate) configured: Mutex<(ProbePlan, Option<PlanReader>)>,
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
        self.ledger_with(&self.losses())
    }

    /// The ledger now, with these losses of the captures.
    pub(crate) fn ledger_with(&self, losses: &Dropped) -> ProbeLedger {
        let mut ledger = ProbeLedger::new(&self.plan().analyses);
        for worker in &self.status {
            ledger.add(&lock(&worker.ledger));
        }
        ledger.exporters = self.exports.iter().map(|one| one.counters()).collect();
        ledger.libraries.clone_from(&lock(&self.libraries));
        ledger.skipped.not_captured = losses.pool_full;
        ledger.complete();
        ledger
    }

    /// Packets that the captures lost so far. Those before all workers are in each worker's counters.
    pub(crate) fn losses(&self) -> Dropped {
        let mut losses = Dropped::default();
        let asked: Vec<_> = self.captures.iter().map(|one| one.ask_snapshot()).collect();
        for (worker, answer) in asked.into_iter().enumerate() {
            for source in answer().unwrap_or_default().sources {
                for lane in &source.lanes {
                    losses.overrun = losses.overrun.saturating_add(lane.missed_packets);
                }
                if worker == 0 {
                    losses += source.dropped;
                    let lanes = source.lanes.iter().map(|lane| lane.counters.dropped);
                    lanes.for_each(|dropped| losses += dropped);
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
                    return Err(CommandError::NoPeriod(name.clone()));
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
            let workers = self.status.iter().enumerate();
            let late: Vec<_> = workers
                .filter(|(_, one)| one.followed.load(Relaxed) < wanted)
                .map(|(at, _)| {
                    if at < self.workers {
                        at.to_string()
                    } else {
                        "kernel".to_owned()
                    }
                })
                .collect();
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
                let configured = lock(&self.configured).0.analysis(name)?.every;
                self.change(name, |one| one.every = configured)?;
                Ok(format!("{name}: every {configured:?}"))
            }
            ProbeCommand::Snapshot(_) | ProbeCommand::Reload | ProbeCommand::Status => {
                Ok(String::new())
            }
        }
    }

    fn find(&self, name: &str) -> Result<AnalysisPlan, CommandError> {
        Ok(self.plan().analysis(name)?.clone())
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
            return Err(CommandError::NoSnapshots);
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
        let mut configured = lock(&self.configured);
        let reader = configured.1.as_ref();
        let (mut plan, mut notes) =
            reader.ok_or(CommandError::NoConfiguration)?().map_err(ReloadError::from)?;
        plan.check(self.workers).map_err(ReloadError::from)?;
        let is_new_place = plan.needs_packets() && self.workers == 0;
        if is_new_place || in_kernel(&plan) != in_kernel(&configured.0) {
            return Err(ReloadError::Kernel.into());
        }
        if !self.is_live && plan.needs_payload() && !configured.0.needs_payload() {
            return Err(ReloadError::Payload.into());
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

/// Analyses that the kernel counts.
fn in_kernel(plan: &ProbePlan) -> (u32, Vec<(&str, AnalysisKind)>) {
    let analyses = plan
        .analyses
        .iter()
        .filter(|one| one.place == CountedIn::Kernel)
        .map(|one| (one.name.as_str(), one.kind))
        .collect();
    (plan.kernel_flows, analyses)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use ringtap::{AwaitedAnswer, ControlError, Snapshot};
    use ringtap_filter::Program;
    use ringtap_ipc::subscription::Wanted;

    use super::*;

    fn control(status: Vec<Arc<WorkerStatus>>, captures: Vec<Arc<dyn Control>>) -> ProbeControl {
        ProbeControl {
            board: Arc::new(PlanBoard::new(ProbePlan::standard(None))),
            workers: status.len(),
            status,
            stop_meter: None,
            exports: Vec::new(),
            libraries: LibraryLedgers::default(),
            is_live: true,
            captures,
            configured: Mutex::new((ProbePlan::standard(None), None)),
        }
    }

    /// A capture that counts the questions to all.
    struct Asked(Arc<AtomicUsize>, usize);

    impl Control for Asked {
        fn snapshot(&self) -> Result<Snapshot, ControlError> {
            unreachable!(
                "one question after the other takes as many readings of the hub's counters"
            )
        }

        fn ask_snapshot(&self) -> AwaitedAnswer<'_, Snapshot> {
            self.0.fetch_add(1, Relaxed);
            Box::new(|| {
                assert_eq!(
                    self.0.load(Relaxed),
                    self.1,
                    "it waits before all are asked"
                );
                Ok(Snapshot::default())
            })
        }

        fn set_filter(&self, _: &Program) -> Result<Vec<Wanted>, ControlError> {
            unreachable!("nothing changes a filter")
        }

        fn stop(&self) {}
    }

    #[test]
    fn all_captures_are_asked_for_their_counters_before_the_first_answer() {
        let asked = Arc::new(AtomicUsize::new(0));
        let capture = || Arc::new(Asked(Arc::clone(&asked), 60)) as Arc<dyn Control>;
        let control = control(Vec::new(), (0..60).map(|_| capture()).collect());
        assert_eq!(control.losses(), Dropped::default());
        assert_eq!(asked.load(Relaxed), 60);
    }

    #[test]
    fn a_worker_that_does_not_follow_a_change_is_named() {
        let status = [0, 1].map(|_| Arc::new(WorkerStatus::default()));
        let control = control(status.to_vec(), Vec::new());
        let off = ProbeCommand::Disable("flows".into());
        control.carry_out(&off).expect("it is there");
        status[0].followed.store(1, Relaxed);
        assert_eq!(control.late_workers(Duration::ZERO), ["1"]);
        status[1].followed.store(u64::MAX, Relaxed);
        assert!(control.late_workers(Duration::MAX).is_empty());
    }
}
