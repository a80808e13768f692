// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source whose packets, and the duration of whose rule loading, the test controls.

use std::sync::mpsc::{self, Receiver, Sender};

use ringtap_filter::{FilterLocation, Rules};
use ringtap_pool::source::{RuleLoader, SourceError};

use crate::fed::{FedSource, Feed};

/// The test's side of the source.
pub(crate) struct Gate {
    pub(crate) feed: Feed,
    /// Receives each set of rules when its loading starts.
    pub(crate) begun: Receiver<Rules>,
    /// Ends the loading of a set with this outcome.
    pub(crate) outcome: Sender<Result<(), String>>,
}

struct GatedLoader {
    begun: Sender<Rules>,
    outcome: Receiver<Result<(), String>>,
}

impl RuleLoader for GatedLoader {
    fn classify(&mut self, rules: &Rules) -> Result<Vec<FilterLocation>, SourceError> {
        self.begun.send(rules.clone())?;
        self.outcome.recv()??;
        Ok(vec![FilterLocation::Source; rules.each.len()])
    }
}

impl Gate {
    /// Captures this many packets.
    pub(crate) fn write(&self, packets: u64) {
        self.feed.write(packets, 7);
    }

    /// Lets the source put this many sets of rules in force.
    pub(crate) fn open(&self, sets: usize) {
        for _ in 0..sets {
            self.outcome.send(Ok(())).expect("the source is there");
        }
    }
}

pub(crate) fn gated() -> (FedSource, Gate) {
    let (mut source, feed) = FedSource::new(65);
    let (begun, outcome) = (mpsc::channel(), mpsc::channel());
    source.loader = Some(Box::new(GatedLoader {
        begun: begun.0,
        outcome: outcome.1,
    }));
    source.wakes_readers = true;
    let gate = Gate {
        feed,
        begun: begun.1,
        outcome: outcome.0,
    };
    (source, gate)
}
