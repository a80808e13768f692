// SPDX-License-Identifier: MIT OR Apache-2.0
//! When each packet of a simulated link arrives, in picoseconds after the first.
//!
//! Invariants
//! - Times are exact: rounded down to the picosecond once, and never added up.
//! - `due` and `time_ps` agree: packet `n` has come at a time from `time_ps(n)` on.
#![forbid(unsafe_code)]

use ringtap_device::Rate;
use ringtap_packet::WIRE_OVERHEAD_BYTES;

/// Picoseconds in a second.
pub const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// A link on which packets of sizes that repeat follow each other without a gap.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    unit: Unit,
    /// Units before each packet of the row of sizes.
    before: Vec<u64>,
    /// Units of the whole row.
    row: u64,
}

/// How long a unit (a bit, or a packet) takes.
#[derive(Clone, Copy, Debug)]
enum Unit {
    /// So many picoseconds.
    Exact(u64),
    /// So many in a second.
    PerSecond(u64),
    /// No time.
    Nothing,
}

impl Wire {
    /// Frames of these lengths (without the frame check sequence) in turn.
    pub(super) fn new(rate: Rate, lengths: &[usize]) -> Self {
        let bits = |length: &usize| {
            let bytes = u64::try_from(*length).unwrap_or(u64::MAX);
            bytes.saturating_add(WIRE_OVERHEAD_BYTES).saturating_mul(8)
        };
        let (unit, sizes) = match rate {
            Rate::Max => (Unit::Nothing, vec![1]),
            Rate::PacketsPerSecond(rate) => (Unit::of(rate), vec![1]),
            Rate::BitsPerSecond(rate) => (Unit::of(rate), lengths.iter().map(bits).collect()),
        };
        let mut row = 0;
        let mut before = Vec::new();
        for size in sizes {
            before.push(row);
            row += size;
        }
        Wire { unit, before, row }
    }

    /// When packet `n` arrives.
    #[inline]
    pub(super) fn time_ps(&self, n: u64) -> u64 {
        let units = match &self.before[..] {
            [_] => n * self.row,
            before => {
                let len = wide(before.len());
                let at = usize::try_from(n % len).unwrap_or(0);
                (n / len) * self.row + before[at]
            }
        };
        match self.unit {
            Unit::Exact(ps) => units * ps,
            Unit::PerSecond(rate) => {
                let ps = u128::from(units) * u128::from(PS_PER_SECOND) / u128::from(rate);
                u64::try_from(ps).unwrap_or(u64::MAX)
            }
            Unit::Nothing => 0,
        }
    }

    /// How many packets have come by `now_ps`; all that there may be if they take no time.
    pub(super) fn due(&self, now_ps: u64) -> u64 {
        let units = match self.unit {
            Unit::Exact(ps) => now_ps / ps,
            Unit::PerSecond(rate) => {
                let units = (u128::from(now_ps) + 1) * u128::from(rate) - 1;
                u64::try_from(units / u128::from(PS_PER_SECOND)).unwrap_or(u64::MAX)
            }
            Unit::Nothing => return u64::MAX,
        };
        let rest = units % self.row;
        let begun = self.before.partition_point(|before| *before <= rest);
        (units / self.row) * wide(self.before.len()) + wide(begun)
    }
}

impl Unit {
    fn of(rate: u64) -> Self {
        match PS_PER_SECOND.is_multiple_of(rate) {
            true => Unit::Exact(PS_PER_SECOND / rate),
            false => Unit::PerSecond(rate),
        }
    }
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packets_come_at_line_rate() {
        for (gbps, ps) in [(1, 672_000), (10, 67_200), (40, 16_800), (100, 6_720)] {
            let wire = Wire::new(Rate::BitsPerSecond(gbps * 1_000_000_000), &[60]);
            assert_eq!((wire.time_ps(0), wire.time_ps(1)), (0, ps), "{gbps} Gbit/s");
            assert_eq!(wire.time_ps(14_880_952 * 3), ps * 14_880_952 * 3);
        }
    }

    #[test]
    fn what_is_due_is_what_has_come() {
        let mix = [60, 566, 1514, 60];
        for rate in [
            Rate::BitsPerSecond(10_000_000_000),
            Rate::BitsPerSecond(2_777_777_777),
            Rate::PacketsPerSecond(38_844),
            Rate::PacketsPerSecond(1_000),
        ] {
            let wire = Wire::new(rate, &mix);
            for n in (0..100).chain(1_000_000..1_000_100) {
                let time = wire.time_ps(n);
                assert_eq!(wire.due(time), n + 1, "{rate}: packet {n} has just come");
                if time > 0 {
                    assert_eq!(wire.due(time - 1), n, "{rate}: packet {n} is yet to come");
                }
            }
        }
    }
}
