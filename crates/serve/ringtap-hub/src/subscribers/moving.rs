// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flows on their way from busy members of groups to idle ones.
#![forbid(unsafe_code)]

use std::time::Duration;

use ringtap_filter::BUCKETS;
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_pool::distributor::HeldBack;
use ringtap_pool::offload::Load;
use ringtap_pool::offload::buckets::{Due, Members};

use super::{Change, SourceReader, Subscribers};
use crate::capture::Capture;
use crate::engine::Engine;

/// What sources and their distributors know of subscribers.
struct Known<'a> {
    subscribers: &'a Subscribers,
    captures: &'a [Capture],
}

impl<'a> Known<'a> {
    fn source_readers(
        &self,
        subscriber: SubscriptionId,
    ) -> impl Iterator<Item = (&'a Capture, &'a SourceReader)> + use<'a> {
        let captures = self.captures;
        let source_readers = self.subscribers.source_readers(subscriber).iter();
        source_readers.map(|source_reader| (&captures[source_reader.capture], source_reader))
    }
}

impl Members<SubscriptionId> for Known<'_> {
    fn load(&self, member: SubscriptionId) -> Load {
        let loads = self.source_readers(member);
        let loads =
            loads.map(|(capture, source_reader)| capture.distributor.load(source_reader.reader));
        loads.max_by_key(|load| load.percent).unwrap_or_default()
    }

    fn weigh(&self, member: SubscriptionId, weights: &mut [u64; BUCKETS]) {
        for (capture, source_reader) in self.source_readers(member) {
            capture.distributor.weigh(source_reader.reader, weights);
        }
    }

    fn is_held_back(&self, member: SubscriptionId) -> bool {
        let mut source_readers = self.source_readers(member);
        source_readers
            .all(|(capture, source_reader)| capture.distributor.is_held_back(source_reader.reader))
    }

    fn follows(&self, member: SubscriptionId) -> bool {
        let mut source_readers = self.source_readers(member);
        source_readers
            .any(|(capture, source_reader)| capture.distributor.follows(source_reader.reader))
    }
}

impl Engine {
    /// Lets busy members of groups give flows to idle ones.
    pub(crate) fn offload_flows(&mut self, now: Duration) {
        // What is due next depends on the rules in force.
        while !self.changes.has_handoff() {
            let known = Known {
                subscribers: &self.subscribers,
                captures: &self.captures,
            };
            let due = self.membership.due(now, &known);
            if due.is_empty() {
                return;
            }
            due.into_iter().for_each(|due| self.carry_on(due));
            // Something may have been handed over.
            self.wake_sleepers();
        }
    }

    fn carry_on(&mut self, due: Due<SubscriptionId>) {
        match due {
            Due::HoldBack(to) => self.at_each(to, |capture, reader| {
                capture.distributor.hold_back(reader);
            }),
            Due::Change { from, to } => self.changes.push(Change::Handoff { from, to }),
            Due::LetGo(to, held) => self.at_each(to, |capture, reader| {
                capture.distributor.let_go(reader, held);
            }),
            Due::Over(to) => self.note_unordered(to),
        }
    }

    /// Notes how often a subscriber did not wait for the former owner of its flows.
    pub(super) fn note_unordered(&mut self, subscriber: SubscriptionId) {
        let mut unordered = 0;
        self.at_each(subscriber, |capture, reader| {
            unordered += capture.distributor.take_unordered(reader);
        });
        self.membership.moved(subscriber, unordered);
    }

    /// A handoff that a source refused: flows stay with the owners that the sources know.
    pub(super) fn end_handoff(&mut self, to: SubscriptionId) {
        self.at_each(to, |capture, reader| {
            capture.distributor.let_go(reader, HeldBack::Anywhere);
        });
    }

    /// The rules with the new owner are in force: it waits for the former one.
    pub(super) fn change_hands(&mut self, from: SubscriptionId, to: SubscriptionId) {
        for source_reader in self.subscribers.source_readers(to) {
            let distributor = &mut self.captures[source_reader.capture].distributor;
            let mut leaders = self.subscribers.source_readers(from).iter();
            match leaders.find(|leader| leader.capture == source_reader.capture) {
                Some(leader) => distributor.follow(source_reader.reader, leader.reader),
                None => distributor.let_go(source_reader.reader, HeldBack::Anywhere),
            }
        }
    }

    fn at_each(
        &mut self,
        subscriber: SubscriptionId,
        mut each: impl FnMut(&mut Capture, ringtap_pool::ids::ReaderId),
    ) {
        for source_reader in self.subscribers.source_readers(subscriber) {
            each(
                &mut self.captures[source_reader.capture],
                source_reader.reader,
            );
        }
    }
}
