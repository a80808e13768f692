// SPDX-License-Identifier: MIT OR Apache-2.0
//! Divides the packets that a reader did not find by what the tables of flows counted.
//!
//! Invariants
//! - The sum is that of the packets not found, and no term falls.

use ringtap_pool::source::{FlowRules, WithheldCounts};

/// What flow rules withheld on a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Withheld {
    /// From the reader.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// From other members of its balanced group.
    pub(super) other_members: u64,
}

/// A reader's bits, and what the account says so far.
#[derive(Debug, Default)]
pub(crate) struct Shunting {
    pub(super) own: Option<u32>,
    pub(super) group: Option<u32>,
    /// What the tables counted when the reader began, per source and lane: of its bit, and of its group's.
    pub(super) before: Vec<Vec<[WithheldCounts; 2]>>,
    pub(super) named: Named,
}

/// Packets that no reader found in the pool, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) shunted: u64,
    pub(super) other_members: u64,
    pub(super) filtered: u64,
}

impl Named {
    /// Divides further packets, until there are this many: to those withheld first.
    pub(super) fn divide(&mut self, all: u64, withheld: Withheld) {
        let so_far = self.shunted + self.other_members + self.filtered;
        let mut left = all.saturating_sub(so_far);
        for (term, most) in [
            (&mut self.shunted, withheld.packets),
            (&mut self.other_members, withheld.other_members),
        ] {
            let more = most.saturating_sub(*term).min(left);
            *term += more;
            left -= more;
        }
        self.filtered += left;
    }
}

impl Shunting {
    /// What a table counted of the reader's bits, per lane.
    pub(super) fn counts(&self, table: &dyn FlowRules) -> Vec<[WithheldCounts; 2]> {
        let of = |bit: Option<u32>| bit.map(|bit| table.withheld(bit)).unwrap_or_default();
        let (own, group) = (of(self.own), of(self.group));
        let lane = |at: usize| [&own, &group].map(|all| all.get(at).copied().unwrap_or_default());
        (0..own.len().max(group.len())).map(lane).collect()
    }
}

/// What was counted between two readings of a lane.
pub(super) fn since(now: &[WithheldCounts; 2], before: &[WithheldCounts; 2]) -> Withheld {
    let packets = |at: usize| now[at].packets.saturating_sub(before[at].packets);
    Withheld {
        packets: packets(0),
        bytes: now[0].bytes.saturating_sub(before[0].bytes),
        other_members: packets(1).saturating_sub(packets(0)),
    }
}

#[cfg(test)]
mod tests;
