// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the tap's programs with rules spliced in, and finds filters that do not fit.
//!
//! Invariants
//! - A filter that is left out passes all packets in the kernel; its place names the reason.
//! - A new filter is left out when it cannot be translated, when it exceeds the verifier budget
//!   alone or beside the filters in the kernel, or when the verifier refuses it beside them.
//! - A filter in the kernel stays there.

use std::sync::Arc;

use ringtap_filter::ebpf::FilterHook;
use ringtap_filter::hash::HashKeys;
use ringtap_filter::{FilterLocation, Program as Filter, VerifierLimits};

use super::user::UserProgram;
use crate::tap::flows::TapFlows;
use crate::tap::forward::Forward;
use crate::tap::programs::TapProgram;
use ringtap_bpf::program::{NotLoaded, OriginalProgram, ProgramCopy};
use ringtap_bpf::splice::Code;
use ringtap_bpf::trial::{FilterCost, Trials};

/// `RT_KEYS` of `bpf/splice.h`, the first of the numbers that the hash's keys replace.
const MARK_KEYS: u64 = 0x5254_5f4b_4559_5300;
/// `RT_PROGRAMS`.
const MARK_PROGRAMS: u64 = 0x5254_5f50_524f_4753;

/// Why a filter is left out that would fit alone.
const TOGETHER: &str = "the source's filters together are too much for the kernel's verifier";

/// Programs built from rules.
pub(super) struct LoadedRules {
    /// One program for each hook.
    pub(super) programs: Vec<ProgramCopy>,
    /// Where the filter of each rule runs.
    pub(super) places: Vec<FilterLocation>,
    /// The filters that run in the kernel.
    pub(super) in_source: Vec<(Filter, FilterCost)>,
}

/// Inputs for building the programs.
pub(super) struct RuleInputs<'a> {
    pub(super) originals: &'a [(TapProgram, OriginalProgram)],
    /// The value for `RT_NO_RULES`.
    pub(super) needs: u32,
    pub(super) keys: &'a HashKeys,
    pub(super) filters: &'a [Filter],
    pub(super) users: &'a [Arc<UserProgram>],
    /// Of each new filter.
    pub(super) verifier: VerifierLimits,
    /// Destination of packets, captured or not.
    pub(super) forward: Option<&'a Forward>,
    /// The table of flows, if there are flow rules.
    pub(super) flows: Option<&'a TapFlows>,
    /// Number of the descriptor of the small table of decided flows.
    pub(super) decided: i32,
    /// Whether there are wildcard rules.
    pub(super) has_wildcards: bool,
}

impl RuleInputs<'_> {
    /// Loads a copy of each program with the filters in `taken`.
    fn load(&self, taken: &[bool]) -> Result<Vec<ProgramCopy>, NotLoaded> {
        let filter = |(filter, taken): (&Filter, &bool)| {
            if *taken {
                filter.clone()
            } else {
                Filter::everything()
            }
        };
        let filters: Vec<_> = self.filters.iter().zip(taken).map(filter).collect();
        let load = |(program, original): &(TapProgram, OriginalProgram)| {
            let context = original.context();
            original.load_copy(self.needs, &filters, |code| {
                self.change(code, *program, context)
            })
        };
        self.originals.iter().map(load).collect()
    }

    fn change(
        &self,
        code: &mut Code,
        program: TapProgram,
        context: FilterHook,
    ) -> Result<(), NotLoaded> {
        for (mark, key) in (MARK_KEYS..).zip(self.keys.numbers()) {
            code.set_number(mark, key)?;
        }
        let users = self.users.iter().filter_map(|user| user.code(context));
        let users: Vec<_> = users.collect();
        if !users.is_empty() {
            code.set_function(MARK_PROGRAMS, Code::choice(&users))?;
        }
        if let Some(flows) = self.flows {
            flows.put_into(code, self.has_wildcards)?;
        }
        match self.forward {
            Some(forward) => forward.put_into(code, program, context, self.decided),
            None => Ok(()),
        }
    }
}

/// The contexts in which filters run, each once.
pub(super) fn contexts(originals: &[(TapProgram, OriginalProgram)]) -> Vec<FilterHook> {
    let mut contexts = Vec::new();
    for (_, original) in originals {
        if !contexts.contains(&original.context()) {
            contexts.push(original.context());
        }
    }
    contexts
}

/// Loads programs with the filters already in the kernel and the new filters that fit. Loads at most
/// twice: a second time without the new filters, if the kernel refuses them together.
///
/// # Errors
///
/// The programs do not load even without the new filters, or a resource is missing.
pub(super) fn load(
    parts: &RuleInputs<'_>,
    in_source: &[(Filter, FilterCost)],
    trials: &mut Trials,
) -> Result<LoadedRules, NotLoaded> {
    let known = |filter: &Filter| in_source.iter().find(|(known, _)| known == filter);
    let mut taken: Vec<(Filter, FilterCost)> = Vec::new();
    let mut fresh: Vec<(&Filter, FilterCost)> = Vec::new();
    let mut left_out: Vec<(&Filter, String)> = Vec::new();
    let contexts = contexts(parts.originals);
    for (at, filter) in parts.filters.iter().enumerate() {
        if filter.takes_everything() || parts.filters[..at].contains(filter) {
            continue;
        }
        match known(filter) {
            Some(known) => taken.push(known.clone()),
            None => match trials.cost(filter, &contexts, parts.verifier)? {
                Ok(cost) => fresh.push((filter, cost)),
                Err(refusal) => left_out.push((filter, refusal.to_string())),
            },
        }
    }
    let old = taken.len();
    let mut sum = taken
        .iter()
        .fold(FilterCost::default(), |sum, (_, cost)| sum.and(*cost));
    // Smallest first, so that as many as possible fit.
    fresh.sort_by_key(|(filter, _)| filter.instructions().len());
    for (filter, cost) in fresh {
        if sum.and(cost).fits() {
            sum = sum.and(cost);
            taken.push((filter.clone(), cost));
        } else {
            left_out.push((filter, TOGETHER.to_owned()));
        }
    }
    let flags = |taken: &[(Filter, FilterCost)]| -> Vec<bool> {
        let is_taken = |filter: &Filter| {
            filter.takes_everything() || taken.iter().any(|(taken, _)| taken == filter)
        };
        parts.filters.iter().map(is_taken).collect()
    };
    let programs = match parts.load(&flags(&taken)) {
        Err(NotLoaded::Refused(reason)) if taken.len() > old => {
            for (filter, _) in taken.drain(old..) {
                trials.refuse(&filter, reason.clone());
            }
            parts.load(&flags(&taken))?
        }
        loaded => loaded?,
    };
    let place = |(filter, is_taken): (&Filter, bool)| {
        if is_taken {
            return FilterLocation::Source;
        }
        let known = left_out.iter().find(|(left, _)| *left == filter);
        let reason = match known {
            Some((_, reason)) => reason,
            None => TOGETHER,
        };
        FilterLocation::Reader(format!("it does not fit into the tap's program: {reason}"))
    };
    Ok(LoadedRules {
        programs,
        places: parts.filters.iter().zip(flags(&taken)).map(place).collect(),
        in_source: taken,
    })
}
