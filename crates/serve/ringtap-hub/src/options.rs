// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a hub.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;

use ringtap_filter::hash::HashSeed;
use ringtap_pool::congestion::Congestion;

use crate::limits::Limits;

/// Options of a hub.
#[derive(Clone, Copy, Debug, Default)]
pub struct HubOptions {
    /// When capture pauses because readers cannot keep up; absent: never.
    pub congestion: Option<Congestion>,
    /// Limits that protect the hub and its readers.
    pub limits: Limits,
    /// Seed of the hashes that divide packets; absent: random. Hubs with the same seed and the same
    /// number of members divide alike.
    pub hash_seed: Option<HashSeed>,
}

impl HubOptions {
    /// Options of a hub that no reader joins but these: they share the whole pool.
    #[must_use]
    pub fn for_readers(readers: NonZeroU32) -> Self {
        HubOptions {
            limits: Limits::for_readers(readers),
            ..HubOptions::default()
        }
    }
}

/// A seed of 53 bits, which every JSON parser keeps exactly.
pub(crate) fn random_seed() -> HashSeed {
    // The standard library takes the state from the kernel's random numbers.
    HashSeed(RandomState::new().hash_one(0) >> 11)
}
