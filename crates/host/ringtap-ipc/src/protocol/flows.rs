// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules in messages: a rule in force, the end of a flow.

use ringtap_filter::FlowSelector;
use ringtap_filter::flow::{FlowDirection, FlowEnd, FlowId, FlowRule};
use serde::{Deserialize, Serialize};

/// Word of this addition in `features`.
pub const FLOW_RULES: &str = "flow_rules";
/// Most rules of a request.
pub const MAX_RULES_OF_REQUEST: usize = 512;

/// A rule in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// The rule; `lasts_ms` is the time that is left.
    #[serde(flatten)]
    pub rule: FlowRule<FlowSelector>,
    /// The reader that set it; absent: the hub's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<u64>,
    /// What the flow had; absent if the user may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<[FlowDirectionCounts; 2]>,
}

/// The end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEvent {
    /// The flow.
    pub flow: FlowId,
    /// Why it ended: `ended`, `idle`, `restarted`, `evicted`, `removed`.
    pub why: FlowEndReason,
    /// What the flow had; absent if the user may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<[FlowDirectionCounts; 2]>,
}

/// Why a flow left the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowEndReason {
    /// FIN of both directions, or RST.
    Ended,
    /// No packets for too long.
    Idle,
    /// A new connection has its addresses and ports.
    Restarted,
    /// A new flow needed its room.
    Evicted,
    /// Its last rule was removed.
    Removed,
}

/// What one direction of a flow had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowDirectionCounts {
    /// Packets that some reader of the hub wanted.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// All their TCP flags.
    pub tcp_flags: u8,
    /// Time of the first packet, in nanoseconds since 1970; 0 without packets.
    pub first_ns: u64,
    /// Time of the last packet.
    pub last_ns: u64,
}

impl FlowDirectionCounts {
    /// The counts, with times of another clock moved by this many nanoseconds.
    #[must_use]
    pub fn from_direction(direction: &FlowDirection, offset_ns: i64) -> Self {
        let moved = |ns: u64| match ns {
            0 => 0,
            ns => ns.saturating_add_signed(offset_ns),
        };
        FlowDirectionCounts {
            packets: direction.packets,
            bytes: direction.bytes,
            tcp_flags: direction.flags,
            first_ns: moved(direction.first_ns),
            last_ns: moved(direction.last_ns),
        }
    }
}

impl FlowEndReason {
    /// The word in messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            FlowEndReason::Ended => "ended",
            FlowEndReason::Idle => "idle",
            FlowEndReason::Restarted => "restarted",
            FlowEndReason::Evicted => "evicted",
            FlowEndReason::Removed => "removed",
        }
    }
}

impl From<FlowEnd> for FlowEndReason {
    fn from(end: FlowEnd) -> Self {
        match end {
            FlowEnd::Ended => FlowEndReason::Ended,
            FlowEnd::Idle => FlowEndReason::Idle,
            FlowEnd::Restarted => FlowEndReason::Restarted,
            FlowEnd::Evicted => FlowEndReason::Evicted,
            FlowEnd::Removed => FlowEndReason::Removed,
        }
    }
}
