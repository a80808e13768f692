// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules in the kernel: from rules to programs, and how new programs take the place of old ones.
//!
//! Invariants
//! - Each packet is judged by one program and one set of groups.
//! - Rules that cannot be put in force change nothing: the new programs are loaded before the
//!   first is attached, and those attached are taken back if one cannot be.
//! - When new rules are in force, no run of an old program is under way.
#![forbid(unsafe_code)]

mod error;
pub(crate) mod fit;
mod user;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ringtap_filter::Program as Filter;
use ringtap_pool::classify::{Balance, MAX_RULES, Place, Rule, Rules};
use ringtap_pool::memory::Words;

use super::Tap;
use super::groups::{self, Selection};
use super::hook::{self, Program};
use super::object::Loaded;
use super::source::wait_for_running_programs;
use super::splice::Code;
pub use error::RulesError;
use fit::{Fit, Parts, Unfit, fit};
use user::{MOST_PROGRAMS, UserProgram};

/// The rules that packets are judged by.
#[derive(Default)]
pub(super) struct InForce {
    selection: Selection,
    /// What programs are made of; nothing before the first rules.
    programs: Option<Vec<(Arc<[u64]>, Balance)>>,
    places: Vec<Place>,
    users: Vec<UserProgram>,
}

impl InForce {
    /// Whether there are any yet.
    pub(super) fn exist(&self) -> bool {
        self.programs.is_some()
    }

    /// Whether these rules need no other programs than those in force.
    fn has_programs_for(&self, rules: &[Rule]) -> bool {
        let alike = |(rule, (filter, balance)): (&Rule, &(Arc<[u64]>, Balance))| {
            rule.filter == *filter && rule.balance == *balance
        };
        self.programs.as_ref().is_some_and(|programs| {
            programs.len() == rules.len() && rules.iter().zip(programs).all(alike)
        }) && self.users.iter().all(UserProgram::is_current)
    }
}

impl Tap {
    /// Puts rules in force.
    pub(super) fn put_in_force(&mut self, rules: &Rules) -> Result<Vec<Place>, RulesError> {
        let Rules(rules) = rules;
        let interface = || self.watched.interface.name.clone();
        if self.links.is_empty() {
            return Err(RulesError::Stopped {
                interface: interface(),
            });
        }
        if rules.len() > MAX_RULES {
            return Err(RulesError::TooMany {
                interface: interface(),
                count: rules.len(),
            });
        }
        if self.rules.has_programs_for(rules) {
            self.change_members(rules);
        } else {
            self.change_programs(rules)?;
        }
        Ok(self.rules.places.clone())
    }

    fn change_members(&mut self, rules: &[Rule]) {
        let next = self.rules.selection.for_same_programs();
        write_groups(&self.loaded.groups, next, rules);
        self.loaded.set_groups(next.set_bits());
        wait_for_running_programs(&self.lanes);
        self.rules.selection = next;
    }

    fn change_programs(&mut self, rules: &[Rule]) -> Result<(), RulesError> {
        let interface = &self.watched.interface;
        let next = self.rules.selection.for_next_programs();
        let filters = filters(rules, &interface.name)?;
        let hooks: Vec<_> = self.links.iter().map(|fitted| fitted.program).collect();
        let originals =
            originals(&self.loaded, &hooks).map_err(|error| load_error(&interface.name, error))?;
        let fresh = fresh_users(rules, &self.rules.users, &hooks)?;
        let users: Vec<_> = paths(rules)
            .filter_map(|path| {
                let all = fresh.iter().chain(&self.rules.users);
                all.clone().find(|user| user.path == *path)
            })
            .collect();
        let ways = rules.iter().map(|rule| groups::way(&rule.balance));
        let parts = Parts {
            originals: &originals,
            home: &self.home,
            interface: interface.index,
            number: ways.fold(next.half_bit(), |all, way| all | way)
                | groups::count_bits(rules.len()),
            filters: &filters,
            users: &users,
            forward: self.forward.as_ref().map(|(forward, _)| forward),
        };
        let Fit { programs, places } =
            fit(&parts).map_err(|unfit| unfit_error(&interface.name, &users, unfit))?;
        write_groups(&self.loaded.groups, next, rules);
        self.loaded.set_groups(next.set_bits());
        self.replace_programs(programs)?;
        self.rules = InForce {
            selection: next,
            programs: Some(rules.iter().map(made_of).collect()),
            places,
            users: keep(fresh, std::mem::take(&mut self.rules.users), rules),
        };
        Ok(())
    }

    /// Puts new programs in the place of those attached: all of them, or none.
    fn replace_programs(&mut self, programs: Vec<OwnedFd>) -> Result<(), RulesError> {
        let mut replaced = Ok(());
        let mut done = 0;
        for (fitted, program) in self.links.iter().zip(&programs) {
            replaced = hook::replace(fitted.link.as_fd(), program.as_fd());
            if replaced.is_err() {
                break;
            }
            done += 1;
        }
        if replaced.is_err() {
            for fitted in &self.links[..done] {
                // It was attached there a moment ago; if it cannot be now, the interface is gone.
                let _gone = hook::replace(fitted.link.as_fd(), fitted.attached.as_fd());
            }
        }
        wait_for_running_programs(&self.lanes);
        replaced.map_err(|error| RulesError::Replace {
            interface: self.watched.interface.name.clone(),
            reason: error,
        })?;
        for (fitted, program) in self.links.iter_mut().zip(programs) {
            fitted.attached = program;
        }
        Ok(())
    }
}

fn made_of(rule: &Rule) -> (Arc<[u64]>, Balance) {
    (Arc::clone(&rule.filter), rule.balance.clone())
}

fn filters(rules: &[Rule], interface: &str) -> Result<Vec<Filter>, RulesError> {
    let filter = |(number, rule): (usize, &Rule)| {
        Filter::from_entries(&rule.filter).map_err(|error| RulesError::Filter {
            interface: interface.to_owned(),
            rule: number,
            reason: error.to_string(),
        })
    };
    rules.iter().enumerate().map(filter).collect()
}

/// The tap's programs for these hooks, as they were loaded.
fn originals(loaded: &Loaded, hooks: &[Program]) -> io::Result<Vec<(Program, Code)>> {
    let original = |program: &Program| {
        let code = Code::parse(&loaded.insns(*program)?).map_err(io::Error::other)?;
        Ok((*program, code))
    };
    hooks.iter().map(original).collect()
}

/// The files of users' programs, each once, in the order of their numbers.
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

/// Loads those users' programs that are not in force already.
fn fresh_users(
    rules: &[Rule],
    in_force: &[UserProgram],
    hooks: &[Program],
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

/// The users' programs of these rules; the others end here, with their maps.
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

/// What it means that not even a program without filters is loaded.
fn unfit_error(interface: &str, users: &[&UserProgram], unfit: Unfit) -> RulesError {
    match users.first() {
        Some(user) if unfit.is_of_the_program() => RulesError::Program {
            path: user.path.clone(),
            reason: format!("does not fit into the tap's program: {unfit}"),
        },
        _ => load_error(interface, unfit),
    }
}
