// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everybody's counters at one moment: what `ringtap status` prints.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// A hub.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HubStatus {
    /// Now, in nanoseconds since 1970.
    pub time_ns: u64,
    /// When the hub started.
    pub started_ns: u64,
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: i32,
    /// Where packets come from.
    pub sources: Vec<SourceStatus>,
    /// Who may share them.
    pub groups: Vec<GroupStatus>,
    /// Who reads now.
    pub readers: Vec<ReaderStatus>,
    /// Losses of readers that left, in packets.
    pub departed_overrun: u64,
}

/// Whether a source captures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// It does.
    #[default]
    Capturing,
    /// Some lane waits for readers to catch up.
    Paused,
    /// No more; see [`SourceStatus::failure`].
    Ended,
}

/// A source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// The device as the user wrote it.
    pub device: String,
    /// Whether it captures.
    pub state: SourceState,
    /// Why it ended, if it failed.
    pub failure: Option<String>,
    /// What a user should know of it.
    pub notes: Vec<String>,
    /// Where `seen` comes from.
    pub offered_from: String,
    /// Bytes of its pool.
    pub pool_bytes: u64,
    /// Bytes of one chunk.
    pub chunk_bytes: u32,
    /// Packets lost by the NIC or its driver.
    pub nic: u64,
    /// Packets lost by the kernel, on no lane in particular.
    pub kernel: u64,
    /// Lane by lane.
    pub lanes: Vec<LaneStatus>,
    /// Whether seen = captured + unwanted + dropped on every lane.
    pub balanced: bool,
    /// When capture of a lane pauses, if it ever does.
    #[serde(default)]
    pub congestion: Option<CongestionStatus>,
}

/// When capture of a lane pauses because readers cannot keep up, by its chunks that are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CongestionStatus {
    /// It pauses while fewer percent of them are free.
    pub low_percent: u8,
    /// It goes on when so many percent are.
    pub high_percent: u8,
}

/// One lane of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// Its number.
    pub lane: u32,
    /// Packets that reached it.
    pub seen: u64,
    /// Packets in the pool.
    pub captured: u64,
    /// Bytes on the wire of these.
    #[serde(default)]
    pub bytes: u64,
    /// Packets that nobody wanted.
    pub unwanted: u64,
    /// Packets lost because no chunk was free, or capture was paused.
    pub pool_full: u64,
    /// Packets lost by the kernel.
    pub kernel: u64,
    /// Its chunks.
    pub chunks: u32,
    /// Those of them that are not free.
    pub chunks_in_use: u32,
    /// Whether capture waits for readers to catch up.
    pub paused: bool,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// How it divides packets.
    pub balance: String,
    /// `shared` or `private`.
    pub delivery: String,
    /// Its filter, as the user wrote it.
    pub filter: String,
    /// Readers in it.
    pub members: u32,
    /// Readers that may be in it.
    pub most_members: u32,
    /// What happens to a reader past its credit, as the configuration has it; empty if the hub
    /// does not tell.
    #[serde(default)]
    pub policy: String,
    /// The offload threshold in percent, if there is one.
    #[serde(default)]
    pub offload_percent: Option<u8>,
    /// Chunks that went to another than their lane's owner.
    #[serde(default)]
    pub offloaded_chunks: u64,
    /// Packets in these.
    #[serde(default)]
    pub offloaded_packets: u64,
    /// Packets that a member was done with while another held earlier packets of the same flow.
    #[serde(default)]
    pub disordered_packets: u64,
}

/// A reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderStatus {
    /// Its number at this hub.
    pub reader: u64,
    /// What it calls itself.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its process.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// `shared` or `private`.
    pub delivery: String,
    /// When it attached, in nanoseconds since 1970.
    pub attached_ns: u64,
    /// Packets it says it took.
    pub delivered: u64,
    /// Packets it says did not pass its filter.
    pub filtered: u64,
    /// Packets it says are for other members of its group.
    pub other_members: u64,
    /// Bytes on the wire of those it took.
    pub bytes: u64,
    /// Packets it lost because it was past its credit.
    pub overrun: u64,
    /// When it last lost some, to a fifth of a second, in nanoseconds since 1970; 0 if never.
    pub last_loss_ns: u64,
    /// Chunks it holds, all lanes together.
    pub lag_chunks: u32,
    /// Age of the oldest packet that it holds, in milliseconds.
    pub lag_ms: u64,
    /// Chunks it may hold of one lane.
    pub credit_chunks: u32,
    /// Why its filter does not run in the source; absent if it does.
    pub not_in_source: Option<String>,
    /// It broke the rules and gets nothing any more.
    pub corrupt: bool,
    /// Chunks that it took instead of their lane's owner.
    #[serde(default)]
    pub helped_chunks: u64,
    /// Buckets of flows that are its own, of 256; 0 in groups that have none.
    #[serde(default)]
    pub buckets: u32,
}
