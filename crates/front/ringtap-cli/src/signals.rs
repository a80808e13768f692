// SPDX-License-Identifier: MIT OR Apache-2.0
//! What SIGHUP, SIGUSR1 and SIGUSR2 do to each verb; `interrupt` has the signals that end a verb.
//!
//! Invariants
//! - No verb ends by SIGUSR1 or SIGUSR2.
//! - [`TABLE`] is the only list: manual pages and `docs/command-line.md` have its words.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use signal_hook::flag;
use signal_hook::iterator::Signals;

static COUNTERS: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static OUTPUT: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Effect of signals on verbs that run until they are ended.
pub(crate) struct SignalRow {
    pub(crate) verbs: &'static [&'static str],
    pub(crate) hangup: &'static str,
    pub(crate) usr1: &'static str,
    pub(crate) usr2: &'static str,
}

const ENDS: &str = "ends, as with SIGTERM";
const COUNTERS_SO_FAR: &str = "prints the counters so far on standard error";
const NOTHING: &str = "nothing";

/// One row for verbs that act alike.
pub(crate) const TABLE: [SignalRow; 5] = [
    SignalRow {
        verbs: &["hub", "probe"],
        hangup: "reads the file of `-c` (`--config`) again; without a file: ends, as with SIGTERM",
        usr1: COUNTERS_SO_FAR,
        usr2: NOTHING,
    },
    SignalRow {
        verbs: &["record"],
        hangup: ENDS,
        usr1: COUNTERS_SO_FAR,
        usr2: "with `--before`: is an event; with `-C` or `-G`: begins the next file; else writes what is in memory",
    },
    SignalRow {
        verbs: &[
            "count",
            "packets",
            "send",
            "bridge",
            "inline",
            "guest",
            "vm attach",
        ],
        hangup: ENDS,
        usr1: COUNTERS_SO_FAR,
        usr2: NOTHING,
    },
    SignalRow {
        verbs: &["top", "status --interval", "rules watch", "demo"],
        hangup: ENDS,
        usr1: "nothing: they show counters all the time",
        usr2: NOTHING,
    },
    SignalRow {
        verbs: &["exec"],
        hangup: "as its program does",
        usr1: "as its program does",
        usr2: "as its program does",
    },
];

/// Catches SIGUSR1 and SIGUSR2 from now on.
pub(crate) fn catch() -> Result<()> {
    for (signal, wanted) in [(SIGUSR1, &COUNTERS), (SIGUSR2, &OUTPUT)] {
        flag::register(signal, Arc::clone(wanted)).context("cannot handle signals")?;
    }
    Ok(())
}

/// Whether SIGUSR1 came since the last call.
pub(crate) fn wants_counters() -> bool {
    take(&COUNTERS)
}

/// Whether SIGUSR2 came since the last call.
pub(crate) fn wants_output() -> bool {
    take(&OUTPUT)
}

fn take(wanted: &AtomicBool) -> bool {
    wanted.load(Relaxed) && wanted.swap(false, Relaxed)
}

/// Calls `show` at each SIGUSR1, on a thread of its own: for verbs without a loop that looks.
pub(crate) fn on_counters(mut show: impl FnMut() + Send + 'static) -> Result<()> {
    let mut signals = Signals::new([SIGUSR1]).context("cannot handle signals")?;
    let thread = thread::Builder::new().name("counters".into());
    let work = move || signals.forever().for_each(|_| show());
    thread.spawn(work).context("cannot start a thread")?;
    Ok(())
}

/// The row of a verb.
pub(crate) fn row(verb: &str) -> Option<&'static SignalRow> {
    let is_it = |one: &&str| one.split(' ').next() == Some(verb);
    TABLE.iter().find(|row| row.verbs.iter().any(is_it))
}
