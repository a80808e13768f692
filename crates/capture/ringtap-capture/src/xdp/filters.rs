// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads kernel filters for the sockets on a separate thread.
//!
//! The lanes' threads classify every packet that the program passes. A refused filter therefore
//! costs time, not packets.
//!
//! Invariants
//! - Each new filter is tried alone first, within a budget.
//! - A refused filter is not tried again; all packets pass while it is in use.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringtap_filter::ebpf::FilterHook;
use ringtap_filter::{Program as Filter, Rules, VerifierLimits};

use ringtap_bpf::program::NotLoaded;
use ringtap_bpf::trial::{FilterCost, Trials};

use super::program::QueueProgram;
use super::{QueueLane, wait_for_received};

/// Filters of one program.
pub(super) struct QueueFilters {
    program: Arc<QueueProgram>,
    lanes: Arc<[QueueLane]>,
    trials: Trials,
}

impl QueueFilters {
    pub(super) fn new(program: Arc<QueueProgram>, lanes: Arc<[QueueLane]>) -> Self {
        QueueFilters {
            program,
            lanes,
            trials: Trials::default(),
        }
    }

    /// Passes only packets that match a rule's filter. Returns when the lanes have classified all
    /// packets that were in the rings.
    pub(super) fn change(&mut self, rules: &Rules) {
        let filters: Vec<_> = rules.each.iter().map(|rule| rule.filter.clone()).collect();
        let filtered = self
            .fit(&filters, rules.verifier)
            .then(|| self.load(&filters))
            .flatten();
        // On failure the old program stays attached, and the threads classify what it passes.
        let _stays = self.program.replace(filtered);
        wait_for_received(&self.lanes);
    }

    /// Whether each filter leaves packets out and loads alone, and all are within the budget together.
    fn fit(&mut self, filters: &[Filter], limits: VerifierLimits) -> bool {
        let mut sum = FilterCost::default();
        filters.iter().all(|filter| {
            let cost = if filter.takes_everything() {
                return false;
            } else {
                self.trials.cost(filter, &[FilterHook::Xdp], limits)
            };
            match cost {
                Ok(Ok(cost)) => {
                    sum = sum.and(cost);
                    sum.fits()
                }
                _ => false,
            }
        })
    }

    /// Loads the program with these filters; remembers a refusal with the last filter.
    fn load(&mut self, filters: &[Filter]) -> Option<OwnedFd> {
        let loaded = self.program.with_filters(filters);
        if let (Err(NotLoaded::Refused(reason)), Some(last)) = (&loaded, filters.last()) {
            self.trials.refuse(last, reason.clone());
        }
        loaded.ok()
    }
}
