// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules: the packets that a source captures, and the readers that get each packet.
//!
//! A rule stands for one group of readers. Its filter selects packets, its balance mode picks one of
//! 2,048 buckets for each selected packet, and each bucket names its members as bits of the slot's
//! mask. A source does not capture packets that no rule selects.

use std::sync::Arc;

use crate::flow::FlowSettings;
use crate::hash::HashSeed;
use crate::{Balance, Program};

/// Maximum number of rules of one source.
pub const MAX_RULES: usize = 64;
/// Buckets of a rule; a power of two. Of 63 members none gets 3 % more than the mean.
pub const BUCKETS: usize = 2048;
/// Maximum number of different masks in one rule.
pub const MASKS: usize = 64;

/// One group of readers, for a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Selects packets.
    pub filter: Program,
    /// Picks the bucket of a selected packet.
    pub balance: Balance,
    /// The mask bits for the packets of each bucket.
    pub members: BucketMasks,
}

/// The mask of each bucket of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketMasks {
    masks: Arc<[u64]>,
    /// For each bucket, the index of its mask; `None`: all have the first.
    owners: Option<Arc<[u8; BUCKETS]>>,
}

impl BucketMasks {
    /// The same mask for all buckets.
    #[must_use]
    pub fn same(mask: u64) -> Self {
        BucketMasks {
            masks: Arc::new([mask]),
            owners: None,
        }
    }

    /// The masks that a function returns for each bucket. Only [`MASKS`] of them may differ: buckets
    /// with further masks have the last of these.
    #[must_use]
    pub fn new(mask_of: impl Fn(usize) -> u64) -> Self {
        let mut masks = Vec::new();
        let owners = std::array::from_fn(|bucket| {
            let mask = mask_of(bucket);
            let known = masks.iter().position(|known| *known == mask);
            let at = known.unwrap_or_else(|| {
                masks.push(mask);
                masks.len() - 1
            });
            u8::try_from(at.min(MASKS - 1)).unwrap_or(0)
        });
        masks.truncate(MASKS);
        BucketMasks {
            masks: masks.into(),
            owners: Some(Arc::new(owners)),
        }
    }

    /// The mask of a bucket, of which the lower bits count.
    #[inline]
    #[must_use]
    pub fn mask_of(&self, bucket: usize) -> u64 {
        let owners = self.owners.as_ref();
        let at = owners.map_or(0, |owners| owners[bucket % BUCKETS]);
        self.masks.get(usize::from(at)).copied().unwrap_or(0)
    }

    /// The different masks.
    #[must_use]
    pub fn masks(&self) -> &[u64] {
        &self.masks
    }

    /// For each bucket, the index of its mask.
    #[must_use]
    pub fn owners(&self) -> &[u8; BUCKETS] {
        self.owners.as_deref().unwrap_or(&[0; BUCKETS])
    }
}

/// The rules of a source, at most [`MAX_RULES`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The rules.
    pub each: Vec<Rule>,
    /// Seed of the hashes that divide packets.
    pub seed: HashSeed,
    /// Most work of the kernel's verifier for one filter.
    pub verifier: VerifierLimits,
    /// Settings of the table of flows, if there are flow rules or standing cut-offs.
    pub flows: Option<FlowSettings>,
}

/// Limits to the work of the kernel's verifier for one filter; a reader runs a filter beyond them itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifierLimits {
    /// Classic instructions over all paths, counted before the verifier sees the filter: the kernel
    /// gives up after a million instructions only, which takes seconds.
    pub path_steps: u32,
    /// Instructions that the verifier follows; the kernel's limit for a program is a million.
    pub steps: u32,
}

impl Default for VerifierLimits {
    fn default() -> Self {
        VerifierLimits {
            path_steps: 20_000,
            steps: 100_000,
        }
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(each: Vec<Rule>) -> Self {
        Rules {
            each,
            ..Rules::default()
        }
    }
}

/// Where a rule's filter runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FilterLocation {
    /// In the source: only packets that pass the filter have the bits of its members.
    #[default]
    Source,
    /// In the readers, for this reason.
    Reader(String),
}

impl Rule {
    /// A rule that gives every packet to these members.
    #[must_use]
    pub fn everything(members: u64) -> Self {
        Rule {
            filter: Program::everything(),
            balance: Balance::Everyone,
            members: BucketMasks::same(members),
        }
    }

    /// Whether every packet goes to all members.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        self.filter.takes_everything() && self.balance == Balance::Everyone
    }
}
