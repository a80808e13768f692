// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of distinct keys, estimated by HyperLogLog.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use cardinality_estimator::CardinalityEstimator;
use foldhash::quality::RandomState;
use ringtap_pool::number::to_u64;

use crate::packet::PacketKey;
use crate::record::as_value;

/// Hash that all workers share, so that their estimates can be merged.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// The keys seen, in at most 4 KiB.
#[derive(Debug)]
pub(crate) struct Distinct(CardinalityEstimator<PacketKey>);

impl Distinct {
    /// No key yet.
    pub(crate) fn new() -> Self {
        Distinct(CardinalityEstimator::new())
    }

    /// Counts a key.
    #[inline]
    pub(crate) fn add(&mut self, key: &PacketKey) {
        self.0.insert_hash(HASH.hash_one(key));
    }

    /// Adds the keys of another worker.
    pub(crate) fn merge(&mut self, other: &Distinct) {
        self.0.merge(&other.0);
    }

    /// Number of distinct keys, with a standard error of 1.6 %.
    pub(crate) fn estimate(&self) -> f64 {
        as_value(to_u64(self.0.estimate()))
    }
}
