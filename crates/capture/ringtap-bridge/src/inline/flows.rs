// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decided flows of a bridge: adds them to the table in the kernel, and removes those that have ended.
//!
//! Invariants
//! - The work for a verdict does not grow with the number of flows: a sweep looks at a limited number, and verdicts
//!   cause at most one sweep in [`SWEEP_PAUSE_NS`]. A table is cleared in steps of limited size.
//! - A clearing ends every entry that it found, also one whose flow the next inline reader decides again meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ringtap_capture::tap::{DecidedDirection, DecidedFlow, DecidedFlows, FlowFate};
use ringtap_filter::flow::{FlowId, FlowPacket, has_lingered};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::{monotonic_ns, nanoseconds};
use ringtap_ipc::verdict::{Lasting, Verdict};
use ringtap_pool::number::to_u64;

use super::shared::InlineShared;

/// Flows that one sweep looks at, or one step of the clearing.
const SWEPT: usize = 4096;
/// Shortest time between two sweeps of a full table for the sake of a verdict.
const SWEEP_PAUSE_NS: u64 = 10_000_000;
/// Ended flows that wait to be taken; later ones are counted as lost.
const MAX_ENDED: usize = 65_536;

pub(super) struct DecidedTable {
    flows: DecidedFlows,
    /// The flows in the table, in the order in which sweeps look at them.
    keys: VecDeque<FlowId>,
    /// How many of the first keys the last clearing has still to remove, and the time of that clearing.
    leaving: (usize, u64),
    /// Earliest time of the next sweep for a verdict.
    next_sweep_ns: u64,
    shared: Arc<InlineShared>,
}

impl DecidedTable {
    pub(super) fn new(flows: DecidedFlows, shared: Arc<InlineShared>) -> Self {
        DecidedTable {
            flows,
            keys: VecDeque::new(),
            leaving: (0, 0),
            next_sweep_ns: 0,
            shared,
        }
    }

    /// Decides about the flow of a packet.
    pub(super) fn decide(&mut self, packet: &FlowPacket, verdict: Verdict, lasting: Lasting) {
        let now_ns = monotonic_ns();
        let fate = match verdict {
            Verdict::Pass => FlowFate::Pass,
            Verdict::Drop => FlowFate::Drop,
        };
        let before = self.flows.get(&packet.key);
        let decides = |flow: DecidedFlow| {
            flow.fate == Some(fate) && !flow.is_over(now_ns) && !self.leaves(&flow)
        };
        if before.is_some_and(decides) {
            return;
        }
        if before.is_some() {
            self.end(&packet.key);
        }
        let (time, idle) = match lasting {
            Lasting::ForGood => (None, None),
            Lasting::Time(time) => (Some(time), None),
            Lasting::UntilIdle(idle) => (None, Some(idle)),
        };
        let mut flow = DecidedFlow {
            key: packet.key,
            fate: Some(fate),
            decided_ns: now_ns,
            expires_ns: time.map_or(u64::MAX, |time| now_ns.saturating_add(nanoseconds(time))),
            idle_ns: idle.map_or(u64::MAX, nanoseconds),
            directions: [DecidedDirection::default(); 2],
        };
        flow.directions[packet.direction & 1].flags = packet.flags;
        let mut is_added = self.flows.add(&flow).unwrap_or(false);
        if !is_added && now_ns >= self.next_sweep_ns {
            self.next_sweep_ns = now_ns + SWEEP_PAUSE_NS;
            self.sweep();
            is_added = self.flows.add(&flow).unwrap_or(false);
        }
        if !is_added {
            self.shared.flows_not_added.fetch_add(1, Relaxed);
        } else if before.is_none() {
            self.keys.push_back(flow.key);
            self.publish();
        }
    }

    /// Removes a flow from the table, and keeps its counts until they are taken.
    fn end(&mut self, key: &FlowId) {
        let Some(flow) = self.flows.remove(key) else {
            return;
        };
        let mut ended = lock(&self.shared.ended);
        if ended.len() < MAX_ENDED {
            ended.push_back(flow);
        } else {
            self.shared.lost_ends.fetch_add(1, Relaxed);
        }
    }

    /// Whether an entry is from before the clearing.
    fn leaves(&self, flow: &DecidedFlow) -> bool {
        flow.decided_ns <= self.leaving.1
    }

