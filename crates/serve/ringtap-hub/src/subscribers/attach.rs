// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaches and changes subscribers.
//!
//! Invariants
//! - A subscription covers every source or none; a failed attempt leaves no trace.
//! - A subscription starts with the first packet that the new rules classified.

use std::io;
use std::sync::Arc;

use ringtap_filter::{FilterLocation, Program};
use ringtap_ipc::doorbell::{HubDoorbell, doorbell};
use ringtap_ipc::memfd::SharedMemory;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{Delivery, Refusal, Refused};
use ringtap_ipc::subscription::{
    Endpoint, EndpointFiles, Subscription, SubscriptionId, SubscriptionRequest, Wanted,
};
use ringtap_ipc::time::now_ns;
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::{Policy, ReaderOptions};
use ringtap_pool::memory::Region;
use ringtap_pool::source::Facts;
use ringtap_pool::wake::Signal;

use super::state::Subscriber;
use crate::answer::not_subscribed;
use crate::budgets::{Charge, ReaderMemory};
use crate::capture::Beginning;
use crate::control::HubControl;
use crate::engine::NewReader;
use crate::group::Group;
use crate::membership::{Member, Share};
use crate::relay::{self, Relay};
use crate::signal_thread::SignalThread;
use crate::sources::SourceHandle;

/// The largest Ethernet frame without jumbo frames; a smaller snap length cuts packets.
const ORDINARY_FRAME_BYTES: u32 = 1514;

impl HubControl {
    /// Makes a reader a member of a group, if its user may attach; returns the charge for its subscription,
    /// which ends with the member.
    pub(super) fn join(
        &mut self,
        request: &SubscriptionRequest,
        peer: &Peer,
    ) -> Result<(SubscriptionId, Option<Charge>), Refused> {
        let group = self.permitted(request, peer)?;
        self.check_rules_elsewhere(request)?;
        let user = ordinary_user(peer);
        let delivery = delivery(request, group);
        let bytes = self.private_bytes(delivery, group)?;
        let charge = user
            .map(|uid| self.budgets.charge(&self.limits, uid, bytes))
            .transpose()?;
        let id = self.subscribers.next_id();
        let member = Member::new(id, user, request.filter.clone(), delivery);
        let member = member.cut_off(request.cutoff);
        let member = match &request.marks {
            Some(group) => member.marking(self.by_rule_bits(peer, group)?),
            None => member,
        };
        let member = if request.for_guest {
            member.of_guest(peer.pid)
        } else {
            member
        };
        self.membership.join(&request.group, member)?;
        if let (Some(elsewhere), true) = (&mut self.elsewhere, request.cutoff.is_some()) {
            elsewhere.own(id);
        }
        Ok((id, charge))
    }

    /// Bytes of the private pools for a reader, if it has any.
    fn private_bytes(&self, delivery: Delivery, group: &Group) -> Result<u64, Refused> {
        if delivery == Delivery::Shared {
            return Ok(0);
        }
        let mut sum = 0;
        for source in &self.sources {
            sum += relay::bytes(source.pool.geometry(), group.private_pool_bytes)?;
        }
        Ok(sum)
    }

    fn permitted(&self, request: &SubscriptionRequest, peer: &Peer) -> Result<&Group, Refused> {
        let name = &request.group;
        let uid = peer.uid;
        let may_join = |group: &&Group| may_join(peer, group);
        let mut groups = self.membership.open_groups();
        let Some(group) = groups.find(|group| group.name == *name) else {
            if !self.awaits.is_empty() {
                let message = format!("the hub waits: {}", self.awaits.join("; "));
                return Err(Refused::new(Refusal::NoGroup, message));
            }
            let own = self.membership.open_groups().filter(may_join);
            let known = own.map(|group| &*group.name).collect::<Vec<_>>().join(", ");
            let message = format!("there is no group \"{name}\" here; the groups are: {known}");
            return Err(Refused::new(Refusal::NoGroup, message));
        };
        if !may_join(&group) {
            let advice = group.admission.advice(name, uid);
            let message = format!("user {uid} may not attach to group \"{name}\": {advice}");
            return Err(Refused::new(Refusal::NotAllowed, message));
        }
        let allowed = group.max_watermark_packets;
        let packets = request.watermark.packets;
        if packets > allowed {
            return Err(group.too_much("watermark", packets, allowed));
        }
        check_credit(group, request.credit_chunks)?;
        Ok(group)
    }

