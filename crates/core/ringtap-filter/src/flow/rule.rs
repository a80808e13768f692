// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader says of a flow, and the settings of a table of flows.

use serde::{Deserialize, Serialize};

use super::FlowId;
use super::wildcard::{self, WildcardError, WildcardRule};
use crate::group_name::GroupName;

/// Different cut-offs of one flow, and standing cut-offs of a table.
pub const MAX_CUTS: usize = 4;
/// Largest number of packets of which a sample has one.
pub const MAX_SAMPLE: u64 = u32::MAX as u64;
/// `RT_NO_LIMIT` of `bpf/wildcard.h`.
const NO_LIMIT: u64 = SAMPLE - 1;
/// `RT_SAMPLE`.
const SAMPLE: u64 = 1 << 63;

/// The packets of each direction that a reader still gets. Set at least one limit: without one, it gets all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutOff {
    /// At most this many packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Packets that begin within this many bytes on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// What is withheld from a reader, and which other group gets the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum FlowAction {
    /// Withholds all packets.
    Ignore,
    /// Withholds the packets behind the cut, counted from the moment at which the table knows the flow.
    #[serde(rename = "cutoff")]
    CutOff(CutOff),
    /// Withholds all packets of each direction but the first one of each so many.
    Sample {
        /// Number of packets of which the reader gets the first.
        one_in: u64,
    },
    /// Withholds nothing; this group gets the packets, too.
    Mirror {
        /// Its name at the hub.
        group: GroupName,
    },
    /// This group gets the packets instead of the reader.
    Forward {
        /// Its name at the hub.
        group: GroupName,
    },
}

impl FlowAction {
    /// The group that gets the packets, too, or instead.
    #[must_use]
    pub fn group(self) -> Option<GroupName> {
        match self {
            FlowAction::Mirror { group } | FlowAction::Forward { group } => Some(group),
            _ => None,
        }
    }

    /// Refuses an action that would withhold nothing.
    ///
    /// # Errors
    ///
    /// [`FlowRuleError::NoLimit`], [`FlowRuleError::NoSample`].
    pub fn check(self) -> Result<(), FlowRuleError> {
        match self {
            FlowAction::CutOff(cut) if cut == CutOff::default() => Err(FlowRuleError::NoLimit),
            FlowAction::Sample { one_in } if !(2..=MAX_SAMPLE).contains(&one_in) => {
                Err(FlowRuleError::NoSample { one_in })
            }
            _ => Ok(()),
        }
    }
}

/// When a packet is withheld, in the kernel's format: once its direction has had this many packets or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActionWords {
    /// With [`SAMPLE`], one packet in so many is not withheld.
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl From<FlowAction> for ActionWords {
    fn from(action: FlowAction) -> Self {
        let cut = match action {
            FlowAction::Ignore | FlowAction::Forward { .. } => (0, NO_LIMIT),
            FlowAction::Mirror { .. } => (NO_LIMIT, NO_LIMIT),
            FlowAction::CutOff(CutOff { packets, bytes }) => {
                let [packets, bytes] = [packets, bytes].map(|most| most.unwrap_or(NO_LIMIT));
                (packets.min(NO_LIMIT), bytes.min(NO_LIMIT))
            }
            FlowAction::Sample { one_in } => (SAMPLE | one_in, NO_LIMIT),
        };
        ActionWords {
            packets: cut.0,
            bytes: cut.1,
        }
    }
}

impl ActionWords {
    /// Whether a packet with this many packets and bytes of its direction before it is withheld.
    #[inline]
    pub(super) fn is_past(self, packets: u64, bytes: u64) -> bool {
        if self.packets & SAMPLE != 0 {
            return !packets.is_multiple_of(self.packets & !SAMPLE);
        }
        packets >= self.packets || bytes >= self.bytes
    }
}

/// A rule for one flow, for all flows that match a [`FlowPattern`](super::FlowPattern), or for either, as a
/// [`FlowSelector`](crate::FlowSelector). Messages carry it in this form, with the time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRule<F = FlowId> {
    /// The flows.
    pub flow: F,
    /// What happens to their packets.
    #[serde(flatten)]
    pub action: FlowAction,
    /// Nanoseconds until the rule ends; `None`: when the flow ends, or the reader of a rule for a pattern.
    #[serde(
        rename = "lasts_ms",
        default,
        skip_serializing_if = "Option::is_none",
        with = "milliseconds"
    )]
    pub lasts_ns: Option<u64>,
}

