// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running hub reads its configuration file again: groups, their users, metrics.
//!
//! Invariants
//! - Capture goes on: no source, reader or rule changes.
//! - After an error, the hub has the groups that it had.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};
use ringtap_client::Control as _;
use ringtap_hub::Hub;
use ringtap_hub::server::Server;
use ringtap_pool::source::Facts;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use super::config::Config;
use super::{HubArgs, compiled, groups, serve_metrics};
use crate::interrupt;
use crate::print;
use crate::seeing::HubSocketArgs;
use crate::seeing::metrics::MetricsServer;

/// Catches SIGHUP and SIGUSR1, which set the flag, and calls `stop` at SIGINT or SIGTERM.
pub(super) fn catch(stop: impl FnOnce() + Send + 'static) -> Result<Arc<AtomicBool>> {
    let reload = Arc::default();
    for signal in [SIGHUP, SIGUSR1] {
        signal_hook::flag::register(signal, Arc::clone(&reload))
            .context("cannot handle signals")?;
    }
    interrupt::on_signals(&[SIGINT, SIGTERM], stop)?;
    Ok(reload)
}

/// Asks the hub at this socket to read its file again.
pub(super) fn ask(hub: &HubSocketArgs) -> Result<ExitCode> {
    let connection = hub.connect("reload")?;
    // The kernel names the process as this namespace knows it.
    let peer = connection.connection().map(socket_peercred);
    let peer = peer.context("the hub has ended")??;
    let pid = peer.pid.as_raw_nonzero();
    ensure!(
        catches(pid.get(), SIGUSR1),
        "hub {pid} was started without -c FILE: there is nothing to read again"
    );
    kill_process(peer.pid, Signal::USR1)
        .with_context(|| format!("process {pid} cannot be signalled"))?;
    print::note(format_args!(
        "ringtap: hub {pid} reads its file again; its log says what did not change"
    ));
    Ok(ExitCode::SUCCESS)
}

/// Whether a process catches a signal.
fn catches(pid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// A running hub, and the configuration that it has.
pub(super) struct Reloaded<'a> {
    pub(super) args: &'a HubArgs,
    pub(super) config: Config,
    /// Facts about each source.
    pub(super) facts: Vec<Facts>,
    pub(super) hub: &'a Hub,
    pub(super) server: &'a Server,
    pub(super) metrics: Option<MetricsServer>,
}

impl Reloaded<'_> {
    /// Reads the file again if a signal asked for it.
    pub(super) fn reload_if_asked(&mut self, asked: &AtomicBool) {
        if !asked.swap(false, Relaxed) {
            return;
        }
        match self.reload() {
            Ok(notes) => {
                notes.iter().for_each(|note| tracing::warn!("{note}"));
                tracing::info!("read the configuration again");
            }
            Err(error) => {
                let error = crate::describe(&error);
                tracing::error!("the configuration is not in force: {error}");
            }
        }
    }

    /// Puts the file in force; returns what did not change.
    fn reload(&mut self) -> Result<Vec<String>> {
        let new = self.args.config()?;
        let old = &self.config;
        let groups = compiled(&new.groups, &self.facts)?;
        let mut notes = self.hub.handle().replace_groups(groups)?;
        self.server.set_access(groups::access(&new.groups));
        for (key, is_same) in [
            ("source", new.devices == old.devices),
            ("limits", new.limits == old.limits),
            ("socket", new.socket == old.socket),
            ("congestion", new.congestion == old.congestion),
            ("hash_seed", new.hash_seed == old.hash_seed),
        ] {
            if !is_same {
                notes.push(format!(
                    "{key}: unchanged: it changes with a restart of the hub"
                ));
            }
        }
        let metrics = |config: &Config| (config.metrics, config.metrics_anywhere);
        if metrics(&new) != metrics(old) {
            self.metrics = None;
            self.metrics = serve_metrics(&new, self.hub)?;
        }
        self.config.groups = new.groups;
        (self.config.metrics, self.config.metrics_anywhere) = (new.metrics, new.metrics_anywhere);
        Ok(notes)
    }
}