    /// Creates the endpoints of a new member whose rules are in force.
    pub(super) fn take(
        &mut self,
        (id, charge): (SubscriptionId, Option<Charge>),
        request: &SubscriptionRequest,
        peer: Peer,
        share: &Share,
        places: &[Vec<FilterLocation>],
    ) -> Result<Subscription, Refused> {
        let group = self.membership.group(&request.group).cloned();
        let member = JoinedMember {
            id,
            request,
            group: &group.ok_or_else(not_subscribed)?,
            share,
            user: ordinary_user(&peer),
        };
        let delivery = member.delivery();
        let (doorbell, readers_doorbell) = doorbell()?;
        self.doorbells.add(&doorbell)?;
        let doorbell = Arc::new(doorbell);
        let memory = self.control_memory()?;
        let controls: Vec<_> = memory.iter().map(|memory| memory.region.clone()).collect();
        let reclaimable: io::Result<_> = memory.iter().map(SharedMemory::reclaimable).collect();
        let reader_memory = ReaderMemory {
            memory: reclaimable?,
            charge,
        };
        let reader = self.new_reader(&member, &doorbell, controls.clone())?;
        let linked = self.engine.call(move |engine| engine.link(reader))?;
        let beginnings =
            linked.map_err(|error| Refused::new(Refusal::TooMuch, error.to_string()))?;
        let baselines = beginnings.iter().map(|one| one.counts.clone()).collect();
        let subscription = Subscription {
            id,
            endpoints: self.endpoints(&member, places, memory, beginnings),
            doorbell: Arc::new(readers_doorbell),
            watermark: request.watermark,
        };
        let place = first_place(subscription.endpoints.iter().map(|one| &one.wanted));
        let (subscription, relay, memory) = match delivery {
            Delivery::Shared => (subscription, None, reader_memory),
            Delivery::Private => {
                let (doorbell, event) = (doorbell.clone(), self.event.clone());
                let charge = reader_memory.charge;
                let (relay, private) =
                    Relay::start(subscription, doorbell, member.group, event, charge)?;
                // Only the relay maps the sources' control regions.
                (private, Some(relay), ReaderMemory::default())
            }
        };
        tracing::info!(
            subscriber = id.0,
            group = request.group,
            reader = request.name,
            pid = peer.pid,
            uid = peer.uid,
            "attached"
        );
        let subscriber = Subscriber {
            group: request.group.clone(),
            name: request.name.clone(),
            peer,
            delivery,
            place,
            attached_ns: now_ns(),
            baselines,
            shunting: self.shunting(id, request.from_the_first),
            has_cutoff: request.cutoff.is_some(),
            _controls: controls,
            doorbell,
            relay,
            memory,
        };
        self.subscribers.all.insert(id, subscriber);
        self.introduce(id);
        Ok(subscription)
    }

    /// Makes a control region for each source.
    fn control_memory(&self) -> io::Result<Vec<SharedMemory>> {
        let pools = self.sources.iter().map(|source| &source.pool);
        let sizes = pools.map(|pool| control_bytes(pool.geometry()));
        sizes.map(SharedMemory::create).collect()
    }

    /// The reader that the hub's thread links for a new member with these control regions.
    fn new_reader(
        &self,
        member: &JoinedMember<'_>,
        doorbell: &Arc<HubDoorbell>,
        controls: Vec<Region>,
    ) -> io::Result<NewReader> {
        let JoinedMember { request, group, .. } = member;
        let wake: Arc<dyn Signal> = if member.is_foreign() {
            let percent = self.limits.wake_percent_per_reader;
            Arc::new(SignalThread::start(doorbell.clone(), percent)?)
        } else {
            doorbell.clone()
        };
        Ok(NewReader {
            id: member.id,
            options: ReaderOptions {
                credit: request.credit_chunks.or(group.credit_chunks),
                policy: group.policy,
                mask: member.share.counting_mask(),
                group: member.share.group,
                chunk_share: self.membership.chunk_share(&group.name),
                user: member.user,
            },
            controls,
            wake,
            has_source_signals: !member.is_foreign(),
            watermark: request.watermark,
            offload_percent: group.offload_percent,
            from_the_first: request.from_the_first,
        })
    }

