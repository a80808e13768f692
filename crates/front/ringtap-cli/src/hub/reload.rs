// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running hub reads its configuration file again: sources, groups, their users, limits, metrics.
//!
//! Invariants
//! - Capture of the sources that stay goes on; attached readers keep their rules.
//! - After an error, the hub has the sources and groups that it had.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ringtap_client::Control as _;
use ringtap_device::DeviceSpec;
use ringtap_explain::http::MetricsServer;
use ringtap_explain::text;
use ringtap_filter::LinkType;
use ringtap_hub::Hub;
use ringtap_hub::config::{Config, Device, compiled};
use ringtap_ipc::protocol::{ConfigurationStatus, SourceState};
use ringtap_net::interface::Interface;
use ringtap_pool::distributor::Policy;
use ringtap_pool::source::Facts;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Signal, kill_process};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{
    HubArgs, ReloadArgs, compile, open, read, require_different_interfaces, serve_metrics, service,
};
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
    require_different_interfaces(&config.devices)?;
    let link_type = |device: &Device| match Interface::find(&device.spec.name) {
        Ok(found) if device.spec.kind.names_an_interface() => found.link_type,
        _ => LinkType::ETHERNET,
    };
    let facts = config.devices.iter().map(|device| Facts {
        device: device.spec.to_string(),
        link_type: link_type(device).0,
        policy: Policy::DropNewest,
        ..Facts::default()
    });
    let groups = compiled(&config.groups, &facts.collect::<Vec<_>>(), compile)?;
    for device in &config.devices {
        let absent = Interface::find(&device.spec.name).err();
        let absent = absent.filter(|_| device.spec.kind.names_an_interface());
        print::notes(absent.map(|error| format!("for now, {error}")));
    }
    print::line(format_args!(
        "{}: no error: {}, {}",
        file.display(),
        text::count(config.devices.len(), "source"),
        text::count(groups.len(), "group"),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// A running hub, and the configuration that it has.
pub(super) struct Reloaded<'a> {
    pub(super) args: &'a HubArgs,
    pub(super) config: Config,
    /// Each source that the hub has had, in the hub's order.
    pub(super) sources: Vec<(DeviceSpec, Facts)>,
    /// Why the hub captures nothing yet: one sentence for each interface that is not there.
    pub(super) awaits: Vec<String>,
    pub(super) configuration: ConfigurationStatus,
    pub(super) hub: &'a Hub,
    pub(super) metrics: Option<MetricsServer>,
}

impl Reloaded<'_> {
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
    pub(super) fn publish(&self) {
        if self.args.config.is_some() {
            self.hub
                .handle()
                .set_configuration(self.configuration.clone());
        }
    }

    /// Sets which interfaces the hub waits for, and reports a change.
    pub(super) fn set_awaits(&mut self, awaits: Vec<String>) {
        if awaits == self.awaits {
            return;
        }
        for reason in &awaits {
            tracing::warn!("waiting: {reason}");
        }
        let state = match awaits.as_slice() {
            [] => "capturing".to_owned(),
            reasons => format!("waiting: {}", reasons.join("; ")),
        };
        service::tell(NotifyState::Status(&state));
        self.hub.handle().set_awaits(awaits.clone());
        self.awaits = awaits;
    }

    /// Begins to capture once no interface is missing; returns whether it began now.
    pub(super) fn begin_when_there(&mut self) -> Result<bool> {
        if self.awaits.is_empty() {
            return Ok(false);
        }
        match self.apply(self.config.clone()) {
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
        self.apply(self.args.config(self.args.config.as_deref())?)
    }

    fn apply(&mut self, new: Config) -> Result<Vec<String>> {
        require_different_interfaces(&new.devices)?;
        if !self.awaits.is_empty() {
            let awaits = waiting::absent(new.devices.iter().map(|device| &device.spec));
            if !awaits.is_empty() {
                self.set_awaits(awaits);
                (self.config.devices, self.config.groups) = (new.devices, new.groups);
                return Ok(Vec::new());
            }
        }
        let runs = self.running()?;
        let is_wanted = |at: &usize| {
            let spec = &self.sources[*at].0;
            new.devices.iter().any(|one| one.spec == *spec)
        };
        let (stays, goes): (Vec<usize>, Vec<usize>) = runs.iter().partition(|at| is_wanted(at));
        let known = |one: &&Device| stays.iter().all(|at| self.sources[*at].0 != one.spec);
        let come: Vec<_> = new.devices.iter().filter(known).collect();
        self.require_free(&come, &runs)?;
        let opened = come.iter().map(|device| open(device));
        let opened = opened.collect::<Result<Vec<_>>>()?;
        let facts = stays.iter().map(|at| self.sources[*at].1.clone());
        let facts = facts.chain(opened.iter().map(|source| source.facts.clone()));
        let groups = compiled(&new.groups, &facts.collect::<Vec<_>>(), compile)?;
        let hub = self.hub.handle();
        hub.check_groups(&groups)?;
        let mut notes = Vec::new();
        // Before the groups: a reader of a new group reads all sources.
        for (source, Device { spec, .. }) in opened.into_iter().zip(come) {
            let facts = source.facts.clone();
            notes.extend(facts.notes.iter().cloned());
            hub.add_source(source)?;
            notes.push(format!(
                "{spec}: captured from now on, for readers that attach from now on"
            ));
            self.sources.push((spec.clone(), facts));
        }
        notes.extend(hub.replace_groups(groups)?);
        hub.set_limits(new.limits);
        for at in goes {
            hub.stop_source(at);
            notes.push(format!("{}: captured no longer", self.sources[at].0));
        }
        notes.extend(self.config.unchanged(&new));
        let metrics = |config: &Config| (config.metrics, config.metrics_anywhere);
        if metrics(&new) != metrics(&self.config) {
            self.metrics = None;
            self.metrics = serve_metrics(&new, self.hub)?;
        }
        // The other keys are those of the start, with which the next reload compares.
        (self.config.metrics, self.config.metrics_anywhere) = (new.metrics, new.metrics_anywhere);
        (self.config.devices, self.config.groups) = (new.devices, new.groups);
        self.set_awaits(Vec::new());
        Ok(notes)
    }

    /// Indexes of the sources that capture.
    fn running(&self) -> Result<Vec<usize>> {
        let status = self.hub.handle().status().context("the hub is ending")?;
        let sources = status.sources.iter().enumerate();
        let running = sources.filter(|(_, source)| source.state != SourceState::Ended);
        Ok(running.map(|(at, _)| at).collect())
    }

    /// Refuses devices whose interface the hub captures already in another way.
    fn require_free(&self, come: &[&Device], runs: &[usize]) -> Result<()> {
        for Device { spec, .. } in come {
            let of_same = |at: &&usize| {
                let other = &self.sources[**at].0;
                spec.kind.names_an_interface() && spec.name == other.name
            };
            if let Some(at) = runs.iter().find(of_same) {
                bail!(
                    "{spec}: the hub captures {} as {}: remove that source with one reload, and add \
                     this one with the next",
                    spec.name,
                    self.sources[*at].0
                );
            }
        }
        Ok(())
    }
}
