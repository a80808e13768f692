// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries each new filter alone, in the kernel's verifier and in timed runs, before it becomes part of a
//! program that other readers need.
//!
//! Invariants
//! - The verifier sees no filter with more paths than the limit; following them could take seconds.
//! - A filter is tried once. The result is remembered, for a limited number of filters.
//! - Filters whose costs together are within the budget are expected to load together.

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd as _;

use ringtap_filter::ebpf::FilterHook;
use ringtap_filter::{FilterTime, Program as Filter, VerifierLimits};

use crate::program::NotLoaded;
use crate::timing::{LoadedFilter, TIMED_HOOK, Timing, load_alone};

/// Budget of all filters of a program; the rest of the kernel's limit is for the capture program.
const MAX_TOGETHER: FilterCost = FilterCost {
    steps: 700_000,
    insns: 28_000,
};
/// Number of filters remembered; beyond it the oldest is forgotten.
const MAX_REMEMBERED: usize = 256;

/// Cost of a filter alone: the verifier's steps over all paths, and eBPF instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterCost {
    steps: u32,
    insns: usize,
}

/// Reason why a filter is left out of the program in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum FilterRefusal {
    /// The paths through the filter are too many for the verifier.
    #[error(
        "all ways through the filter have {steps} instructions together, more than the {limit} allowed \
         (filter_path_steps in [limits])"
    )]
    Paths { steps: u64, limit: u32 },
    /// The verifier followed the filter for too long.
    #[error(
        "the verifier follows {steps} instructions of the filter, more than the {limit} allowed \
         (filter_verifier_steps in [limits])"
    )]
    VerifierSteps { steps: u32, limit: u32 },
    /// The filter is slower than its estimate.
    #[error(
        "a timed run took {measured} of the time to capture a packet, and the estimate by which the limits \
         of filters hold is {estimate}"
    )]
    TimedRun {
        measured: FilterTime,
        estimate: FilterTime,
    },
    /// The kernel refuses a program with the filter.
    #[error("{0}")]
    Program(String),
}

/// Results of trials.
#[derive(Default)]
pub struct Trials {
    known: HashMap<Filter, Result<FilterCost, FilterRefusal>>,
    /// Oldest first.
    order: VecDeque<Filter>,
}

impl FilterCost {
    /// The sum of both.
    pub fn and(self, other: Self) -> Self {
        FilterCost {
            steps: self.steps.saturating_add(other.steps),
            insns: self.insns.saturating_add(other.insns),
        }
    }

    /// Whether one program can have filters of this cost together.
    pub fn fits(self) -> bool {
        self.steps <= MAX_TOGETHER.steps && self.insns <= MAX_TOGETHER.insns
    }

    fn max(self, other: Self) -> Self {
        FilterCost {
            steps: self.steps.max(other.steps),
            insns: self.insns.max(other.insns),
        }
    }
}

impl Trials {
    /// The cost of a filter at these hooks, or the reason why it is left out.
    ///
    /// # Errors
    ///
    /// A resource is missing: nothing is known about the filter.
    pub fn cost(
        &mut self,
        filter: &Filter,
        hooks: &[FilterHook],
        limits: VerifierLimits,
    ) -> Result<Result<FilterCost, FilterRefusal>, NotLoaded> {
        if let Some(known) = self.known.get(filter) {
            return Ok(known.clone());
        }
        let result = match self.try_alone(filter, hooks, limits) {
            Ok(result) => result,
            Err(NotLoaded::Refused(reason)) => Err(FilterRefusal::Program(reason)),
            Err(unavailable) => return Err(unavailable),
        };
        self.remember(filter, result.clone());
        Ok(result)
    }

    /// Leaves a filter out from now on, because the kernel refused a program with it for this reason.
    pub fn refuse(&mut self, filter: &Filter, reason: String) {
        self.remember(filter, Err(FilterRefusal::Program(reason)));
    }

    fn remember(&mut self, filter: &Filter, result: Result<FilterCost, FilterRefusal>) {
        if self.known.insert(filter.clone(), result).is_none() {
            self.order.push_back(filter.clone());
        }
        while self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

impl Trials {
    /// Verifies one filter alone, within its budget, for each hook, and times it.
    fn try_alone(
        &self,
        filter: &Filter,
        hooks: &[FilterHook],
        limits: VerifierLimits,
    ) -> Result<Result<FilterCost, FilterRefusal>, NotLoaded> {
        let steps = filter.steps_of_all_paths().unwrap_or(0);
        let limit = limits.path_steps;
        if steps > limit.into() {
            return Ok(Err(FilterRefusal::Paths { steps, limit }));
        }
        let mut cost = FilterCost::default();
        let mut timed = None;
        for hook in hooks {
            let LoadedFilter { program, length } = load_alone(filter, *hook)?;
            let (steps, limit) = (program.verifier_steps, limits.steps);
            if steps > limit {
                return Ok(Err(FilterRefusal::VerifierSteps { steps, limit }));
            }
            cost = cost.max(FilterCost {
                steps,
                insns: length,
            });
            if *hook == TIMED_HOOK {
                timed = Some(program.program);
            }
        }
        let timed = match timed {
            Some(program) => program,
            None => load_alone(filter, TIMED_HOOK)?.program.program,
        };
        let estimate = filter.longest_time().unwrap_or_default();
        // Not kept: a filter is tried once, and the programs hold descriptors.
        let checked = Timing::new()?.check(timed.as_fd(), estimate);
        Ok(checked.map(|()| cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(last: u64) -> Filter {
        Filter::from_entries(&[last << 32 | 0x06]).unwrap()
    }

    #[test]
    fn the_oldest_results_are_forgotten_and_a_looping_filter_is_left_out() {
        let mut trials = Trials::default();
        for last in 1..=300 {
            trials.refuse(&filter(last), "no".to_owned());
        }
        assert_eq!(trials.known.len(), MAX_REMEMBERED);
        assert_eq!(trials.order.len(), MAX_REMEMBERED);
        assert!(!trials.known.contains_key(&filter(44)));
        assert!(trials.known.contains_key(&filter(45)));
        let round = [0x15, 0x07, 0x60, 0xffff_fffc_0000_0005, 6];
        let looping = Filter::from_entries(&round).unwrap();
        let reason = trials
            .cost(&looping, &[FilterHook::Tc], VerifierLimits::default())
            .unwrap()
            .unwrap_err()
            .to_string();
        assert!(reason.contains("protochain"), "{reason}");
        assert!(trials.known.contains_key(&looping));
    }

    #[test]
    fn a_filter_with_too_many_ways_is_left_out_and_the_reason_names_the_limit() {
        let limits = VerifierLimits {
            path_steps: 0,
            ..VerifierLimits::default()
        };
        let cost = Trials::default().cost(&filter(1), &[FilterHook::Tc], limits);
        let reason = cost.unwrap().unwrap_err().to_string();
        assert!(reason.contains("filter_path_steps in [limits]"), "{reason}");
    }
}
