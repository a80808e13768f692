// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running hub reads its configuration file again, and tells the log, systemd and its status.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ringtap_client::Control as _;
use ringtap_explain::text;
use ringtap_hub::config::{Config, ConfiguredHub};
use ringtap_ipc::protocol::ConfigurationStatus;
use ringtap_net::interface::Interface;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Signal, kill_process};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{DeviceOpener, HubArgs, ReloadArgs, ServedMetrics, read, service};
use crate::UsageError;
use crate::interrupt;
use crate::print;
use crate::seeing::HubSocketArgs;
use crate::waiting;

/// Time between two looks at the hub's answer.
const PAUSE: Duration = Duration::from_millis(50);

/// Catches SIGHUP, which sets the flag, and calls `stop` at SIGINT or SIGTERM.
pub(super) fn catch(stop: impl FnOnce() + Send + 'static) -> Result<Arc<AtomicBool>> {
    let reload = Arc::default();
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload)).context("cannot handle signals")?;
    interrupt::on_signals(&[SIGINT, SIGTERM], stop)?;
    Ok(reload)
}

/// Makes the hub at this socket read its file again, and waits until the file is in force.
///
/// # Errors
///
/// The file's error, with line and key; nothing has changed then.
pub(super) fn ask(args: &ReloadArgs) -> Result<ExitCode> {
    let named = match &args.config {
        Some(file) => read(file)?.socket,
        None => args.hub.socket.clone(),
    };
    let hub = HubSocketArgs { socket: named };
    let connection = hub.connect("reload")?;
    // The kernel names the process as this namespace knows it.
    let peer = connection.connection().map(socket_peercred);
    let peer = peer.context("the hub has ended")??;
    let pid = peer.pid.as_raw_nonzero();
    let status = connection.status()?;
    ensure!(
        !status.partial,
        "hub {pid}: only root and the user of the hub make it read its file again"
    );
    let before = status.configuration.with_context(|| {
        format!("hub {pid} was started without -c FILE: there is nothing to read again")
    })?;
    // The file that is being read now may be an older one.
    let wanted = before.reads + 1 + u64::from(before.is_reading);
    kill_process(peer.pid, Signal::HUP)
        .with_context(|| format!("process {pid} cannot be signalled"))?;
    let state = loop {
        std::thread::sleep(PAUSE);
        let state = connection.status()?.configuration.unwrap_or_default();
        if state.reads >= wanted {
            break state;
        }
    };
    if let Some(error) = state.error {
        let text = format!("the configuration is not in force: {error}");
        return Err(UsageError(text).into());
    }
    print::notes(state.notes);
    print::note(format_args!("ringtap: hub {pid} has read its file again"));
    Ok(ExitCode::SUCCESS)
}

/// Checks a configuration file as a hub does at its start, without opening its devices.
///
/// # Errors
///
/// The file's error, with line and key.
pub(super) fn check(args: &HubArgs, file: &Path) -> Result<ExitCode> {
    let config = args.config(Some(file))?;
    config.check(&DeviceOpener)?;
    let absent = config.interfaces().map(Interface::find);
    print::notes(absent.filter_map(|found| Some(format!("for now, {}", found.err()?))));
    print::line(format_args!(
        "{}: no error: {}, {}",
        file.display(),
        text::count(config.devices.len(), "source"),
        text::count(config.groups.len(), "group"),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// A running hub, with the state of its configuration file and the server of its metrics.
pub(super) struct ReloadedHub<'a> {
    args: &'a HubArgs,
    pub(super) running: ConfiguredHub<DeviceOpener>,
    /// The interfaces that the log has named as missing.
    awaits: Vec<String>,
    configuration: ConfigurationStatus,
    metrics: ServedMetrics,
}

impl<'a> ReloadedHub<'a> {
    /// Reports the state of a hub that has started.
    pub(super) fn new(
        args: &'a HubArgs,
        running: ConfiguredHub<DeviceOpener>,
        metrics: ServedMetrics,
    ) -> Self {
        let mut hub = ReloadedHub {
            args,
            running,
            awaits: Vec::new(),
            configuration: ConfigurationStatus::default(),
            metrics,
        };
        hub.show_awaits();
        hub.publish();
        hub
    }

    /// Reads the file again if a signal asked for it.
    pub(super) fn reload_if_asked(&mut self, asked: &AtomicBool) {
        if !asked.swap(false, Relaxed) {
            return;
        }
        self.configuration.is_reading = true;
        self.publish();
        self.configuration.reads += 1;
        self.configuration.is_reading = false;
        (self.configuration.notes, self.configuration.error) = match self.reload() {
            Ok(notes) => {
                notes.iter().for_each(|note| tracing::warn!("{note}"));
                tracing::info!("read the configuration again");
                (notes, None)
            }
            Err(error) => {
                let error = crate::describe(&error);
                tracing::error!("the configuration is not in force: {error}");
                (Vec::new(), Some(error))
            }
        };
        self.publish();
    }

    /// Puts the state of the configuration file into the hub's status.
    fn publish(&self) {
        if self.args.config.is_some() {
            let hub = self.running.handle();
            hub.set_configuration(self.configuration.clone());
        }
    }

    /// Reports which interfaces the hub waits for, after a change.
    fn show_awaits(&mut self) {
        let awaits = self.running.awaits();
        if awaits == self.awaits {
            return;
        }
        for reason in awaits {
            tracing::warn!("waiting: {reason}");
        }
        let state = match awaits {
            [] => "capturing".to_owned(),
            reasons => format!("waiting: {}", reasons.join("; ")),
        };
        service::tell(NotifyState::Status(&state));
        self.awaits = awaits.to_vec();
    }

    /// Begins to capture once no interface is missing; returns whether it began now.
    pub(super) fn begin_when_there(&mut self) -> Result<bool> {
        if self.awaits.is_empty() {
            return Ok(false);
        }
        match self.apply(&self.running.config().clone()) {
            // An interface that came is gone again.
            Err(error) if waiting::is_absent(&error) => {}
            applied => {
                let notes = applied?;
                notes.iter().for_each(|note| tracing::warn!("{note}"));
            }
        }
        Ok(self.awaits.is_empty())
    }

    /// Applies the configuration file; returns messages about what changed and what did not.
    fn reload(&mut self) -> Result<Vec<String>> {
        self.apply(&self.args.config(self.args.config.as_deref())?)
    }

    fn apply(&mut self, new: &Config) -> Result<Vec<String>> {
        let applied = self.running.apply(new);
        self.show_awaits();
        let notes = applied?;
        if self.awaits.is_empty() {
            self.metrics.replace(new, self.running.hub())?;
        }
        Ok(notes)
    }
}
