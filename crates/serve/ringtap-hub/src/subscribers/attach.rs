// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaches, changes and removes subscribers.
//!
//! Invariants
//! - A subscription covers every source or none; a failed attempt leaves no trace.
//! - A subscription starts with the first packet that the new rules classified.

use std::sync::Arc;

use ringtap_filter::{Place, Program};
use ringtap_ipc::doorbell::doorbell;
use ringtap_ipc::memfd::{Reclaimable, SharedMemory};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::subscription::{
    Endpoint, EndpointFiles, Subscription, SubscriptionId, SubscriptionRequest, Wanted,
};
use ringtap_ipc::time::now_ns;
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::{Policy, ReaderOptions};
use ringtap_pool::source::Facts;

use super::{LeavingRelay, SourceReader, Subscriber};
use crate::budgets::ReaderMemory;
use crate::engine::Engine;
use crate::group::{Delivery, Group};
use crate::hub::AttachError;
use crate::membership::{Full, Newcomer, Share, place};
use crate::relay::{self, Relay};

/// A new reader at every source.
#[derive(Default)]
struct ReaderPlaces {
    source_readers: Vec<SourceReader>,
    endpoints: Vec<Endpoint>,
    /// The control regions.
    memory: Vec<Reclaimable>,
}

/// The largest Ethernet frame without jumbo frames; a smaller snap length cuts packets.
const ORDINARY_FRAME_BYTES: u32 = 1514;

impl Engine {
    /// Makes a reader a member of a group, if its user may attach.
    pub(super) fn join(
        &mut self,
        request: &SubscriptionRequest,
        peer: &Peer,
    ) -> Result<SubscriptionId, AttachError> {
        let group = self.permitted(request, peer)?;
        let id = self.subscribers.next_id();
        let filter = request.filter.clone();
        let user = ordinary_user(peer);
        let delivery = delivery(request, &group);
        if let Some(uid) = user {
            self.budgets
                .check(uid, self.private_bytes(delivery, &group)?)?;
        }
        let newcomer = Newcomer {
            subscription: id,
            user,
            delivery,
        };
        match self.membership.join(&group.name, newcomer, filter) {
            Ok(()) => Ok(id),
            Err(full) => Err(refusal(full, &group)),
        }
    }

    /// Bytes of the private pools for a reader, if it has any.
    fn private_bytes(&self, delivery: Delivery, group: &Group) -> Result<u64, AttachError> {
        if delivery == Delivery::Shared {
            return Ok(0);
        }
        let mut sum = 0;
        for capture in &self.captures {
            sum += relay::bytes(capture.pool.geometry(), group.private_pool_bytes)?;
        }
        Ok(sum)
    }

