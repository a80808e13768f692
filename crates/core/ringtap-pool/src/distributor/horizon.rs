// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time up to which readers have every packet, for readers that merge lanes by time.

use super::{Distributor, Entry};
use crate::sync::Ordering::*;

impl Distributor {
    /// Whether a reader merges lanes by time, and so needs [`Distributor::set_horizon`].
    pub fn wants_horizon(&self) -> bool {
        self.readers.iter().flatten().any(Entry::merges)
    }

    /// Tells readers that every packet up to this time is published in a chunk that was delivered or
    /// missed. Does nothing while opened chunks wait for a reader's credit.
    ///
    /// Read the time from the source before [`Distributor::step`], and call this after it.
    pub fn set_horizon(&self, time_ns: u64) {
        if !self.is_drained() {
            return;
        }
        for entry in self.readers.iter().flatten().filter(|one| one.merges()) {
            // Pairs with the load in `Reader::peek`: the reader then finds all deliveries before it.
            entry.control.hub().horizon_ns.store(time_ns, Release);
        }
    }
}

impl Entry {
    fn merges(&self) -> bool {
        self.control.reader().merges.load(Relaxed) != 0
    }
}
