// SPDX-License-Identifier: MIT OR Apache-2.0
//! Subscribers: the hub's side of each subscription.

mod attach;
mod changes;
mod statistics;
mod waking;

pub(crate) use changes::{Change, Changes};
pub(crate) use waking::Sleepers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ringtap_filter::Place;
use ringtap_ipc::doorbell::HubDoorbell;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::subscription::{SubscriptionId, Watermark};
use ringtap_pool::ids::ReaderId;
use ringtap_pool::source::Counts;
use ringtap_pool::wake::Signal as _;

use crate::budgets::ReaderMemory;
use crate::group::Delivery;
use crate::relay::Relay;

/// A subscriber's reader at one source.
pub(crate) struct SourceReader {
    pub(crate) capture: usize,
    /// Number of the reader at the source's distributor.
    pub(crate) reader: ReaderId,
    /// The source's counters when the subscription started.
    pub(crate) baseline: Counts,
    /// Sequence of the subscription's first packet, per lane.
    pub(crate) starts: Vec<u64>,
}

/// The hub's side of a subscription.
pub(crate) struct Subscriber {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) peer: Peer,
    pub(crate) delivery: Delivery,
    pub(crate) place: Place,
    pub(crate) credit_chunks: Option<u32>,
    pub(crate) attached_ns: u64,
    pub(crate) source_readers: Vec<SourceReader>,
    /// Wakes the reader.
    pub(crate) doorbell: Arc<HubDoorbell>,
    pub(crate) relay: Option<Relay>,
    /// Memory that the reader maps, unless it has a relay.
    memory: ReaderMemory,
    watermark: Watermark,
    /// Since when packets wait for a reader that sleeps below its watermark.
    waits_since: Option<Instant>,
    /// Packets lost at the last check, and the time of the last loss.
    lost: u64,
    last_loss_ns: u64,
}

/// The relay of a subscriber that left. Its subscription keeps bits and chunks until the thread ends:
/// it may still copy what they mark.
struct LeavingRelay {
    subscription: SubscriptionId,
    relay: Relay,
    source_readers: Vec<SourceReader>,
}

#[derive(Default)]
pub(crate) struct Subscribers {
    pub(crate) all: BTreeMap<SubscriptionId, Subscriber>,
    /// Relays of subscribers that left, until their threads have ended.
    leaving: Vec<LeavingRelay>,
    last: u64,
    /// Packets that readers lost before they left.
    pub(crate) departed_overrun: u64,
}

impl Subscribers {
    fn next_id(&mut self) -> SubscriptionId {
        self.last += 1;
        SubscriptionId(self.last)
    }

    /// A subscriber's readers, one per source; empty for an unknown subscriber.
    pub(crate) fn source_readers(&self, subscriber: SubscriptionId) -> &[SourceReader] {
        self.all
            .get(&subscriber)
            .map_or(&[], |subscriber| &subscriber.source_readers)
    }

    /// Wakes all readers of a source.
    pub(crate) fn wake_all_of(&self, capture: usize) {
        for subscriber in self.all.values() {
            if subscriber
                .source_readers
                .iter()
                .any(|source_reader| source_reader.capture == capture)
            {
                subscriber.doorbell.signal();
            }
        }
    }
}
