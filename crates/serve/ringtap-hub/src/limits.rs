// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that protect the hub and its readers from each other: the table `[limits]` of `hub.toml`.
//!
//! Invariants
//! - Each refusal by a limit names the limit's key.
//! - No thread that captures or copies packets runs a filter with a loop.

use std::num::NonZeroU32;

use ringtap_device::Size;
use ringtap_filter::{Program, VerifierLimits};
use serde::Deserialize;

/// Limits of a hub. Root and the hub's own user are exempt from limits per user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Most connections at one time.
    pub connections: NonZeroU32,
    /// Most connections at one time of one user.
    pub connections_per_user: NonZeroU32,
    /// Most connections at one time of all users together who may attach to no group.
    pub connections_of_strangers: NonZeroU32,
    /// Readers with a full guaranteed share of each source's pool; 1: one reader may hold nearly
    /// all of it.
    pub guaranteed_readers: NonZeroU32,
    /// Seconds from the start of a connection until the hub must have its first message.
    pub hello_seconds: NonZeroU32,
    /// Most requests per second of one user; the hub reads further ones later. Attaching and changing
    /// a filter, for which sources load programs, count as 20 requests.
    pub requests_per_second: NonZeroU32,
    /// Most percent of a processor's time for waking one reader of another user. Beyond it, the hub wakes
    /// the reader later.
    pub wake_percent_per_reader: NonZeroU32,
    /// Most lines per second that the hub logs; the hub counts the others.
    pub log_lines_per_second: NonZeroU32,
    /// Most lines per second that the hub logs about one user.
    pub log_lines_per_user_and_second: NonZeroU32,
    /// Most instructions that one filter may run for a packet in a source or in a private reader's
    /// copying thread. Beyond it the reader runs the filter; with private delivery the hub refuses it.
    pub filter_steps: NonZeroU32,
    /// Most instructions of one filter over all its paths. Beyond it, or if the kernel's verifier follows
    /// more than `filter_verifier_steps` instructions, the reader runs the filter.
    pub filter_path_steps: NonZeroU32,
    /// Most instructions that the kernel's verifier may follow for one filter.
    pub filter_verifier_steps: NonZeroU32,
    /// Most instructions that all filters of one user may run for a packet in a source.
    pub user_filter_steps: NonZeroU32,
    /// Most instructions that all filters may run for a packet in a source.
    pub source_filter_steps: NonZeroU32,
    /// Most readers of one user with a bit of their own in the packets' masks. Further ones run their
    /// filters themselves and join no balanced group.
    pub mask_bits_per_user: NonZeroU32,
    /// Most subscriptions at one time of one user.
    pub subscriptions_per_user: NonZeroU32,
    /// Most bytes of one user's private pools.
    pub private_memory_per_user: Size,
    /// Most bytes of the private pools of all users together.
    pub private_memory: Size,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: count(512),
            connections_per_user: count(64),
            connections_of_strangers: count(32),
            guaranteed_readers: count(8),
            hello_seconds: count(5),
            requests_per_second: count(200),
            wake_percent_per_reader: count(5),
            log_lines_per_second: count(50),
            log_lines_per_user_and_second: count(10),
            filter_steps: count(512),
            filter_path_steps: count(20_000),
            filter_verifier_steps: count(100_000),
            user_filter_steps: count(512),
            source_filter_steps: count(4096),
            mask_bits_per_user: count(48),
            subscriptions_per_user: count(64),
            private_memory_per_user: Size(256 << 20),
            private_memory: Size(1 << 30),
        }
    }
}

/// A number above 0; 0 becomes 1.
const fn count(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
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

impl Limits {
    /// The limits of the kernel's verifier.
    pub(crate) fn verifier(&self) -> VerifierLimits {
        VerifierLimits {
            path_steps: self.filter_path_steps.get(),
            steps: self.filter_verifier_steps.get(),
        }
    }

    /// Checks a filter; returns the largest number of its instructions for one packet.
    pub(crate) fn check_alone(&self, filter: &Program) -> Result<u32, TooMuchWork> {
        let steps = filter.most_steps().ok_or(TooMuchWork::Loops)?;
        let limit = self.filter_steps.get();
        match steps <= limit {
            true => Ok(steps),
            false => Err(TooMuchWork::One { steps, limit }),
        }
    }

    /// Checks a filter beside others in the source.
    pub(crate) fn check(&self, filter: &Program, others: FilterSteps) -> Result<(), TooMuchWork> {
        let steps = self.check_alone(filter)?;
        let of_user = (others.user, self.user_filter_steps.get());
        let of_all = (others.all, self.source_filter_steps.get());
        for (whose, key, (others, limit)) in [
            ("the user's", "user_filter_steps", of_user),
            ("the source's", "source_filter_steps", of_all),
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
    use std::num::NonZeroU32;

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
        let number = |steps| NonZeroU32::new(steps).unwrap();
        let limits = Limits {
            filter_steps: number(8),
            user_filter_steps: number(10),
            source_filter_steps: number(20),
            ..Limits::default()
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
