// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe's side of libraries: starts the supervisor, joins results, keeps their account.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringtap_ipc::mutex::lock;
use ringtap_ipc::rate::LineLimit;
use ringtap_ipc::socket::Socket;
use ringtap_ipc::thread::join;
use ringtap_ipc::transport::Transport as _;
use ringtap_pool::number::to_u32;

use super::copy::copy;
use super::messages::{
    LibraryPlan, ProcessMessage, ProcessResult, ProcessSetup, SlotMessage, receive, send_with,
};
use crate::analysis::Meter;
use crate::ledger::LibraryLedger;
use crate::merge::{IntervalResult, Merger, WorkerResult};

/// Why libraries cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "messages show what each field means")]
#[non_exhaustive]
pub enum LibraryError {
    /// The system refused a process or a socket.
    #[error("cannot start a process for analyses: {0}")]
    System(#[from] io::Error),
    /// The library's file cannot be read.
    #[error("analysis {name}: {library}: cannot be read: {cause}")]
    Unreadable {
        name: String,
        library: PathBuf,
        cause: io::Error,
    },
    /// A process or its library refused to start.
    #[error("analysis {name}: {why}")]
    Refused { name: String, why: String },
}

/// The supervisor of a probe's libraries; ends, with all its processes, when this is dropped.
pub struct LibrarySupervisor {
    child: Child,
    socket: Arc<Socket>,
    plans: Vec<LibraryPlan>,
    /// Of each library.
    copies: Vec<OwnedFd>,
    has_listed_files: bool,
    /// For each process, its library and its number there.
    slots: Vec<(usize, u32)>,
    /// Results of processes that were ready before others.
    early: Vec<SlotMessage>,
}

impl LibrarySupervisor {
    /// Starts the supervisor of these libraries: `program` with these arguments, before the probe gives up the right to.
    ///
    /// # Errors
    ///
    /// [`LibraryError::System`], [`LibraryError::Unreadable`].
    pub fn spawn(
        program: &Path,
        words: &[String],
        plans: Vec<LibraryPlan>,
    ) -> Result<Self, LibraryError> {
        let copies = plans
            .iter()
            .map(|plan| {
                copy(&plan.library).map_err(|cause| LibraryError::Unreadable {
                    name: plan.name.clone(),
                    library: plan.library.clone(),
                    cause,
                })
            })
            .collect::<Result<_, _>>()?;
        let (near, far) = Socket::pair()?;
        let child = Command::new(program)
            .args(words)
            .stdin(Stdio::from(far.as_fd().try_clone_to_owned()?))
            // Standard output is the probe's alone.
            .stdout(Stdio::null())
            .spawn()?;
        Ok(LibrarySupervisor {
            child,
            socket: Arc::new(near),
            plans,
            copies,
            has_listed_files: true,
            slots: Vec::new(),
            early: Vec::new(),
        })
    }

    /// Starts the processes of the libraries, and waits until all are ready. They read the groups `analysis-0`
    /// and so on of the hub at `hub`, with a filter.
    ///
    /// # Errors
    ///
    /// Every [`LibraryError`].
    pub fn start(&mut self, workers: u32, hub: &Path, filter: &str) -> Result<(), LibraryError> {
        let mut setups = Vec::new();
        for (library, plan) in self.plans.iter().enumerate() {
            for worker in 0..plan.processes.unwrap_or(workers) {
                self.slots.push((library, worker));
                setups.push(ProcessSetup {
                    plan: plan.clone(),
                    library: to_u32(library),
                    socket: hub.to_owned(),
                    group: group(library),
                    filter: filter.to_owned(),
                    worker,
                    starts: 0,
                });
            }
        }
        let copies: Vec<_> = self.copies.iter().map(OwnedFd::as_fd).collect();
        send_with(&self.socket, &setups, &copies)?;
        self.copies.clear();
        let mut buffer = Vec::new();
        let mut ready = 0;
        while ready < self.slots.len() {
            let message = receive::<SlotMessage>(&self.socket, &mut buffer)?
                .ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
            let name = self.name(message.slot);
            match message.message {
                ProcessMessage::Refused(why) | ProcessMessage::Down { why, .. } => {
                    return Err(LibraryError::Refused { name, why });
                }
                ProcessMessage::Ready { has_listed_files } => {
                    ready += 1;
                    self.has_listed_files &= has_listed_files;
                }
                _ => self.early.push(message),
            }
        }
        Ok(())
    }

    /// Whether the kernel limits the files that started libraries read, which takes Landlock.
    pub fn has_listed_files(&self) -> bool {
        self.has_listed_files
    }

    fn name(&self, slot: u32) -> String {
        let plan = self
            .place(slot)
            .and_then(|(library, _)| self.plans.get(library));
        plan.map_or_else(String::new, |plan| plan.name.clone())
    }

