// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules in the kernel: builds and loads programs from rules and replaces the attached programs.
//!
//! Invariants
//! - One program and one set of groups classify each packet.
//! - New rules apply completely or not at all: all new programs are loaded before the first is
//!   attached, and a failed replacement is undone.
//! - When new rules are in force, no instance of an old program is running.

mod error;
pub(super) mod load;
mod user;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::MutexGuard;
use std::sync::atomic::AtomicU64;

use ringtap_filter::hash::{HashKeys, HashSeed};
use ringtap_filter::{Balance, MAX_RULES, Place, Program as Filter, Rule, Rules};
use ringtap_net::interface::Interface;
use ringtap_pool::memory::Words;
use ringtap_pool::source::{RuleLoader, SourceError};

use super::forward::Forward;
use super::groups::{self, Selection};
use super::layout::{ControlWords, LaneWords};
use super::object::{self, Loaded};
use super::programs::{AttachedProgram, LinkSet, Links, TapProgram};
use super::source::wait_for_running_programs;
pub use error::RulesError;
use load::{LoadedRules, RuleParts, RulesNotLoaded, load};
use ringtap_bpf::link;
use ringtap_bpf::namespace::NetworkNamespace;
use ringtap_bpf::splice::Code;
use ringtap_bpf::trial::{FilterCost, Trials};
use user::{MOST_PROGRAMS, UserProgram};

/// The rules in force.
#[derive(Default)]
struct InForce {
    selection: Selection,
    /// Filters and balance modes from which the programs were built; `None` before the first rules.
    programs: Option<Vec<(Filter, Balance)>>,
    seed: HashSeed,
    places: Vec<Place>,
    /// The filters that run in the kernel.
    in_source: Vec<(Filter, FilterCost)>,
    users: Vec<UserProgram>,
}

impl InForce {
    /// Whether the attached programs also implement these rules.
    fn has_programs_for(&self, rules: &Rules) -> bool {
        let (seed, rules) = (rules.seed, &rules.each);
        let alike = |(rule, (filter, balance)): (&Rule, &(Filter, Balance))| {
            rule.filter == *filter && rule.balance == *balance
        };
        self.programs.as_ref().is_some_and(|programs| {
            self.seed == seed
                && programs.len() == rules.len()
                && rules.iter().zip(programs).all(alike)
        }) && self.users.iter().all(UserProgram::is_current)
    }
}

/// Changes the rules of a tap's programs, on a thread of its own.
pub(super) struct TapRules {
    interface: String,
    index: u32,
    namespace: NetworkNamespace,
    /// The programs of the hooks in use, as first loaded.
    originals: Vec<(TapProgram, Code)>,
    links: Links,
    lanes: Words<LaneWords>,
    groups: Words<AtomicU64>,
    controls: Words<ControlWords>,
    forward: Option<Forward>,
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
    ) -> io::Result<Self> {
        let hooks: Vec<_> = links
            .lock()
            .capturing
            .iter()
            .map(|attached| attached.program)
            .collect();
        Ok(TapRules {
            interface: interface.name.clone(),
            index: interface.index,
            namespace: NetworkNamespace::here()?,
            originals: originals(loaded, &hooks)?,
            links: links.clone(),
            lanes: lanes.clone(),
            groups: loaded.groups.clone(),
            controls: loaded.control_words.clone(),
            forward,
            in_force: InForce::default(),
            trials: Trials::default(),
        })
    }

    /// Whether rules were set at least once.
    pub(super) fn exist(&self) -> bool {
        self.in_force.programs.is_some()
    }

    /// Sets the rules.
    pub(super) fn put_in_force(&mut self, rules: &Rules) -> Result<Vec<Place>, RulesError> {
        drop(self.links_in_use()?);
        if rules.each.len() > MAX_RULES {
            return Err(RulesError::TooMany {
                interface: self.interface.clone(),
                count: rules.each.len(),
            });
        }
        if self.in_force.has_programs_for(rules) {
            self.change_members(&rules.each)?;
        } else {
            self.change_programs(rules)?;
        }
        Ok(self.in_force.places.clone())
    }

    /// Locks the links; fails if the tap is stopped.
    fn links_in_use(&self) -> Result<MutexGuard<'_, LinkSet>, RulesError> {
        let links = self.links.lock();
        match links.capturing.is_empty() {
            false => Ok(links),
            true => Err(RulesError::Stopped {
                interface: self.interface.clone(),
            }),
        }
    }

    fn change_members(&mut self, rules: &[Rule]) -> Result<(), RulesError> {
        let next = self.in_force.selection.for_same_programs();
        let links = self.links_in_use()?;
        write_groups(&self.groups, next, rules);
        object::set_groups(&self.controls, next.set_bits());
        wait_for_running_programs(&self.lanes);
        drop(links);
        self.in_force.selection = next;
        Ok(())
    }

    fn change_programs(&mut self, rules: &Rules) -> Result<(), RulesError> {
        let (seed, verifier, rules) = (rules.seed, rules.verifier, &rules.each);
        let next = self.in_force.selection.for_next_programs();
        let filters: Vec<_> = rules.iter().map(|rule| rule.filter.clone()).collect();
        let hooks: Vec<_> = self.originals.iter().map(|(program, _)| *program).collect();
        let fresh = fresh_users(rules, &self.in_force.users, &hooks)?;
        let users: Vec<_> = paths(rules)
            .filter_map(|path| {
                let all = fresh.iter().chain(&self.in_force.users);
                all.clone().find(|user| user.path == *path)
            })
            .collect();
        let ways = rules.iter().map(|rule| groups::way(&rule.balance));
        let parts = RuleParts {
            originals: &self.originals,
            namespace: &self.namespace,
            interface: self.index,
            number: ways.fold(next.half_bit(), |all, way| all | way)
                | groups::count_bits(rules.len()),
            keys: &HashKeys::new(seed),
            filters: &filters,
            users: &users,
            verifier,
            forward: self.forward.as_ref(),
        };
        let loaded = load(&parts, &self.in_force.in_source, &mut self.trials);
        let LoadedRules {
            programs,
            places,
            in_source,
        } = loaded.map_err(|error| not_loaded_error(&self.interface, &users, error))?;
        let mut links = self.links_in_use()?;
        write_groups(&self.groups, next, rules);
        object::set_groups(&self.controls, next.set_bits());
        let replaced = replace_programs(&mut links.capturing, programs);
        wait_for_running_programs(&self.lanes);
        drop(links);
        replaced.map_err(|reason| RulesError::Replace {
            interface: self.interface.clone(),
            reason,
        })?;
        let balances = rules.iter().map(|rule| rule.balance.clone());
        let programs = Some(filters.iter().cloned().zip(balances).collect());
        self.in_force = InForce {
            selection: next,
            programs,
            seed,
            in_source,
            places,
            users: keep(fresh, std::mem::take(&mut self.in_force.users), rules),
        };
        Ok(())
    }
}

