// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of a whole hub at one moment, as `ringtap status` prints them.

use std::ops::AddAssign;

use ringtap_filter::flow::CutOff;
use ringtap_pool::congestion::Congestion;
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::distributor::Policy;
use ringtap_pool::source::Counts;
use serde::{Deserialize, Serialize};

use super::{Delivery, Division};

/// Status of a hub.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HubStatus {
    /// Time of this status, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Time when the hub started, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Software version.
    pub version: String,
    /// Process id.
    pub pid: i32,
    /// The hub's sources.
    pub sources: Vec<SourceStatus>,
    /// The hub's groups.
    pub groups: Vec<GroupStatus>,
    /// The readers that are attached now.
    pub readers: Vec<ReaderStatus>,
    /// Why the hub captures nothing yet: one sentence for each interface that is not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaits: Vec<String>,
    /// State of the configuration file; absent without one, and in a partial status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationStatus>,
    /// The ways of the bridge that this hub belongs to, if it does.
    #[serde(default)]
    pub bridges: Vec<BridgeStatus>,
    /// Readers that have left, by name; a bounded number of names, the latest last.
    #[serde(default)]
    pub departed: Vec<DepartedStatus>,
    /// Packets lost by all readers that have left.
    pub departed_overrun: u64,
    /// Seed of the hashes that divide packets between members; absent in a partial status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_seed: Option<u64>,
    /// Groups that the asking user may not join are missing, with their readers.
    #[serde(default)]
    pub partial: bool,
    /// Longest time in microseconds of one step of the hub's thread: work for the control thread, chunks
    /// that are moved, readers that are woken. Includes time in which other threads ran instead.
    #[serde(default)]
    pub longest_step_us: u64,
    /// Number of the last reader in `readers`, if others follow that did not fit into the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readers_after: Option<u64>,
}

/// State of a hub's configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationStatus {
    /// Number of times that the hub has read the file again.
    pub reads: u64,
    /// The hub is reading the file.
    pub is_reading: bool,
    /// Why the file that was read last is not in force: file, line and key.
    pub error: Option<String>,
    /// Settings that changed with the file that was read last, and settings that did not.
    pub notes: Vec<String>,
}

/// The account of one way of a bridge: packets that arrived at one interface, for the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeStatus {
    /// `FROM>TO`.
    pub way: String,
    /// Its account: `delivered` by the other interface, `filtered` by the filter or the inline reader.
    #[serde(flatten)]
    pub counters: Counters,
}

/// Sums over the readers of one user, group and name that have left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepartedStatus {
    /// Their name.
    pub name: String,
    /// Their group.
    pub group: String,
    /// User id.
    pub uid: u32,
    /// Number of these readers.
    pub readers: u64,
    /// Time when the last one left, in nanoseconds since 1970.
    pub left_ns: u64,
    /// Their accounts, added.
    #[serde(flatten)]
    pub counters: Counters,
    /// Packets that lay in the pool when the readers left, and that they had not read.
    pub unread: u64,
}

/// State of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// The source captures.
    #[default]
    Capturing,
    /// At least one lane waits for readers to catch up.
    Paused,
    /// The interface is down, has no carrier, or is missing; capture resumes by itself.
    Waiting,
    /// The source has ended; see [`SourceStatus::failure`].
    Ended,
}

/// Status of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// The device as the user wrote it.
    pub device: String,
    /// Whether the source captures.
    pub state: SourceState,
    /// Why it ended, if it failed.
    pub failure: Option<String>,
    /// Whether it failed because the interface was removed.
    #[serde(default)]
    pub is_removed: bool,
    /// Times that another program detached the source's program; packets passed unseen meanwhile.
    #[serde(default)]
    pub detached_count: u64,
    /// Notes for the user about the source.
    pub notes: Vec<String>,
    /// Origin of the counter `offered`.
    pub offered_from: String,
    /// Size of the pool.
    pub pool_bytes: u64,
    /// Size of one chunk.
    pub chunk_bytes: u32,
    /// Packets lost on no lane in particular.
    pub dropped: Dropped,
    /// Longest time in milliseconds that a chunk waited for the hub's thread.
    #[serde(default)]
    pub longest_wait_ms: u64,
    /// Lane by lane.
    pub lanes: Vec<LaneStatus>,
    /// Whether every lane's account balances.
    pub balanced: bool,
    /// When capture of a lane pauses, if it can.
    #[serde(default)]
    pub congestion: Option<Congestion>,
}

impl SourceStatus {
    /// The source's counters alone.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            lanes: self.lanes.iter().map(|lane| lane.counters).collect(),
            dropped: self.dropped,
        }
    }
}

