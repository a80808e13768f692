// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interface of all sources: pool, lanes, counters, wake-ups and end.

use std::error::Error;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringtap_filter::flow::{
    FlowEnd, FlowId, FlowRule, FlowRuleError, FlowSums, FlowTotals, RuleBits,
};
use ringtap_filter::{Balance, FilterLocation, Rules};
use serde::{Deserialize, Serialize};

use crate::counters::{Counters, Dropped};
use crate::distributor::{LaneEnds, Policy};
use crate::format::Geometry;
use crate::ids::{ChunkId, LaneId};
use crate::number::to_u32;
use crate::queue;
use crate::view::Pool;
use crate::wake::{Signal, WakeWord};
use crate::writer::LaneWriter;

/// Why a source failed; the message tells the user what to do.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// Description of a source for users and file headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The device in the user's syntax: `tap:eth0`, `pcap:FILE`.
    pub device: String,
    /// The network interface, if the device is one.
    pub interface: Option<String>,
    /// The link type (`LINKTYPE_*`, 1 for Ethernet).
    pub link_type: u16,
    /// Maximum number of bytes captured of a packet.
    #[serde(rename = "snap_length_bytes")]
    pub snap_length: u32,
    /// Policy for a reader past its credit.
    pub policy: Policy,
    /// Messages for the user: fall-backs and their reasons, one per line.
    pub notes: Vec<String>,
    /// Origin of `offered`, in words: "the XDP program and the interface's drop counters".
    pub offered_from: String,
    /// The place where sent packets are captured, in words, if the source captures any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_from: Option<String>,
    /// The clock of the time stamps, in words, if it is not the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_from: Option<String>,
}

/// Counters of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Per lane; `offered` is a counter of the lane's own.
    pub lanes: Vec<Counters>,
    /// Packets lost before they reached a lane.
    pub dropped: Dropped,
}

impl Counts {
    /// The account of the whole source.
    #[must_use]
    pub fn total(&self) -> Counters {
        let mut total = Counters {
            offered: self.dropped.total(),
            dropped: self.dropped,
            ..Counters::default()
        };
        for lane in &self.lanes {
            total += *lane;
        }
        total
    }
}

/// Whether a lane captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The lane does not capture until the readers have caught up.
    Paused,
    /// The lane captures.
    Capturing,
}

/// State of a source.
#[derive(Debug)]
pub enum Status {
    /// Packets may arrive.
    Running,
    /// The interface is down, has no carrier, or is missing; capture resumes by itself.
    Waiting,
    /// The file ended, or the source was stopped.
    Ended,
    /// The source failed for this reason; earlier packets are in the pool.
    Failed(SourceError),
    /// The interface was removed; earlier packets are in the pool.
    Removed(SourceError),
}

/// A writer of packets into a pool, in its parts.
///
/// A source captures from its creation on: before the first read, only packets that exceed the pool
/// are lost.
pub struct Source {
    /// Counters, state and end; dropped first, because it stops the writers.
    pub driver: Box<dyn SourceDriver>,
    /// Description of the source.
    pub facts: Facts,
    /// The pool, for readers to map.
    pub pool: Pool,
    /// Descriptor that other processes map to read the pool; no process can map it writable. `None` if
    /// the pool lies in this process only.
    pub pool_file: Option<OwnedFd>,
    /// Whether [`Source::pool_file`] is a BPF map: a process that has the descriptor and may load BPF
    /// programs can write the pool.
    pub pool_is_map: bool,
    /// The distributor's ends of the lanes.
    pub lanes: Vec<LaneEnds>,
    /// Sets the rules; the hub uses it on a thread of its own.
    pub rules: Box<dyn RuleLoader>,
    /// Asks the interface for its losses; `None` if the source knows its losses itself.
    pub update_losses: Option<LossUpdate>,
    /// Readable when a lane signals or the status changes.
    pub wake: OwnedFd,
    /// Readable when a lane signals, for readers, which cannot change or clear it; `None` if only the
    /// driver can wake them.
    pub readers_wake: Option<Arc<OwnedFd>>,
}

impl Deref for Source {
    type Target = dyn SourceDriver;

    fn deref(&self) -> &Self::Target {
        &*self.driver
    }
}

impl DerefMut for Source {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.driver
    }
}

/// Actions of a source while it captures. Dropping the driver stops the source.
pub trait SourceDriver: Send {
    /// All counters now, without waiting. `offered` may be one ahead of the rest while a packet is being
    /// captured.
    fn counts(&mut self) -> Counts;

    /// Pauses or resumes capture on a lane. Packets that arrive during a pause count as `pool_full`.
    /// Sources that cannot drop packets ignore the call.
    fn pause(&mut self, lane: LaneId, pause: Pause) {
        let _cannot = (lane, pause);
    }

    /// Time in nanoseconds since 1970 up to which every packet is published: no lane publishes
    /// another packet with this time stamp or an earlier one. `None` if the source does not know it.
    ///
    /// Never waits.
    fn horizon_ns(&mut self) -> Option<u64> {
        None
    }

