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

#[cfg(test)]
mod tests {
    use ringtap_filter::Instruction;

    use super::*;

    /// A filter that runs this many instructions.
    fn filter(steps: usize) -> Program {
        let instruction = |code| Instruction {
            code,
            jump_true: 0,
            jump_false: 0,
            k: 1,
        };
        let mut program = vec![instruction(0x80); steps - 1];
        program.push(instruction(0x06));
        Program::new(&program).unwrap()
    }

    #[test]
    fn filters_at_their_limits_run_and_one_instruction_more_is_refused() {
        let limits = FilterLimits {
            one: 8,
            user: 10,
            all: 20,
            ..FilterLimits::of(&Limits::default())
        };
        assert_eq!(limits.check_alone(&filter(8)), Ok(8));
        let refusal = limits.check_alone(&filter(9)).unwrap_err();
        assert!(
            refusal.to_string().contains("(filter_steps in"),
            "{refusal}"
        );
        for (user, all, key) in [
            (2, 12, None),
            (3, 12, Some("user_filter_steps")),
            (0, 13, Some("source_filter_steps")),
        ] {
            let refusal = limits.check(&filter(8), FilterSteps { user, all }).err();
            let text = refusal.map(|refusal| refusal.to_string());
            assert_eq!(text.is_some(), key.is_some(), "{text:?}");
            assert!(text.unwrap_or_default().contains(key.unwrap_or_default()));
        }
    }
}
