// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of each group over the life of a virtual machine: of its subscriptions before, and of the one now.
//!
//! Invariants
//! - A packet that the relay of a subscription has counted stays counted when the subscription ends.
//! - The memory of a subscription that has ended stays the guest's until the next one begins, its agent leaves, or
//!   the devices are unplugged.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::relay::{EndedRelay, RelayCommon, RelayPool};
use super::report::GroupReport;
use crate::messages::GuestCounters;

/// Each group's life, by the place of the group, for all threads.
pub(super) type GroupLives = Arc<Mutex<BTreeMap<usize, GroupLife>>>;

/// One group's subscriptions.
#[derive(Default)]
pub(super) struct GroupLife {
    active: Option<Arc<RelayCommon>>,
    /// Sums over the subscriptions that have ended.
    past: GuestCounters,
    /// Packets that were copied in these, and that no agent took.
    not_taken: u64,
    /// The memory of the last subscription, which the guest may still read.
    left: Option<LeftPool>,
}

/// Memory of a subscription that has ended.
struct LeftPool {
    pool: RelayPool,
    copied: u64,
}

impl GroupLife {
    /// A subscription begins; the guest has left the memory of the one before.
    pub(super) fn begin(&mut self, common: &Arc<RelayCommon>) {
        self.active = Some(Arc::clone(common));
    }

    /// The subscription has ended.
    pub(super) fn end(&mut self, ended: EndedRelay) {
        self.settle();
        self.active = None;
        self.past.add(&ended.counters);
        let copied = ended.counters.copied;
        self.left = ended.pool.map(|pool| LeftPool { pool, copied });
    }

    /// The guest has left the memory, or its agent has.
    pub(super) fn settle(&mut self) {
        if let Some(left) = self.left.take() {
            self.not_taken += left.not_taken();
        }
    }

    /// The subscription now.
    pub(super) fn active(&self) -> Option<&Arc<RelayCommon>> {
        self.active.as_ref()
    }

    /// The subscription now, with the counters of all subscriptions.
    pub(super) fn report(&self, group: &str) -> GroupReport {
        let active = self.active.as_ref().map(|common| common.known());
        let mut report = active.unwrap_or_else(|| GroupReport {
            group: group.to_owned(),
            ..GroupReport::default()
        });
        report.counters.add(&self.past);
        let left = self.left.as_ref().map_or(0, LeftPool::not_taken);
        report.not_taken = self.not_taken + left;
        report
    }
}

impl LeftPool {
    /// Copied packets that the guest has not taken, by its own count.
    fn not_taken(&self) -> u64 {
        self.copied.saturating_sub(self.pool.taken())
    }
}
