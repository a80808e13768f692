// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running probe: its workers, its exporters, its ledger.

use std::io;
use std::num::NonZeroU32;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringtap::{AllCounters, Capture, Counters};
use ringtap_capture::meter::KernelMeter;
use ringtap_filter::LinkType;
use ringtap_filter::hash::Link;
use ringtap_pool::number::to_u32;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType};

use crate::analysis::CountedIn;
use crate::board::PlanBoard;
use crate::control::ProbeControl;
use crate::export::{ExportError, ExportQueues, Exporter, WhenFull};
use crate::ledger::ProbeLedger;
use crate::library::{LibraryError, LibrarySupervisor, RunningLibraries};
use crate::merge::Merger;
use crate::packet::Secret;
use crate::plan::{PlanError, ProbePlan};
use crate::record::Record;
use crate::watcher::ActionRunner;
use crate::worker::{ProbeWorker, WorkerReport, WorkerSetup, WorkerStatus};

/// Parts of intervals that may wait for the probe's own thread.
const REPORTS: usize = 1024;
/// Longest wait for a report before a look at the workers.
const LOOK: Duration = Duration::from_millis(100);

/// Why a probe cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Packets of this link type cannot be analysed.
    #[error(
        "link type {0} cannot be analysed: the probe reads Ethernet (1), IP (101, 228, 229), Linux cooked (113, 276), \
         loopback (0, 108) and PPP (9)"
    )]
    LinkType(u16),
    /// The plan does not fit to the number of workers.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An exporter cannot start.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// A user's own analysis cannot start.
    #[error(transparent)]
    Library(#[from] LibraryError),
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

/// A probe that runs.
///
/// # Examples
///
/// ```
/// use ringtap_probe::export::WhenFull;
/// use ringtap_probe::{Probe, ProbePlan};
///
/// let capture = ringtap::open("sim:1Mpps?burst=1000&clock=virtual")?;
/// let plan = ProbePlan::standard(None);
/// // Without an exporter the results are only counted.
/// let probe = Probe::start(vec![capture], None, plan, Vec::new(), WhenFull::Wait, None)?;
/// let outcome = probe.run(|note| eprintln!("{note}"))?;
/// assert_eq!(outcome.counters.delivered, 1000);
/// # Ok::<(), ringtap_probe::ProbeError>(())
/// ```
pub struct Probe {
    threads: Vec<JoinHandle<()>>,
    reports: Receiver<WorkerReport>,
    outlets: Arc<ExportQueues>,
    control: Arc<ProbeControl>,
    actions: ActionRunner,
    merger: Merger,
    libraries: Option<RunningLibraries>,
    end_limit: Duration,
}

impl Probe {
    /// Starts one worker for each capture, and one for the analyses in the kernel if there is a meter. The supervisor
    /// has started the plan's libraries.
    ///
    /// # Errors
    ///
    /// Every [`ProbeError`] but [`ProbeError::Capture`] and [`ProbeError::Worker`].
    pub fn start(
        captures: Vec<Capture>,
        meter: Option<KernelMeter>,
        plan: ProbePlan,
        exporters: Vec<Box<dyn Exporter>>,
        when_full: WhenFull,
        supervisor: Option<LibrarySupervisor>,
    ) -> Result<Self, ProbeError> {
        plan.check(captures.len())?;
        let links: Result<Vec<_>, _> = captures.iter().map(link_of).collect();
        let interface = match &meter {
            Some(meter) => Some(meter.interface_index()),
            None => captures.first().and_then(interface_of),
        };
        let outlets = Arc::new(ExportQueues::start(exporters, when_full)?);
        let (sender, reports) = mpsc::sync_channel(REPORTS);
        let workers = captures.len();
        let count = to_u32(workers);
        let secret = Secret::random();
        let board = Arc::new(PlanBoard::new(plan));
        let controls = captures.iter().map(|one| Arc::clone(one.control()));
        let controls: Vec<_> = controls.collect();
        let (mut threads, mut status) = (Vec::new(), Vec::new());
        let mut setup = |number, place, link| {
            let own = Arc::new(WorkerStatus::default());
            status.push(Arc::clone(&own));
            let setup = WorkerSetup {
                number,
                place,
                workers: match place {
                    CountedIn::Workers => count,
                    CountedIn::Kernel => 1,
                },
                link,
                interface,
                secret,
                outlets: Arc::clone(&outlets),
                reports: sender.clone(),
                board: Arc::clone(&board),
                status: own,
            };
            ProbeWorker::new(setup)
        };
        for (number, (capture, link)) in captures.into_iter().zip(links?).enumerate() {
            let worker = setup(number, CountedIn::Workers, link);
            let builder = thread::Builder::new().name(format!("worker {number}"));
            threads.push(builder.spawn(move || worker.run(capture))?);
        }
        let stop_meter = meter.as_ref().map(KernelMeter::ending);
        if let Some(meter) = meter {
            let worker = setup(workers, CountedIn::Kernel, Link::Ethernet);
            let builder = thread::Builder::new().name("kernel's counts".to_owned());
            threads.push(builder.spawn(move || worker.run_meter(meter))?);
        }
        let report = move |message| sender.send(WorkerReport::Library(message)).is_ok();
        let libraries = supervisor
            .map(|supervisor| RunningLibraries::new(supervisor, report))
            .transpose()?;
        let ledgers = libraries.as_ref().map(RunningLibraries::ledgers);
        let control = Arc::new(ProbeControl {
            status,
            workers,
            stop_meter,
            exports: outlets.status(),
            libraries: ledgers.unwrap_or_default(),
            is_live: outlets.is_live(),
            captures: controls,
            configured: Mutex::new((ProbePlan::clone(&board.posted().plan), None)),
            board,
        });
        Ok(Probe {
            threads,
            reports,
            outlets,
            actions: ActionRunner::new(Arc::clone(&control)),
            control,
            merger: Merger::new(workers),
            libraries,
            end_limit: when_full.end_limit(),
        })
    }

    /// Changes and observes this probe.
    pub fn control(&self) -> &Arc<ProbeControl> {
        &self.control
    }

    /// Joins and exports results until the capture has ended; then all is written. `note` gets a line for the
    /// user about each action.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Worker`]. A failure of the capture is part of the outcome, with the ledger.
    pub fn run(mut self, mut note: impl FnMut(String)) -> Result<ProbeOutcome, ProbeError> {
        let mut records: Vec<Record> = Vec::new();
        let mut results = Vec::new();
        let (mut ended, mut running) = (Vec::new(), self.threads.len());
        let mut outcome = Ok(());
        let mut last_results_until = None;
        loop {
            if running == 0 {
                // Processes of libraries see the end of the capture, too.
                let until = last_results_until.get_or_insert(Instant::now() + self.end_limit);
                let libraries = self.libraries.as_ref();
                if libraries.is_none_or(|one| !one.is_running()) || Instant::now() >= *until {
                    break;
                }
            }
            match self.reports.recv_timeout(LOOK) {
                Ok(WorkerReport::Part(part)) => self.merger.add(part, &mut results),
                Ok(WorkerReport::Ended(worker, capture, result)) => {
                    self.merger.end(worker, &mut results);
                    ended.extend(capture.map(|capture| *capture));
                    outcome = outcome.and(result);
                    running -= 1;
                    if !ended.is_empty() && ended.len() == self.control.workers {
                        self.control.stop_meter();
                    }
                }
                Ok(WorkerReport::Library(report)) => {
                    if let Some(libraries) = &mut self.libraries {
                        libraries.report(report, &mut results, &mut note);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(ProbeError::Worker),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.actions.act(&mut results, &mut records, &mut note);
            self.outlets.send(&mut records);
            self.outlets.warn(&mut note);
        }
        self.merger.finish(&mut results);
        // A thread that waits to send a message ends.
        drop(self.reports);
        if let Some(libraries) = self.libraries {
            libraries.finish(&mut results);
        }
        self.actions.act(&mut results, &mut records, &mut note);
        self.actions.add_losses(&mut records);
        self.outlets.send_last(&mut records);
        for thread in self.threads {
            thread.join().map_err(|_| ProbeError::Worker)?;
        }
        let source = ended.first().map_or(Ok(()), Capture::outcome);
        let mut ledger = self.control.ledger();
        let counters = match (&ledger.kernel, ended.is_empty()) {
            (Some(kernel), true) => Ok(kernel.counters()),
            _ => sum_of(&ended),
        };
        if let Ok(counters) = &counters {
            let captured = counters.delivered + counters.dropped.overrun;
            ledger.complete_libraries(captured);
        }
        if let Some(outlets) = Arc::into_inner(self.outlets) {
            ledger.exporters = outlets.finish(self.end_limit, &mut note);
        }
        Ok(ProbeOutcome {
            ledger,
            counters: counters?,
            result: outcome.and(source),
        })
    }
}

/// Results and totals of a probe that has ended.
#[derive(Debug)]
pub struct ProbeOutcome {
    /// The probe's own account.
    pub ledger: ProbeLedger,
    /// The account of the capture.
    pub counters: Counters,
    /// How the capture ended.
    pub result: Result<(), ringtap::Error>,
}

/// Number of workers for this machine: one for each usable processor, at most 16.
pub fn usual_workers() -> NonZeroU32 {
    let processors = thread::available_parallelism().map_or(1, |count| count.get().min(16));
    let processors = u32::try_from(processors).unwrap_or(1);
    NonZeroU32::new(processors).unwrap_or(NonZeroU32::MIN)
}

fn link_of(capture: &Capture) -> Result<Link, ProbeError> {
    let link_type = capture.facts().link_type;
    Link::from_link_type(LinkType(link_type)).ok_or(ProbeError::LinkType(link_type))
}

/// Index of the interface that a capture reads, if this network namespace has it.
fn interface_of(capture: &Capture) -> Option<u32> {
    let name = capture.facts().interface.as_ref()?;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    name_to_index(&socket, name).ok()
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
