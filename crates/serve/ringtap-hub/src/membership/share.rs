// SPDX-License-Identifier: MIT OR Apache-2.0
//! The share of each source that a subscription gets.

use ringtap_filter::{FilterLocation, Program};
use ringtap_ipc::subscription::Wanted;

use crate::limits::TooMuchWork;

/// Reason why a subscription has no rule in a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRule {
    #[error("there are more readers than bits in a packet's mask")]
    NoBit,
    #[error(
        "the user has {bits} of the bits of a packet's mask, its whole share (mask_bits_per_user in [limits])"
    )]
    NoBitOfUser { bits: u32 },
    #[error("a member of a balanced group runs its own filter itself")]
    Balanced,
    #[error(transparent)]
    TooMuchWork(TooMuchWork),
}

/// The packets that a subscription gets.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Bit of the subscription.
    pub(crate) mask: u64,
    /// Bit of the subscription's balanced group, or 0.
    pub(crate) group: u64,
    /// Bit of the group by which the subscription marks packets, or 0.
    pub(crate) marks: u64,
    /// The filters of the group and the subscription, combined.
    pub(crate) filter: Program,
    /// Flow rules may withhold packets that the subscription wants.
    pub(crate) has_flow_rules: bool,
    /// Index of the subscription's rule in a source.
    pub(crate) rule: Result<usize, NoRule>,
}

impl Share {
    /// Mask by which the hub's thread counts what the subscription misses: all bits if each packet has the
    /// subscription's own, so that the thread need not look at the packets.
    pub(crate) fn counting_mask(&self) -> u64 {
        if self.group == 0 && self.filter.takes_everything() && !self.has_flow_rules {
            u64::MAX
        } else {
            self.mask
        }
    }

    /// The packets of a source for the subscription. The source reported these places for its rules, and
    /// classifies by them from these sequences on.
    pub(crate) fn wanted(&self, places: &[FilterLocation], from: Vec<u64>) -> Wanted {
        Wanted {
            mask: self.mask,
            group: self.group,
            marks: self.marks,
            place: match &self.rule {
                Ok(rule) => places.get(*rule).cloned().unwrap_or(FilterLocation::Source),
                Err(why) => FilterLocation::Reader(why.to_string()),
            },
            filter: self.filter.clone(),
            from,
        }
    }
}
