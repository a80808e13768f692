// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub that runs by a configuration, and takes another one while it runs.
//!
//! Invariants
//! - Capture of the sources that stay goes on; attached readers keep their rules.
//! - After an error, the hub has the sources and groups that it had.
//! - While an interface is missing, the hub has neither sources nor groups: a reader that attached to a part of
//!   the sources would never get packets of the others.

use std::fmt::Display;

use ringtap_device::DeviceSpec;
use ringtap_filter::hash::HashSeed;
use ringtap_filter::{LinkType, Program};
use ringtap_ipc::protocol::{Refused, SourceState};
use ringtap_net::interface::Interface;
use ringtap_net::rights::Rights;
use ringtap_pool::distributor::Policy;
use ringtap_pool::source::{Facts, Source};

use super::groups::Result;
use super::{Config, Device, HubConfigError, compiled};
use crate::group::Group;
use crate::hub::{Handle, Hub, HubError};
use crate::options::HubOptions;

/// Opens the devices and compiles the filters of a configuration: this crate can do neither.
pub trait ConfigOpener {
    /// Why a device cannot be opened, a filter is wrong, or a hub cannot take a configuration.
    type Error: Display + From<HubConfigError> + From<HubError> + From<Refused>;

    /// Starts to capture from a device.
    ///
    /// # Errors
    ///
    /// The device cannot be opened.
    fn open(&self, device: &Device) -> Result<Source, Self::Error>;

    /// Compiles a filter for the packets of a source.
    ///
    /// # Errors
    ///
    /// What is wrong with the filter.
    fn compile(&self, filter: &str, facts: &Facts) -> Result<Program, Self::Error>;
}

/// A hub, and the configuration that it has.
///
/// # Examples
///
/// ```no_run
/// use std::path::Path;
///
/// use ringtap_hub::config::{ConfigOpener, ConfiguredHub, read};
///
/// # fn run<O: ConfigOpener>(opener: O) -> Result<(), O::Error> {
/// let file = Path::new("hub.toml");
/// let mut hub = ConfiguredHub::start(read(file)?, opener, |_sources| Ok(()))?;
/// // The file was changed.
/// for note in hub.apply(&read(file)?)? {
///     println!("{note}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct ConfiguredHub<O> {
    opener: O,
    hub: Hub,
    /// Devices and groups in force; the other keys are those of the start, with which each new configuration is
    /// compared.
    config: Config,
    /// Each source that the hub has had, in the hub's order.
    sources: Vec<(DeviceSpec, Facts)>,
    awaits: Vec<String>,
}

impl Config {
    /// Refuses a device for which this process lacks the rights.
    ///
    /// # Errors
    ///
    /// The device and the right.
    pub fn require_rights(&self) -> Result<()> {
        let rights = Rights::current();
        self.devices.iter().try_for_each(|Device { spec, .. }| {
            let checked = spec.kind.require_rights(&rights);
            checked.map_err(|error| HubConfigError::Invalid(format!("{}: {error}", spec.name)))
        })
    }

    /// Refuses a virtual machine whose group is missing.
    ///
    /// # Errors
    ///
    /// The machine and the group.
    pub fn require_groups_of_vms(&self) -> Result<()> {
        let has = |name: &String| self.groups.iter().any(|group| group.name() == name);
        for vm in &self.vms {
            if let Some(missing) = vm.groups.iter().find(|group| !has(group)) {
                let text = format!("[[vm]] {}: there is no group {missing}", vm.name);
                return Err(HubConfigError::Invalid(text));
            }
        }
        Ok(())
    }

    /// Names of the interfaces among the devices.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        let specs = self.devices.iter().map(|device| &device.spec);
        let interfaces = specs.filter(|spec| spec.kind.names_an_interface());
        interfaces.map(|spec| spec.name.as_str())
    }

    /// Checks the configuration as a hub does at its start, without opening its devices.
    ///
    /// # Errors
    ///
    /// The first device or group that does not fit.
    pub fn check(&self, opener: &impl ConfigOpener) -> Result<()> {
        self.require_different_interfaces()?;
        let link_type = |spec: &DeviceSpec| match Interface::find(&spec.name) {
            Ok(found) if spec.kind.names_an_interface() => found.link_type,
            _ => LinkType::ETHERNET,
        };
        let facts = self.devices.iter().map(|device| Facts {
            device: device.spec.to_string(),
            link_type: link_type(&device.spec).0,
            policy: Policy::DropNewest,
            ..Facts::default()
        });
        self.compile(&facts.collect::<Vec<_>>(), opener).map(drop)
    }

    fn compile(&self, facts: &[Facts], opener: &impl ConfigOpener) -> Result<Vec<Group>> {
        compiled(&self.groups, facts, |filter, facts| {
            opener.compile(filter, facts)
        })
    }

    /// Why devices with the option `wait` cannot be opened yet: one sentence for each.
    fn absences(&self) -> Vec<String> {
        let specs = self.devices.iter().map(|device| &device.spec);
        let waiting = specs.filter(|spec| spec.options.wait);
        waiting.filter_map(DeviceSpec::absence).collect()
    }

    /// Refuses devices that name one interface twice, also by different names of it.
    fn require_different_interfaces(&self) -> Result<()> {
        let mut seen: Vec<(u32, &DeviceSpec)> = Vec::new();
        for Device { spec, .. } in &self.devices {
            // What is not found is reported when it is opened.
            let named = spec.kind.names_an_interface().then_some(&spec.name);
            let Some(Ok(interface)) = named.map(|name| Interface::find(name)) else {
                continue;
            };
            if let Some((_, first)) = seen.iter().find(|(index, _)| *index == interface.index) {
                return Err(HubConfigError::Invalid(format!(
                    "{first} and {spec} capture the same interface, so that readers would get each \
                     packet twice: name it once (several queues: tap:{}@0-3, both directions: \
                     direction=inout)",
                    spec.name
                )));
            }
            seen.push((interface.index, spec));
        }
        Ok(())
    }
}