/// Status of one lane of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// Number of the lane.
    pub lane: u32,
    /// Its account: `delivered` into the pool, `filtered` by all readers' filters.
    #[serde(flatten)]
    pub counters: Counters,
    /// Number of the lane's chunks.
    pub chunks: u32,
    /// Chunks of the lane that are not free.
    pub chunks_in_use: u32,
    /// Whether capture waits for readers to catch up.
    pub paused: bool,
}

/// Status of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// How the group divides its traffic.
    #[serde(rename = "balance")]
    pub division: Division,
    /// How packets reach its readers.
    pub delivery: Delivery,
    /// The group's filter, as the user wrote it.
    pub filter: String,
    /// Number of readers in the group.
    pub members: u32,
    /// Most readers at one time.
    pub max_members: u32,
    /// The cut-off of every flow, if the group has one.
    #[serde(default)]
    pub cutoff: Option<CutOff>,
    /// Policy for a reader past its credit.
    pub policy: Policy,
    /// The offload threshold in percent, if the group has one.
    #[serde(default)]
    pub offload_percent: Option<u8>,
    /// What members read for each other, if they are buddies.
    #[serde(flatten)]
    pub buddies: BuddyCounts,
}

/// Counters of members that read chunks for each other, since their group began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BuddyCounts {
    /// Chunks that went to a member.
    #[serde(skip)]
    pub chunks: u64,
    /// Chunks among them that went to another member than the lane's owner.
    pub offloaded_chunks: u64,
    /// Packets in offloaded chunks.
    pub offloaded_packets: u64,
    /// Packets that a member released while another still held earlier packets of the same flow: their order within
    /// the flow may be broken.
    pub disordered_packets: u64,
}

impl AddAssign for BuddyCounts {
    fn add_assign(&mut self, more: Self) {
        self.chunks += more.chunks;
        self.offloaded_chunks += more.offloaded_chunks;
        self.offloaded_packets += more.offloaded_packets;
        self.disordered_packets += more.disordered_packets;
    }
}

impl GroupStatus {
    /// Whether there is room for a further member, which gets every packet that the hub captures.
    #[must_use]
    pub fn admits_to_everything(&self) -> bool {
        let grants_everything = self.division == Division::BROADCAST && self.filter.is_empty();
        let has_room = self.members < self.max_members;
        grants_everything && has_room
    }
}

/// Status of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderStatus {
    /// Number of the reader at this hub.
    pub reader: u64,
    /// The reader's name.
    pub name: String,
    /// The reader's group.
    pub group: String,
    /// Process id.
    pub pid: i32,
    /// User id.
    pub uid: u32,
    /// How packets reach it.
    pub delivery: Delivery,
    /// Time when the reader attached, in nanoseconds since 1970.
    pub attached_ns: u64,
    /// Its account since it attached: what it reports of packets that it has read, what was in chunks that it did
    /// not get, and what its sources lost.
    #[serde(flatten)]
    pub counters: Counters,
    /// Bytes on the wire of the packets that flow rules withheld from the reader.
    #[serde(default)]
    pub shunted_bytes: u64,
    /// Packets in the pool that are not in the account yet.
    pub unread: u64,
    /// Those of `dropped.overrun` that the reader lost because many chunks came at once: the hub's thread came
    /// late, or the credit is too small.
    #[serde(default)]
    pub overrun_in_bursts: u64,
    /// Time of the last loss, in nanoseconds since 1970, exact to 0.2 s; 0: no loss.
    pub last_loss_ns: u64,
    /// Chunks that the reader holds, of all lanes.
    pub lag_chunks: u32,
    /// Age in milliseconds of the oldest packet that the reader holds.
    pub lag_ms: u64,
    /// Chunks of one lane that the reader may hold while other readers leave them.
    pub credit_chunks: u32,
    /// Chunks of each lane that the reader can hold whatever other readers do; 0: its source waits,
    /// or the hub is for one reader.
    #[serde(default)]
    pub guaranteed_chunks: u32,
    /// Why the filter does not run in the source; absent if it does.
    pub not_in_source: Option<String>,
    /// The reader wrote invalid values and receives no more packets.
    pub corrupt: bool,
    /// The reader reported more packets or bytes than its sources captured; its numbers are reduced to what is
    /// possible.
    #[serde(default)]
    pub impossible: bool,
    /// Chunks that the reader received instead of their lane's owner.
    #[serde(default)]
    pub helped_chunks: u64,
    /// Buckets of flows, of 2,048, that the reader owns; 0 in groups without buckets.
    #[serde(default)]
    pub buckets: u32,
}
