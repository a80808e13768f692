// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads kernel filters for the sockets on a separate thread.
//!
//! The lanes' threads classify every packet that the program passes. A refused filter therefore
//! costs time, not packets.
//!
//! Invariants
//! - A refused filter is not tried again; all packets pass while it is in use.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::sync::Arc;

use ringtap_filter::{Program as Filter, Rules};

use super::program::{NoFilter, QueueProgram};
use super::{QueueLane, wait_for_received};

/// Number of refused filters remembered; beyond it all are forgotten.
const MOST_REFUSED: usize = 256;

/// Filters of one program.
pub(super) struct QueueFilters {
    program: Arc<QueueProgram>,
    lanes: Arc<[QueueLane]>,
    refused: HashSet<Filter>,
}

impl QueueFilters {
    pub(super) fn new(program: Arc<QueueProgram>, lanes: Arc<[QueueLane]>) -> Self {
        QueueFilters {
            program,
            lanes,
            refused: HashSet::new(),
        }
    }

    /// Passes only packets that match a rule's filter. Returns when the lanes have classified all
    /// packets that were in the rings.
    pub(super) fn change(&mut self, rules: &Rules) {
        let filters: Vec<_> = rules.0.iter().map(|rule| rule.filter.clone()).collect();
        let passes_all = |filter| Filter::takes_everything(filter) || self.refused.contains(filter);
        let filtered = match filters.iter().any(passes_all) {
            true => None,
            false => self.load(&filters),
        };
        // On failure the old program stays attached, and the threads classify what it passes.
        let _stays = self.program.replace(filtered.as_ref());
        wait_for_received(&self.lanes);
    }

    /// Loads the program with these filters; remembers refused filters.
    fn load(&mut self, filters: &[Filter]) -> Option<std::os::fd::OwnedFd> {
        match self.program.with_filters(filters) {
            Ok(program) => return Some(program),
            Err(NoFilter::Unavailable) => return None,
            Err(NoFilter::Refused) => {}
        }
        if self.refused.len() + filters.len() > MOST_REFUSED {
            self.refused.clear();
        }
        let is_refused = |filter: &&Filter| {
            let alone = std::slice::from_ref(*filter);
            matches!(self.program.with_filters(alone), Err(NoFilter::Refused))
        };
        let refused: Vec<_> = filters.iter().filter(is_refused).cloned().collect();
        match refused.is_empty() {
            // Each filter fits alone, but not all together.
            true => self.refused.extend(filters.last().cloned()),
            false => self.refused.extend(refused),
        }
        None
    }
}
