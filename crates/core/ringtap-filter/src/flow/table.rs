// SPDX-License-Identifier: MIT OR Apache-2.0
//! Table of flows in user space; `bpf/shunt.h` is the table in the kernel.
//!
//! Invariants
//! - It has at most `capacity` flows. Work for a packet does not depend on their number.
//! - Flows are in a list by the time of their last packet; the first is the one that is idle for longest.
//! - A packet of a flow for which there is no room is withheld from nobody, and counted as `untracked`.

use std::collections::{HashMap, VecDeque};

use super::rule::{FlowCuts, FlowRule, FlowRuleError, FlowSettings};
use super::{FlowId, FlowPacket};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Time for which a flow stays after its end, for the last segments, in nanoseconds.
const LINGER_NS: u64 = 5_000_000_000;
/// Ends of flows that wait to be taken; later ones are counted as lost.
const MAX_ENDS: usize = 65_536;
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
    /// A new connection has its addresses and ports.
    Restarted,
    /// A new flow needed its room.
    Evicted,
    /// Its last rule was removed.
    Removed,
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
        } else if is_end(flags) && idle_ns > LINGER_NS {
            Some(FlowEnd::Ended)
        } else {
            None
        }
    }
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
    directions: [FlowDirection; 2],
    /// Time of the last packet, or of the creation.
    last_ns: u64,
    earlier: usize,
    later: usize,
}

/// A table of flows with rules.
pub struct RuleTable {
    settings: FlowSettings,
    standing: FlowCuts,
    places: HashMap<FlowId, usize>,
    flows: Vec<TableFlow>,
    /// The flow that is idle for longest, and the one that had the last packet.
    first: usize,
    last: usize,
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
        RuleTable {
            standing: FlowCuts::standing(&settings),
            settings,
            places: HashMap::new(),
            flows: Vec::new(),
            first: NONE,
            last: NONE,
            ends: VecDeque::new(),
            totals: FlowTotals::default(),
        }
    }

    /// Sets a rule for these members, in place of their rule for the flow. The clock may begin anywhere, but runs
    /// forward.
    ///
    /// # Errors
    ///
    /// Nothing changes.
    pub fn set(&mut self, rule: &FlowRule, members: u64, now_ns: u64) -> Result<(), FlowRuleError> {
        rule.check()?;
        self.end_if_idle(&rule.key, now_ns);
        let at = match self.places.get(&rule.key) {
            Some(&at) => at,
            None => {
                let capacity = self.settings.capacity;
                let added = self.add(rule.key, now_ns);
                added.ok_or(FlowRuleError::Full { capacity })?
            }
        };
        self.flows[at].cuts.set(rule, members, now_ns)
    }

    /// Removes these members' rule for a flow; `false` if they have none.
    pub fn remove(&mut self, key: &FlowId, members: u64) -> bool {
        let Some(&at) = self.places.get(key) else {
            return false;
        };
        let flow = &mut self.flows[at];
        let has_rule = flow.cuts.clear(members);
        if self.standing.members() == 0 && flow.cuts.members() == 0 {
            self.end(at, FlowEnd::Removed);
        }
        has_rule
    }

    /// Removes all rules of members that leave.
    pub fn forget(&mut self, members: u64) {
        for at in (0..self.flows.len()).rev() {
            let key = self.flows[at].key;
            self.remove(&key, members);
        }
    }

    /// Counts a packet for the members of `mask`; returns those from which it is withheld.
    pub fn withheld(&mut self, packet: &FlowPacket, mask: u64, now_ns: u64) -> u64 {
        self.end_if_idle(&packet.key, now_ns);
        let mut at = self.places.get(&packet.key).copied();
        if let Some(old) = at
            && is_restart(packet.flags, self.flows[old].flags())
        {
            self.end(old, FlowEnd::Restarted);
            at = None;
        }
        let at = match at {
            Some(at) => at,
            None if self.standing.members() & mask == 0 => return 0,
            None => match self.add(packet.key, now_ns) {
                Some(at) => at,
                None => {
                    self.totals.untracked += 1;
                    return 0;
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
        (flow.cuts.past(packets, bytes, now_ns) | standing) & mask
    }

    /// Looks at `count` flows, those first that are idle for longest, and ends the ones that are idle for too long or
    /// ended some time ago.
    pub fn sweep(&mut self, now_ns: u64, count: usize) {
        let (mut at, mut over) = (self.first, Vec::new());
        for _ in 0..count {
            let Some(flow) = self.flows.get(at) else {
                break;
            };
            let idle_ns = now_ns.saturating_sub(flow.last_ns);
            over.extend((self.settings.end_of(idle_ns, flow.flags())).map(|why| (flow.key, why)));
            at = flow.later;
        }
        for (key, why) in over {
            if let Some(&at) = self.places.get(&key) {
                self.end(at, why);
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
        std::mem::take(&mut self.ends).into_iter()
    }

    /// The table's counts.
    #[must_use]
    pub fn totals(&self) -> FlowTotals {
        FlowTotals {
            flows: self.flows.len() as u64,
            ..self.totals
        }
    }

    fn end_if_idle(&mut self, key: &FlowId, now_ns: u64) {
        if let Some(&at) = self.places.get(key)
            && now_ns.saturating_sub(self.flows[at].last_ns) > self.settings.idle_ns
        {
            self.end(at, FlowEnd::Idle);
        }
    }

    fn add(&mut self, key: FlowId, now_ns: u64) -> Option<usize> {
        if self.flows.len() as u64 >= u64::from(self.settings.capacity) {
            let oldest = self.flows.get(self.first)?;
            if now_ns.saturating_sub(oldest.last_ns) < self.settings.evict_idle_ns {
                return None;
            }
            self.totals.evicted += 1;
            self.end(self.first, FlowEnd::Evicted);
        }
        let at = self.flows.len();
        self.flows.push(TableFlow {
            key,
            cuts: FlowCuts::default(),
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
        if self.ends.len() < MAX_ENDS {
            self.ends.push_back((why, flow.counts()));
        } else {
            self.totals.lost_ends += 1;
        }
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
