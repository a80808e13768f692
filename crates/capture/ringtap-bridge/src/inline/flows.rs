// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decided flows of a bridge: adds them to the table in the kernel, and removes those that have ended.
//!
//! Invariants
//! - The work for a verdict does not grow with the number of flows; a sweep looks at a limited number.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ringtap_capture::tap::{DecidedDirection, DecidedFlow, DecidedFlows, FlowFate};
use ringtap_filter::flow::{FlowId, FlowPacket};
use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::nanoseconds;
use ringtap_ipc::verdict::{Lasting, Verdict};
use ringtap_pool::number::to_u64;

use super::shared::InlineShared;

/// Flows that one sweep looks at.
const SWEPT: usize = 4096;
/// Ended flows that wait to be taken; later ones are counted as lost.
const MAX_ENDED: usize = 65_536;
/// Time for which a flow stays after FIN of both directions or RST, for the last segments, in nanoseconds.
const LINGER_NS: u64 = 5_000_000_000;
const FIN: u8 = 0x01;
const RST: u8 = 0x04;

pub(super) struct DecidedTable {
    flows: DecidedFlows,
    /// The flows in the table, in the order in which sweeps look at them.
    keys: VecDeque<FlowId>,
    shared: Arc<InlineShared>,
}

impl DecidedTable {
    pub(super) fn new(flows: DecidedFlows, shared: Arc<InlineShared>) -> Self {
        DecidedTable {
            flows,
            keys: VecDeque::new(),
            shared,
        }
    }

    /// Decides about the flow of a packet.
    pub(super) fn decide(&mut self, packet: &FlowPacket, verdict: Verdict, lasting: Lasting) {
        let now_ns = DecidedFlows::now_ns();
        let fate = match verdict {
            Verdict::Pass => FlowFate::Pass,
            Verdict::Drop => FlowFate::Drop,
        };
        let before = self.flows.get(&packet.key);
        if before.is_some_and(|flow| flow.fate == Some(fate) && !flow.is_over(now_ns)) {
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
        if !is_added {
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

    /// Removes flows that have ended, among the next ones.
    pub(super) fn sweep(&mut self) {
        let now_ns = DecidedFlows::now_ns();
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

    /// Removes all flows.
    pub(super) fn clear(&mut self) {
        while let Some(key) = self.keys.pop_front() {
            self.end(&key);
        }
        self.publish();
    }

    fn publish(&self) {
        self.shared.flows.store(to_u64(self.keys.len()), Relaxed);
    }
}

fn has_ended(flow: &DecidedFlow, now_ns: u64) -> bool {
    let [first, second] = flow.directions;
    let is_closed =
        (first.flags | second.flags) & RST != 0 || first.flags & second.flags & FIN != 0;
    let last_ns = flow.decided_ns.max(first.last_ns).max(second.last_ns);
    flow.is_over(now_ns) || (is_closed && now_ns.saturating_sub(last_ns) > LINGER_NS)
}
