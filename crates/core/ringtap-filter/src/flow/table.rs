// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of flows in user space; `bpf/shunt.h` is the table in the kernel.
//!
//! Threads that share a table divide it into parts, and lock one part at a time ([`RuleTable::parts`]).
//!
//! Invariants
//! - All parts together have at most `capacity` flows. Work for a packet does not depend on their number.
//! - Flows are in a list by the time of their last packet; the first is the one that is idle for longest.
//! - A packet of a flow for which there is no room is withheld from nobody, and counted as `untracked`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::rule::{FlowCuts, FlowRule, FlowRuleError, FlowSettings, RuleBits};
use super::wildcard::{WildcardChoice, Wildcards};
use super::{FlowId, FlowPacket};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Time for which a flow stays after its end, for the last segments, in nanoseconds.
const LINGER_NS: u64 = 5_000_000_000;
/// Ends of flows that wait to be taken; later ones are counted as lost.
const MAX_ENDS: u64 = 65_536;
const NONE: usize = usize::MAX;

/// What one direction of a flow had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowDirection {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// All their TCP flags.
    pub flags: u8,
    /// Time of the first packet, on the table's clock, in nanoseconds; 0 without packets.
    pub first_ns: u64,
    /// Time of the last packet.
    pub last_ns: u64,
}

/// A flow and its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSums {
    /// The flow.
    pub key: FlowId,
    /// From the lower address, and from the higher.
    pub directions: [FlowDirection; 2],
}

/// Why a flow left the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// FIN of both directions, or RST.
    Ended,
    /// It had no packets for too long.
    Idle,
    /// A new connection has its addresses and ports; the flow goes on, without rules and with counts from 0.
    Restarted,
    /// A new flow needed its room.
    Evicted,
    /// Its last rule was removed.
    Removed,
}

/// Changes that flow rules make to a packet's mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recipients {
    /// The members from which the packet is withheld.
    pub withheld: u64,
    /// The groups that get it, too.
    pub added: u64,
}

/// Counts of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// Flows in the table.
    pub flows: u64,
    /// Flows that left for want of room.
    pub evicted: u64,
    /// Packets of flows for which there was no room: no reader missed them.
    pub untracked: u64,
    /// Ends of flows that nobody took.
    pub lost_ends: u64,
}

impl FlowSettings {
    /// Why a flow ends that has had no packet for this time, with these TCP flags of its directions; `None`: it goes on.
    #[must_use]
    pub fn end_of(&self, idle_ns: u64, flags: [u8; 2]) -> Option<FlowEnd> {
        if idle_ns > self.idle_ns {
            Some(FlowEnd::Idle)
        } else if has_lingered(idle_ns, flags) {
            Some(FlowEnd::Ended)
        } else {
            None
        }
    }
}

/// Whether a flow with these TCP flags of its directions ended, and has had no packet since for the time in which its
/// last segments come.
#[must_use]
pub fn has_lingered(idle_ns: u64, flags: [u8; 2]) -> bool {
    is_end(flags) && idle_ns > LINGER_NS
}

/// Whether a flow with these TCP flags of its directions has ended.
fn is_end(flags: [u8; 2]) -> bool {
    (flags[0] | flags[1]) & RST != 0 || flags[0] & flags[1] & FIN != 0
}

/// Whether a segment with these TCP flags begins a new connection, if its flow had those before it.
fn is_restart(segment: u8, before: [u8; 2]) -> bool {
    segment & (SYN | ACK) == SYN && ((before[0] | before[1]) & ACK != 0 || is_end(before))
}

struct TableFlow {
    key: FlowId,
    cuts: FlowCuts,
    choice: WildcardChoice,
    directions: [FlowDirection; 2],
    /// Time of the last packet, or of the creation.
    last_ns: u64,
    earlier: usize,
    later: usize,
}

/// Numbers of all parts of a table.
#[derive(Debug, Default)]
pub struct TableUse {
    flows: AtomicU64,
    ends: AtomicU64,
}

impl TableUse {
    /// Flows in the table. A rule that was set before is among them.
    #[inline]
    #[must_use]
    pub fn flows(&self) -> u64 {
        // Pairs with `add_below`: a thread that sees the flow also finds it.
        self.flows.load(Acquire)
    }
}

/// Adds 1 unless there are `most`.
fn add_below(count: &AtomicU64, most: u64) -> bool {
    let add = |count| (count < most).then_some(count + 1);
    count.fetch_update(Release, Relaxed, add).is_ok()
}

/// A table of flows with rules, or a part of one.
pub struct RuleTable {
    settings: FlowSettings,
    in_use: Arc<TableUse>,
    standing: FlowCuts,
    wildcards: Wildcards,
    /// Members for whom the table knows each flow from its first packet.
    watching: u64,
    places: HashMap<FlowId, usize>,
    flows: Vec<TableFlow>,
    /// The flow that is idle for longest, and the one that had the last packet.
    first: usize,
    last: usize,
    /// The flow at which the next sweep begins.
    cursor: usize,
    ends: VecDeque<(FlowEnd, FlowSums)>,
    totals: FlowTotals,
}

