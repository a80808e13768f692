// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wildcard rules: what readers say of all flows that match a pattern. `bpf/wildcard.h` has the same in the kernel.
//!
//! Of the rules of a member that match a flow, the one with the longest prefixes decides; of equal ones the one with
//! fewer ports, then the one that names a protocol, then a VLAN, then the first.
//!
//! Invariants
//! - A flow is compared with the rules once, when it is new or the rules have changed.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::FlowId;
use super::key::{octets, words};
use super::rule::{ActionWords, FlowAction, FlowRuleError, RuleBits};
use super::table::Recipients;

/// Maximum number of wildcard rules of a table.
pub const MAX_WILDCARDS: usize = 64;
/// Rules that can apply to one flow; a rule that decides for no further member is not among them.
pub const CHOICES: usize = 6;
/// Words of a rule: `struct rt_wildcard`.
pub const WILDCARD_WORDS: usize = 15;

/// One end of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndPattern {
    /// An address and the bits of it that count; `None`: any.
    pub network: Option<(IpAddr, u8)>,
    /// The first port and the last.
    pub ports: (u16, u16),
}

impl Default for EndPattern {
    fn default() -> Self {
        EndPattern {
            network: None,
            ports: (0, u16::MAX),
        }
    }
}

/// Matches flows; the default matches all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowPattern {
    /// The two ends, in either order.
    pub ends: [EndPattern; 2],
    /// The protocol of the IP header.
    pub protocol: Option<u8>,
    /// The outermost VLAN number; 0: without a tag.
    pub vlan: Option<u16>,
}

/// A rule for all flows that match a pattern, in a table. A member's rule for the flow itself takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WildcardRule {
    /// The flows.
    pub pattern: FlowPattern,
    /// Mask bits of the members whose rule it is, and of the group that gets the packets, too.
    pub bits: RuleBits,
    /// What is withheld of each flow.
    pub action: FlowAction,
}

/// Why wildcard rules are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum WildcardError {
    /// Too many.
    #[error("{count} wildcard rules are more than the {MAX_WILDCARDS} of a source: remove some")]
    TooMany { count: usize },
    /// More bits than the address has.
    #[error("{address}/{prefix}: an address of this kind has {bits} bits")]
    Prefix {
        address: IpAddr,
        prefix: u8,
        bits: u8,
    },
    /// One network is of IPv4, the other of IPv6.
    #[error(
        "{first} and {second} are networks of different IP versions: no flow has an end in both"
    )]
    MixedVersions { first: IpAddr, second: IpAddr },
    /// An empty range.
    #[error("there are no ports from {first} to {last}")]
    Ports { first: u16, last: u16 },
    /// More than 12 bits.
    #[error("there is no VLAN {vlan}: the largest number is 4095")]
    Vlan { vlan: u16 },
    /// The action withholds nothing.
    #[error(transparent)]
    Action(#[from] FlowRuleError),
}

impl FlowPattern {
    /// Refuses a pattern that no flow can match.
    ///
    /// # Errors
    ///
    /// The first reason.
    pub fn check(&self) -> Result<(), WildcardError> {
        let ends = &self.ends;
        for end in ends {
            let (first, last) = end.ports;
            if first > last {
                return Err(WildcardError::Ports { first, last });
            }
            if let Some((address, prefix)) = end.network {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                if prefix > bits {
                    return Err(WildcardError::Prefix {
                        address,
                        prefix,
                        bits,
                    });
                }
            }
        }
        if let [Some((first, _)), Some((second, _))] = ends.map(|end| end.network)
            && first.is_ipv4() != second.is_ipv4()
        {
            return Err(WildcardError::MixedVersions { first, second });
        }
        match self.vlan {
            Some(vlan) if vlan > 0xfff => Err(WildcardError::Vlan { vlan }),
            _ => Ok(()),
        }
    }

