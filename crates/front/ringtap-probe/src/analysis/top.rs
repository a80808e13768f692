// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heavy hitters in bounded memory with a bounded error (Misra and Gries, with weights).
//!
//! Invariants
//! - A key's count is too low by at most `error`, and never too high.
//! - `error` is at most the sum of all weights divided by half of the capacity.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

use crate::record::as_value;

/// Least number of keys kept; more keys make the error smaller.
const MIN_KEYS: u32 = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    /// Weight by which keys are ordered: bytes, or questions of DNS.
    weight: u64,
    /// A second count: packets, or questions that failed.
    also: u64,
}

/// The keys with most weight.
#[derive(Debug)]
pub(crate) struct TopKeys<K> {
    counts: HashMap<K, Weight, RandomState>,
    most: usize,
    error: u64,
}

impl<K: Hash + Ord> TopKeys<K> {
    /// For results with `count` keys.
    pub(crate) fn new(count: u32) -> Self {
        TopKeys {
            counts: HashMap::default(),
            most: count.saturating_mul(16).max(MIN_KEYS) as usize,
            error: 0,
        }
    }

    /// Adds a weight, and a second count.
    #[inline]
    pub(crate) fn add(&mut self, key: K, weight: u64, also: u64) {
        let sum = self.counts.entry(key).or_default();
        sum.weight += weight;
        sum.also += also;
        if self.counts.len() >= self.most {
            self.halve();
        }
    }

    /// Subtracts the median from all counts, and forgets keys without weight left.
    fn halve(&mut self) {
        let mut weights: Vec<_> = self.counts.values().map(|sum| sum.weight).collect();
        let middle = weights.len() / 2;
        let (_, median, _) = weights.select_nth_unstable(middle);
        let median = *median;
        self.error += median;
        self.counts.retain(|_, sum| {
            sum.weight = sum.weight.saturating_sub(median);
            sum.weight > 0
        });
    }

    /// Adds the counts of another worker.
    pub(crate) fn merge(&mut self, other: TopKeys<K>) {
        self.error += other.error;
        for (key, Weight { weight, also }) in other.counts {
            self.add(key, weight, also);
        }
    }

    /// The largest keys, most weight first; `names` are those of the weight, the second count and the error.
    pub(crate) fn largest(
        self,
        count: u32,
        names: [&'static str; 3],
    ) -> Vec<(K, Vec<(&'static str, f64)>)> {
        let error = self.error;
        let mut all: Vec<_> = self.counts.into_iter().collect();
        all.sort_unstable_by(|(key, one), (other_key, other)| {
            (other.weight, key).cmp(&(one.weight, other_key))
        });
        all.truncate(count as usize);
        let values = |sum: Weight| {
            let values = [sum.weight, sum.also, error].map(as_value);
            names.into_iter().zip(values).collect()
        };
        all.into_iter()
            .map(|(key, sum)| (key, values(sum)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketKey;

    fn key(number: u64) -> PacketKey {
        PacketKey {
            source: [0, number],
            destination: [0; 2],
            ports: (0, 0),
            vlan: 0,
            protocol: 0,
            is_ipv6: false,
            outside: 0,
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
        let largest = sum.largest(10, ["bytes", "packets", "error_bytes"]);
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
