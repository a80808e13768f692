// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the tap's programs with rules spliced in, and finds filters that do not fit.
//!
//! Invariants
//! - A filter that is left out passes all packets in the kernel; its place names the reason.
//! - A new filter is left out when it cannot be translated, when it exceeds the verifier budget
//!   alone, or when the verifier refuses it beside the filters in the kernel.
//! - A filter that was left out is not tried again. A filter in the kernel stays there.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use ringtap_filter::ebpf::{self, Hook, TranslateError};
use ringtap_filter::{Place, Program as Filter};

use super::user::UserProgram;
use crate::bpf::namespace::NetworkNamespace;
use crate::bpf::program::{self, Refusal};
use crate::bpf::splice::{Code, Insn, SpliceError};
use crate::bpf::{MARK_FILTERS, MARK_RULES};
use crate::tap::forward::Forward;
use crate::tap::programs::TapProgram;

/// `RT_PROGRAMS`.
const MARK_PROGRAMS: u64 = 0x5254_5f50_524f_4753;

/// Verifier budget of one filter, in instructions: a tenth of the limit for a program.
const MOST_STEPS: u32 = 100_000;
/// Number of filters remembered; beyond it all are forgotten.
const MOST_TRIED: usize = 256;
/// Calls the function that follows with three numbers unknown to the verifier (from offset 16 of
/// the context), and returns its result.
const CALLER: [Insn; 5] = [0x0010_1261, 0x0010_1361, 0x0010_1461, 0x1_0000_1085, 0x95];

/// Programs built from rules.
pub(super) struct LoadedRules {
    /// One program for each hook.
    pub(super) programs: Vec<OwnedFd>,
    /// Where the filter of each rule runs.
    pub(super) places: Vec<Place>,
}

/// Why programs with rules were not loaded.
#[derive(Debug, thiserror::Error)]
pub(in crate::tap) enum RulesNotLoaded {
    #[error(transparent)]
    Splice(#[from] SpliceError),
    #[error(transparent)]
    Translate(#[from] TranslateError),
    #[error("the interface's network namespace cannot be entered: {0}")]
    Namespace(io::Error),
    #[error("{}", .0.reason())]
    Refused(Refusal),
    #[error(
        "the verifier follows {steps} instructions for it, and {MOST_STEPS} are allowed a filter"
    )]
    TooHard { steps: u32 },
}

impl RulesNotLoaded {
    /// Whether a different program may load; otherwise a resource is missing.
    pub(super) fn is_of_the_program(&self) -> bool {
        match self {
            RulesNotLoaded::Splice(_)
            | RulesNotLoaded::Translate(_)
            | RulesNotLoaded::TooHard { .. } => true,
            RulesNotLoaded::Namespace(_) => false,
            RulesNotLoaded::Refused(refusal) => refusal.is_of_the_program(),
        }
    }
}

/// Inputs for building the programs.
pub(super) struct RuleParts<'a> {
    /// The tap's programs as first loaded.
    pub(super) originals: &'a [(TapProgram, Code)],
    /// The interface's network namespace, and its index there.
    pub(super) namespace: &'a NetworkNamespace,
    pub(super) interface: u32,
    /// The value for `RT_NO_RULES`.
    pub(super) number: u32,
    pub(super) filters: &'a [Filter],
    pub(super) users: &'a [&'a UserProgram],
    /// Destination of packets, captured or not.
    pub(super) forward: Option<&'a Forward>,
}

fn translate(filters: &[Filter], program: TapProgram) -> Result<Vec<Insn>, TranslateError> {
    let hook = if program.is_xdp() {
        Hook::Xdp
    } else {
        Hook::Tc
    };
    let insns = ebpf::classify(filters, hook)?;
    Ok(insns.into_iter().map(|insn| insn.0).collect())
}