    /// The pattern with its ends in a fixed order, and 0 for bits of addresses that do not count: equal for two that
    /// name the same ends.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        for end in &mut self.ends {
            if let Some((address, prefix)) = &mut end.network {
                *address = masked(*address, *prefix);
            }
        }
        self.ends.sort_unstable_by(|one, other| other.cmp(one));
        self
    }

    /// Order of rules: the one that decides first.
    fn precedence(&self) -> (Reverse<u32>, u64, bool, bool) {
        let ends = self.ends.iter();
        let bits = ends.clone().filter_map(|end| end.network);
        let bits = bits.map(|(_, bits)| u32::from(bits)).sum();
        let span = |end: &EndPattern| u64::from(end.ports.1.saturating_sub(end.ports.0));
        (
            Reverse(bits),
            ends.map(span).sum(),
            self.protocol.is_none(),
            self.vlan.is_none(),
        )
    }
}

/// An address without the bits beyond its prefix.
pub(crate) fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix));
            Ipv4Addr::from_bits(address.to_bits() & mask.unwrap_or(0)).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix));
            Ipv6Addr::from_bits(address.to_bits() & mask.unwrap_or(0)).into()
        }
    }
}

impl WildcardRule {
    fn check(&self) -> Result<(), WildcardError> {
        self.pattern.check()?;
        Ok(self.action.check()?)
    }
}

/// Refuses rules that no table can have.
///
/// # Errors
///
/// The first reason.
pub(super) fn check(rules: &[WildcardRule]) -> Result<(), WildcardError> {
    let count = rules.len();
    if count > MAX_WILDCARDS {
        return Err(WildcardError::TooMany { count });
    }
    rules.iter().try_for_each(WildcardRule::check)
}

/// One end of a pattern, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndWords {
    address: [u32; 4],
    mask: [u32; 4],
    ports: (u16, u16),
}

impl EndWords {
    fn from_pattern(end: &EndPattern) -> Self {
        let (address, mask) = match end.network {
            None => ([0; 4], [0; 4]),
            Some((address, prefix)) => {
                let address = octets(address);
                let mut mask = vec![0_u8; address.len()];
                for bit in 0..usize::from(prefix) {
                    mask[bit / 8] |= 0x80 >> (bit % 8);
                }
                (words(&address), words(&mask))
            }
        };
        EndWords {
            address,
            mask,
            ports: end.ports,
        }
    }

    fn matches(&self, address: &[u32; 4], port: u16) -> bool {
        let alike = |at: usize| (address[at] ^ self.address[at]) & self.mask[at] == 0;
        (0..4).all(alike) && self.ports.0 <= port && port <= self.ports.1
    }
}

/// A rule in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RuleWords {
    ends: [EndWords; 2],
    /// IP version; 0: any.
    version: u8,
    protocol: Option<u8>,
    vlan: Option<u16>,
    bits: RuleBits,
    cut: ActionWords,
}

impl RuleWords {
    fn from_rule(rule: &WildcardRule) -> Self {
        let pattern = &rule.pattern;
        let network = pattern.ends.iter().find_map(|end| end.network);
        let version = network.map_or(0, |(address, _)| if address.is_ipv4() { 4 } else { 6 });
        RuleWords {
            ends: pattern.ends.map(|end| EndWords::from_pattern(&end)),
            version,
            protocol: pattern.protocol,
            vlan: pattern.vlan,
            bits: rule.bits,
            cut: rule.action.into(),
        }
    }

    fn matches(&self, key: &FlowId) -> bool {
        let [low, high] = key.end_words();
        let pair = |first: usize, second: usize| {
            self.ends[first].matches(low.0, low.1) && self.ends[second].matches(high.0, high.1)
        };
        (self.version == 0 || self.version == key.version())
            && self.protocol.is_none_or(|it| it == key.protocol())
            && self.vlan.is_none_or(|it| it == key.vlans()[0])
            && (pair(0, 1) || pair(1, 0))
    }

