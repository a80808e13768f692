// SPDX-License-Identifier: MIT OR Apache-2.0
//! All exporters of a probe.

use std::time::Duration;

use crate::export::{ExportCounters, ExportQueue, ExportWatch, Records, WhenFull};
use crate::record::Record;

/// The queues of all exporters, for all workers.
pub(crate) struct Outlets {
    queues: Vec<ExportQueue>,
    when_full: WhenFull,
}

impl Outlets {
    pub(crate) fn new(queues: Vec<ExportQueue>, when_full: WhenFull) -> Self {
        Outlets { queues, when_full }
    }

    /// Whether packets come by themselves, so that no worker may wait.
    pub(crate) fn is_live(&self) -> bool {
        self.when_full == WhenFull::Drop
    }

    /// Names and counters of all exporters.
    pub(crate) fn watches(&self) -> Vec<ExportWatch> {
        let queues = self.queues.iter();
        queues.map(|queue| queue.watch().clone()).collect()
    }

    /// Sends records to all exporters, and empties the list.
    pub(crate) fn send(&self, records: &mut Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let shared: Records = records.drain(..).collect();
        for queue in &self.queues {
            queue.send(Records::clone(&shared), self.when_full);
        }
    }

    /// Lets all exporters write what waits, at most for `limit` each.
    pub(crate) fn finish(self, limit: Duration) -> Vec<(String, ExportCounters)> {
        let queues = self.queues.into_iter();
        queues
            .map(|queue| (queue.watch().name.clone(), queue.finish(limit)))
            .collect()
    }
}