    /// The endpoints of a new member that was linked at each source.
    fn endpoints(
        &mut self,
        member: &JoinedMember<'_>,
        places: &[Vec<FilterLocation>],
        memory: Vec<SharedMemory>,
        beginnings: Vec<Beginning>,
    ) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        for (at, (memory, beginning)) in memory.into_iter().zip(beginnings).enumerate() {
            let source = &mut self.sources[at];
            source.warn_if_scarce(beginning.scarce);
            let wanted = member.share.wanted(&places[at], beginning.classified);
            endpoints.push(member.endpoint(source, wanted, memory));
        }
        endpoints
    }

    /// Changes a member's own filter; returns the old one.
    pub(super) fn replace_filter(
        &mut self,
        id: SubscriptionId,
        filter: Program,
    ) -> Result<Program, Refused> {
        if !self.subscribers.all.contains_key(&id) {
            return Err(not_subscribed());
        }
        let before = self.membership.set_filter(id, filter)?;
        if let Some(share) = self.membership.share(id) {
            let mask = share.mask;
            self.engine.call(move |engine| engine.set_mask(id, mask))?;
        }
        Ok(before)
    }

    /// The packets of a subscription once the rules with its new filter are in force; `from`: sequences
    /// after these, per source and lane, are classified by it.
    pub(super) fn filtered(
        &mut self,
        id: SubscriptionId,
        share: &Share,
        places: &[Vec<FilterLocation>],
        from: &[Vec<u64>],
    ) -> Result<Vec<Wanted>, Refused> {
        let subscriber = self
            .subscribers
            .all
            .get_mut(&id)
            .ok_or_else(not_subscribed)?;
        let sources = places.iter().zip(from);
        let wanted = sources.map(|(places, from)| share.wanted(places, from.clone()));
        // The reader knows the sources that the hub had when it attached.
        let wanted: Vec<_> = wanted.take(subscriber.baselines.len()).collect();
        subscriber.place = first_place(wanted.iter());
        if let Some(relay) = &subscriber.relay {
            relay.set_wanted(wanted.clone());
            // The relay's packets are classified already.
            return Ok(wanted.iter().map(relay::all_classified).collect());
        }
        Ok(wanted)
    }

    /// Changes how many chunks of a lane a subscriber may hold.
    pub(crate) fn set_credit(&mut self, id: SubscriptionId, chunks: u32) -> Result<(), Refused> {
        let subscriber = self.subscribers.all.get(&id);
        let group = subscriber.and_then(|one| self.membership.group(&one.group));
        check_credit(group.ok_or_else(not_subscribed)?, Some(chunks))?;
        self.engine
            .call(move |engine| engine.set_credit(id, chunks))
    }
}

/// Whether a user may have readers in a group.
pub(super) fn may_join(peer: &Peer, group: &Group) -> bool {
    let us = Peer::this_process();
    *peer == us || group.access.allows(peer, us.uid)
}

/// Refuses more credit than the group allows.
fn check_credit(group: &Group, asked: Option<u32>) -> Result<(), Refused> {
    match (asked, group.credit_chunks) {
        (Some(asked), Some(allowed)) if asked > allowed => {
            Err(group.too_much("credit", asked, allowed))
        }
        _ => Ok(()),
    }
}

/// A member of a group, before it is linked to the sources. Its rules are in force.
struct JoinedMember<'a> {
    id: SubscriptionId,
    request: &'a SubscriptionRequest,
    group: &'a Group,
    share: &'a Share,
    /// See [`ordinary_user`].
    user: Option<u32>,
}

impl JoinedMember<'_> {
    fn delivery(&self) -> Delivery {
        delivery(self.request, self.group)
    }

    /// Whether the member's reader is signalled by a thread of its own. The kernel's work for a signal is
    /// up to those who watch it: only readers that could change the hub itself make the hub's thread and
    /// the sources' interrupts do that work. A relay is of the hub.
    fn is_foreign(&self) -> bool {
        self.user.is_some() && self.delivery() == Delivery::Shared
    }

    /// The endpoint of a source with this control region.
    fn endpoint(&self, source: &SourceHandle, wanted: Wanted, control: SharedMemory) -> Endpoint {
        let mut facts = source.facts.clone();
        facts.notes.extend(filter_note(&facts, &wanted));
        if facts.policy != Policy::Block {
            facts.policy = self.group.policy;
        }
        let wake = source.readers_wake.clone();
        Endpoint {
            facts,
            pool: source.pool.clone(),
            control: control.region,
            wake: wake.filter(|_| !self.is_foreign()),
            wanted,
            files: source.pool_file().map(|(pool, offset)| EndpointFiles {
                pool,
                offset,
                control: control.file,
            }),
        }
    }
}

/// The place of the filter in the first source, which `status` shows.
fn first_place<'a>(mut wanted: impl Iterator<Item = &'a Wanted>) -> FilterLocation {
    let first = wanted.next();
    first.map_or(FilterLocation::Source, |wanted| wanted.place.clone())
}

/// The user whose share is limited; `None` for root and the hub's own user.
pub(super) fn ordinary_user(peer: &Peer) -> Option<u32> {
    let our_uid = Peer::this_process().uid;
    Some(peer.uid).filter(|uid| ![0, our_uid].contains(uid))
}

fn delivery(request: &SubscriptionRequest, group: &Group) -> Delivery {
    if request.private {
        Delivery::Private
    } else {
        group.delivery
    }
}

/// A note for a reader that runs its filter itself.
fn filter_note(facts: &Facts, wanted: &Wanted) -> Option<String> {
    let FilterLocation::Reader(reason) = &wanted.place else {
        return None;
    };
    let snap_length = facts.snap_length;
    if wanted.filter.takes_everything() {
        None
    } else if snap_length < ORDINARY_FRAME_BYTES {
        Some(format!(
            "the filter sees only the first {snap_length} bytes of each packet: {reason}"
        ))
    } else if facts.policy == Policy::Block {
        // The readers of a source that waits for them, like a file, lose nothing by it.
        None
    } else {
        Some(format!(
            "the reader runs the filter, not the capture: {reason}"
        ))
    }
}
