// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heavy hitters in bounded memory with a bounded error (Misra and Gries, with weights).
//!
//! Invariants
//! - A key's count is too low by at most `error`, and never too high.
//! - `error` is at most the sum of all bytes divided by half of the capacity.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::as_value;
use crate::packet::PacketKey;

/// Least number of keys kept; more keys make the error smaller.
const LEAST_KEYS: u32 = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    bytes: u64,
    packets: u64,
}

/// The keys with most bytes.
#[derive(Debug)]
pub(crate) struct TopKeys {
    counts: HashMap<PacketKey, Weight, RandomState>,
    most: usize,
    error: u64,
}

impl TopKeys {
    /// For results with `count` keys.
    pub(crate) fn new(count: u32) -> Self {
        TopKeys {
            counts: HashMap::default(),
            most: count.saturating_mul(16).max(LEAST_KEYS) as usize,
            error: 0,
        }
    }

    /// Counts packets.
    #[inline]
    pub(crate) fn add(&mut self, key: PacketKey, bytes: u64, packets: u64) {
        self.add_weight(key, Weight { bytes, packets });
    }

    fn add_weight(&mut self, key: PacketKey, weight: Weight) {
        let sum = self.counts.entry(key).or_default();
        sum.bytes += weight.bytes;
        sum.packets += weight.packets;
        if self.counts.len() >= self.most {
            self.halve();
        }
    }

    /// Subtracts the median from all counts, and forgets keys without bytes left.
    fn halve(&mut self) {
        let mut bytes: Vec<_> = self.counts.values().map(|weight| weight.bytes).collect();
        let middle = bytes.len() / 2;
        let (_, median, _) = bytes.select_nth_unstable(middle);
        let median = *median;
        self.error += median;
        self.counts.retain(|_, weight| {
            weight.bytes = weight.bytes.saturating_sub(median);
            weight.bytes > 0
        });
    }

    /// Adds the counts of another worker.
    pub(crate) fn merge(&mut self, other: TopKeys) {
        self.error += other.error;
        for (key, weight) in other.counts {
            self.add_weight(key, weight);
        }
    }

    /// The largest keys, most bytes first.
    pub(crate) fn largest(self, count: u32) -> Vec<(PacketKey, Vec<(&'static str, f64)>)> {
        let error = self.error;
        let mut all: Vec<_> = self.counts.into_iter().collect();
        all.sort_unstable_by_key(|(key, weight)| {
            (
                std::cmp::Reverse(weight.bytes),
                key.source,
                key.destination,
                key.ports,
            )
        });
        all.truncate(count as usize);
        let values = |weight: Weight| {
            vec![
                ("bytes", as_value(weight.bytes)),
                ("packets", as_value(weight.packets)),
                ("error_bytes", as_value(error)),
            ]
        };
        let all = all.into_iter();
        all.map(|(key, weight)| (key, values(weight))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> PacketKey {
        PacketKey {
            source: [0, number],
            destination: [0; 2],
            ports: (0, 0),
            vlan: 0,
            protocol: 0,
            is_ipv6: false,
        }
    }

    #[test]
    fn heavy_keys_are_found_among_many_within_the_stated_error() {
        // Ten keys have 1,000 packets each, among 100,000 keys with one packet; on two workers.
        let mut parts = [TopKeys::new(10), TopKeys::new(10)];
        for number in 0..100_000 {
            parts[usize::from(number % 2 == 0)].add(key(1000 + number), 100, 1);
            if number % 10 == 0 {
                parts[usize::from(number % 20 == 0)].add(key(number / 10 % 10), 100, 1);
            }
        }
        let [mut sum, other] = parts;
        sum.merge(other);
        assert!(sum.counts.len() < sum.most);
        let largest = sum.largest(10);
        assert_eq!(largest.len(), 10);
        for (key, values) in largest {
            assert!(key.source[1] < 10, "{key:?}");
            let (bytes, error) = (values[0].1, values[2].1);
            assert!(
                bytes <= 100_000.0 && bytes + error >= 100_000.0,
                "{values:?}"
            );
            assert!(error <= 11_000_000.0 / 256.0, "{values:?}");
        }
    }
}
