// SPDX-License-Identifier: MIT OR Apache-2.0
//! Absolute deadlines of packets at a steady rate, so that lateness never adds up.
//!
//! Invariants
//! - Packet `n` is due `n / rate` after the first one, however late earlier packets were.

use std::num::NonZeroU64;

use ringtap_device::{Rate, due_ns};
use ringtap_pool::number::to_u64;

const NS_PER_SECOND: u128 = 1_000_000_000;

/// A steady rate as a fraction, in packets per second; `None`: as fast as possible.
#[derive(Clone, Copy, Debug)]
pub(super) struct SteadyPace(Option<Steady>);

#[derive(Clone, Copy, Debug)]
struct Steady {
    packets: u128,
    seconds: u128,
}

impl SteadyPace {
    /// For packets whose sizes repeat every `cycle` packets, which take `cycle_bits` on the wire.
    pub(super) fn new(rate: Rate, cycle: NonZeroU64, cycle_bits: NonZeroU64) -> Self {
        Self(match rate {
            Rate::Max => None,
            Rate::PacketsPerSecond(rate) => Some(Steady {
                packets: u128::from(rate),
                seconds: 1,
            }),
            Rate::BitsPerSecond(rate) => Some(Steady {
                packets: u128::from(rate) * u128::from(cycle.get()),
                seconds: u128::from(cycle_bits.get()),
            }),
        })
    }

    /// Packets that are due `elapsed_ns` after the first one, including that one.
    pub(super) fn due(&self, elapsed_ns: u64) -> u64 {
        self.0.map_or(u64::MAX, |Steady { packets, seconds }| {
            let behind_first =
                u128::from(elapsed_ns).saturating_mul(packets) / (seconds * NS_PER_SECOND);
            to_u64(behind_first + 1)
        })
    }

    /// When packet number `sequence`, from 0, is due after the first one.
    pub(super) fn due_ns(&self, sequence: u64) -> u64 {
        self.0.map_or(0, |Steady { packets, seconds }| {
            due_ns(u128::from(sequence) * seconds, packets)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(rate: Rate, cycle: u64, bits: u64) -> SteadyPace {
        let nonzero = |n| NonZeroU64::new(n).unwrap();
        SteadyPace::new(rate, nonzero(cycle), nonzero(bits))
    }

    #[test]
    fn a_packet_is_due_exactly_when_its_deadline_comes() {
        for rate in [1, 3, 7, 999, 1_000_000, 1_488_095, 14_880_952] {
            let pace = pace(Rate::PacketsPerSecond(rate), 1, 1);
            for sequence in [0, 1, 2, 3, 1000, 1_000_003, 10_u64.pow(9)] {
                let due_ns = pace.due_ns(sequence);
                assert!(pace.due(due_ns) > sequence, "{rate} {sequence}");
                if due_ns > 0 {
                    assert!(pace.due(due_ns - 1) <= sequence, "{rate} {sequence}");
                }
            }
        }
    }

    #[test]
    fn nothing_drifts_in_a_year() {
        let pace = pace(Rate::PacketsPerSecond(1_488_095), 1, 1);
        let year_s = 365 * 24 * 3600;
        assert_eq!(pace.due(year_s * 1_000_000_000), year_s * 1_488_095 + 1);
    }

    #[test]
    fn sixty_four_bytes_at_a_gigabit_are_one_and_a_half_million_a_second() {
        let pace = pace(Rate::BitsPerSecond(1_000_000_000), 1, 84 * 8);
        assert_eq!(pace.due(1_000_000_000), 1_488_095 + 1);
    }

    #[test]
    fn a_mix_is_paced_by_its_mean() {
        let bits = 8 * (7 * 84 + 4 * 590 + 1538);
        let pace = pace(Rate::BitsPerSecond(bits * 10), 12, bits);
        assert_eq!(pace.due(1_000_000_000), 121);
    }

    #[test]
    fn at_most_everything_is_due_at_once() {
        assert_eq!(pace(Rate::Max, 1, 1).due(0), u64::MAX);
        assert_eq!(pace(Rate::Max, 1, 1).due_ns(1000), 0);
    }
}