impl RuleParts<'_> {
    /// Instructions for one hook with the filters in `taken`.
    fn insns(
        &self,
        program: TapProgram,
        original: &Code,
        taken: &[bool],
    ) -> Result<Vec<Insn>, RulesNotLoaded> {
        let filter = |(filter, taken): (&Filter, &bool)| match taken {
            true => filter.clone(),
            false => Filter::everything(),
        };
        let filters: Vec<_> = self.filters.iter().zip(taken).map(filter).collect();
        let mut code = original.clone();
        code.set_number(MARK_RULES, self.number.into())?;
        code.set_function(MARK_FILTERS, Code::parse(&translate(&filters, program)?)?)?;
        let users: Vec<_> = self
            .users
            .iter()
            .filter_map(|it| it.code(program))
            .collect();
        if !users.is_empty() {
            code.set_function(MARK_PROGRAMS, Code::choice(&users))?;
        }
        if let Some(forward) = self.forward {
            forward.put_into(&mut code, program)?;
        }
        Ok(code.to_insns()?)
    }

    fn load(&self, taken: &[bool]) -> Result<Vec<OwnedFd>, RulesNotLoaded> {
        let load = |(program, original): &(TapProgram, Code)| {
            let insns = self.insns(*program, original, taken)?;
            let kind = program.kind(self.interface);
            let load = || program::load(&kind, &insns);
            let loaded = self
                .namespace
                .run(load)
                .map_err(RulesNotLoaded::Namespace)?;
            Ok(loaded.map_err(RulesNotLoaded::Refused)?.program)
        };
        self.originals.iter().map(load).collect()
    }

    /// Verifies one filter alone, within its budget, for each hook.
    fn check_alone(&self, filter: &Filter) -> Result<(), RulesNotLoaded> {
        for xdp in [true, false] {
            let mut programs = self.originals.iter().map(|(program, _)| *program);
            let Some(program) = programs.find(|program| program.is_xdp() == xdp) else {
                continue;
            };
            let mut insns = CALLER.to_vec();
            insns.extend(translate(std::slice::from_ref(filter), program)?);
            let loaded =
                program::load(&program.filter_kind(), &insns).map_err(RulesNotLoaded::Refused)?;
            let steps = loaded.verifier_steps;
            if steps > MOST_STEPS {
                return Err(RulesNotLoaded::TooHard { steps });
            }
        }
        Ok(())
    }
}

/// Filters tried at this source; each is verified alone only once.
#[derive(Default)]
pub(super) struct KnownFilters(HashMap<Filter, Place>);

impl KnownFilters {
    /// Makes room for this many filters; forgets all if there is none.
    fn reserve(&mut self, filters: usize) {
        if self.0.len() + filters > MOST_TRIED {
            self.0.clear();
        }
    }

    fn insert(&mut self, filter: &Filter, place: Place) {
        self.0.insert(filter.clone(), place);
    }

    fn refuse(&mut self, filter: &Filter, error: &RulesNotLoaded) {
        let reason = format!("it does not fit into the tap's program: {error}");
        self.insert(filter, Place::Reader(reason));
    }

    fn place(&self, filter: &Filter) -> Option<&Place> {
        self.0.get(filter)
    }
}

/// Loads programs with the filters already in the kernel and the new filters that fit.
///
/// # Errors
///
/// The programs do not load even without the new filters, or a resource is missing.
pub(super) fn load(
    parts: &RuleParts<'_>,
    in_source: &[Filter],
    tried: &mut KnownFilters,
) -> Result<LoadedRules, RulesNotLoaded> {
    let is_known = |filter: &Filter| filter.takes_everything() || in_source.contains(filter);
    tried.reserve(parts.filters.len());
    let mut fresh: Vec<&Filter> = Vec::new();
    for filter in parts.filters {
        if is_known(filter) {
            continue;
        }
        if tried.place(filter).is_none() {
            match parts.check_alone(filter) {
                Ok(()) => tried.insert(filter, Place::Source),
                Err(error) if error.is_of_the_program() => tried.refuse(filter, &error),
                Err(error) => return Err(error),
            }
        }
        if tried.place(filter) == Some(&Place::Source) && !fresh.contains(&filter) {
            fresh.push(filter);
        }
    }
    let taken = |more: &[&Filter]| -> Vec<bool> {
        let taken = |filter| is_known(filter) || more.contains(&filter);
        parts.filters.iter().map(taken).collect()
    };
    // Smallest first, so that as many as possible fit.
    fresh.sort_by_key(|filter| filter.instructions().len());
    let programs = match parts.load(&taken(&fresh)) {
        Err(mut reason) if reason.is_of_the_program() && !fresh.is_empty() => {
            let mut programs = parts.load(&taken(&[]))?;
            let (mut fit, mut too_many) = (0, fresh.len());
            while too_many - fit > 1 {
                let middle = fit.midpoint(too_many);
                match parts.load(&taken(&fresh[..middle])) {
                    Ok(loaded) => (programs, fit) = (loaded, middle),
                    Err(error) if error.is_of_the_program() => {
                        (reason, too_many) = (error, middle);
                    }
                    Err(error) => return Err(error),
                }
            }
            for filter in &fresh[fit..] {
                tried.refuse(filter, &reason);
            }
            programs
        }
        loaded => loaded?,
    };
    let place = |filter| match is_known(filter) {
        true => Place::Source,
        false => tried.place(filter).cloned().unwrap_or(Place::Source),
    };
    Ok(LoadedRules {
        programs,
        places: parts.filters.iter().map(place).collect(),
    })
}