impl<O: ConfigOpener> ConfiguredHub<O> {
    /// Opens the sources, calls `prepared` with them, and starts the hub, whose threads inherit the rights that
    /// `prepared` leaves.
    ///
    /// # Errors
    ///
    /// A device cannot be opened, a group does not fit, `prepared` failed, or the hub cannot start.
    pub fn start(
        config: Config,
        opener: O,
        prepared: impl FnOnce(&[Source]) -> Result<(), O::Error>,
    ) -> Result<Self, O::Error> {
        config.require_different_interfaces()?;
        let awaits = config.absences();
        let (mut sources, mut groups) = (Vec::new(), Vec::new());
        if awaits.is_empty() {
            let opened = config.devices.iter().map(|device| opener.open(device));
            sources = opened.collect::<Result<Vec<_>, _>>()?;
            let facts: Vec<_> = sources.iter().map(|one| one.facts.clone()).collect();
            groups = config.compile(&facts, &opener)?;
        }
        prepared(&sources)?;
        let specs = config.devices.iter().map(|device| device.spec.clone());
        let known = specs.zip(sources.iter().map(|one| one.facts.clone()));
        let known = known.collect();
        let options = HubOptions {
            congestion: config.congestion,
            hash_seed: config.hash_seed.map(HashSeed),
            limits: config.limits,
        };
        let (hub, _) = Hub::start(sources, groups, options, Vec::new())?;
        let mut hub = ConfiguredHub {
            opener,
            hub,
            config,
            sources: known,
            awaits: Vec::new(),
        };
        hub.set_awaits(awaits);
        Ok(hub)
    }

    /// Sends work to the hub.
    pub fn handle(&self) -> &Handle {
        self.hub.handle()
    }

    /// The hub.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// The devices and groups in force, or those that the hub waits for; other keys are those of the start.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Why the hub captures nothing yet: one sentence for each interface that is not there.
    pub fn awaits(&self) -> &[String] {
        &self.awaits
    }

    fn set_awaits(&mut self, awaits: Vec<String>) {
        if awaits != self.awaits {
            self.handle().set_awaits(awaits.clone());
            self.awaits = awaits;
        }
    }

    /// Applies another configuration: sources, groups, their users, limits. Returns messages about what changed
    /// and what did not. Metrics are the caller's.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); nothing has changed then.
    pub fn apply(&mut self, new: &Config) -> Result<Vec<String>, O::Error> {
        new.require_different_interfaces()?;
        if !self.awaits.is_empty() {
            let awaits = new.absences();
            if !awaits.is_empty() {
                self.set_awaits(awaits);
                self.keep(new);
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
        let opened = come.iter().map(|device| self.opener.open(device));
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        let facts = stays.iter().map(|at| self.sources[*at].1.clone());
        let facts = facts.chain(opened.iter().map(|source| source.facts.clone()));
        let groups = new.compile(&facts.collect::<Vec<_>>(), &self.opener)?;
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
        notes.extend(self.config.unchanged(new));
        self.keep(new);
        self.set_awaits(Vec::new());
        Ok(notes)
    }

    fn keep(&mut self, new: &Config) {
        self.config.devices.clone_from(&new.devices);
        self.config.groups.clone_from(&new.groups);
    }

    /// Indexes of the sources that capture.
    fn running(&self) -> Result<Vec<usize>> {
        let ending = || HubConfigError::Invalid("the hub is ending".to_owned());
        let status = self.handle().status().ok_or_else(ending)?;
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
                return Err(HubConfigError::Invalid(format!(
                    "{spec}: the hub captures {} as {}: remove that source with one reload, and add \
                     this one with the next",
                    spec.name, self.sources[*at].0
                )));
            }
        }
        Ok(())
    }
}