    fn permitted(&self, request: &SubscriptionRequest, peer: &Peer) -> Result<Group, AttachError> {
        let Some(group) = self.membership.group(&request.group) else {
            let names: Vec<_> = self
                .membership
                .groups()
                .map(|(g, _)| g.name.clone())
                .collect();
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
        id: SubscriptionId,
        request: &SubscriptionRequest,
        peer: Peer,
        share: &Share,
        places: &[Vec<Place>],
    ) -> Result<Subscription, AttachError> {
        let group = self.membership.group(&request.group).cloned();
        let group = &group.ok_or(AttachError::NotSubscribed)?;
        let delivery = delivery(request, group);
        let private_bytes = self.private_bytes(delivery, group)?;
        let charge = ordinary_user(&peer).map(|uid| self.budgets.charge(uid, private_bytes));
        let charge = charge.transpose()?;
        let (doorbell, readers_doorbell) = doorbell()?;
        self.rings.add(&doorbell)?;
        let doorbell = Arc::new(doorbell);
        let options = ReaderOptions {
            credit: request.credit_chunks.or(group.credit_chunks),
            policy: group.policy,
            mask: share.mask,
            group: share.group,
            chunk_share: self.membership.chunk_share(&group.name),
            user: ordinary_user(&peer),
        };
        if let Some(number) = options.chunk_share {
            for capture in &self.captures {
                capture.buddies.set_threshold(number, group.offload_percent);
            }
        }
        let ReaderPlaces {
            source_readers,
            endpoints,
            memory,
        } = self.take_everywhere(&options, share, places, request.from_the_first)?;
        for source_reader in &source_readers {
            self.captures[source_reader.capture].warn_if_scarce(source_reader.reader);
        }
        let mut subscription = Subscription {
            id,
            endpoints,
            doorbell: Arc::new(readers_doorbell),
            watermark: request.watermark,
        };
        let first = subscription.endpoints.first();
        let mut subscriber = Subscriber {
            group: group.name.clone(),
            name: request.name.clone(),
            peer,
            delivery,
            place: first.map_or(Place::Source, |first| first.wanted.place.clone()),
            credit_chunks: options.credit,
            attached_ns: now_ns(),
            source_readers,
            doorbell,
            relay: None,
            memory: ReaderMemory { memory, charge },
            watermark: request.watermark,
            waits_since: None,
            lost: 0,
            last_loss_ns: 0,
        };
        if delivery == Delivery::Private {
            let event = self.event.clone();
            // Only the relay maps the source's control region.
            let charge = std::mem::take(&mut subscriber.memory).charge;
            let doorbell = subscriber.doorbell.clone();
            match Relay::start(subscription, doorbell, group, event, charge) {
                Ok((relay, private)) => {
                    subscriber.relay = Some(relay);
                    subscription = private;
                }
                Err(error) => {
                    self.give_back(&subscriber.source_readers);
                    return Err(error.into());
                }
            }
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

    /// Adds a reader at every source, or at none.
    fn take_everywhere(
        &mut self,
        options: &ReaderOptions,
        share: &Share,
        places: &[Vec<Place>],
        from_the_first: bool,
    ) -> Result<ReaderPlaces, AttachError> {
        let mut taken = ReaderPlaces::default();
        for (at, places) in places.iter().enumerate() {
            let options = ReaderOptions {
                // A source that cannot drop packets waits for its readers.
                policy: match self.captures[at].facts.policy {
                    waits @ Policy::Block => waits,
                    _ => options.policy,
                },
                ..*options
            };
            match self.take_at(at, &options, share, place(share, places), from_the_first) {
                Ok((source_reader, endpoint, control)) => {
                    taken.source_readers.push(source_reader);
                    taken.endpoints.push(endpoint);
                    taken.memory.push(control);
                }
                Err(error) => {
                    self.give_back(&taken.source_readers);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    fn take_at(
        &mut self,
        at: usize,
        options: &ReaderOptions,
        share: &Share,
        place: Place,
        from_the_first: bool,
    ) -> Result<(SourceReader, Endpoint, Reclaimable), AttachError> {
        let capture = &mut self.captures[at];
        let memory = SharedMemory::create(control_bytes(capture.pool.geometry()))?;
        let reclaimable = memory.reclaimable()?;
        // Packets captured before the rules came have every bit, and are not classified yet.
        let classified = capture.counts().lanes;
        let (reader, beginning) = capture.add_reader(options, &memory.region, from_the_first)?;
        let from = match from_the_first {
            true => classified.iter().map(|lane| lane.captured).collect(),
            false => beginning.starts.clone(),
        };
        let mut facts = Facts {
            policy: options.policy,
            ..capture.facts.clone()
        };
        facts.notes.extend(cut_note(&facts, &place, share));
        let endpoint = Endpoint {
            facts,
            pool: capture.pool.clone(),
            control: memory.region,
            wake: capture.readers_wake.clone(),
            wanted: Wanted {
                mask: share.mask,
                group: share.group,
                place,
                filter: share.filter.clone(),
                from,
            },
            files: capture.pool_file().map(|pool| EndpointFiles {
                pool,
                control: memory.file,
            }),
        };
        let source_reader = SourceReader {
            capture: at,
            reader,
            baseline: beginning.counts,
            starts: beginning.starts,
        };
        Ok((source_reader, endpoint, reclaimable))
    }

    fn give_back<'a>(&mut self, source_readers: impl IntoIterator<Item = &'a SourceReader>) {
        for source_reader in source_readers {
            let capture = &mut self.captures[source_reader.capture];
            capture.distributor.remove_reader(source_reader.reader);
        }
    }

    /// Removes a subscriber and takes back all chunks that its reader holds; those of a relay once its
    /// thread has ended.
    pub(crate) fn leave(&mut self, id: SubscriptionId) {
        if let Some(mut subscriber) = self.subscribers.all.remove(&id) {
            self.subscribers.departed_overrun += self.lost_by(&subscriber);
            self.rings.remove(&subscriber.doorbell);
            tracing::info!(
                subscriber = id.0,
                group = subscriber.group,
                reader = subscriber.name,
                uid = subscriber.peer.uid,
                "left"
            );
            if let Some(relay) = subscriber.relay.take() {
                relay.stop();
                self.subscribers.leaving.push(LeavingRelay {
                    subscription: id,
                    relay,
                    source_readers: subscriber.source_readers,
                });
                return;
            }
            self.give_back(&subscriber.source_readers);
            subscriber.memory.reclaim_elsewhere();
        }
        self.membership.leave(id);
        self.changes.outdate();
    }

    /// Takes back bits and chunks of the relays that have ended.
    pub(crate) fn finish_relays(&mut self) {
        let has_ended = |leaving: &mut LeavingRelay| leaving.relay.has_ended();
        let ended: Vec<_> = self.subscribers.leaving.extract_if(.., has_ended).collect();
        for leaving in ended {
            self.give_back(&leaving.source_readers);
            self.membership.leave(leaving.subscription);
            self.changes.outdate();
        }
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

    /// The packets of a subscription once the rules with its new filter are in force.
    pub(super) fn filtered(
        &mut self,
        id: SubscriptionId,
        share: &Share,
        places: &[Vec<Place>],
    ) -> Vec<Wanted> {
        let source_readers = self.subscribers.source_readers(id).iter();
        let wanted: Vec<_> = source_readers
            .map(|source_reader| {
                let at = source_reader.capture;
                let lanes = self.captures[at].counts().lanes;
                Wanted {
                    mask: share.mask,
                    group: share.group,
                    place: place(share, &places[at]),
                    filter: share.filter.clone(),
                    from: lanes.iter().map(|lane| lane.captured).collect(),
                }
            })
            .collect();
        if let Some(subscriber) = self.subscribers.all.get_mut(&id) {
            subscriber.place = wanted
                .first()
                .map_or(Place::Source, |wanted| wanted.place.clone());
            if let Some(relay) = &subscriber.relay {
                relay.set_wanted(wanted.clone());
                // The relay's packets are classified already.
                return wanted.iter().map(relay::all_classified).collect();
            }
        }
        wanted
    }

    /// Changes how many chunks of a lane a subscriber may hold.
    pub(crate) fn set_credit(
        &mut self,
        id: SubscriptionId,
        chunks: u32,
    ) -> Result<(), AttachError> {
        let subscriber = self
            .subscribers
            .all
            .get_mut(&id)
            .ok_or(AttachError::NotSubscribed)?;
        let group = self
            .membership
            .group(&subscriber.group)
            .ok_or(AttachError::NotSubscribed)?;
        if let Some(allowed) = group.credit_chunks.filter(|allowed| chunks > *allowed) {
            return Err(too_much("credit", group, chunks, allowed));
        }
        subscriber.credit_chunks = Some(chunks);
        for source_reader in &subscriber.source_readers {
            let capture = &mut self.captures[source_reader.capture];
            capture.distributor.set_credit(source_reader.reader, chunks);
        }
        Ok(())
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

/// A note for a reader that runs its filter itself, on packets that the source has cut.
fn cut_note(facts: &Facts, place: &Place, share: &Share) -> Option<String> {
    let Place::Reader(reason) = place else {
        return None;
    };
    let cuts = facts.snap_length < ORDINARY_FRAME_BYTES && !share.filter.takes_everything();
    cuts.then(|| {
        format!(
            "the filter sees only the first {} bytes of each packet: {reason}",
            facts.snap_length
        )
    })
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
