// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flows brought since it was taken last: analyses by key add a flow once in an interval, not with each packet.
//!
//! Invariants
//! - The sums by key are those of the packets: of each direction, what was counted and not taken yet is the count of the
//!   entry less its mark, or in `ended`.
//! - If some are taken whenever they [are many](FlowChanges::are_many), there are never many more: to take all of them
//!   is a pause of milliseconds at most.

use std::collections::VecDeque;

use super::entry::FlowEntry;
use super::table::{FlowIndex, FlowTable};
use crate::packet::PacketKey;

/// Flows with changes that are kept. More at the same time gain less and less from being added up.
const MANY_CHANGED: usize = if cfg!(test) { 4 } else { 1 << 16 };
/// Changes of ended flows that are kept.
const MANY_ENDED: usize = 512;
/// Flows that are taken together when there are many.
const SOME: usize = if cfg!(test) { 1 } else { 128 };

/// What packets of a direction of a flow brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowChange {
    /// Key of the packets.
    pub(crate) key: PacketKey,
    /// Bytes of IP packets.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// Bytes and packets of a direction that were taken.
#[derive(Clone, Copy, Debug, Default)]
struct TakenCounts {
    bytes: u64,
    packets: u64,
}

/// Changes of the flows of a table.
pub(super) struct FlowChanges {
    /// Flows with packets since the last time, and some that have ended; the oldest first.
    changed: VecDeque<FlowIndex>,
    /// By the number of the flow.
    taken: Vec<[TakenCounts; 2]>,
    ended: Vec<FlowChange>,
}

impl FlowChanges {
    /// None yet, of at most `max_flows` flows.
    pub(super) fn new(max_flows: u32) -> Self {
        FlowChanges {
            changed: VecDeque::new(),
            // Growing it later would copy all of it. What is not used yet takes no memory.
            taken: Vec::with_capacity(max_flows as usize),
            ended: Vec::new(),
        }
    }

    /// Notes that a flow has packets.
    #[inline]
    pub(super) fn note(&mut self, at: FlowIndex, entry: &mut FlowEntry) {
        if !entry.is_changed {
            entry.is_changed = true;
            self.changed.push_back(at);
        }
    }

    /// Whether it is time to take some.
    pub(super) fn are_many(&self) -> bool {
        self.ended.len() >= MANY_ENDED || self.changed.len() >= MANY_CHANGED
    }

    /// Keeps the changes of a flow whose counts begin anew, or end.
    pub(super) fn end(&mut self, at: FlowIndex, entry: &mut FlowEntry) {
        let ended = &mut self.ended;
        take_one(&mut self.taken, at, entry, &mut |change| ended.push(change));
        if let Some(taken) = self.taken.get_mut(at.number()) {
            *taken = <[TakenCounts; 2]>::default();
        }
    }

    /// Takes all changes.
    pub(super) fn take(&mut self, table: &mut FlowTable, each: &mut impl FnMut(FlowChange)) {
        self.take_oldest(usize::MAX, table, each);
    }

    /// Takes changes until they are not many any more.
    pub(super) fn take_some(&mut self, table: &mut FlowTable, each: &mut impl FnMut(FlowChange)) {
        let too_many = self.changed.len().saturating_sub(MANY_CHANGED);
        let count = if too_many > 0 { too_many + SOME } else { 0 };
        self.take_oldest(count, table, each);
    }

    fn take_oldest(
        &mut self,
        count: usize,
        table: &mut FlowTable,
        each: &mut impl FnMut(FlowChange),
    ) {
        self.ended.drain(..).for_each(&mut *each);
        let count = count.min(self.changed.len());
        for at in self.changed.drain(..count) {
            take_one(&mut self.taken, at, table.at(at), each);
        }
    }
}

/// Takes the changes of one flow.
fn take_one(
    taken: &mut Vec<[TakenCounts; 2]>,
    at: FlowIndex,
    entry: &mut FlowEntry,
    each: &mut impl FnMut(FlowChange),
) {
    if !std::mem::take(&mut entry.is_changed) {
        return;
    }
    let number = at.number();
    if taken.len() <= number {
        taken.resize(number + 1, <[TakenCounts; 2]>::default());
    }
    for (direction, taken) in taken[number].iter_mut().enumerate() {
        let (bytes, packets) = entry.totals(direction);
        let now = TakenCounts { bytes, packets };
        let before = std::mem::replace(taken, now);
        if packets > before.packets {
            each(FlowChange {
                key: if direction == 0 {
                    entry.key
                } else {
                    entry.key.reversed()
                },
                bytes: bytes - before.bytes,
                packets: packets - before.packets,
            });
        }
    }
}
