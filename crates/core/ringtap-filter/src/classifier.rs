// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who wants a packet, decided in user space, for sources that have no eBPF.
//!
//! Invariants
//! - A packet's mask is that of `bpf/tap.bpf.c` for the same rules, round-robin aside.
//! - A hash is computed once for a packet, and only if somebody wants the packet.

use std::sync::Arc;

use crate::Program;
use crate::hash::{self, Headers, Link};

/// Most rules of one classifier: a round-robin turn each.
pub const MAX_RULES: usize = 64;
/// Shares into which a rule's packets are divided.
pub const BUCKETS: usize = 256;

/// How a rule's packets are divided between its members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Balance {
    /// Not at all: bucket 0 has every packet.
    #[default]
    Everyone,
    /// By [`hash::flow`].
    Flow(Headers),
    /// By [`hash::addresses`].
    Address(Headers),
    /// By [`hash::vlan`].
    Vlan,
    /// One bucket after the other.
    RoundRobin,
}

/// Which packets some members want, and who gets which.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Takes the packets.
    pub filter: Program,
    /// Picks a packet's bucket: the lower eight bits of what it counts or computes.
    pub balance: Balance,
    /// The members that get the packets of each bucket, a bit each.
    pub members: Arc<[u64; BUCKETS]>,
}

/// More rules than a classifier has turns for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{count} rules: a source takes at most {MAX_RULES}")]
pub struct TooManyRules {
    /// How many were given.
    pub count: usize,
}

/// Rules that judge packets.
#[derive(Debug, Clone)]
pub struct Classifier {
    rules: Vec<Rule>,
    link: Link,
    tells_hash: bool,
}

/// Whose turn it is, for each round-robin rule. Kept by whoever captures, one a lane.
#[derive(Debug, Clone)]
pub struct Turns([u8; MAX_RULES]);

impl Default for Turns {
    fn default() -> Self {
        Self([0; MAX_RULES])
    }
}

/// What a classifier says of a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The members that get it, a bit each; none if nobody wants it.
    pub mask: u64,
    /// The flow hash over the outer headers, if any rule balances by it.
    pub hash: Option<u32>,
}

/// One packet, and the hashes of it that were computed.
struct Hashes<'a> {
    data: &'a [u8],
    link: Link,
    flow: [Option<u32>; 2],
    addresses: [Option<u32>; 2],
}

impl Classifier {
    /// Rules for packets that begin with `link`.
    ///
    /// # Errors
    ///
    /// More than [`MAX_RULES`] rules.
    pub fn new(rules: Vec<Rule>, link: Link) -> Result<Self, TooManyRules> {
        let count = rules.len();
        if count > MAX_RULES {
            return Err(TooManyRules { count });
        }
        let by_flow = Balance::Flow(Headers::Outer);
        Ok(Self {
            tells_hash: rules.iter().any(|rule| rule.balance == by_flow),
            rules,
            link,
        })
    }

    /// Who wants a packet of which `data` is captured and that was `wire_length` bytes long.
    #[must_use]
    pub fn judge(&self, data: &[u8], wire_length: u32, turns: &mut Turns) -> Verdict {
        let mut hashes = Hashes::new(data, self.link);
        let mut mask = 0;
        for (rule, turn) in self.rules.iter().zip(&mut turns.0) {
            if rule.filter.matches(data, wire_length) {
                mask |= rule.members[hashes.bucket(rule.balance, turn)];
            }
        }
        let hash = (mask != 0 && self.tells_hash).then(|| hashes.flow(Headers::Outer));
        Verdict { mask, hash }
    }
}

impl<'a> Hashes<'a> {
    fn new(data: &'a [u8], link: Link) -> Self {
        Self {
            data,
            link,
            flow: [None; 2],
            addresses: [None; 2],
        }
    }

    fn flow(&mut self, headers: Headers) -> u32 {
        let (data, link) = (self.data, self.link);
        *self.flow[index(headers)].get_or_insert_with(|| hash::flow_of(data, link, headers))
    }