    /// Removes flows that have ended, among the next ones.
    pub(super) fn sweep(&mut self) {
        if self.remove_leaving() {
            return;
        }
        let now_ns = monotonic_ns();
        for _ in 0..self.keys.len().min(SWEPT) {
            let Some(key) = self.keys.pop_front() else {
                break;
            };
            match self.flows.get(&key) {
                Some(flow) if has_ended(&flow, now_ns) => self.end(&key),
                Some(_) => self.keys.push_back(key),
                None => {}
            }
        }
        self.publish();
    }

    /// Begins to remove all flows; [`DecidedTable::remove_leaving`] does it.
    pub(super) fn clear(&mut self) {
        self.leaving = (self.keys.len(), monotonic_ns());
    }

    /// Removes the next flows from before the clearing; `false` if there were none.
    pub(super) fn remove_leaving(&mut self) -> bool {
        let count = self.leaving.0.min(SWEPT);
        self.leaving.0 -= count;
        for key in self.keys.drain(..count).collect::<Vec<_>>() {
            match self.flows.get(&key) {
                // Decided again since.
                Some(flow) if !self.leaves(&flow) => self.keys.push_back(key),
                _ => self.end(&key),
            }
        }
        if count > 0 {
            self.publish();
        }
        count > 0
    }

    fn publish(&self) {
        self.shared.flows.store(to_u64(self.keys.len()), Relaxed);
    }
}

fn has_ended(flow: &DecidedFlow, now_ns: u64) -> bool {
    let [first, second] = flow.directions;
    let last_ns = flow.decided_ns.max(first.last_ns).max(second.last_ns);
    let flags = flow.directions.map(|direction| direction.flags);
    flow.is_over(now_ns) || has_lingered(now_ns.saturating_sub(last_ns), flags)
}

#[cfg(test)]
mod tests {
    use ringtap_testkit::require_root;

    use super::*;

    fn packet(port: u16) -> FlowPacket {
        let text = format!("udp 10.0.0.1:1 10.0.0.2:{port}");
        FlowPacket {
            key: text.parse().unwrap(),
            direction: 0,
            flags: 0,
            wire_length: 60,
        }
    }

    #[test]
    fn a_table_is_cleared_in_steps_and_what_is_decided_meanwhile_stays() {
        require_root!();
        let flows = DecidedFlows::new(20_000).unwrap();
        let shared = Arc::new(InlineShared::new().unwrap());
        let mut table = DecidedTable::new(flows.clone(), shared.clone());
        let ports = 1..=10_000;
        for port in ports.clone() {
            table.decide(&packet(port), Verdict::Drop, Lasting::ForGood);
        }
        let left = || {
            ports
                .clone()
                .filter(|port| flows.get(&packet(*port).key).is_some())
                .count()
        };
        assert_eq!(left(), 10_000);
        table.clear();
        assert_eq!(left(), 10_000, "no thread waits for it");
        assert!(table.remove_leaving());
        assert_eq!(left(), 10_000 - SWEPT);
        // The next inline reader decides alike about a flow that is gone, and one that is to go.
        for port in [1, 10_000] {
            table.decide(&packet(port), Verdict::Drop, Lasting::ForGood);
        }
        while table.remove_leaving() {}
        assert_eq!(left(), 2);
        assert_eq!(shared.flows.load(Relaxed), 2);
        assert_eq!(lock(&shared.ended).len(), 10_000);
        table.sweep();
        assert_eq!(left(), 2);
    }

    #[test]
    fn a_full_table_is_searched_once_in_a_pause() {
        require_root!();
        let shared = Arc::new(InlineShared::new().unwrap());
        let mut table = DecidedTable::new(DecidedFlows::new(10).unwrap(), shared.clone());
        for port in 1..=10 {
            table.decide(&packet(port), Verdict::Drop, Lasting::ForGood);
        }
        table.decide(&packet(11), Verdict::Drop, Lasting::ForGood);
        let next = table.next_sweep_ns;
        assert!(next > monotonic_ns());
        for port in 12..100 {
            table.decide(&packet(port), Verdict::Drop, Lasting::ForGood);
            if monotonic_ns() < next {
                assert_eq!(table.next_sweep_ns, next);
            }
        }
        assert_eq!(shared.flows_not_added.load(Relaxed), 89);
    }
}