impl TableFlow {
    fn counts(&self) -> FlowSums {
        FlowSums {
            key: self.key,
            directions: self.directions,
        }
    }

    fn flags(&self) -> [u8; 2] {
        self.directions.map(|direction| direction.flags)
    }
}

impl RuleTable {
    /// An empty table.
    #[must_use]
    pub fn new(settings: FlowSettings) -> Self {
        RuleTable::part(settings, Arc::default())
    }

    /// An empty table in parts. The caller keeps each flow in one part, always the same.
    #[must_use]
    pub fn parts(settings: &FlowSettings, count: usize) -> (Vec<Self>, Arc<TableUse>) {
        let in_use = Arc::default();
        let part = |_| RuleTable::part(settings.clone(), Arc::clone(&in_use));
        ((0..count).map(part).collect(), in_use)
    }

    fn part(settings: FlowSettings, in_use: Arc<TableUse>) -> Self {
        let mut table = RuleTable {
            standing: FlowCuts::default(),
            wildcards: Wildcards::default(),
            watching: 0,
            settings: FlowSettings::default(),
            in_use,
            places: HashMap::new(),
            flows: Vec::new(),
            first: NONE,
            last: NONE,
            cursor: 0,
            ends: VecDeque::new(),
            totals: FlowTotals::default(),
        };
        table.apply(settings);
        table
    }

    /// Puts other settings in force. Flows above a smaller capacity stay until they end.
    pub fn apply(&mut self, settings: FlowSettings) {
        self.standing = FlowCuts::standing(&settings);
        self.wildcards.apply(&settings.wildcards);
        self.watching = self.standing.members() | self.wildcards.members();
        self.settings = settings;
    }

    /// Members for whom the table knows each flow from its first packet.
    #[must_use]
    pub fn watching(&self) -> u64 {
        self.watching
    }

    /// Number of flows in this part.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// True if this part has no flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Sets a rule for these members, in place of their rule for the flow. The clock may begin anywhere, but runs
    /// forward.
    ///
    /// # Errors
    ///
    /// Nothing changes.
    pub fn set(
        &mut self,
        rule: &FlowRule,
        bits: impl Into<RuleBits>,
        now_ns: u64,
    ) -> Result<(), FlowRuleError> {
        rule.check()?;
        let at = match self.places.get(&rule.flow) {
            Some(&at) => {
                if self.is_idle(at, now_ns) {
                    self.restart(at, FlowEnd::Idle, now_ns);
                }
                at
            }
            None => {
                let capacity = self.settings.capacity;
                let added = self.add(rule.flow, now_ns);
                added.ok_or(FlowRuleError::Full { capacity })?
            }
        };
        self.flows[at].cuts.set(rule, bits.into(), now_ns)
    }

    /// Removes these members' rule for a flow; `false` if they have none.
    pub fn remove(&mut self, key: &FlowId, members: u64) -> bool {
        let Some(&at) = self.places.get(key) else {
            return false;
        };
        let flow = &mut self.flows[at];
        let has_rule = flow.cuts.clear(members);
        if self.watching == 0 && flow.cuts.members() == 0 {
            self.end(at, FlowEnd::Removed);
        }
        has_rule
    }

    /// Counts a packet for the members of `mask`; returns those from which it is withheld, and who else gets it.
    pub fn recipients(&mut self, packet: &FlowPacket, mask: u64, now_ns: u64) -> Recipients {
        let at = match self.places.get(&packet.key) {
            Some(&at) => {
                if self.is_idle(at, now_ns) {
                    self.restart(at, FlowEnd::Idle, now_ns);
                } else if is_restart(packet.flags, self.flows[at].flags()) {
                    self.restart(at, FlowEnd::Restarted, now_ns);
                }
                at
            }
            None if self.watching & mask == 0 => return Recipients::default(),
            None => match self.add(packet.key, now_ns) {
                Some(at) => at,
                None => {
                    self.totals.untracked += 1;
                    return Recipients::default();
                }
            },
        };
        self.touch(at, now_ns);
        let flow = &mut self.flows[at];
        let direction = &mut flow.directions[packet.direction];
        let (packets, bytes) = (direction.packets, direction.bytes);
        if packets == 0 {
            direction.first_ns = now_ns;
        }
        direction.packets += 1;
        direction.bytes += u64::from(packet.wire_length);
        direction.flags |= packet.flags;
        direction.last_ns = now_ns;
        let standing = self.standing.past(packets, bytes, now_ns);
        let past = flow.cuts.past(packets, bytes, now_ns);
        let adds = flow.cuts.adds(mask, now_ns);
        let of_flow = (&flow.key, &mut flow.choice);
        let deciding = flow.cuts.deciding(now_ns);
        let by_wildcard = (self.wildcards).recipients(of_flow, (packets, bytes), mask, deciding);
        Recipients {
            withheld: (past | standing | by_wildcard.withheld) & mask,
            added: (adds | by_wildcard.added) & self.settings.adds,
        }
    }