    fn to_words(self) -> [u64; WILDCARD_WORDS] {
        let [first, second] = self.ends;
        let ports =
            [first, second].map(|end| u32::from(end.ports.0) << 16 | u32::from(end.ports.1));
        let version = (self.version != 0).then_some(self.version);
        let field = |value: Option<u16>, all: u32, shift: u32| {
            let mask = if value.is_some() { all } else { 0 };
            [u32::from(value.unwrap_or(0)), mask].map(|it| it << shift)
        };
        let [version, version_mask] = field(version.map(u16::from), 0xff, 0);
        let [protocol, protocol_mask] = field(self.protocol.map(u16::from), 0xff, 8);
        let [vlan, vlan_mask] = field(self.vlan, 0xffff, 16);
        let (kind, kind_mask) = (version | protocol, version_mask | protocol_mask);
        let rest = [kind, kind_mask, vlan, vlan_mask];
        let narrow = [first.address, second.address, first.mask, second.mask, rest];
        let narrow = narrow.concat();
        let (before, rest) = narrow.split_at(16);
        let narrow = [before, &ports, rest].concat();
        let pairs = narrow.as_chunks::<2>().0.iter();
        let narrow = pairs.map(|[low, high]| u64::from(*high) << 32 | u64::from(*low));
        let RuleBits { members, adds } = self.bits;
        let wide = [members, adds, self.cut.packets, self.cut.bytes];
        let mut all = [0; WILDCARD_WORDS];
        for (word, value) in all.iter_mut().zip(narrow.chain(wide)) {
            *word = value;
        }
        all
    }
}

/// The rules that apply to one flow: their numbers from 1, and the edition of the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WildcardChoice {
    edition: u64,
    rules: [u8; CHOICES],
}

/// The wildcard rules of a table, the ones with the longest prefixes first.
#[derive(Clone, Debug, Default)]
pub struct Wildcards {
    rules: Vec<RuleWords>,
    members: u64,
    /// Number of the rules in force; 0 before the first ones, and in flows that were never compared.
    edition: u64,
}

impl Wildcards {
    /// Puts other rules in force; returns `false` if they are the same.
    pub fn apply(&mut self, rules: &[WildcardRule]) -> bool {
        let mut sorted: Vec<_> = rules.iter().take(MAX_WILDCARDS).collect();
        sorted.sort_by_key(|rule| rule.pattern.precedence());
        let sorted: Vec<_> = sorted.into_iter().map(RuleWords::from_rule).collect();
        if sorted == self.rules {
            return false;
        }
        self.members = sorted.iter().fold(0, |all, rule| all | rule.bits.members);
        self.rules = sorted;
        self.edition += 1;
        true
    }

    /// Members with a rule.
    #[must_use]
    pub fn members(&self) -> u64 {
        self.members
    }

    /// Number of the rules in force: counts the changes.
    #[must_use]
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// The words of each rule: `struct rt_wildcard`.
    pub fn to_words(&self) -> impl ExactSizeIterator<Item = [u64; WILDCARD_WORDS]> {
        self.rules.iter().map(|rule| rule.to_words())
    }

    fn choose(&self, key: &FlowId) -> WildcardChoice {
        let (mut rules, mut chosen, mut decided) = ([0; CHOICES], 0, 0);
        for (number, rule) in (1..=u8::MAX).zip(&self.rules) {
            if chosen == CHOICES {
                break;
            }
            if rule.bits.members & !decided != 0 && rule.matches(key) {
                rules[chosen] = number;
                chosen += 1;
                decided |= rule.bits.members;
            }
        }
        WildcardChoice {
            edition: self.edition,
            rules,
        }
    }

    /// Who gets a packet for the members of `mask`, with this many packets and bytes of its direction before it;
    /// `deciding` members have a rule for the flow itself.
    #[inline]
    pub(super) fn recipients(
        &self,
        (key, choice): (&FlowId, &mut WildcardChoice),
        (packets, bytes): (u64, u64),
        mask: u64,
        deciding: u64,
    ) -> Recipients {
        let mut found = Recipients::default();
        if self.rules.is_empty() {
            return found;
        }
        if choice.edition != self.edition {
            *choice = self.choose(key);
        }
        let mut left = mask & !deciding;
        let numbers = choice.rules.iter().take_while(|number| **number != 0);
        for number in numbers {
            let Some(rule) = self.rules.get(usize::from(*number) - 1) else {
                break;
            };
            let members = rule.bits.members & left;
            if members != 0 {
                found.added |= rule.bits.adds;
            }
            if rule.cut.is_past(packets, bytes) {
                found.withheld |= members;
            }
            left &= !members;
        }
        found
    }
}