/// Milliseconds in messages, for times in nanoseconds.
mod milliseconds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    const NS_OF_MS: u64 = 1_000_000;

    pub(super) fn serialize<S: Serializer>(ns: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        ns.map(|ns| ns / NS_OF_MS).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        let ms = Option::<u64>::deserialize(from)?;
        Ok(ms.map(|ms| ms.saturating_mul(NS_OF_MS)))
    }
}

impl<F> FlowRule<F> {
    /// The same rule for other flows.
    pub fn with_flow<G>(self, flow: G) -> FlowRule<G> {
        FlowRule {
            flow,
            action: self.action,
            lasts_ns: self.lasts_ns,
        }
    }

    /// Refuses a rule that would withhold nothing.
    ///
    /// # Errors
    ///
    /// As [`FlowAction::check`].
    pub fn check(&self) -> Result<(), FlowRuleError> {
        self.action.check()
    }
}

/// Words of [`FlowCuts`]: `struct rt_cuts`.
pub const CUTS_WORDS: usize = 5 * MAX_CUTS;

/// Members, cut-off and end of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    members: u64,
    /// Bits of the groups that get the packets of these members, too.
    adds: u64,
    cut: ActionWords,
    expires_ns: u64,
}

/// The rules of all members for one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowCuts([Cut; MAX_CUTS]);

const NO_CUT: Cut = Cut {
    members: 0,
    adds: 0,
    cut: ActionWords {
        packets: NO_LIMIT,
        bytes: NO_LIMIT,
    },
    expires_ns: u64::MAX,
};

impl Default for FlowCuts {
    fn default() -> Self {
        FlowCuts([NO_CUT; MAX_CUTS])
    }
}

impl FlowCuts {
    /// The standing cut-offs of a table.
    #[must_use]
    pub fn standing(settings: &FlowSettings) -> Self {
        let mut cuts = FlowCuts::default();
        for (place, standing) in cuts.0.iter_mut().zip(&settings.standing) {
            place.members = standing.members;
            place.cut = FlowAction::CutOff(standing.cut).into();
        }
        cuts
    }

    /// Sets a rule for members, in place of their earlier one.
    ///
    /// # Errors
    ///
    /// [`FlowRuleError::TooManyCuts`]: nothing changes.
    pub fn set(
        &mut self,
        rule: &FlowRule,
        RuleBits { members, adds }: RuleBits,
        now_ns: u64,
    ) -> Result<(), FlowRuleError> {
        let end = |ns| now_ns.saturating_add(ns);
        let new = Cut {
            members,
            adds,
            cut: rule.action.into(),
            expires_ns: rule.lasts_ns.map_or(u64::MAX, end),
        };
        let is_alike =
            |it: &Cut| (it.cut, it.adds, it.expires_ns) == (new.cut, new.adds, new.expires_ns);
        // A place is free if only these members, or an expired rule, have it.
        let is_free = |it: &Cut| it.members & !members == 0 || it.expires_ns <= now_ns;
        let place = self.0.iter().position(is_alike);
        let place = place.or_else(|| self.0.iter().position(is_free));
        let place = place.ok_or(FlowRuleError::TooManyCuts { key: rule.flow })?;
        self.clear(members);
        let cut = &self.0[place];
        let others = if is_alike(cut) { cut.members } else { 0 };
        self.0[place] = Cut {
            members: others | members,
            ..new
        };
        Ok(())
    }

    /// Removes these members' rule; `false` if they have none.
    pub fn clear(&mut self, members: u64) -> bool {
        let had_rule = self.members() & members != 0;
        for cut in &mut self.0 {
            cut.members &= !members;
        }
        had_rule
    }

    /// The members that have a rule.
    #[must_use]
    pub fn members(&self) -> u64 {
        self.0.iter().fold(0, |all, cut| all | cut.members)
    }

    /// The members whose rule has not expired.
    #[inline]
    #[must_use]
    pub fn deciding(&self, now_ns: u64) -> u64 {
        let deciding = self.0.iter().filter(|it| now_ns < it.expires_ns);
        deciding.fold(0, |all, cut| all | cut.members)
    }

