// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrival times on a simulated link, in picoseconds after the first packet.
//!
//! Invariants
//! - A time is rounded down to the picosecond once; rounded times are never added up.
//! - `due` and `time_ps` agree: packet `n` has arrived at every time from `time_ps(n)` on.

use ringtap_device::Rate;
use ringtap_packet::WIRE_OVERHEAD_BYTES;
use ringtap_pool::number::to_u64;

/// Picoseconds in a second.
pub const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// Packets that follow each other without a gap, in sizes that repeat.
#[derive(Clone, Debug)]
pub(super) struct WireTimes {
    unit: WireUnit,
    /// Units before each packet of one cycle of sizes.
    before: Vec<u64>,
    /// Units of a whole cycle.
    cycle: u64,
}

/// Duration of a bit; of a packet where the rate counts packets.
#[derive(Clone, Copy, Debug)]
enum WireUnit {
    /// Picoseconds; 0 on a link without a rate.
    Exact(u64),
    /// Units per second, where a unit is no whole number of picoseconds.
    PerSecond(u64),
}

impl WireTimes {
    /// Frames of these lengths in turn, in bytes without the frame check sequence.
    pub(super) fn new(rate: Rate, lengths: &[usize]) -> Self {
        let (unit, sizes) = match rate {
            Rate::Max => (WireUnit::Exact(0), vec![1]),
            Rate::PacketsPerSecond(rate) => (WireUnit::for_rate(rate), vec![1]),
            Rate::BitsPerSecond(rate) => {
                let bits = |length: &usize| (*length as u64 + WIRE_OVERHEAD_BYTES) * 8;
                (WireUnit::for_rate(rate), lengths.iter().map(bits).collect())
            }
        };
        let mut cycle = 0;
        let mut before = Vec::new();
        for size in sizes {
            before.push(cycle);
            cycle += size;
        }
        WireTimes {
            unit,
            before,
            cycle,
        }
    }

    /// Arrival time of packet `n`.
    #[inline]
    pub(super) fn time_ps(&self, n: u64) -> u64 {
        let units = match &self.before[..] {
            [_] => n * self.cycle,
            before => {
                let sizes = before.len() as u64;
                let at = usize::try_from(n % sizes).unwrap_or(0);
                (n / sizes) * self.cycle + before[at]
            }
        };
        match self.unit {
            WireUnit::Exact(ps) => units * ps,
            WireUnit::PerSecond(rate) => {
                let ps = u128::from(units) * u128::from(PS_PER_SECOND) / u128::from(rate);
                to_u64(ps)
            }
        }
    }

    /// Number of packets that have arrived by `now_ps`; `u64::MAX` on a link without a rate.
    pub(super) fn due(&self, now_ps: u64) -> u64 {
        let units = match self.unit {
            WireUnit::Exact(0) => return u64::MAX,
            WireUnit::Exact(ps) => now_ps / ps,
            WireUnit::PerSecond(rate) => {
                let units = (u128::from(now_ps) + 1) * u128::from(rate) - 1;
                to_u64(units / u128::from(PS_PER_SECOND))
            }
        };
        let rest = units % self.cycle;
        let begun = self.before.partition_point(|before| *before <= rest);
        (units / self.cycle) * self.before.len() as u64 + begun as u64
    }
}

impl WireUnit {
    fn for_rate(rate: u64) -> Self {
        if PS_PER_SECOND.is_multiple_of(rate) {
            WireUnit::Exact(PS_PER_SECOND / rate)
        } else {
            WireUnit::PerSecond(rate)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packets_come_at_line_rate() {
        for (gbps, ps) in [(1, 672_000), (10, 67_200), (40, 16_800), (100, 6_720)] {
            let wire = WireTimes::new(Rate::BitsPerSecond(gbps * 1_000_000_000), &[60]);
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
            let wire = WireTimes::new(rate, &mix);
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
