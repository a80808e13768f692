// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's side of each subscription.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringtap_filter::FilterLocation;
use ringtap_ipc::doorbell::HubDoorbell;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::Delivery;
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_pool::memory::Region;
use ringtap_pool::source::Counts;

use super::departed::Departed;
use super::shunting::Shunting;
use crate::budgets::ReaderMemory;
use crate::relay::Relay;

/// The hub's side of a subscription.
pub(crate) struct Subscriber {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) peer: Peer,
    pub(crate) delivery: Delivery,
    pub(crate) place: FilterLocation,
    pub(crate) attached_ns: u64,
    /// Counters when the subscription started, of each source that the hub had then.
    pub(crate) baselines: Vec<Counts>,
    /// What flow rules withheld.
    pub(super) shunting: Shunting,
    /// The reader asked for a cut-off of every flow.
    pub(super) has_cutoff: bool,
    /// Keeps the control regions mapped until the hub's thread has removed the readers.
    pub(super) _controls: Vec<Region>,
    /// Wakes the reader.
    pub(crate) doorbell: Arc<HubDoorbell>,
    pub(crate) relay: Option<Relay>,
    /// Memory that the reader maps, unless it has a relay.
    pub(super) memory: ReaderMemory,
}

/// The part of the status that a user may see. The sources are part of each: a reader's account needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatusView {
    /// Everything.
    Whole,
    /// These groups and their readers.
    Groups(Vec<String>),
}

impl StatusView {
    pub(super) fn shows(&self, group: &str) -> bool {
        match self {
            StatusView::Whole => true,
            StatusView::Groups(groups) => groups.iter().any(|one| one == group),
        }
    }
}

#[derive(Default)]
pub(crate) struct Subscribers {
    pub(crate) all: BTreeMap<SubscriptionId, Subscriber>,
    /// Subscribers that left, until their relays' threads have ended. They keep bits and chunks: the
    /// threads may still copy what these mark.
    pub(super) leaving: Vec<(SubscriptionId, Subscriber)>,
    pub(super) last: u64,
    pub(super) departed: Departed,
}

impl Subscribers {
    pub(super) fn next_id(&mut self) -> SubscriptionId {
        self.last += 1;
        SubscriptionId(self.last)
    }
}
