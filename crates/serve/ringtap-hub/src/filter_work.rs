// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits to the work of filters that run on a thread of the hub's process or in the kernel.
//!
//! Invariants
//! - No thread that captures or copies packets runs a filter with a loop.

use ringtap_filter::{Program, VerifierLimits};

use crate::limits::Limits;

/// Instructions that filters may run for one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterLimits {
    one: u32,
    user: u32,
    all: u32,
    /// Most readers of one user that have a bit of the packets' mask of their own.
    pub(crate) bits: u32,
    pub(crate) verifier: VerifierLimits,
}

/// Instructions that filters in a source run for a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FilterSteps {
    /// Those of the same user; 0 for a user without this limit.
    pub(crate) user: u32,
    pub(crate) all: u32,
}

/// Why the hub does not run a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuchWork {
    #[error("the filter loops over headers (protochain): only a reader itself runs such a filter")]
    Loops,
    #[error(
        "the filter runs up to {steps} instructions per packet, more than the {limit} allowed \
         (filter_steps in [limits])"
    )]
    One { steps: u32, limit: u32 },
    #[error(
        "{whose} filters run up to {others} instructions per packet, the new filter {steps}, together \
         more than the {limit} allowed ({key} in [limits])"
    )]
    Together {
        whose: &'static str,
        steps: u32,
        others: u32,
        limit: u32,
        key: &'static str,
    },
}

impl FilterLimits {
    pub(crate) fn of(limits: &Limits) -> Self {
        FilterLimits {
            one: limits.filter_steps.get(),
            user: limits.user_filter_steps.get(),
            all: limits.source_filter_steps.get(),
            bits: limits.mask_bits_per_user.get(),
            verifier: VerifierLimits {
                path_steps: limits.filter_path_steps.get(),
                steps: limits.filter_verifier_steps.get(),
            },
        }
    }

    /// Checks a filter; returns the largest number of its instructions for one packet.
    pub(crate) fn check_alone(&self, filter: &Program) -> Result<u32, TooMuchWork> {
        let steps = filter.most_steps().ok_or(TooMuchWork::Loops)?;
        match steps <= self.one {
            true => Ok(steps),
            false => Err(TooMuchWork::One {
                steps,
                limit: self.one,
            }),
        }
    }

    /// Checks a filter beside others in the source.
    pub(crate) fn check(&self, filter: &Program, others: FilterSteps) -> Result<(), TooMuchWork> {
        let steps = self.check_alone(filter)?;
        for (whose, others, limit, key) in [
            ("the user's", others.user, self.user, "user_filter_steps"),
            ("the source's", others.all, self.all, "source_filter_steps"),
        ] {
            if steps.saturating_add(others) > limit {
                return Err(TooMuchWork::Together {
                    whose,
                    steps,
                    others,
                    limit,
                    key,
                });
            }
        }
        Ok(())
    }
}
