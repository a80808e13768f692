// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classification of packets by rules in user space, for sources without eBPF.
//!
//! Invariants
//! - A packet's mask equals that of `bpf/tap.bpf.c` for the same rules, except for round-robin.
//! - The work for a packet is bounded: no filter loops.
//! - Each hash of a packet is computed at most once, and only for packets that a rule selects.

use std::path::PathBuf;

use crate::hash::{self, HashKeys, Link};
use crate::{BUCKETS, Balance, Headers, LinkType, MAX_RULES, Rule, Rules};

/// Why user space cannot classify by the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum ClassifierError {
    /// Too many rules.
    #[error("{count} rules are more than the {MAX_RULES} of a source: use fewer groups")]
    TooMany { count: usize },
    /// A filter that loops, which only a reader may run.
    #[error("filter {rule} loops over headers (protochain): the capturing thread cannot run it")]
    Loops { rule: usize },
    /// A user's eBPF program, which only the kernel runs.
    #[error(
        "{} runs in the kernel only, and this source captures in user space: use a tap: device, \
         or balance by flow, address, vlan or round-robin",
        .object.display()
    )]
    NeedsEbpf { object: PathBuf },
    /// The link type has no known addresses.
    #[error(
        "packets of link type \"{link_type}\" have no known addresses, so flows and addresses cannot be divided"
    )]
    NoAddresses { link_type: LinkType },
}

/// Classifies packets by rules.
///
/// # Examples
///
/// ```
/// use ringtap_filter::classifier::{Classifier, Turns};
/// use ringtap_filter::{LinkType, Program, Rule, Rules};
///
/// let nothing = Rule { filter: Program::nothing(), ..Rule::everything(0b10) };
/// let rules = Rules::from(vec![Rule::everything(0b01), nothing]);
/// let classifier = Classifier::new(&rules, LinkType::ETHERNET)?;
/// let found = classifier.classify(&[0; 60], 60, &mut Turns::default());
/// assert_eq!(found.mask, 0b01);
/// # Ok::<(), ringtap_filter::classifier::ClassifierError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Classifier {
    rules: Vec<Rule>,
    link: Link,
    keys: HashKeys,
    /// Whether a rule balances by the flow hash over the outer headers; slots then carry the hash.
    has_flow_hash: bool,
}

/// The next bucket of each round-robin rule; each lane has its own.
#[derive(Debug, Clone)]
pub struct Turns([u16; MAX_RULES]);

impl Default for Turns {
    fn default() -> Self {
        Self([0; MAX_RULES])
    }
}

/// The result of classification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Classification {
    /// The bits of the members that get the packet; 0 if no rule selects it.
    pub mask: u64,
    /// The flow hash over the outer headers, if a rule balances by it.
    pub hash: Option<u32>,
}

/// A packet with the hashes computed so far.
struct Hashes<'a> {
    keys: &'a HashKeys,
    data: &'a [u8],
    link: Link,
    flow: [Option<u32>; 2],
    addresses: [Option<u32>; 2],
}

impl Classifier {
    /// A classifier for packets of this link type. Flow rules are the business of
    /// [`RuleTable`](crate::flow::RuleTable).
    pub fn new(rules: &Rules, link_type: LinkType) -> Result<Self, ClassifierError> {
        let keys = HashKeys::new(rules.seed);
        let rules = &rules.each;
        let count = rules.len();
        if count > MAX_RULES {
            return Err(ClassifierError::TooMany { count });
        }
        let link = Link::from_link_type(link_type);
        for (number, rule) in rules.iter().enumerate() {
            if rule.filter.loops() {
                return Err(ClassifierError::Loops { rule: number });
            }
            match &rule.balance {
                Balance::Everyone | Balance::RoundRobin => {}
                Balance::Program(object) => {
                    let object = object.clone();
                    return Err(ClassifierError::NeedsEbpf { object });
                }
                Balance::Flow(_) | Balance::Address(_) | Balance::Vlan if link.is_none() => {
                    return Err(ClassifierError::NoAddresses { link_type });
                }
                Balance::Flow(_) | Balance::Address(_) | Balance::Vlan => {}
            }
        }
        let by_flow = Balance::Flow(Headers::Outer);
        Ok(Self {
            has_flow_hash: rules.iter().any(|rule| rule.balance == by_flow),
            rules: rules.clone(),
            link: link.unwrap_or_default(),
            keys,
        })
    }

