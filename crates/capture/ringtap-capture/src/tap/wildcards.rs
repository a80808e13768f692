// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wildcard rules in the kernel (`bpf/wildcard.h`).
//!
//! Invariants
//! - The set of rules in force is not written.
//! - A flow's choice is of the edition that it names. The kernel compares 16 bits of the number: one comes again only
//!   after a time in which a flow without a packet forgets its choice.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};
use ringtap_bpf::map::{self, MapSizes};
use ringtap_bpf::object as bpf;
use ringtap_filter::flow::{MAX_WILDCARDS, WILDCARD_WORDS, WildcardRule, Wildcards};
use ringtap_ipc::time::monotonic_ns;
use ringtap_pool::number::to_u32;

use super::flows::bytes_of_words;

/// Editions that differ in the kernel: from 2 on, since a flow that was never compared has 0. An even number, so that
/// neighbours have different sets.
const EDITIONS: u64 = (1 << 16) - 2;
/// A half of the numbers begins only after the other half was in use for longer than a flow keeps its choice.
const HALF: u64 = EDITIONS / 2;

/// The wildcard rules of one table.
pub(super) struct TapWildcards {
    map: MapHandle,
    rules: Wildcards,
    /// Time at which this half of the numbers began.
    began_ns: u64,
}

impl TapWildcards {
    /// Makes the map, without rules.
    pub(super) fn new() -> io::Result<Self> {
        let sizes = MapSizes {
            key: 4,
            value: WILDCARD_WORDS * 8,
            entries: to_u32(2 * MAX_WILDCARDS),
        };
        Ok(TapWildcards {
            map: map::create(MapType::Array, "rt_wildcards", sizes, 0)?,
            rules: Wildcards::default(),
            began_ns: monotonic_ns(),
        })
    }

    /// The map's descriptor.
    pub(super) fn raw_fd(&self) -> RawFd {
        self.map.as_fd().as_raw_fd()
    }

    /// Members with a rule.
    pub(super) fn members(&self) -> u64 {
        self.rules.members()
    }

    /// Writes rules; returns the word of the settings that puts them in force. A flow without packets for `idle_ns`
    /// chooses again.
    ///
    /// # Errors
    ///
    /// The rules changed too often, or the system's; the rules before stay.
    pub(super) fn write(
        &mut self,
        rules: &[WildcardRule],
        idle_ns: u64,
        now_ns: u64,
    ) -> io::Result<u64> {
        let mut next = self.rules.clone();
        if next.apply(rules) {
            if next.edition().is_multiple_of(HALF) {
                if now_ns.saturating_sub(self.began_ns) <= idle_ns {
                    return Err(io::Error::other("wildcard rules changed too often: wait"));
                }
                self.began_ns = now_ns;
            }
            let is_second = number_in_kernel(&next) % 2 == 1;
            let first = if is_second { to_u32(MAX_WILDCARDS) } else { 0 };
            for (number, words) in (first..).zip(next.to_words()) {
                let (key, rule) = (number.to_ne_bytes(), bytes_of_words(words));
                let written = self.map.update(&key, &rule, MapFlags::ANY);
                written.map_err(|error| bpf::io_error(&error))?;
            }
            self.rules = next;
        }
        let count = self.rules.to_words().len() as u64;
        Ok(number_in_kernel(&self.rules) << 32 | count)
    }
}

/// Edition of the rules as the kernel compares it.
fn number_in_kernel(rules: &Wildcards) -> u64 {
    2 + rules.edition() % EDITIONS
}

#[cfg(test)]
mod tests {
    use ringtap_filter::flow::{FlowAction, FlowPattern};
    use ringtap_testkit::require_root;

    use super::*;

    #[test]
    fn editions_come_again_only_after_flows_have_chosen_again() {
        require_root!();
        const IDLE: u64 = 300_000_000_000;
        let mut rules = TapWildcards::new().unwrap();
        let mut write = |change: u64, now_ns| {
            let one = WildcardRule {
                pattern: FlowPattern::default(),
                bits: (1 + change % 2).into(),
                action: FlowAction::Ignore,
            };
            rules.write(&[one], IDLE, now_ns).map(|word| word >> 32)
        };
        let mut now = monotonic_ns();
        let mut last = 2;
        for change in 1..2 * EDITIONS {
            if change % HALF == 0 {
                let early = write(change, now);
                assert!(early.is_err(), "a flow may still have chosen by {early:?}");
                now += 2 * IDLE;
            }
            let number = write(change, now).unwrap();
            assert_eq!(number, 2 + change % EDITIONS);
            assert_ne!(number % 2, last % 2, "the set in force is not written");
            last = number;
        }
    }
}
