// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules in the kernel: builds and loads programs from rules and replaces the attached programs.
//!
//! Invariants
//! - One program and one set of groups classify each packet.
//! - New rules apply completely or not at all: all new programs are loaded before the first is
//!   attached, and a failed replacement is undone.
//! - When new rules are in force, no instance of an old program is running.

mod load;
#[cfg(test)]
mod tests;
mod user;

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard};

use ringtap_filter::flow::FlowSettings;
use ringtap_filter::hash::{HashKeys, HashSeed};
use ringtap_filter::{Balance, FilterLocation, MAX_RULES, Program as Filter, Rule, Rules};
use ringtap_net::interface::Interface;
use ringtap_pool::memory::Words;
use ringtap_pool::source::{FlowRules, RuleLoader, SourceError};

use super::flows::{FlowMaps, TapFlows};
use super::forward::Forward;
use super::groups::{self, Selection};
use super::layout::{ControlWords, LaneWords};
use super::object::{self, Loaded};
use super::programs::{AttachedProgram, LinkSet, Links, TapProgram};
use super::source::wait_for_running_programs;
use super::verdicts::InlineControl;
use load::{LoadedRules, RuleInputs, load};
use ringtap_bpf::link;
use ringtap_bpf::program::{NotLoaded, OriginalProgram, ProgramCopy};
use ringtap_bpf::trial::{FilterCost, Trials};
pub(super) use user::UserProgram;
use user::users_of;

/// The rules in force.
#[derive(Default)]
struct InForce {
    selection: Selection,
    /// Filters and balance modes from which the programs were built; `None` before the first rules.
    programs: Option<Vec<(Filter, Balance)>>,
    seed: HashSeed,
    places: Vec<FilterLocation>,
    /// The filters that run in the kernel.
    in_source: Vec<(Filter, FilterCost)>,
    /// Users' programs, in the order of their numbers.
    users: Vec<Arc<UserProgram>>,
    /// The table of flows that the attached programs use.
    flows: Option<Arc<TapFlows>>,
    /// Whether they have code for wildcard rules.
    has_wildcards: bool,
}

fn has_wildcards(flows: Option<&FlowSettings>) -> bool {
    flows.is_some_and(|settings| !settings.wildcards.is_empty())
}

impl InForce {
    /// Whether the attached programs also implement these rules.
    fn has_programs_for(&self, rules: &Rules) -> bool {
        let (seed, flows, rules) = (rules.seed, rules.flows.as_ref(), &rules.each);
        let alike = |(rule, (filter, balance)): (&Rule, &(Filter, Balance))| {
            rule.filter == *filter && rule.balance == *balance
        };
        self.programs.as_ref().is_some_and(|programs| {
            self.seed == seed
                && self.has_table_for(flows)
                && self.has_wildcards == has_wildcards(flows)
                && programs.len() == rules.len()
                && rules.iter().zip(programs).all(alike)
        }) && self.users.iter().all(|user| user.is_current())
    }

    /// Whether the attached programs use maps of flows that suit these settings.
    fn has_table_for(&self, flows: Option<&FlowSettings>) -> bool {
        match (&self.flows, flows) {
            (None, None) => true,
            (Some(table), Some(settings)) => table.fits(settings),
            _ => false,
        }
    }
}

/// Changes the rules of a tap's programs, on a thread of its own.
pub(super) struct TapRules {
    interface: String,
    /// The programs of the hooks in use.
    originals: Vec<(TapProgram, OriginalProgram)>,
    links: Links,
    lanes: Words<LaneWords>,
    groups: Words<AtomicU64>,
    controls: Words<ControlWords>,
    forward: Option<Forward>,
    flows: FlowMaps,
    inline: InlineControl,
    /// Number of the descriptor of the small table of decided flows.
    decided: i32,
    in_force: InForce,
    trials: Trials,
}

