// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes subscribers.
//!
//! Invariants
//! - The bits and chunks of a reader behind a relay are in use until the relay's thread has ended.

use ringtap_ipc::subscription::SubscriptionId;
use ringtap_ipc::time::now_ns;

use super::state::Subscriber;
use crate::control::HubControl;
use crate::flows::FlowWork;
use crate::relay::Relay;

impl HubControl {
    /// Removes a subscriber and takes back all chunks that its reader holds; those of a relay once its
    /// thread has ended.
    pub(crate) fn leave(&mut self, id: SubscriptionId) {
        self.end_rules_elsewhere(id);
        let subscriber = self.subscribers.all.remove(&id);
        if let Some(subscriber) = &subscriber {
            self.doorbells.remove(&subscriber.doorbell);
        }
        match subscriber {
            Some(subscriber) if subscriber.relay.is_some() => {
                subscriber.relay.iter().for_each(Relay::stop);
                self.membership.begin_to_leave(id);
                self.subscribers.leaving.push((id, subscriber));
            }
            subscriber => self.forget(id, subscriber),
        }
    }

    /// Takes back bits and chunks of the relays that have ended.
    pub(crate) fn finish_relays(&mut self) {
        let has_ended = |(_, subscriber): &mut (_, Subscriber)| {
            subscriber.relay.as_ref().is_none_or(Relay::has_ended)
        };
        let ended: Vec<_> = self.subscribers.leaving.extract_if(.., has_ended).collect();
        for (id, subscriber) in ended {
            self.forget(id, Some(subscriber));
        }
    }

    /// Takes back the bits and chunks of a subscription.
    fn forget(&mut self, id: SubscriptionId, subscriber: Option<Subscriber>) {
        let numbers = self.engine.call(move |engine| engine.unlink(id));
        if let Some(mut subscriber) = subscriber {
            let mut numbers = numbers.unwrap_or_default();
            self.name_shunted(&mut subscriber, &mut numbers);
            let last = self.reader_status(id, &subscriber, numbers);
            let (delivered, filtered, lost) = (
                last.counters.delivered,
                last.counters.filtered,
                last.counters.dropped.overrun,
            );
            tracing::info!(
                subscriber = id.0,
                group = last.group,
                reader = last.name,
                pid = last.pid,
                uid = last.uid,
                delivered,
                filtered,
                lost,
                "left"
            );
            self.subscribers.departed.add(last, now_ns());
            subscriber.memory.reclaim_elsewhere();
        }
        let bits = self.membership.take_out(id);
        match &self.flows {
            // The bits are free once their rules are forgotten.
            Some(flows) => flows.send(FlowWork::Leave { id, bits }),
            None => self.membership.release(bits),
        }
        self.changes.outdate();
    }
}
