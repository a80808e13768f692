// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that protect the hub and its readers from each other: the table `[limits]` of `hub.toml`.
//!
//! Invariants
//! - Each refusal by a limit names the limit's key.
//! - No thread that captures or copies packets runs a filter with a loop.

use std::fmt;
use std::num::NonZeroU32;

use ringtap_device::Size;
use ringtap_filter::{FilterTime, Program, VerifierLimits};
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
    /// Most percent of a packet's time, in which a tap captures 64 bytes, that one filter may take in a
    /// source or in a private reader's copying thread. Beyond it the reader runs the filter; with private
    /// delivery the hub refuses it.
    pub filter_percent: NonZeroU32,
    /// Most instructions of one filter over all its paths. Beyond it, or if the kernel's verifier follows
    /// more than `filter_verifier_steps` instructions, the reader runs the filter.
    pub filter_path_steps: NonZeroU32,
    /// Most instructions that the kernel's verifier may follow for one filter.
    pub filter_verifier_steps: NonZeroU32,
    /// Most percent of a packet's time that all filters of one user may take in a source.
    pub filter_percent_per_user: NonZeroU32,
    /// Most percent of a packet's time that the filters of all users together may take in a source.
    pub filter_percent_of_users: NonZeroU32,
    /// Most readers of one user with a bit of their own in the packets' masks. Further ones run their
    /// filters themselves and join no balanced group.
    pub mask_bits_per_user: NonZeroU32,
    /// Most subscriptions at one time of one user.
    pub subscriptions_per_user: NonZeroU32,
    /// Most flows that a source's table of flows holds.
    pub flows: NonZeroU32,
    /// Most flow rules of all readers together.
    pub flow_rules: NonZeroU32,
    /// Most flow rules of all readers of one user.
    pub flow_rules_per_user: NonZeroU32,
    /// Most flow rules of one reader, of root's, too.
    pub flow_rules_per_reader: NonZeroU32,
    /// Most rules for patterns of flows of one user.
    pub pattern_rules_per_user: NonZeroU32,
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
            filter_percent: count(400),
            filter_path_steps: count(20_000),
            filter_verifier_steps: count(100_000),
            filter_percent_per_user: count(100),
            filter_percent_of_users: count(200),
            mask_bits_per_user: count(48),
            subscriptions_per_user: count(64),
            flows: count(1 << 20),
            flow_rules: count(1 << 20),
            flow_rules_per_user: count(1 << 18),
            flow_rules_per_reader: count(1 << 17),
            pattern_rules_per_user: count(8),
            private_memory_per_user: Size(256 << 20),
            private_memory: Size(1 << 30),
        }
    }
}

impl Limits {
    /// Limits of a hub that no reader joins but these, of whatever users: they leave nothing for others.
    pub(crate) fn for_readers(readers: NonZeroU32) -> Self {
        let usual = Limits::default();
        let connections = usual.connections_per_user.max(readers);
        Limits {
            guaranteed_readers: readers,
            connections: usual.connections.max(connections.saturating_mul(count(2))),
            connections_per_user: connections,
            // An attach counts as 20 requests: all readers attach within two seconds.
            requests_per_second: usual
                .requests_per_second
                .max(readers.saturating_mul(count(10))),
            filter_percent_per_user: usual.filter_percent_of_users,
            mask_bits_per_user: count(64),
            subscriptions_per_user: usual.subscriptions_per_user.max(readers),
            private_memory_per_user: usual.private_memory,
            ..usual
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

/// Owner of filters, or of flow rules, that are limited together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FilterOwner {
    /// A user with this number.
    User(u32),
    /// A guest, whose relay is the process with this number.
    Guest(i32),
}

impl fmt::Display for FilterOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterOwner::User(uid) => write!(f, "user {uid}"),
            FilterOwner::Guest(_) => f.write_str("this virtual machine"),
        }
    }
}

/// Time that the filters of users and guests take for a packet in a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterTimes {
    /// Of the same owner.
    pub(crate) user: FilterTime,
    /// Of all owners.
    pub(crate) users: FilterTime,
}