impl RuleLoader for TapRules {
    fn classify(&mut self, rules: &Rules) -> Result<Vec<Place>, SourceError> {
        Ok(self.put_in_force(rules)?)
    }
}

/// Replaces all attached programs, or none.
fn replace_programs(links: &mut [AttachedProgram], programs: Vec<OwnedFd>) -> io::Result<()> {
    for (at, program) in programs.iter().enumerate() {
        let Err(error) = link::replace(links[at].link.as_fd(), program.as_fd()) else {
            continue;
        };
        for attached in &links[..at] {
            // This copy was attached just before: the kernel refuses it only if the interface is gone.
            let _gone = link::replace(attached.link.as_fd(), attached.copy.as_fd());
        }
        return Err(error);
    }
    for (attached, program) in links.iter_mut().zip(programs) {
        attached.copy = program;
    }
    Ok(())
}

/// The tap's programs for these hooks, as first loaded.
fn originals(loaded: &Loaded, hooks: &[TapProgram]) -> io::Result<Vec<(TapProgram, Code)>> {
    let original = |program: &TapProgram| {
        let code = Code::parse(&loaded.insns(*program)?).map_err(io::Error::other)?;
        Ok((*program, code))
    };
    hooks.iter().map(original).collect()
}

/// Object files of users' programs, each once, in the order of their numbers.
fn paths(rules: &[Rule]) -> impl Iterator<Item = &PathBuf> {
    let mut seen: Vec<&PathBuf> = Vec::new();
    rules.iter().filter_map(move |rule| {
        let Balance::Program(path) = &rule.balance else {
            return None;
        };
        let is_new = !seen.contains(&path);
        seen.push(path);
        is_new.then_some(path)
    })
}

/// Loads the users' programs that are not yet in force.
fn fresh_users(
    rules: &[Rule],
    in_force: &[UserProgram],
    hooks: &[TapProgram],
) -> Result<Vec<UserProgram>, RulesError> {
    if let Some(path) = paths(rules).nth(MOST_PROGRAMS) {
        return Err(RulesError::TooManyPrograms { path: path.clone() });
    }
    let has = |path: &PathBuf| {
        let mut users = in_force.iter();
        users.any(|user| user.path == *path && user.is_current())
    };
    paths(rules)
        .filter(|path| !has(path))
        .map(|path| UserProgram::load(path, hooks))
        .collect()
}

/// Keeps the users' programs that the rules need; the others close their maps.
fn keep(fresh: Vec<UserProgram>, old: Vec<UserProgram>, rules: &[Rule]) -> Vec<UserProgram> {
    let mut all: Vec<_> = fresh.into_iter().chain(old).collect();
    let mut kept = Vec::new();
    for path in paths(rules) {
        if let Some(at) = all.iter().position(|user| user.path == *path) {
            kept.push(all.remove(at));
        }
    }
    kept
}

fn write_groups(words: &Words<AtomicU64>, selection: Selection, rules: &[Rule]) {
    let number = |rule: &Rule| match &rule.balance {
        Balance::Program(path) => paths(rules).position(|it| it == path),
        _ => None,
    };
    let number = |rule| u32::try_from(number(rule).unwrap_or(0)).unwrap_or(0);
    groups::write(
        words,
        selection,
        rules.iter().map(|rule| (rule, number(rule))),
    );
}

fn load_error(interface: &str, reason: impl ToString) -> RulesError {
    RulesError::Load {
        interface: interface.to_owned(),
        reason: reason.to_string(),
    }
}

/// The error if even a program without filters cannot be loaded.
fn not_loaded_error(interface: &str, users: &[&UserProgram], error: RulesNotLoaded) -> RulesError {
    match users.first() {
        Some(user) if error.is_of_the_program() => RulesError::Program {
            path: user.path.clone(),
            reason: format!("does not fit into the tap's program: {error}"),
        },
        _ => load_error(interface, error),
    }
}