    /// Classifies a packet with captured bytes `data` that was `wire_length` bytes long.
    #[must_use]
    pub fn classify(&self, data: &[u8], wire_length: u32, turns: &mut Turns) -> Classification {
        let mut hashes = Hashes::new(&self.keys, data, self.link);
        let mut mask = 0;
        for (rule, turn) in self.rules.iter().zip(&mut turns.0) {
            if rule.filter.matches(data, wire_length) {
                mask |= rule.members.mask_of(hashes.bucket(&rule.balance, turn));
            }
        }
        let hash = (mask != 0 && self.has_flow_hash).then(|| hashes.flow(Headers::Outer));
        Classification { mask, hash }
    }
}

impl<'a> Hashes<'a> {
    fn new(keys: &'a HashKeys, data: &'a [u8], link: Link) -> Self {
        Self {
            keys,
            data,
            link,
            flow: [None; 2],
            addresses: [None; 2],
        }
    }

    fn flow(&mut self, headers: Headers) -> u32 {
        let (keys, data, link) = (self.keys, self.data, self.link);
        *self.flow[index(headers)].get_or_insert_with(|| keys.flow(data, link, headers))
    }

    fn bucket(&mut self, balance: &Balance, turn: &mut u16) -> usize {
        let (keys, data, link) = (self.keys, self.data, self.link);
        let number = match *balance {
            // `Classifier::new` refuses programs.
            Balance::Everyone | Balance::Program(_) => 0,
            Balance::Flow(headers) => self.flow(headers),
            Balance::Address(headers) => *self.addresses[index(headers)]
                .get_or_insert_with(|| keys.addresses(data, link, headers)),
            Balance::Vlan => hash::vlan(data, link),
            Balance::RoundRobin => {
                let mine = *turn;
                *turn = mine.wrapping_add(1);
                mine.into()
            }
        };
        // Below `BUCKETS`.
        number as usize % BUCKETS
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
    use crate::hash::HashSeed;
    use crate::{BucketMasks, Program};

    fn rule(balance: Balance, members: impl Fn(usize) -> u64) -> Rule {
        Rule {
            filter: Program::everything(),
            balance,
            members: BucketMasks::new(members),
        }
    }

    fn classifier(rules: Vec<Rule>) -> Classifier {
        Classifier::new(&Rules::from(rules), LinkType::ETHERNET).unwrap()
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
        let verdict = classifier(vec![]).classify(&packet(true), 42, &mut Turns::default());
        assert_eq!(verdict, Classification::default());
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
        let verdict = classifier(rules).classify(&packet(true), 42, &mut Turns::default());
        assert_eq!((verdict.mask, verdict.hash), (3, None));
    }

    #[test]
    fn both_directions_of_a_flow_have_one_bucket_and_the_hash_is_told() {
        let by_flow = classifier(vec![rule(Balance::Flow(Headers::Outer), |bucket| {
            1 << (bucket % 64)
        })]);
        let mut turns = Turns::default();
        let there = by_flow.classify(&packet(true), 42, &mut turns);
        assert_eq!(there, by_flow.classify(&packet(false), 42, &mut turns));
        let keys = HashKeys::new(HashSeed::default());
        let hash = keys.flow(&packet(true), Link::Ethernet, Headers::Outer);
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
            let mask = taking_turns.classify(&packet(true), 42, &mut turns).mask;
            assert_eq!(mask, 1 + number % 2);
        }
    }

    #[test]
    fn more_rules_than_turns_are_refused() {
        let rules = vec![rule(Balance::Everyone, |_| 1); MAX_RULES + 1];
        let error = Classifier::new(&Rules::from(rules), LinkType::ETHERNET).unwrap_err();
        assert_eq!(
            error,
            ClassifierError::TooMany {
                count: MAX_RULES + 1
            }
        );
    }

    #[test]
    fn user_programs_are_refused_in_user_space() {
        let rules = Rules::from(vec![rule(Balance::Program("steer.o".into()), |_| 1)]);
        let error = Classifier::new(&rules, LinkType::ETHERNET).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("steer.o runs in the kernel only")
        );
    }

    #[test]
    fn filters_that_loop_are_refused() {
        let round = [0x15, 0x07, 0x60, 0xffff_fffc_0000_0005, 6];
        let mut looping = rule(Balance::Everyone, |_| 1);
        looping.filter = Program::from_entries(&round).unwrap();
        let rules = Rules::from(vec![rule(Balance::Everyone, |_| 1), looping]);
        let error = Classifier::new(&rules, LinkType::ETHERNET).unwrap_err();
        assert_eq!(error, ClassifierError::Loops { rule: 1 });
    }

    #[test]
    fn links_without_known_addresses_balance_round_robin_only() {
        let new =
            |balance| Classifier::new(&Rules::from(vec![rule(balance, |_| 1)]), LinkType::UNKNOWN);
        let error = new(Balance::Flow(Headers::Outer)).unwrap_err();
        assert!(error.to_string().contains("link type 65535"), "{error}");
        assert!(new(Balance::RoundRobin).is_ok());
    }
}