    fn bucket(&mut self, balance: Balance, turn: &mut u8) -> usize {
        let (data, link) = (self.data, self.link);
        let number = match balance {
            Balance::Everyone => 0,
            Balance::Flow(headers) => {
                *self.flow[index(headers)].get_or_insert_with(|| hash::flow_of(data, link, headers))
            }
            Balance::Address(headers) => *self.addresses[index(headers)]
                .get_or_insert_with(|| hash::addresses_of(data, link, headers)),
            Balance::Vlan if link == Link::Ethernet => hash::vlan(data),
            Balance::Vlan => 0,
            Balance::RoundRobin => {
                let mine = *turn;
                *turn = mine.wrapping_add(1);
                mine.into()
            }
        };
        usize::from(number.to_le_bytes()[0])
    }
}

fn index(headers: Headers) -> usize {
    match headers {
        Headers::Outer => 0,
        Headers::Inner => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(balance: Balance, members: impl Fn(usize) -> u64) -> Rule {
        Rule {
            filter: Program::everything(),
            balance,
            members: Arc::new(std::array::from_fn(members)),
        }
    }

    fn classifier(rules: Vec<Rule>) -> Classifier {
        Classifier::new(rules, Link::Ethernet).unwrap()
    }

    /// An Ethernet packet of UDP over IPv4 between two hosts, there or back.
    fn packet(is_there: bool) -> Vec<u8> {
        let mut packet = vec![0; 12];
        packet.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        let (first, second) = if is_there { (1, 2) } else { (2, 1) };
        packet.extend([
            10, 0, 0, first, 10, 0, 0, second, 0, first, 0, second, 0, 8, 0, 0,
        ]);
        packet
    }

    #[test]
    fn nobody_wants_a_packet_without_rules() {
        let verdict = classifier(vec![]).judge(&packet(true), 42, &mut Turns::default());
        assert_eq!(verdict, Verdict::default());
    }

    #[test]
    fn members_of_all_rules_that_take_a_packet_get_it() {
        let mut never = rule(Balance::Everyone, |_| 4);
        never.filter = Program::from_entries(&[6]).unwrap();
        let rules = vec![
            rule(Balance::Everyone, |_| 1),
            never,
            rule(Balance::Vlan, |_| 2),
        ];
        let verdict = classifier(rules).judge(&packet(true), 42, &mut Turns::default());
        assert_eq!((verdict.mask, verdict.hash), (3, None));
    }

    #[test]
    fn both_directions_of_a_flow_have_one_bucket_and_the_hash_is_told() {
        let by_flow = classifier(vec![rule(Balance::Flow(Headers::Outer), |bucket| {
            1 << (bucket % 64)
        })]);
        let mut turns = Turns::default();
        let there = by_flow.judge(&packet(true), 42, &mut turns);
        assert_eq!(there, by_flow.judge(&packet(false), 42, &mut turns));
        let hash = hash::flow(&packet(true), Headers::Outer);
        assert_eq!(there.hash, Some(hash));
        assert_eq!(there.mask, 1 << (hash % 64));
    }

    #[test]
    fn round_robin_goes_through_all_buckets_for_each_rule() {
        let even = |bucket| u64::from(bucket % 2 == 0);
        let odd = |bucket| 2 * u64::from(bucket % 2 == 1);
        let rules = vec![
            rule(Balance::RoundRobin, even),
            rule(Balance::RoundRobin, odd),
        ];
        let (taking_turns, mut turns) = (classifier(rules), Turns::default());
        for number in 0..600 {
            let mask = taking_turns.judge(&packet(true), 42, &mut turns).mask;
            assert_eq!(mask, 1 + number % 2);
        }
    }

    #[test]
    fn more_rules_than_turns_are_refused() {
        let rules = vec![rule(Balance::Everyone, |_| 1); MAX_RULES + 1];
        let error = Classifier::new(rules, Link::Ethernet).unwrap_err();
        assert_eq!(error.count, MAX_RULES + 1);
    }
}
