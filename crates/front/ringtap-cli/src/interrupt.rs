// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends a capture in good order at Ctrl-C; a later second one ends the process at once.

use std::fs;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use ringtap_client::Control;
use ringtap_net::affinity::Steered;

use crate::print;

/// Signals by which users, terminals and services end a process.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Signals this soon after the first count as the same request: `timeout` signals the program and
/// then its whole process group, and `sudo` passes on the terminal's signal.
const ONE_REQUEST: Duration = Duration::from_millis(500);

/// Time that a device may take to open after a request to end.
const OPENING: Duration = Duration::from_secs(60);

/// Time after which the user hears that no packet is captured yet.
const SLOW: Duration = Duration::from_secs(1);

/// Requests to end a capture, from before its device opens.
pub(crate) struct EndRequests {
    requests: Receiver<()>,
    is_open: Arc<AtomicBool>,
}

impl EndRequests {
    /// Waits for SIGINT, SIGTERM and SIGHUP from now on.
    pub(crate) fn new() -> Result<Self> {
        EndRequests::by(&ending())
    }

    /// Waits for these signals from now on.
    pub(crate) fn by(signals: &[i32]) -> Result<Self> {
        let (request, requests) = mpsc::channel();
        let is_open = Arc::new(AtomicBool::new(false));
        let opened = Arc::clone(&is_open);
        on_signals(signals, move || {
            let _over = request.send(());
            thread::sleep(OPENING);
            if !opened.load(Ordering::Relaxed) {
                process::exit(128 + SIGINT);
            }
        })?;
        Ok(EndRequests { requests, is_open })
    }

    /// Tells the user once if the capture does not open within [`SLOW`]: the kernel's check of programs takes longer
    /// on a busy machine.
    pub(crate) fn note_if_slow(self, device: String) -> Result<Self> {
        let opened = Arc::clone(&self.is_open);
        start("opening", move || {
            thread::sleep(SLOW);
            if !opened.load(Ordering::Relaxed) {
                print::note(format_args!(
                    "ringtap: {device} is still opening, and no packet is captured yet (of an interface, the kernel \
                     checks the programs first)"
                ));
            }
        })?;
        Ok(self)
    }

    /// Waits for the first request, at most for `limit`; returns whether it came.
    pub(crate) fn came_within(&self, limit: Duration) -> bool {
        !matches!(
            self.requests.recv_timeout(limit),
            Err(RecvTimeoutError::Timeout)
        )
    }

    /// Stops the capture at the first request, which may have come already, and after `duration` if there
    /// is one.
    ///
    /// Readers then receive what is still in the pool, so that the counters are complete. Before that,
    /// interrupts move back: once a program is detached, NAPI may be gone.
    pub(crate) fn stop(
        self,
        control: &Arc<dyn Control>,
        duration: Option<Duration>,
        steered: &Steered,
    ) -> Result<()> {
        let (stopper, undo) = (Arc::clone(control), steered.undoing());
        self.call(duration, move || {
            undo();
            stopper.stop();
        })
    }

    /// Calls `stop` at the first request, which may have come already, and after `duration` if there is one.
    pub(crate) fn call(
        self,
        duration: Option<Duration>,
        stop: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        self.is_open.store(true, Ordering::Relaxed);
        start("duration", move || {
            let _request = match duration {
                Some(duration) => self.requests.recv_timeout(duration).ok(),
                None => self.requests.recv().ok(),
            };
            stop();
        })
    }
}

/// Calls `stop` at the first SIGINT, SIGTERM or SIGHUP.
pub(crate) fn on_interrupt(stop: impl FnOnce() + Send + 'static) -> Result<()> {
    on_signals(&ending(), stop)
}

/// The signals that end a verb without a configuration file. A SIGHUP that `nohup` ignores stays ignored.
fn ending() -> Vec<i32> {
    let mut all = ENDING.to_vec();
    all.retain(|signal| *signal != SIGHUP || !is_ignored(SIGHUP));
    all
}

/// Whether this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Calls `stop` at the first of these signals.
pub(crate) fn on_signals(ending: &[i32], stop: impl FnOnce() + Send + 'static) -> Result<()> {
    let again = Arc::new(AtomicBool::new(false));
    // First, so that no signal is handled without being noticed.
    let mut signals = Signals::new(ending).context("cannot handle signals")?;
    for signal in ending.iter().copied() {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))
            .context("cannot handle signals")?;
    }
    let stopping = move || {
        if let Some(signal) = signals.forever().next() {
            if signal == SIGHUP {
                print::note(
                    "ringtap: ends by SIGHUP: there is no configuration file to read again",
                );
            }
            // A thread of its own: `stop` may take long, or hang.
            let (armed, at_once) = (Arc::clone(&again), again);
            if start("another signal", move || arm(&armed)).is_err() {
                at_once.store(true, Ordering::Relaxed);
            }
            stop();
        }
    };
    start("signals", stopping)
}

/// Ignores the ending signals: this process ends together with another one.
pub(crate) fn outlive() -> Result<()> {
    for signal in ENDING {
        flag::register(signal, Arc::default()).context("cannot handle signals")?;
    }
    Ok(())
}

/// Lets a further signal end the process, once [`ONE_REQUEST`] is over.
fn arm(again: &AtomicBool) {
    thread::sleep(ONE_REQUEST);
    again.store(true, Ordering::Relaxed);
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let builder = thread::Builder::new().name(name.into());
    builder.spawn(work).context("cannot start a thread")?;
    Ok(())
}
