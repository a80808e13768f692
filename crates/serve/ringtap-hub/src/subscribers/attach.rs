// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaches, changes and removes subscribers.
//!
//! Invariants
//! - A subscription covers every source or none; a failed attempt leaves no trace.
//! - A subscription starts with the first packet that the new rules classified.

use std::sync::Arc;

use ringtap_filter::{Place, Program};
use ringtap_ipc::doorbell::doorbell;
use ringtap_ipc::memfd::SharedMemory;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::subscription::{
    Endpoint, EndpointFiles, Subscription, SubscriptionId, SubscriptionRequest, Wanted,
};
use ringtap_ipc::time::now_ns;
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::{Policy, ReaderOptions};
use ringtap_pool::source::Facts;
use ringtap_pool::wake::Signal;

use super::changes::Joined;
use super::{SourceReader, Subscriber};
use crate::budgets::ReaderMemory;
use crate::control::HubControl;
use crate::engine::NewReader;
use crate::group::{Delivery, Group};
use crate::hub::AttachError;
use crate::membership::{Full, NewMember, Share, place};
use crate::relay::{self, Relay};
use crate::signal_thread::SignalThread;
use crate::sources::SourceHandle;

/// The largest Ethernet frame without jumbo frames; a smaller snap length cuts packets.
const ORDINARY_FRAME_BYTES: u32 = 1514;

impl HubControl {
    /// Makes a reader a member of a group, if its user may attach.
    pub(super) fn join(
        &mut self,
        request: &SubscriptionRequest,
        peer: &Peer,
    ) -> Result<Joined, AttachError> {
        let group = self.permitted(request, peer)?;
        let user = ordinary_user(peer);
        let delivery = delivery(request, &group);
        let bytes = self.private_bytes(delivery, &group)?;
        let charge = user
            .map(|uid| self.budgets.charge(uid, bytes))
            .transpose()?;
        let subscription = self.subscribers.next_id();
        let new_member = NewMember {
            subscription,
            user,
            delivery,
        };
        let joined = self
            .membership
            .join(&group.name, new_member, request.filter.clone());
        joined.map_err(|full| refusal(full, &group))?;
        Ok(Joined {
            subscription,
            charge,
        })
    }

    /// Bytes of the private pools for a reader, if it has any.
    fn private_bytes(&self, delivery: Delivery, group: &Group) -> Result<u64, AttachError> {
        if delivery == Delivery::Shared {
            return Ok(0);
        }
        let mut sum = 0;
        for source in &self.sources {
            sum += relay::bytes(source.pool.geometry(), group.private_pool_bytes)?;
        }
        Ok(sum)
    }

    fn permitted(&self, request: &SubscriptionRequest, peer: &Peer) -> Result<Group, AttachError> {
        let mut groups = self.membership.open_groups();
        let Some(group) = groups.find(|group| group.name == request.group) else {
            let names = self.membership.open_groups().map(|group| &*group.name);
            let names: Vec<_> = names.collect();
            return Err(AttachError::NoGroup {
                group: request.group.clone(),
                known: names.join(", "),
            });
        };
        let us = Peer::this_process();
        if *peer != us && !group.access.allows(peer, us.uid) {
            return Err(AttachError::NotAllowed {
                group: group.name.clone(),
                uid: peer.uid,
            });
        }
        let allowed = group.most_watermark_packets;
        let packets = request.watermark.packets;
        if packets > allowed {
            return Err(too_much("watermark", group, packets, allowed));
        }
        if let (Some(asked), Some(allowed)) = (request.credit_chunks, group.credit_chunks)
            && asked > allowed
        {
            return Err(too_much("credit", group, asked, allowed));
        }
        Ok(group.clone())
    }

