// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C and its kin end a capture in good order; the second one ends the process at once.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use ringtap_client::Control;

use crate::affinity::Steered;

/// Stops a capture at the first SIGINT, SIGTERM or SIGHUP, and after `duration` if there is one.
///
/// Readers then get what is still in the pool, so that the ledger is complete. Before that
/// interrupts go back to where they were: once a program is detached, NAPI may be gone.
pub(crate) fn stop_on_time_or_signal(
    control: &Arc<dyn Control>,
    duration: Option<Duration>,
    steered: &Steered,
) -> Result<()> {
    let stopper = Arc::clone(control);
    let first = steered.clone();
    on_interrupt(move || {
        first.undo();
        stopper.stop();
    })?;
    if let Some(duration) = duration {
        let stopper = Arc::clone(control);
        let first = steered.clone();
        let wait = move || {
            thread::sleep(duration);
            first.undo();
            stopper.stop();
        };
        thread::Builder::new()
            .spawn(wait)
            .context("cannot start a thread")?;
    }
    Ok(())
}

/// Calls `stop` at the first SIGINT, SIGTERM or SIGHUP.
pub(crate) fn on_interrupt(stop: impl FnOnce() + Send + 'static) -> Result<()> {
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // In this order: the first signal only sets the flag, the second finds it set.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))
            .and_then(|_| flag::register(signal, Arc::clone(&again)))
            .context("cannot handle signals")?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_some() {
                stop();
            }
        })
        .context("cannot start a thread")?;
    Ok(())
}