    /// The groups that get a packet for the members of `mask`, too.
    #[inline]
    #[must_use]
    pub fn adds(&self, mask: u64, now_ns: u64) -> u64 {
        let adding = |it: &&Cut| now_ns < it.expires_ns && it.members & mask != 0;
        self.0
            .iter()
            .filter(adding)
            .fold(0, |all, cut| all | cut.adds)
    }

    /// The members that do not get a packet with this many packets and bytes of its direction before it.
    #[inline]
    #[must_use]
    pub fn past(&self, packets: u64, bytes: u64, now_ns: u64) -> u64 {
        let is_past = |it: &&Cut| now_ns < it.expires_ns && it.cut.is_past(packets, bytes);
        let past = self.0.iter().filter(is_past);
        past.fold(0, |all, cut| all | cut.members)
    }

    /// The words of `struct rt_cuts`.
    #[must_use]
    pub fn to_words(&self) -> [u64; CUTS_WORDS] {
        let words = self.0.iter().flat_map(|it| {
            let ActionWords { packets, bytes } = it.cut;
            [it.members, it.adds, packets, bytes, it.expires_ns]
        });
        let mut all = [0; CUTS_WORDS];
        for (word, value) in all.iter_mut().zip(words) {
            *word = value;
        }
        all
    }

    /// The rules in these words.
    #[must_use]
    pub fn from_words(words: &[u64; CUTS_WORDS]) -> Self {
        let mut cuts = FlowCuts::default();
        for (cut, words) in cuts.0.iter_mut().zip(words.as_chunks::<5>().0) {
            let [members, adds, packets, bytes, expires_ns] = *words;
            *cut = Cut {
                members,
                adds,
                cut: ActionWords { packets, bytes },
                expires_ns,
            };
        }
        cuts
    }
}

/// Mask bits of a rule in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleBits {
    /// The members whose rule it is.
    pub members: u64,
    /// The group that gets their packets, too.
    pub adds: u64,
}

impl From<u64> for RuleBits {
    /// The bits of a rule of these members that gives packets to no other group.
    fn from(members: u64) -> Self {
        RuleBits { members, adds: 0 }
    }
}

/// A cut-off for every flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandingCutOff {
    /// Mask bits of the members from which packets are withheld.
    pub members: u64,
    /// The cut-off.
    pub cut: CutOff,
}

/// Settings of a table of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// Maximum number of flows.
    pub capacity: u32,
    /// A flow ends if it has no packets for longer than this, in nanoseconds.
    pub idle_ns: u64,
    /// A full table evicts the flow that is idle for longest, if for at least this time, in nanoseconds.
    pub evict_idle_ns: u64,
    /// Cut-offs of all flows; those behind the first [`MAX_CUTS`] are not applied.
    pub standing: Vec<StandingCutOff>,
    /// Rules for all flows that match a pattern, at most [`MAX_WILDCARDS`](super::MAX_WILDCARDS).
    pub wildcards: Vec<WildcardRule>,
    /// Bits of the groups to which rules may give packets: those that have readers.
    pub adds: u64,
}

impl FlowSettings {
    /// Refuses wildcard rules that no table can have.
    ///
    /// # Errors
    ///
    /// The first reason.
    pub fn check(&self) -> Result<(), WildcardError> {
        wildcard::check(&self.wildcards)
    }
}

impl Default for FlowSettings {
    fn default() -> Self {
        FlowSettings {
            capacity: 1 << 20,
            idle_ns: 300_000_000_000,
            evict_idle_ns: 1_000_000_000,
            standing: Vec::new(),
            wildcards: Vec::new(),
            adds: 0,
        }
    }
}

/// Why a rule is not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum FlowRuleError {
    /// No room, and no flow is idle.
    #[error(
        "the table is full: {capacity} flows, of which none is idle; remove rules, or allow more flows"
    )]
    Full { capacity: u32 },
    /// Readers have too many different rules for the flow.
    #[error(
        "{key}: readers have {MAX_CUTS} different rules for this flow already: remove one, or set an equal one"
    )]
    TooManyCuts { key: FlowId },
    /// The rule's cut-off has no limit.
    #[error("a cut-off needs a number of packets or of bytes")]
    NoLimit,
    /// A sample of all packets, or of too few.
    #[error("a sample is of one packet in 2 to {MAX_SAMPLE}, not in {one_in}")]
    NoSample { one_in: u64 },
    /// The system refused.
    #[error("{reason}")]
    System { reason: String },
}
