// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of one reader at one moment, as the hub sees them.

use ringtap_pool::counters::{Counters, Dropped};
use serde::{Deserialize, Serialize};

/// Counters of all sources of a subscription, since the subscription started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// In the order of the reader's endpoints.
    pub sources: Vec<SourceSnapshot>,
}

/// Counters of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceSnapshot {
    /// Lane by lane.
    pub lanes: Vec<LaneSnapshot>,
    /// Packets lost on no lane in particular.
    pub dropped: Dropped,
    /// The counters are final: the source has ended and every chunk is settled.
    pub ended: bool,
    /// Why the source ended, if it failed.
    pub failure: Option<String>,
    /// Whether it failed because its interface was removed.
    #[serde(default)]
    pub is_removed: bool,
}

/// Counters of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneSnapshot {
    /// Sequence of the first packet that the reader may get.
    pub start: u64,
    /// Sequence of the next packet that is captured.
    pub position: u64,
    /// Outcome of the lane's packets before the reader; `delivered` packets are in its pool.
    #[serde(flatten)]
    pub counters: Counters,
    /// Packets in chunks that the reader did not receive, whether it wanted them or not.
    pub missed_sequences: u64,
    /// Packets among them that the reader wanted: the reader's losses.
    pub missed_packets: u64,
    /// Packets among them for other members of the reader's group.
    pub missed_other_members: u64,
    /// Packets that flow rules withheld from the reader. The reader itself, the hub and `counters` count them as
    /// `filtered`.
    #[serde(default)]
    pub withheld_packets: u64,
    /// Their bytes on the wire.
    #[serde(default)]
    pub withheld_bytes: u64,
    /// Packets that flow rules withheld from other members of the reader's group; likewise.
    #[serde(default)]
    pub withheld_other_members: u64,
}
