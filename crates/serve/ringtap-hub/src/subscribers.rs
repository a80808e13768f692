// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subscribers that were taken: who sits there, since when, what woke them last.
#![forbid(unsafe_code)]

mod accounts;
mod attach;
mod changes;
mod moving;
mod waking;

pub(crate) use changes::{Change, Changes};
pub(crate) use waking::Whom;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use ringtap_filter::Place;
use ringtap_ipc::doorbell::Doorbell;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::subscription::{SubscriptionId, Watermark};
use ringtap_pool::ids::ReaderId;
use ringtap_pool::source::Counts;

use crate::group::Delivery;
use crate::relay::Relay;

/// A subscriber's place at one source.
pub(crate) struct SourceReader {
    /// Which source.
    pub(crate) capture: usize,
    /// Its reader there.
    pub(crate) reader: ReaderId,
    /// The source's counters when it began.
    pub(crate) baseline: Counts,
    /// Its first packet, per lane.
    pub(crate) starts: Vec<u64>,
}

/// A reader's subscriber as the hub sees it.
pub(crate) struct Subscriber {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) peer: Peer,
    pub(crate) delivery: Delivery,
    pub(crate) place: Place,
    pub(crate) credit_chunks: Option<u32>,
    pub(crate) attached_ns: u64,
    pub(crate) source_readers: Vec<SourceReader>,
    /// Wakes the reader, and is rung by it.
    pub(crate) doorbell: Arc<dyn Doorbell>,
    /// The reader's doorbell is gone: nobody listens to it any more.
    pub(crate) is_silent: bool,
    pub(crate) relay: Option<Relay>,
    watermark: Watermark,
    /// Since when packets wait for a reader that sleeps for more of them.
    waits_since: Option<Instant>,
    /// Losses when they were last looked at, and when they last grew.
    lost: u64,
    last_loss_ns: u64,
}

/// All subscribers.
#[derive(Default)]
pub(crate) struct Subscribers {
    pub(crate) taken: BTreeMap<SubscriptionId, Subscriber>,
    last: u64,
    /// Packets that readers lost who left.
    pub(crate) departed_overrun: u64,
}

impl Subscribers {
    fn next_id(&mut self) -> SubscriptionId {
        self.last += 1;
        SubscriptionId(self.last)
    }

    /// A subscriber's places at the sources; none if nobody sits there.
    pub(crate) fn source_readers(&self, subscriber: SubscriptionId) -> &[SourceReader] {
        self.taken
            .get(&subscriber)
            .map_or(&[], |subscriber| &subscriber.source_readers)
    }

    /// Wakes everybody at a source.
    pub(crate) fn wake_all_of(&self, capture: usize) {
        for subscriber in self.taken.values() {
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