    /// Creates the endpoints of a new member whose rules are in force.
    pub(super) fn take(
        &mut self,
        joined: Joined,
        request: &SubscriptionRequest,
        peer: Peer,
        share: &Share,
        places: &[Vec<Place>],
    ) -> Result<Subscription, AttachError> {
        let group = self.membership.group(&request.group).cloned();
        let group = &group.ok_or(AttachError::NotSubscribed)?;
        let id = joined.subscription;
        let (doorbell, readers_doorbell) = doorbell()?;
        self.doorbells.add(&doorbell)?;
        let doorbell = Arc::new(doorbell);
        let memory = self.sources.iter().map(|source| {
            let bytes = control_bytes(source.pool.geometry());
            SharedMemory::create(bytes)
        });
        let memory = memory.collect::<Result<Vec<_>, _>>()?;
        let options = ReaderOptions {
            credit: request.credit_chunks.or(group.credit_chunks),
            policy: group.policy,
            mask: share.mask,
            group: share.group,
            chunk_share: self.membership.chunk_share(&group.name),
            user: ordinary_user(&peer),
        };
        let delivery = delivery(request, group);
        // The kernel's work for a signal is up to those who watch it: only readers that could change the
        // hub itself make the hub's thread and the sources' interrupts do that work. A relay is of the hub.
        let is_foreign = options.user.is_some() && delivery == Delivery::Shared;
        let wake: Arc<dyn Signal> = match is_foreign {
            true => Arc::new(SignalThread::start(doorbell.clone(), self.wake_percent)?),
            false => doorbell.clone(),
        };
        let reader = NewReader {
            id,
            options,
            controls: memory.iter().map(|memory| memory.region.clone()).collect(),
            wake,
            has_source_signals: !is_foreign,
            watermark: request.watermark,
            offload_percent: group.offload_percent,
            from_the_first: request.from_the_first,
        };
        let beginnings = self.engine.call(move |engine| engine.link(reader))??;
        let mut subscriber = Subscriber {
            group: group.name.clone(),
            name: request.name.clone(),
            peer,
            delivery,
            place: places
                .first()
                .map_or(Place::Source, |first| place(share, first)),
            attached_ns: now_ns(),
            source_readers: Vec::new(),
            doorbell,
            relay: None,
            memory: ReaderMemory {
                memory: Vec::new(),
                charge: joined.charge,
            },
        };
        let mut endpoints = Vec::new();
        for (at, (memory, beginning)) in memory.into_iter().zip(beginnings).enumerate() {
            self.sources[at].warn_if_scarce(beginning.scarce);
            subscriber.memory.memory.push(memory.reclaimable()?);
            subscriber.source_readers.push(SourceReader {
                baseline: beginning.counts,
                starts: beginning.starts,
                _control: memory.region.clone(),
            });
            let wanted = Wanted {
                mask: share.mask,
                group: share.group,
                place: place(share, &places[at]),
                filter: share.filter.clone(),
                from: beginning.classified,
            };
            let mut endpoint = endpoint(&self.sources[at], group, share, wanted, memory);
            endpoint.wake = endpoint.wake.filter(|_| !is_foreign);
            endpoints.push(endpoint);
        }
        let mut subscription = Subscription {
            id,
            endpoints,
            doorbell: Arc::new(readers_doorbell),
            watermark: request.watermark,
        };
        if delivery == Delivery::Private {
            let event = self.event.clone();
            // Only the relay maps the source's control region.
            let charge = std::mem::take(&mut subscriber.memory).charge;
            let doorbell = subscriber.doorbell.clone();
            let (relay, private) = Relay::start(subscription, doorbell, group, event, charge)?;
            subscriber.relay = Some(relay);
            subscription = private;
        }
        tracing::info!(
            subscriber = id.0,
            group = subscriber.group,
            reader = subscriber.name,
            pid = subscriber.peer.pid,
            uid = subscriber.peer.uid,
            "attached"
        );
        self.subscribers.all.insert(id, subscriber);
        Ok(subscription)
    }

