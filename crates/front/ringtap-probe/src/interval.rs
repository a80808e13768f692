// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intervals of packets' time between two results of an analysis.

use std::time::Duration;

use ringtap_ipc::time::nanoseconds;
use serde::{Deserialize, Serialize};

/// Time between two results, in packets' time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Interval {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

impl Interval {
    /// Before the first packet.
    pub(crate) const NONE: Interval = Interval {
        from_ns: u64::MAX,
        to_ns: 0,
    };

    /// After all others.
    pub(crate) const LAST: Interval = Interval {
        from_ns: u64::MAX,
        to_ns: u64::MAX,
    };

    /// The interval of this length that holds a time; intervals start at multiples of their length.
    pub(crate) fn around(time_ns: u64, every: Option<Duration>) -> Self {
        match every.map_or(0, nanoseconds) {
            0 => Interval {
                from_ns: 0,
                to_ns: u64::MAX,
            },
            length => {
                let from_ns = time_ns - time_ns % length;
                let to_ns = from_ns.saturating_add(length);
                Interval { from_ns, to_ns }
            }
        }
    }

    /// Makes the interval hold this time too.
    #[inline]
    pub(crate) fn add(&mut self, time_ns: u64) {
        self.from_ns = self.from_ns.min(time_ns);
        self.to_ns = self.to_ns.max(time_ns);
    }

    /// The smallest interval that holds both.
    pub(crate) fn joined(self, other: Interval) -> Self {
        Interval {
            from_ns: self.from_ns.min(other.from_ns),
            to_ns: self.to_ns.max(other.to_ns),
        }
    }

    /// Whether a packet of this time belongs here: also one that is late by less than an interval.
    #[inline]
    pub(crate) fn holds(&self, time_ns: u64) -> bool {
        let length = self.to_ns.saturating_sub(self.from_ns);
        time_ns < self.to_ns && time_ns >= self.from_ns.saturating_sub(length)
    }
}