    fn place(&self, slot: u32) -> Option<(usize, u32)> {
        self.slots.get(slot as usize).copied()
    }
}

impl Drop for LibrarySupervisor {
    fn drop(&mut self) {
        // The supervisor sees the end, and ends with its processes.
        self.socket.finish();
        for _ in 0..50 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Name of the group of a library.
pub(crate) fn group(library: usize) -> String {
    format!("analysis-{library}")
}

/// Libraries of a running probe.
pub(crate) struct RunningLibraries {
    supervisor: LibrarySupervisor,
    mergers: Vec<Merger>,
    /// Whether a process may have further results.
    is_up: Vec<bool>,
    ledgers: LibraryLedgers,
    /// Lines that each process makes the probe print.
    lines: LineLimit<u32>,
    thread: Option<JoinHandle<()>>,
}

/// The accounts of all libraries.
pub(crate) type LibraryLedgers = Arc<Mutex<Vec<LibraryLedger>>>;

impl RunningLibraries {
    /// Passes messages of a started supervisor on with `report`, which returns whether the probe is still there.
    pub(crate) fn new(
        mut supervisor: LibrarySupervisor,
        report: impl Fn(Option<SlotMessage>) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let processes = |library| {
            supervisor
                .slots
                .iter()
                .filter(|(own, _)| *own == library)
                .count()
        };
        let mergers = (0..supervisor.plans.len())
            .map(|library| Merger::new(processes(library)))
            .collect();
        let socket = Arc::clone(&supervisor.socket);
        let mut early = std::mem::take(&mut supervisor.early).into_iter();
        let pass_on = move || {
            let mut buffer = Vec::new();
            loop {
                let message = early
                    .next()
                    .or_else(|| receive(&socket, &mut buffer).ok().flatten());
                let is_last = message.is_none();
                if !report(message) || is_last {
                    return;
                }
            }
        };
        let ledgers = supervisor.plans.iter().map(|plan| LibraryLedger {
            name: plan.name.clone(),
            ..LibraryLedger::default()
        });
        Ok(RunningLibraries {
            mergers,
            is_up: vec![true; supervisor.slots.len()],
            ledgers: Arc::new(Mutex::new(ledgers.collect())),
            lines: LineLimit::default(),
            thread: Some(
                thread::Builder::new()
                    .name("libraries".into())
                    .spawn(pass_on)?,
            ),
            supervisor,
        })
    }

    pub(crate) fn ledgers(&self) -> LibraryLedgers {
        Arc::clone(&self.ledgers)
    }

    /// Whether results may still come.
    pub(crate) fn is_running(&self) -> bool {
        self.is_up.contains(&true)
    }

    /// Takes a message of the supervisor; `None`: the supervisor has ended.
    pub(crate) fn report(
        &mut self,
        message: Option<SlotMessage>,
        results: &mut Vec<IntervalResult>,
        note: &mut impl FnMut(String),
    ) {
        let Some(SlotMessage { slot, message }) = message else {
            if self.is_running() {
                note("the process that runs the libraries ended: their packets are no longer analysed".into());
            }
            self.is_up.fill(false);
            return;
        };
        let name = self.supervisor.name(slot);
        let Some((library, worker)) = self.supervisor.place(slot) else {
            return;
        };
        let (is_up, merger) = (&mut self.is_up[slot as usize], &mut self.mergers[library]);
        let mut note = |text: String| {
            let line = self.lines.pass(slot, text, Instant::now());
            line.into_iter().for_each(&mut *note);
        };
        match message {
            ProcessMessage::Ready { .. } => {
                *is_up = true;
                merger.resume(worker as usize);
                note(format!("analysis {name}: process {worker} runs again"));
            }
            ProcessMessage::Part(part) => {
                let ledger = &mut lock(&self.ledgers)[library];
                ledger.analysed = ledger.analysed.saturating_add(part.packets);
                ledger.left_out = ledger.left_out.saturating_add(part.left_out);
                merger.add(worker_result(name, worker, part), results);
            }
            ProcessMessage::Refused(why) => {
                note(format!("analysis {name}: process {worker}: {why}"));
            }
            ProcessMessage::Ended => {
                *is_up = false;
                merger.end(worker as usize, results);
            }
            ProcessMessage::Alive => {}
            ProcessMessage::Down {
                why,
                did_hang,
                pause,
            } => {
                *is_up = false;
                merger.end(worker as usize, results);
                let ledger = &mut lock(&self.ledgers)[library];
                if did_hang {
                    ledger.hangs += 1
                } else {
                    ledger.crashes += 1
                }
                note(format!(
                    "analysis {name}: process {worker} {why}; it starts again in {pause:?}"
                ));
            }
        }
    }

    /// Ends all processes; appends what waits for others.
    pub(crate) fn finish(mut self, results: &mut Vec<IntervalResult>) {
        self.mergers
            .iter_mut()
            .for_each(|merger| merger.finish(results));
        drop(self.supervisor);
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

fn worker_result(analysis: String, worker: u32, from: ProcessResult) -> WorkerResult {
    let mut sums = BTreeMap::new();
    for (name, key, value) in from.values {
        *sums.entry((name, key)).or_default() += value;
    }
    WorkerResult {
        worker: worker as usize,
        analysis,
        interval: from.interval,
        seen: from.seen,
        meter: Meter::Sums(sums),
    }
}