    /// Removes a subscriber and takes back all chunks that its reader holds; those of a relay once its
    /// thread has ended.
    pub(crate) fn leave(&mut self, id: SubscriptionId) {
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
        if let Some(subscriber) = subscriber {
            let last = self.of_reader(id, &subscriber, numbers.unwrap_or_default());
            let (delivered, filtered, lost) = (last.delivered, last.filtered, last.overrun);
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
        self.membership.leave(id);
        self.changes.outdate();
    }

    /// Changes a member's own filter; returns the old one.
    pub(super) fn replace_filter(
        &mut self,
        id: SubscriptionId,
        filter: Program,
    ) -> Result<Program, AttachError> {
        let subscriber = self.subscribers.all.get(&id);
        let group = subscriber.and_then(|one| self.membership.group(&one.group).cloned());
        let group = group.ok_or(AttachError::NotSubscribed)?;
        let before = self.membership.set_filter(id, filter);
        before.map_err(|full| refusal(full, &group))
    }

    /// The packets of a subscription once the rules with its new filter are in force; `from`: sequences
    /// after these, per source and lane, are classified by it.
    pub(super) fn filtered(
        &mut self,
        id: SubscriptionId,
        share: &Share,
        places: &[Vec<Place>],
        from: &[Vec<u64>],
    ) -> Result<Vec<Wanted>, AttachError> {
        let subscriber = self.subscribers.all.get_mut(&id);
        let subscriber = subscriber.ok_or(AttachError::NotSubscribed)?;
        let wanted = places.iter().zip(from).map(|(places, from)| Wanted {
            mask: share.mask,
            group: share.group,
            place: place(share, places),
            filter: share.filter.clone(),
            from: from.clone(),
        });
        // The reader knows the sources that the hub had when it attached.
        let wanted: Vec<_> = wanted.take(subscriber.source_readers.len()).collect();
        subscriber.place = wanted
            .first()
            .map_or(Place::Source, |wanted| wanted.place.clone());
        if let Some(relay) = &subscriber.relay {
            relay.set_wanted(wanted.clone());
            // The relay's packets are classified already.
            return Ok(wanted.iter().map(relay::all_classified).collect());
        }
        Ok(wanted)
    }

    /// Changes how many chunks of a lane a subscriber may hold.
    pub(crate) fn set_credit(
        &mut self,
        id: SubscriptionId,
        chunks: u32,
    ) -> Result<(), AttachError> {
        let subscriber = self.subscribers.all.get(&id);
        let group = subscriber.and_then(|one| self.membership.group(&one.group));
        let group = group.ok_or(AttachError::NotSubscribed)?;
        if let Some(allowed) = group.credit_chunks.filter(|allowed| chunks > *allowed) {
            return Err(too_much("credit", group, chunks, allowed));
        }
        self.engine
            .call(move |engine| engine.set_credit(id, chunks))
    }
}

/// The endpoint of a source for a reader with this control region.
fn endpoint(
    source: &SourceHandle,
    group: &Group,
    share: &Share,
    wanted: Wanted,
    control: SharedMemory,
) -> Endpoint {
    let mut facts = source.facts.clone();
    facts
        .notes
        .extend(filter_note(&facts, &wanted.place, share));
    if facts.policy != Policy::Block {
        facts.policy = group.policy;
    }
    Endpoint {
        facts,
        pool: source.pool.clone(),
        control: control.region,
        wake: source.readers_wake.clone(),
        wanted,
        files: source.pool_file().map(|pool| EndpointFiles {
            pool,
            control: control.file,
        }),
    }
}

/// The user whose share is limited; `None` for root and the hub's own user.
fn ordinary_user(peer: &Peer) -> Option<u32> {
    let our_uid = Peer::this_process().uid;
    Some(peer.uid).filter(|uid| ![0, our_uid].contains(uid))
}

fn delivery(request: &SubscriptionRequest, group: &Group) -> Delivery {
    match request.private {
        true => Delivery::Private,
        false => group.delivery,
    }
}

/// A note for a reader that runs its filter itself.
fn filter_note(facts: &Facts, place: &Place, share: &Share) -> Option<String> {
    let Place::Reader(reason) = place else {
        return None;
    };
    let snap_length = facts.snap_length;
    match snap_length < ORDINARY_FRAME_BYTES {
        _ if share.filter.takes_everything() => None,
        true => Some(format!(
            "the filter sees only the first {snap_length} bytes of each packet: {reason}"
        )),
        // The readers of a source that waits for them, like a file, lose nothing by it.
        false if facts.policy == Policy::Block => None,
        false => Some(format!(
            "the reader runs the filter, not the capture: {reason}"
        )),
    }
}

fn too_much(what: &'static str, group: &Group, asked: u32, allowed: u32) -> AttachError {
    AttachError::TooMuch {
        what,
        group: group.name.clone(),
        asked: asked.into(),
        allowed: allowed.into(),
    }
}

fn refusal(full: Full, group: &Group) -> AttachError {
    match full {
        Full::NoGroup => AttachError::NotSubscribed,
        Full::Members(allowed) => too_much("readers", group, allowed + 1, allowed),
        Full::BitsOfUser(allowed) => too_much(
            "the user's readers with a bit of their own (limits.mask_bits_per_user)",
            group,
            allowed + 1,
            allowed,
        ),
        Full::NoBit => too_much("readers of balanced groups", group, 64, 63),
        Full::Filter => AttachError::Filter(group.name.clone()),
        Full::Work(work) => AttachError::FilterWork(work.to_string()),
    }
}
