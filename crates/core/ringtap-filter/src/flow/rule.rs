// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader says of a flow, and the settings of a table of flows.

use super::FlowKey;

/// Different cut-offs of one flow, and standing cut-offs of a table.
pub const MAX_CUTS: usize = 4;

/// Packets of each direction that come before the cut. At least one limit should be set: without, nothing is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutOff {
    /// At most this many packets.
    pub packets: Option<u64>,
    /// Packets that begin within this many bytes on the wire.
    pub bytes: Option<u64>,
}

impl CutOff {
    /// Whether a packet with this many packets and bytes of its direction before it is behind the cut.
    #[inline]
    #[must_use]
    pub fn is_past(&self, packets: u64, bytes: u64) -> bool {
        self.packets.is_some_and(|most| packets >= most)
            || self.bytes.is_some_and(|most| bytes >= most)
    }
}

/// What is withheld from a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowAction {
    /// All packets.
    Ignore,
    /// The packets behind the cut, counted from the moment at which the table knows the flow.
    CutOff(CutOff),
}

impl FlowAction {
    /// The action as a cut-off: to ignore is to cut off before the first packet.
    #[must_use]
    pub fn cut_off(self) -> CutOff {
        match self {
            FlowAction::Ignore => CutOff {
                packets: Some(0),
                bytes: None,
            },
            FlowAction::CutOff(cut) => cut,
        }
    }
}

/// A rule for one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// The flow.
    pub key: FlowKey,
    /// What is withheld.
    pub action: FlowAction,
    /// Nanoseconds until the rule ends; `None`: when the flow ends.
    pub lasts_ns: Option<u64>,
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
    /// Most flows.
    pub capacity: u32,
    /// A flow ends if it has no packets for longer than this, in nanoseconds.
    pub idle_ns: u64,
    /// A full table evicts the flow that is idle for longest, if for at least this time, in nanoseconds.
    pub evict_idle_ns: u64,
    /// Cut-offs of all flows; those behind the first [`MAX_CUTS`] are not applied.
    pub standing: Vec<StandingCutOff>,
}

impl Default for FlowSettings {
    fn default() -> Self {
        FlowSettings {
            capacity: 1 << 20,
            idle_ns: 300_000_000_000,
            evict_idle_ns: 1_000_000_000,
            standing: Vec::new(),
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
    TooManyCuts { key: FlowKey },
    /// The rule's cut-off has no limit.
    #[error("a cut-off needs a number of packets or of bytes")]
    NoLimit,
    /// The system refused.
    #[error("{reason}")]
    System { reason: String },
}
