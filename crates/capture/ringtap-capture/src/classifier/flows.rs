// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of flows of a source that classifies in user space, shared by the threads of its lanes.
//!
//! Invariants
//! - A packet costs nothing while no flow is in the table and no standing cut-off and no wildcard rule may concern it.
//! - A flow is always in the same part. A part is locked for one packet, one rule, or [`STEP`] flows.
//! - Parts are small, so that a thread never waits while a large one grows.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard};

use ringtap_filter::LinkType;
use ringtap_filter::flow::{
    FlowEnd, FlowId, FlowPacket, FlowRule, FlowRuleError, FlowSettings, FlowSums, FlowTotals,
    Recipients, RuleBits, RuleTable, TableUse,
};
use ringtap_filter::hash::Link;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::monotonic_ns;
use ringtap_pool::source::{FlowRules, WithheldCounts};

/// Flows at which a thread looks under one lock.
const STEP: usize = 256;
/// Flows in a part, on average, of a full table.
const PART_FLOWS: u32 = 4096;
/// Maximum number of parts.
const MAX_PARTS: u32 = 256;

/// Packets and bytes that flow rules withheld from each member, on one lane. The lane's thread adds.
#[derive(Debug)]
pub struct LaneWithheld {
    packets: [AtomicU64; 64],
    bytes: [AtomicU64; 64],
}

impl Default for LaneWithheld {
    fn default() -> Self {
        let zeros = || [const { AtomicU64::new(0) }; 64];
        LaneWithheld {
            packets: zeros(),
            bytes: zeros(),
        }
    }
}

impl LaneWithheld {
    /// Stores these members' new sums.
    pub(super) fn store(&self, mut members: u64, sums: &[WithheldCounts; 64]) {
        while members != 0 {
            let member = members.trailing_zeros() as usize;
            members &= members - 1;
            self.bytes[member].store(sums[member].bytes, Release);
            self.packets[member].store(sums[member].packets, Release);
        }
    }

    fn of(&self, member: u32) -> WithheldCounts {
        let at = (member % 64) as usize;
        WithheldCounts {
            packets: self.packets[at].load(Acquire),
            bytes: self.bytes[at].load(Acquire),
        }
    }
}

/// The table.
pub struct SourceFlows {
    capacity: u32,
    /// Packets of links without known addresses belong to no flow.
    link: Option<Link>,
    parts: Vec<Mutex<RuleTable>>,
    in_use: Arc<TableUse>,
    part_of: RandomState,
    /// Members for whom the table knows each flow from its first packet.
    watching: AtomicU64,
    /// The part at which the next sweep begins.
    cursor: AtomicUsize,
    lanes: Vec<Arc<LaneWithheld>>,
}

impl std::fmt::Debug for SourceFlows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceFlows")
            .field("capacity", &self.capacity)
            .field("in_use", &self.in_use)
            .finish_non_exhaustive()
    }
}

impl SourceFlows {
    /// An empty table of a source with these lanes.
    pub fn new(
        settings: &FlowSettings,
        link_type: LinkType,
        lanes: Vec<Arc<LaneWithheld>>,
    ) -> Self {
        let parts = (settings.capacity / PART_FLOWS).clamp(1, MAX_PARTS);
        let (parts, in_use) = RuleTable::parts(settings, parts as usize);
        let watching = parts.first().map_or(0, RuleTable::watching);
        SourceFlows {
            capacity: settings.capacity,
            link: Link::from_link_type(link_type),
            parts: parts.into_iter().map(Mutex::new).collect(),
            in_use,
            part_of: RandomState::new(),
            watching: AtomicU64::new(watching),
            cursor: AtomicUsize::new(0),
            lanes,
        }
    }

    /// Whether the table stays when these settings come in force.
    pub fn fits(&self, settings: &FlowSettings) -> bool {
        self.capacity == settings.capacity
    }

    /// Puts settings in force.
    pub fn apply(&self, settings: &FlowSettings) {
        for part in &self.parts {
            let mut part = lock(part);
            part.apply(settings.clone());
            self.watching.store(part.watching(), Release);
        }
    }

    /// Whether a packet for the members of `mask` may be withheld from one.
    #[inline]
    pub fn concerns(&self, mask: u64) -> bool {
        self.in_use.flows() != 0 || self.watching.load(Acquire) & mask != 0
    }

    /// Counts a packet for the members of `mask`; returns those from which it is withheld, and who else gets it.
    pub fn recipients(&self, data: &[u8], wire_length: u32, mask: u64, now_ns: u64) -> Recipients {
        let packet = (self.link).and_then(|link| FlowPacket::from_bytes(data, wire_length, link));
        packet.map_or_else(Recipients::default, |packet| {
            self.part(&packet.key).recipients(&packet, mask, now_ns)
        })
    }

    fn part(&self, key: &FlowId) -> MutexGuard<'_, RuleTable> {
        let hash = usize::try_from(self.part_of.hash_one(key) >> 32).unwrap_or(0);
        lock(&self.parts[hash % self.parts.len()])
    }
}

impl FlowRules for SourceFlows {
    fn set(&self, rule: &FlowRule, bits: RuleBits) -> Result<(), FlowRuleError> {
        self.part(&rule.flow).set(rule, bits, monotonic_ns())
    }

    fn remove(&self, key: &FlowId, members: u64) -> bool {
        self.part(key).remove(key, members)
    }

    fn get(&self, key: &FlowId) -> Option<FlowSums> {
        self.part(key).get(key)
    }

    fn sweep(&self, most: usize) {
        let now = monotonic_ns();
        let mut left = most;
        for _ in 0..self.parts.len() {
            let at = self.cursor.load(Relaxed) % self.parts.len();
            let part = &self.parts[at];
            let mut of_part = lock(part).len();
            while of_part > 0 && left > 0 {
                let count = of_part.min(left).min(STEP);
                lock(part).sweep(now, count);
                of_part -= count;
                left -= count;
            }
            if of_part > 0 {
                return; // the next call goes on with this part
            }
            self.cursor.store(at + 1, Relaxed);
        }
    }

    fn take_ends(&self) -> Vec<(FlowEnd, FlowSums)> {
        let of_part = |part: &Mutex<RuleTable>| lock(part).take_ends().collect::<Vec<_>>();
        self.parts.iter().flat_map(of_part).collect()
    }

    fn totals(&self) -> FlowTotals {
        let mut all = FlowTotals::default();
        for part in &self.parts {
            let part = lock(part).totals();
            all.flows += part.flows;
            all.evicted += part.evicted;
            all.untracked += part.untracked;
            all.lost_ends += part.lost_ends;
        }
        all
    }

    fn withheld(&self, member: u32) -> Vec<WithheldCounts> {
        self.lanes.iter().map(|lane| lane.of(member)).collect()
    }
}