    /// State of the source; reports a failure only once.
    fn status(&mut self) -> Status;

    /// Number of times that another program detached the source's program, which was attached again.
    fn detached_count(&self) -> u64 {
        0
    }

    /// Messages for the user since the last call: the start and the end of an outage, a repair.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Clears the readable state of [`Source::wake`].
    fn clear_wake(&mut self);

    /// Stops capture and detaches; afterwards nothing is written and the counters are final.
    fn stop(&mut self);
}

/// Sets a source's rules while another thread drives the source.
pub trait RuleLoader: Send {
    /// Classifies packets by these rules from now on; returns where the filter of each rule runs. May
    /// take seconds: a tap loads programs.
    ///
    /// A source that cannot classify sets every mask bit and leaves every filter to the readers. It
    /// refuses rules that divide packets between readers.
    ///
    /// # Errors
    ///
    /// The old rules stay in force.
    fn classify(&mut self, rules: &Rules) -> Result<Vec<FilterLocation>, SourceError>;

    /// Whether the source has no rules yet and sets every mask bit. Rules that give every packet to all
    /// readers then change nothing, and the hub need not set them.
    ///
    /// `false` is always correct.
    fn gives_everything(&self) -> bool {
        false
    }

    /// The table of flows, while the rules in force have [`Rules::flows`]; `None` if the source has no table.
    fn flow_rules(&self) -> Option<Arc<dyn FlowRules>> {
        None
    }
}

/// A source's table of flows, from any thread. A call takes microseconds; only a full table takes longer.
pub trait FlowRules: Send + Sync {
    /// Sets a rule for members, as [`ringtap_filter::flow::RuleTable::set`].
    ///
    /// # Errors
    ///
    /// Nothing changes.
    fn set(&self, rule: &FlowRule, bits: RuleBits) -> Result<(), FlowRuleError>;

    /// Removes members' rule for a flow; `false` if they have none.
    fn remove(&self, key: &FlowId, members: u64) -> bool;

    /// A flow's counts.
    fn get(&self, key: &FlowId) -> Option<FlowSums>;

    /// Ends flows that are idle or have ended, at most `most` of those looked at; the next call goes on.
    fn sweep(&self, most: usize);

    /// The ends of flows since the last call.
    fn take_ends(&self) -> Vec<(FlowEnd, FlowSums)>;

    /// Counts of the table.
    fn totals(&self) -> FlowTotals;

    /// What was withheld from a member, on each lane. Packets withheld from all members that wanted them are in the
    /// lane's `shunted`, too.
    fn withheld(&self, member: u32) -> Vec<WithheldCounts>;
}

/// What flow rules withheld from a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithheldCounts {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

/// Asks an interface for its losses, from any thread: [`SourceDriver::counts`] has those of the last call. It
/// may wait.
pub type LossUpdate = Box<dyn FnMut() + Send>;

/// The rules of a source that cannot classify.
pub struct Unclassified;

impl RuleLoader for Unclassified {
    fn classify(&mut self, rules: &Rules) -> Result<Vec<FilterLocation>, SourceError> {
        if rules
            .each
            .iter()
            .any(|rule| rule.balance != Balance::Everyone)
        {
            return Err("this source cannot divide packets between the members of a group".into());
        }
        if rules.flows.is_some() {
            return Err(
                "this source does not classify, so it has no flow rules: use another device".into(),
            );
        }
        let why = "this source does not classify".to_owned();
        Ok(vec![FilterLocation::Reader(why); rules.each.len()])
    }
}

/// Creates both ends of a lane of a user-space source.
///
/// # Safety
///
/// The pool's region must be mapped writable. Until the writer is dropped, no other code may write into
/// these chunks, which belong to no other lane.
pub unsafe fn lane(
    pool: &Pool,
    lane: LaneId,
    chunks: Vec<ChunkId>,
    signal: Arc<dyn Signal>,
) -> (LaneWriter, LaneEnds) {
    let count = to_u32(chunks.len());
    let (open, opened) = queue::pair(count);
    let (recycle, recycled) = queue::pair(count);
    let wake = WakeWord::on_heap();
    let ends = LaneEnds {
        opened,
        recycle,
        wake: wake.clone(),
        chunks: count,
    };
    let queues = (open, recycled);
    // SAFETY: the caller's promise.
    let writer = unsafe { LaneWriter::new(pool.clone(), lane, chunks, queues, wake, signal) };
    (writer, ends)
}

/// The chunks of one lane when all lanes share a pool evenly, highest first, so that the lowest is
/// used first.
pub fn share(geometry: &Geometry, lane: LaneId) -> Vec<ChunkId> {
    let each = (geometry.chunk_count - 1) / geometry.lane_count;
    let first = 1 + lane.0 * each;
    (first..first + each).rev().map(ChunkId).collect()
}
