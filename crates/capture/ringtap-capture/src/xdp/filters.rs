// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters in front of the sockets, changed on a thread of their own.
//!
//! The lanes' threads classify whatever passes the program. A filter that the kernel refuses
//! therefore costs time, not packets.
//!
//! Invariants
//! - A filter that the kernel refused once is not tried again; all packets pass while it is in use.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::sync::Arc;

use ringtap_filter::{Program as Filter, Rules};

use super::program::{NoFilter, QueueProgram};
use super::{QueueLane, wait_for_received};

/// Refused filters that are remembered; beyond this number all are forgotten.
const MOST_REFUSED: usize = 256;

/// Changes the filters of one program.
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

    /// Lets only packets through that match one of the rules' filters. Returns once the lanes have
    /// classified all packets that were on their way.
    pub(super) fn change(&mut self, rules: &Rules) {
        let filters: Vec<_> = rules.0.iter().map(|rule| rule.filter.clone()).collect();
        let passes_all = |filter| Filter::takes_everything(filter) || self.refused.contains(filter);
        let filtered = match filters.iter().any(passes_all) {
            true => None,
            false => self.load(&filters),
        };
        // A program that stays in force passes what the threads then classify.
        let _stays = self.program.replace(filtered.as_ref());
        wait_for_received(&self.lanes);
    }

    /// The program with these filters; remembers those that the kernel refuses.
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
            // Each of them fits, and not all together.
            true => self.refused.extend(filters.last().cloned()),
            false => self.refused.extend(refused),
        }
        None
    }
}
