// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters that always balance.
//!
//! `offered = delivered + filtered + other_members + dropped.{nic, kernel, pool_full, overrun,
//! not_written, no_verdict}`, per source and lane, and again per reader.

use std::fmt;
use std::ops::AddAssign;

use serde::Serialize;

/// Packets that were offered and not delivered, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Lost by the NIC or its driver before capture saw them.
    pub nic: u64,
    /// Lost by the kernel before capture saw them (AF_PACKET ring full, copy failed).
    pub kernel: u64,
    /// Seen, but no chunk was free.
    pub pool_full: u64,
    /// Captured, but this reader was past its credit.
    pub overrun: u64,
    /// Read, but the recorder's disk or pipe failed.
    pub not_written: u64,
    /// Held by a bridge, but the inline reader did not answer in time.
    pub no_verdict: u64,
}

impl Dropped {
    /// The sum of all reasons.
    pub fn total(&self) -> u64 {
        let Dropped {
            nic,
            kernel,
            pool_full,
            overrun,
            not_written,
            no_verdict,
        } = *self;
        [kernel, pool_full, overrun, not_written, no_verdict]
            .into_iter()
            .fold(nic, u64::saturating_add)
    }
}

/// Counters of a source's lane, or of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets that were there to be captured, by counters that do not depend on the reader.
    pub offered: u64,
    /// Packets handed to the reader that pass its filter.
    pub delivered: u64,
    /// Packets handed to the reader that do not pass its filter.
    pub filtered: u64,
    /// Packets that went to other members of the reader's balanced group.
    pub other_members: u64,
    /// Bytes on the wire of the delivered packets.
    pub bytes: u64,
    /// Packets lost, by reason.
    pub dropped: Dropped,
}

/// Result of checking counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterBalance {
    /// Packets offered.
    pub offered: u64,
    /// Packets delivered, filtered or dropped.
    pub accounted: u64,
}

impl Counters {
    /// Both sides of the equation.
    pub fn balance(&self) -> CounterBalance {
        CounterBalance {
            offered: self.offered,
            accounted: [self.filtered, self.other_members, self.dropped.total()]
                .into_iter()
                .fold(self.delivered, u64::saturating_add),
        }
    }
}

impl CounterBalance {
    /// Whether both sides are equal.
    pub fn holds(&self) -> bool {
        self.offered == self.accounted
    }

    /// Both sides in words, with numbers in this form.
    pub fn text(&self, form: impl Fn(u64) -> String) -> String {
        let (offered, accounted) = (form(self.offered), form(self.accounted));
        let sides = format!("{offered} offered, {accounted} accounted for");
        if self.holds() {
            return format!("balanced: {sides}");
        }
        let difference = form(self.offered.abs_diff(self.accounted));
        let side = if self.offered > self.accounted {
            "missing"
        } else {
            "too many"
        };
        format!("NOT balanced: {sides}, {difference} {side}")
    }
}

impl fmt::Display for CounterBalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|number| number.to_string()))
    }
}

impl AddAssign for Dropped {
    fn add_assign(&mut self, other: Self) {
        let Dropped {
            nic,
            kernel,
            pool_full,
            overrun,
            not_written,
            no_verdict,
        } = other;
        self.nic = self.nic.saturating_add(nic);
        self.kernel = self.kernel.saturating_add(kernel);
        self.pool_full = self.pool_full.saturating_add(pool_full);
        self.overrun = self.overrun.saturating_add(overrun);
        self.not_written = self.not_written.saturating_add(not_written);
        self.no_verdict = self.no_verdict.saturating_add(no_verdict);
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Counters {
            offered,
            delivered,
            filtered,
            other_members,
            bytes,
            dropped,
        } = other;
        self.offered = self.offered.saturating_add(offered);
        self.delivered = self.delivered.saturating_add(delivered);
        self.filtered = self.filtered.saturating_add(filtered);
        self.other_members = self.other_members.saturating_add(other_members);
        self.bytes = self.bytes.saturating_add(bytes);
        self.dropped += dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even() -> Counters {
        Counters {
            offered: 22,
            delivered: 5,
            filtered: 4,
            other_members: 2,
            bytes: 320,
            dropped: Dropped {
                nic: 3,
                kernel: 1,
                pool_full: 2,
                overrun: 0,
                not_written: 1,
                no_verdict: 4,
            },
        }
    }

    #[test]
    fn a_counters_with_every_packet_in_one_place_balances() {
        assert!(even().balance().holds());
        let mut sum = even();
        sum += even();
        assert!(sum.balance().holds());
    }

    #[test]
    fn a_counters_with_a_packet_missing_does_not_balance() {
        let mut counters = even();
        counters.delivered -= 1;
        assert!(!counters.balance().holds());
        assert!(counters.balance().to_string().contains("1 missing"));
        counters.dropped.overrun += 2;
        assert!(counters.balance().to_string().contains("1 too many"));
    }
}