impl TapRules {
    /// Rules of a tap whose programs were just attached; empty.
    pub(super) fn new(
        interface: &Interface,
        loaded: &Loaded,
        links: &Links,
        lanes: &Words<LaneWords>,
        forward: Option<Forward>,
        inline: InlineControl,
    ) -> io::Result<Self> {
        let original = |attached: &AttachedProgram| {
            let original = loaded.original(attached.program, interface.index)?;
            Ok((attached.program, original))
        };
        let originals: io::Result<_> = links.lock().capturing.iter().map(original).collect();
        Ok(TapRules {
            interface: interface.name.clone(),
            originals: originals?,
            links: links.clone(),
            lanes: lanes.clone(),
            groups: loaded.groups.clone(),
            controls: loaded.control_words.clone(),
            forward,
            flows: loaded.flows.clone(),
            inline,
            decided: loaded.decided,
            in_force: InForce::default(),
            trials: Trials::default(),
        })
    }

    /// Locks the links; fails if the tap is stopped.
    fn links_in_use(&self) -> Result<MutexGuard<'_, LinkSet>, SourceError> {
        let links = self.links.lock();
        if links.capturing.is_empty() {
            Err(format!(
                "{}: the tap was stopped and accepts no rules",
                self.interface
            )
            .into())
        } else {
            Ok(links)
        }
    }

    /// The table in force if it suits these settings, else a new one.
    fn table_for(
        &self,
        flows: Option<&FlowSettings>,
    ) -> Result<Option<Arc<TapFlows>>, SourceError> {
        let Some(settings) = flows else {
            return Ok(None);
        };
        if self.in_force.has_table_for(flows) {
            return Ok(self.in_force.flows.clone());
        }
        let table = TapFlows::new(&self.flows, settings).map_err(|error| {
            let (interface, capacity) = (&self.interface, settings.capacity);
            format!("{interface}: the kernel makes no table of {capacity} flows: {error}")
        })?;
        Ok(Some(Arc::new(table)))
    }

    fn change_members(&mut self, rules: &[Rule]) -> Result<(), SourceError> {
        let next = self.in_force.selection.for_same_programs();
        let links = self.links_in_use()?;
        groups::write(&self.groups, next, rules, &self.in_force.users);
        object::set_groups(&self.controls, next.set_bits());
        wait_for_running_programs(&self.lanes);
        drop(links);
        self.in_force.selection = next;
        Ok(())
    }

    fn change_programs(&mut self, rules: &Rules) -> Result<(), SourceError> {
        let (seed, verifier, flows) = (rules.seed, rules.verifier, rules.flows.as_ref());
        let rules = &rules.each;
        let next = self.in_force.selection.for_next_programs();
        let filters: Vec<_> = rules.iter().map(|rule| rule.filter.clone()).collect();
        let contexts = load::contexts(&self.originals);
        let users = users_of(rules, &self.in_force.users, &contexts)?;
        let interface = self.links_in_use()?.interface;
        for (_, original) in &mut self.originals {
            original.bind_to(interface);
        }
        let table = self.table_for(flows)?;
        let ways = rules.iter().map(|rule| rule.balance.bit());
        let parts = RuleInputs {
            originals: &self.originals,
            needs: ways.fold(next.half_bit(), |all, way| all | way)
                | groups::count_bits(rules.len()),
            keys: &HashKeys::new(seed),
            filters: &filters,
            users: &users,
            verifier,
            forward: self.forward.as_ref(),
            flows: table.as_deref(),
            decided: self.decided,
            has_wildcards: has_wildcards(flows),
        };
        let loaded = load(&parts, &self.in_force.in_source, &mut self.trials);
        let LoadedRules {
            mut programs,
            places,
            in_source,
        } = loaded.map_err(|error| not_loaded_error(&self.interface, &users, &error))?;
        let mut links = self.links_in_use()?;
        // The interface may have left or come meanwhile.
        for ((_, original), copy) in self.originals.iter().zip(&mut programs) {
            let bound = original.bind_copy(copy, links.interface);
            bound.map_err(|error| not_loaded_error(&self.interface, &users, &error))?;
        }
        groups::write(&self.groups, next, rules, &users);
        object::set_groups(&self.controls, next.set_bits());
        let replaced = replace_programs(&mut links.capturing, programs);
        wait_for_running_programs(&self.lanes);
        drop(links);
        replaced.map_err(|reason| {
            let action = "the program cannot be replaced by one with these rules";
            format!("{}: {action}: {reason}", self.interface)
        })?;
        let balances = rules.iter().map(|rule| rule.balance.clone());
        let programs = Some(filters.iter().cloned().zip(balances).collect());
        self.in_force = InForce {
            selection: next,
            programs,
            seed,
            in_source,
            places,
            users,
            flows: table,
            has_wildcards: has_wildcards(flows),
        };
        Ok(())
    }
}