    /// Looks at `count` flows and ends those that are idle for too long or ended some time ago; the next call goes on
    /// with the others.
    pub fn sweep(&mut self, now_ns: u64, count: usize) {
        for _ in 0..count.min(self.flows.len()) {
            if self.cursor >= self.flows.len() {
                self.cursor = 0;
            }
            let flow = &self.flows[self.cursor];
            let idle_ns = now_ns.saturating_sub(flow.last_ns);
            match self.settings.end_of(idle_ns, flow.flags()) {
                // The last flow moves to this place.
                Some(why) => self.end(self.cursor, why),
                None => self.cursor += 1,
            }
        }
    }

    /// A flow's counts.
    #[must_use]
    pub fn get(&self, key: &FlowId) -> Option<FlowSums> {
        let at = *self.places.get(key)?;
        Some(self.flows[at].counts())
    }

    /// The ends of flows since the last call.
    pub fn take_ends(&mut self) -> impl Iterator<Item = (FlowEnd, FlowSums)> {
        self.in_use.ends.fetch_sub(self.ends.len() as u64, Relaxed);
        std::mem::take(&mut self.ends).into_iter()
    }

    /// The counts of this part.
    #[must_use]
    pub fn totals(&self) -> FlowTotals {
        FlowTotals {
            flows: self.flows.len() as u64,
            ..self.totals
        }
    }

    fn is_idle(&self, at: usize, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.flows[at].last_ns) > self.settings.idle_ns
    }

    /// Ends a flow's rules and counts, and begins them anew.
    fn restart(&mut self, at: usize, why: FlowEnd, now_ns: u64) {
        self.report(why, self.flows[at].counts());
        self.touch(at, now_ns);
        let flow = &mut self.flows[at];
        flow.cuts = FlowCuts::default();
        flow.choice = WildcardChoice::default();
        flow.directions = [FlowDirection::default(); 2];
    }

    fn report(&mut self, why: FlowEnd, counts: FlowSums) {
        if add_below(&self.in_use.ends, MAX_ENDS) {
            self.ends.push_back((why, counts));
        } else {
            self.totals.lost_ends += 1;
        }
    }

    fn add(&mut self, key: FlowId, now_ns: u64) -> Option<usize> {
        let capacity = u64::from(self.settings.capacity);
        if !add_below(&self.in_use.flows, capacity) {
            let oldest = self.flows.get(self.first)?;
            if now_ns.saturating_sub(oldest.last_ns) < self.settings.evict_idle_ns {
                return None;
            }
            self.totals.evicted += 1;
            self.end(self.first, FlowEnd::Evicted);
            // Another part may have taken the room.
            if !add_below(&self.in_use.flows, capacity) {
                return None;
            }
        }
        let at = self.flows.len();
        self.flows.push(TableFlow {
            key,
            cuts: FlowCuts::default(),
            choice: WildcardChoice::default(),
            directions: [FlowDirection::default(); 2],
            last_ns: now_ns,
            earlier: NONE,
            later: NONE,
        });
        self.places.insert(key, at);
        self.append(at);
        Some(at)
    }

    /// Removes a flow; the last one moves to its place.
    fn end(&mut self, at: usize, why: FlowEnd) {
        self.unlink(at);
        let flow = self.flows.swap_remove(at);
        self.places.remove(&flow.key);
        self.in_use.flows.fetch_sub(1, Relaxed);
        self.report(why, flow.counts());
        if let Some(moved) = self.flows.get(at) {
            let (key, earlier, later) = (moved.key, moved.earlier, moved.later);
            self.places.insert(key, at);
            *self.link_after(earlier) = at;
            *self.link_before(later) = at;
        }
    }

    fn touch(&mut self, at: usize, now_ns: u64) {
        self.flows[at].last_ns = now_ns;
        if self.last != at {
            self.unlink(at);
            self.append(at);
        }
    }

    /// The place that names the flow behind `at`; behind `NONE` is the first.
    fn link_after(&mut self, at: usize) -> &mut usize {
        match self.flows.get_mut(at) {
            Some(flow) => &mut flow.later,
            None => &mut self.first,
        }
    }

    fn link_before(&mut self, at: usize) -> &mut usize {
        match self.flows.get_mut(at) {
            Some(flow) => &mut flow.earlier,
            None => &mut self.last,
        }
    }

    fn unlink(&mut self, at: usize) {
        let (earlier, later) = (self.flows[at].earlier, self.flows[at].later);
        *self.link_after(earlier) = later;
        *self.link_before(later) = earlier;
    }

    fn append(&mut self, at: usize) {
        let earlier = self.last;
        self.flows[at].earlier = earlier;
        self.flows[at].later = NONE;
        *self.link_after(earlier) = at;
        self.last = at;
    }
}