/// Why the hub does not run a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooMuchWork {
    #[error("the filter loops over headers (protochain): only a reader itself runs such a filter")]
    Loops,
    #[error(
        "the filter takes up to {time} of the time to capture a packet, more than the {limit} allowed \
         (filter_percent in [limits])"
    )]
    One { time: FilterTime, limit: FilterTime },
    #[error(
        "the filter takes up to {time} of the time to capture a packet, the user's other filters \
         {others}, together more than the {limit} allowed ({key} in [limits])"
    )]
    Together {
        time: FilterTime,
        others: FilterTime,
        limit: FilterTime,
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

    /// Checks a filter; returns its longest time for one packet.
    pub(crate) fn check_alone(&self, filter: &Program) -> Result<FilterTime, TooMuchWork> {
        let time = filter.longest_time().ok_or(TooMuchWork::Loops)?;
        let limit = FilterTime::from_percent(self.filter_percent.get());
        if time <= limit {
            Ok(time)
        } else {
            Err(TooMuchWork::One { time, limit })
        }
    }

    /// Checks a filter beside those of users in the source; `None` for a user without this limit.
    pub(crate) fn check(
        &self,
        filter: &Program,
        beside: Option<FilterTimes>,
    ) -> Result<(), TooMuchWork> {
        let time = self.check_alone(filter)?;
        let Some(FilterTimes { user, users }) = beside else {
            return Ok(());
        };
        let all = FilterTime::from_percent(self.filter_percent_of_users.get());
        let own = FilterTime::from_percent(self.filter_percent_per_user.get());
        // A user gets at most as much as is left for others.
        let left = all.without(users.and(time));
        for (limit, key) in [
            (own, "filter_percent_per_user"),
            (left, "filter_percent_of_users"),
        ] {
            if user.and(time) > limit {
                return Err(TooMuchWork::Together {
                    time,
                    others: user,
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

    /// So many indexed loads.
    fn filter(loads: usize) -> Program {
        let mut program = vec![Instruction::new(0x50, 0, 0, 1); loads];
        program.push(Instruction::new(0x06, 0, 0, 1));
        Program::new(&program).unwrap()
    }

    fn key_of(refusal: Option<TooMuchWork>) -> Option<&'static str> {
        match refusal? {
            TooMuchWork::Loops => Some("loops"),
            TooMuchWork::One { .. } => Some("filter_percent"),
            TooMuchWork::Together { key, .. } => Some(key),
        }
    }

    #[test]
    fn filters_at_their_limits_run_and_a_longer_one_is_refused() {
        let time = filter(10).longest_time().unwrap();
        let percent = |time: FilterTime| {
            let mut percents = (1..).filter(|one| time <= FilterTime::from_percent(*one));
            percents.next().and_then(NonZeroU32::new).unwrap()
        };
        let limits = Limits {
            filter_percent: percent(time),
            filter_percent_per_user: percent(time.halves(3)),
            filter_percent_of_users: percent(time.halves(8)),
            ..Limits::default()
        };
        assert_eq!(limits.check_alone(&filter(10)), Ok(time));
        let refusal = limits.check_alone(&filter(11)).unwrap_err();
        let text = refusal.to_string();
        assert!(text.contains("(filter_percent in [limits])"), "{text}");
        let (none, half, much) = (FilterTime::default(), time.halves(1), time.halves(4));
        for (user, users, key) in [
            (none, none, None),
            (half, time, None),
            (half, much, Some("filter_percent_of_users")),
            (time, time, Some("filter_percent_per_user")),
            (none, time.halves(5), Some("filter_percent_of_users")),
        ] {
            let refusal = limits.check(&filter(10), Some(FilterTimes { user, users }));
            assert_eq!(key_of(refusal.err()), key, "{user} {users}");
        }
        assert_eq!(limits.check(&filter(10), None), Ok(()));
    }

    #[test]
    fn the_costliest_filter_that_512_instructions_allow_exceeds_a_users_share() {
        let limits = Limits::default();
        let refusal = limits.check(&filter(511), Some(FilterTimes::default()));
        assert_eq!(key_of(refusal.err()), Some("filter_percent"));
        let refusal = limits.check(&filter(60), Some(FilterTimes::default()));
        assert_eq!(key_of(refusal.err()), Some("filter_percent_per_user"));
        assert_eq!(
            limits.check(&filter(8), Some(FilterTimes::default())),
            Ok(())
        );
    }
}