impl RuleLoader for TapRules {
    fn gives_everything(&self) -> bool {
        self.in_force.programs.is_none()
    }

    fn classify(&mut self, rules: &Rules) -> Result<Vec<FilterLocation>, SourceError> {
        drop(self.links_in_use()?);
        if rules.each.len() > MAX_RULES {
            let (interface, count) = (&self.interface, rules.each.len());
            return Err(format!(
                "{interface}: {count} rules are more than the {MAX_RULES} of a tap: let some groups \
                 share a rule without a filter"
            )
            .into());
        }
        if let Some(settings) = &rules.flows {
            let checked = settings.check();
            checked.map_err(|error| format!("{}: {error}", self.interface))?;
        }
        // Members that come get packets of decided flows at once; those that leave, until the new rules are in force.
        let masks = rules.each.iter().flat_map(|rule| rule.members.masks());
        let members = masks.fold(0, |all, mask| all | mask);
        self.inline.set_members(self.inline.members() | members);
        if self.in_force.has_programs_for(rules) {
            self.change_members(&rules.each)?;
        } else {
            self.change_programs(rules)?;
        }
        if let Some((table, settings)) = self.in_force.flows.as_ref().zip(rules.flows.as_ref()) {
            table.apply(settings)?;
        }
        self.inline.set_members(members);
        Ok(self.in_force.places.clone())
    }

    fn flow_rules(&self) -> Option<Arc<dyn FlowRules>> {
        let table = self.in_force.flows.clone()?;
        Some(table)
    }
}

/// Replaces an attached program by a loaded one.
fn replace_by(attached: &AttachedProgram, program: &ProgramCopy) -> Option<io::Result<()>> {
    let program = program.loaded()?;
    Some(link::replace(attached.link.as_fd(), program))
}

/// Replaces all attached programs, or none.
fn replace_programs(links: &mut [AttachedProgram], programs: Vec<ProgramCopy>) -> io::Result<()> {
    for (at, program) in programs.iter().enumerate() {
        // A program that waits for its interface is attached with it.
        let Some(Err(error)) = replace_by(&links[at], program) else {
            continue;
        };
        for attached in &links[..at] {
            // This copy was attached just before: the kernel refuses it only if the interface is gone.
            let _gone = replace_by(attached, &attached.copy);
        }
        return Err(error);
    }
    for (attached, program) in links.iter_mut().zip(programs) {
        attached.copy = program;
    }
    Ok(())
}

/// The error if even a program without filters cannot be loaded.
fn not_loaded_error(interface: &str, users: &[Arc<UserProgram>], error: &NotLoaded) -> SourceError {
    let text = match (error, users.first()) {
        (NotLoaded::Refused(reason), Some(user)) => {
            let path = user.path.display();
            format!("{path}: does not fit into the tap's program: {reason}")
        }
        (error, _) => {
            format!("{interface}: the kernel does not load the program with these rules: {error}")
        }
    };
    text.into()
}
