// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every source offers: a pool, lanes, counters, a way to wait for it, a way to stop it.

use std::error::Error;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ringtap_filter::{Balance, Place, Rules};
use serde::{Deserialize, Serialize};

use crate::distributor::{LaneEnds, Policy};
use crate::format::Geometry;
use crate::free::FreeChunks;
use crate::ids::{ChunkId, LaneId};
use crate::queue;
use crate::view::Pool;
use crate::wake::{Signal, WakeWord};
use crate::writer::{LaneWriter, LaneWriterParts};

/// Why a source failed; the message says what to do.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// What a source is, for people and for file headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The device as the user would write it: `tap:eth0`, `pcap:FILE`.
    pub device: String,
    /// The network interface, if it is one.
    pub interface: Option<String>,
    /// The link type (`LINKTYPE_*`, 1 for Ethernet).
    pub link_type: u16,
    /// Most bytes captured of a packet.
    #[serde(rename = "snap_length_bytes")]
    pub snap_length: u32,
    /// What happens to a reader that is past its credit.
    pub policy: Policy,
    /// What a user should know: fall-backs taken and why, a line each.
    pub notes: Vec<String>,
    /// Where `offered` comes from, in words: "the XDP program and the interface's drop counters".
    pub offered_from: String,
}

/// What one lane counted since the source began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCounts {
    /// Packets that reached the source on this lane, by a counter of its own.
    pub seen: u64,
    /// Packets in the pool.
    pub captured: u64,
    /// Bytes on the wire of these.
    pub bytes: u64,
    /// Packets that no rule wanted, and that were not captured.
    pub unwanted: u64,
    /// Packets lost because no chunk was free.
    pub pool_full: u64,
    /// Packets lost by the kernel on this lane (copy failed, nested run).
    pub kernel: u64,
}

impl LaneCounts {
    /// Packets of which it is known what became of them: all that were seen, at the end.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.captured + self.unwanted + self.pool_full + self.kernel
    }
}

/// What a source counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Per lane.
    pub lanes: Vec<LaneCounts>,
    /// Packets lost by the NIC or its driver, on no lane in particular.
    pub nic: u64,
    /// Packets lost by the kernel, on no lane in particular.
    pub kernel: u64,
}

/// Whether a lane captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It does not, until the readers have caught up.
    Paused,
    /// It does.
    Capturing,
}

/// Whether a source goes on.
#[derive(Debug)]
pub enum Status {
    /// Packets may come.
    Running,
    /// All was read (a file's end), or the source was stopped.
    Ended,
    /// No more packets, and the reason; what came before is in the pool.
    Failed(SourceError),
}

/// What writes packets into a pool.
///
/// From the moment a source exists it captures; nothing is lost before the first read but what
/// the pool cannot hold.
pub trait Source: Send {
    /// What this source is.
    fn facts(&self) -> &Facts;

    /// The pool, as readers map it.
    fn pool(&self) -> Pool;

    /// What other processes map to read the pool; nobody can map it writable. `None` if it lies
    /// in this process only.
    fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The distributor's ends of the lanes; empty when called again.
    fn take_lanes(&mut self) -> Vec<LaneEnds>;

    /// All counters now. `seen` may be one ahead of the rest while a packet is being captured.
    fn counts(&mut self) -> Counts;

    /// Classifies packets by these rules from now on; returns for each rule where its filter runs.
    ///
    /// A source that cannot classify leaves every bit set, and every filter to the readers; it
    /// refuses to divide packets between them.
    ///
    /// # Errors
    ///
    /// The rules before are still in force then.
    fn classify(&mut self, rules: &Rules) -> Result<Vec<Place>, SourceError> {
        if rules.0.iter().any(|rule| rule.balance != Balance::Everyone) {
            return Err("this source cannot divide packets between the members of a group".into());
        }
        let why = "this source does not classify".to_owned();
        Ok(vec![Place::Reader(why); rules.0.len()])
    }

    /// The part of the source that puts rules in force, if that takes long (a tap loads programs):
    /// the caller runs it on a thread of its own, and does not call [`Source::classify`] any more.
    fn take_rule_loader(&mut self) -> Option<Box<dyn RuleLoader>> {
        None
    }

    /// Whether it was given no rules yet and every packet has every bit, so that rules which give
    /// everything to everybody would change nothing but cost the time to learn them.
    ///
    /// `false` is always right.
    fn gives_everything(&self) -> bool {
        false
    }

    /// Stops capture on a lane at its cheapest point, or goes on. Packets that come meanwhile
    /// count as `pool_full`. Only sources that can drop packets do anything.
    fn pause(&mut self, lane: LaneId, pause: Pause) {
        let _cannot = (lane, pause);
    }

    /// Whether the source goes on; the reason of a failure is told once.
    fn status(&mut self) -> Status;

    /// Becomes readable when a lane signals and when the status changes.
    fn wake_fd(&self) -> BorrowedFd<'_>;

    /// What becomes readable when a lane signals, for readers, who must not be able to change
    /// it or make it unreadable; `None` if they can only be woken by the driver.
    fn readers_wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Makes `wake_fd` unreadable again.
    fn clear_wake(&mut self);

    /// Stops capturing and detaches; when it returns nothing is written any more, and counters
    /// are final.
    fn stop(&mut self);
}

/// Puts a source's rules in force while another thread drives the source.
pub trait RuleLoader: Send {
    /// Does what [`Source::classify`] does; it may take seconds.
    ///
    /// # Errors
    ///
    /// The rules before are still in force then.
    fn classify(&mut self, rules: &Rules) -> Result<Vec<Place>, SourceError>;
}

/// Both ends of a lane of a source in user space.
///
/// # Safety
///
/// As for [`LaneWriter::new`]: the pool is writable and `chunks` belong to no other lane.
pub unsafe fn lane(
    pool: &Pool,
    lane: LaneId,
    chunks: Vec<ChunkId>,
    signal: Arc<dyn Signal>,
) -> (LaneWriter, LaneEnds) {
    let count = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
    let (open, opened) = queue::pair(count);
    let (recycle, recycled) = queue::pair(count);
    let wake = WakeWord::on_heap();
    let free = FreeChunks::new(chunks, recycled, *pool.geometry());
    let parts = LaneWriterParts {
        lane,
        opened: open,
        free,
        wake: wake.clone(),
        signal,
    };
    // SAFETY: the caller's promise.
    let writer = unsafe { LaneWriter::new(pool.clone(), parts) };
    (
        writer,
        LaneEnds {
            opened,
            recycle,
            wake,
            chunks: count,
        },
    )
}

/// The chunks of one lane when all lanes share a pool evenly, highest first, so that the lowest
/// is used first.
pub fn share(geometry: &Geometry, lane: LaneId) -> Vec<ChunkId> {
    let each = (geometry.chunk_count - 1) / geometry.lane_count;
    let first = 1 + lane.0 * each;
    (first..first + each).rev().map(ChunkId).collect()
}
