// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that flow rules withheld from readers, in their accounts, and the readers' requests for flow rules.
//!
//! A reader counts every packet in the pool that is for nobody as filtered. The source counts what it withheld from
//! each bit of the mask. The two together name the packets: those of the reader's bit are shunted, those of its balanced
//! group's other bits went to other members.
//!
//! Invariants
//! - The account balances at every moment. While a reader has packets to read, some of `filtered` may be in `shunted`.
//! - No term falls.

use std::sync::Arc;

use ringtap_filter::{FlowSelector, GroupName};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{ReaderStatus, Refusal, Refused, Reply, Request};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_pool::source::{FlowRules, WithheldCounts};

use super::attach::{may_join, ordinary_user};
use super::changes::Change;
use super::shunting::{Shunting, Withheld, since};
use super::state::Subscriber;
use crate::answer::{Responder, ending, not_subscribed};
use crate::control::HubControl;
use crate::engine::Figures;
use crate::flows::{FlowReader, FlowThread, FlowWork};
use crate::group::Group;
use crate::membership::{PatternChange, no_group};

impl HubControl {
    /// The bits of a new member, and what the tables have counted of them: for one that reads from the first packet on,
    /// all of it is its own.
    pub(super) fn shunting(&self, id: SubscriptionId, from_the_first: bool) -> Shunting {
        let members = self.membership.flow_members(id).ok();
        let mut shunting = Shunting {
            own: members.map(|members| members.own),
            group: members.and_then(|members| members.group),
            ..Shunting::default()
        };
        if from_the_first {
            return shunting;
        }
        let tables = self.sources.iter().map(|source| source.flows.as_deref());
        let counts = |table: Option<&dyn FlowRules>| table.map(|table| shunting.counts(table));
        shunting.before = tables
            .map(|table| counts(table).unwrap_or_default())
            .collect();
        shunting
    }

    /// What was withheld from a reader since it began, per source and lane; `None` for a source without a table.
    pub(super) fn withheld_since(&self, subscriber: &Subscriber) -> Vec<Option<Vec<Withheld>>> {
        let shunting = &subscriber.shunting;
        let tables = self.sources.iter().map(|source| source.flows.as_deref());
        let of = |(at, table): (usize, Option<&dyn FlowRules>)| {
            let before = shunting.before.get(at);
            let lane = |(lane, now): (usize, &[WithheldCounts; 2])| {
                // Without a table, nothing had been withheld.
                let before = before.and_then(|lanes| lanes.get(lane));
                since(now, before.unwrap_or(&Default::default()))
            };
            let now = shunting.counts(table?);
            Some(now.iter().enumerate().map(lane).collect())
        };
        tables.enumerate().map(of).collect()
    }

    /// Names the packets that flow rules withheld from a reader: among those that its account has as filtered, and
    /// that the lanes shunted.
    pub(super) fn name_shunted(&self, subscriber: &mut Subscriber, numbers: &mut ReaderStatus) {
        let withheld = self.withheld_since(subscriber);
        let counters = &mut numbers.counters;
        let mut sum = Withheld::default();
        if withheld.iter().all(Option::is_none) {
            sum.packets = counters.shunted;
        }
        for lane in withheld.iter().flatten().flatten() {
            sum.packets = sum.packets.saturating_add(lane.packets);
            sum.bytes = sum.bytes.saturating_add(lane.bytes);
            sum.other_members = sum.other_members.saturating_add(lane.other_members);
        }
        let named = &mut subscriber.shunting.named;
        named.divide(counters.filtered.saturating_add(counters.shunted), sum);
        counters.shunted = named.shunted;
        counters.filtered = named.filtered;
        counters.other_members = counters.other_members.saturating_add(named.other_members);
        counters.offered = counters.accounted();
        numbers.shunted_bytes = sum.bytes;
    }

    /// As [`HubControl::name_shunted`], of all readers.
    pub(crate) fn name_all_shunted(&mut self, figures: &mut Figures) {
        let mut all = std::mem::take(&mut self.subscribers.all);
        for (id, subscriber) in &mut all {
            if let Some(reader) = figures.readers.get_mut(id) {
                self.name_shunted(subscriber, &mut reader.numbers);
            }
        }
        self.subscribers.all = all;
    }

    /// Lets the hub's thread look at the masks of packets that readers miss: those withheld are no losses.
    pub(super) fn count_by_own_bits(&self) {
        for id in self.subscribers.all.keys().copied() {
            if let Some(mask) = self.membership.share(id).map(|share| share.mask) {
                // A thread that has ended counts nothing.
                let _ended = self.engine.call(move |engine| engine.set_mask(id, mask));
            }
        }
    }

    /// Passes the tables of flows to their thread, which begins with the first one.
    pub(super) fn open_tables(&mut self) {
        self.membership.has_table = true;
        let is_first = self.flows.is_none();
        if is_first {
            match FlowThread::start(&self.limits, self.event.clone()) {
                Ok(flows) => self.flows = Some(flows),
                Err(error) => return tracing::error!("no thread for flow rules: {error}"),
            }
        }
        let tables = self
            .sources
            .iter()
            .filter_map(|source| source.flows.clone());
        let tables: Vec<Arc<_>> = tables.collect();
        if let Some(flows) = &self.flows {
            flows.send(FlowWork::Tables(tables));
        }
        if is_first {
            self.introduce_all();
        }
    }

    /// Tells the thread of flow rules of all readers: groups may have changed.
    pub(crate) fn introduce_all(&self) {
        self.name_groups();
        self.subscribers
            .all
            .keys()
            .for_each(|id| self.introduce(*id));
    }

    /// Tells the thread of flow rules which groups get packets by rules.
    fn name_groups(&self) {
        if let Some(flows) = &self.flows {
            flows.send(FlowWork::Groups(self.membership.by_rule_groups().collect()));
        }
    }

    /// Refuses a rule that gives packets to a group in which the user may have no readers.
    fn check_groups(&self, peer: &Peer, request: &Request) -> Result<(), Refused> {
        let Request::SetRules { rules, .. } = request else {
            return Ok(());
        };
        for group in rules.iter().filter_map(|rule| rule.action.group()) {
            self.by_rule_bits(peer, &group)?;
        }
        Ok(())
    }

    /// Bits of a group that gets packets by rules, and in which the user may have readers.
    pub(super) fn by_rule_bits(&self, peer: &Peer, name: &GroupName) -> Result<u64, Refused> {
        let is_it = |one: &&Group| one.name == name.as_str() && may_join(peer, one);
        let group = self.membership.open_groups().find(is_it);
        let bit = group.and_then(|_| self.membership.by_rule_bit(name));
        bit.ok_or_else(|| no_group(name))
    }

    /// Tells the thread of flow rules of a reader.
    pub(super) fn introduce(&self, id: SubscriptionId) {
        let subscriber = self.subscribers.all.get(&id);
        let (Some(flows), Some(subscriber)) = (&self.flows, subscriber) else {
            return;
        };
        let group = self.membership.group(&subscriber.group);
        // A reader without a bit of its own has no rules.
        let (Ok(members), Some(group)) = (self.membership.flow_members(id), group) else {
            return;
        };
        let user = self.membership.rule_owner(id);
        let sees_counts = user.is_none() || group.filter.program().takes_everything();
        let has_cutoff = group.cutoff.is_some() || subscriber.has_cutoff;
        flows.send(FlowWork::Reader(FlowReader {
            id,
            members,
            user,
            sees_counts,
            sees_all: has_cutoff && sees_counts,
            file_rules: (group.rules.iter())
                .filter_map(|rule| rule.for_flow())
                .collect(),
        }));
    }

    /// Makes the bits free whose rules are forgotten.
    pub(crate) fn release_bits(&mut self) {
        if let Some(flows) = &self.flows {
            let bits = flows.released();
            self.membership.release(bits);
        }
    }

    /// Passes a request for flow rules of a reader of this user on; the first rule makes the sources load a table.
    pub(crate) fn flow_request(
        &mut self,
        (own, peer): (Option<SubscriptionId>, &Peer),
        request: Request,
        responder: Responder<Reply>,
    ) {
        let id = self.reader_of(own, peer, &request);
        let id = id.and_then(|id| self.check_groups(peer, &request).map(|()| id));
        let id = id.and_then(|id| self.membership.flow_members(id).map(|_| id));
        let set = match &request {
            Request::SetRules { rules, .. } => Some(rules),
            _ => None,
        };
        let of = id.as_ref().ok().and_then(|id| self.subscribers.all.get(id));
        // A user of the host may set them for a guest's reader.
        let for_itself = of.is_some_and(|one| one.peer.pid == peer.pid);
        let id = match id {
            Ok(id) if for_itself => {
                let rules = set.map_or(&[][..], Vec::as_slice);
                let checked = self.membership.check_rules_of_guest(id, rules);
                checked.map(|()| id)
            }
            id => id,
        };
        let sets = set.is_some();
        let id = match id {
            Ok(id) => id,
            Err(refused) => {
                responder.send(Err(refused));
                return;
            }
        };
        if self.elsewhere.is_some() {
            return self.ask_elsewhere(id, request, responder);
        }
        let Some((request, responder)) = self.pattern_request(id, request, responder) else {
            return;
        };
        if sets && self.flows.is_none() {
            self.changes.push(Change::Flows {
                id,
                request,
                responder,
            });
        } else {
            self.ask_flows(id, request, responder);
        }
    }

    /// Takes up a request for rules for patterns; returns one that is about flows.
    fn pattern_request(
        &mut self,
        id: SubscriptionId,
        request: Request,
        responder: Responder<Reply>,
    ) -> Option<(Request, Responder<Reply>)> {
        let change = match &request {
            Request::SetRules { rules, .. } if rules.iter().any(|rule| is_pattern(&rule.flow)) => {
                let rules = rules.iter().map(|rule| rule.for_pattern());
                rules.collect::<Option<_>>().map(PatternChange::Set)
            }
            Request::RemoveRules { flows, .. } if flows.iter().any(is_pattern) => {
                let pattern = |flow: &FlowSelector| match flow {
                    FlowSelector::Pattern(pattern) => Some(*pattern),
                    FlowSelector::Flow(_) => None,
                };
                let patterns = flows.iter().map(pattern);
                patterns.collect::<Option<_>>().map(PatternChange::Remove)
            }
            Request::Rules { after, reader } => {
                let after = match after {
                    Some(FlowSelector::Flow(_)) => return Some((request, responder)),
                    Some(FlowSelector::Pattern(pattern)) => Some(pattern),
                    None => None,
                };
                let page = self.membership.patterns_of(id, after);
                if page.as_ref().is_ok_and(Vec::is_empty) {
                    // The rules for flows come after them.
                    let (after, reader) = (None, *reader);
                    return Some((Request::Rules { reader, after }, responder));
                }
                let more = self.flows.is_some();
                responder.send(page.map(|rules| Reply::Rules { rules, more }));
                return None;
            }
            _ => return Some((request, responder)),
        };
        match change {
            Some(change) => self.changes.push(Change::Patterns {
                id,
                change,
                responder,
            }),
            None => {
                let message = "a request has rules for flows or for patterns, not both";
                responder.send(Err(Refused::new(Refusal::BadRequest, message)));
            }
        }
        None
    }

    pub(super) fn ask_flows(
        &self,
        id: SubscriptionId,
        request: Request,
        responder: Responder<Reply>,
    ) {
        if let Some(flows) = &self.flows {
            return flows.send(FlowWork::Request {
                id,
                request,
                responder,
            });
        }
        responder.send(Ok(without_rules(&request)));
    }

    /// The reader that a request is about, if it is the user's.
    fn reader_of(
        &self,
        own: Option<SubscriptionId>,
        peer: &Peer,
        request: &Request,
    ) -> Result<SubscriptionId, Refused> {
        let named = match request {
            Request::SetRules { reader, .. }
            | Request::RemoveRules { reader, .. }
            | Request::Rules { reader, .. }
            | Request::FlowEvents { reader } => *reader,
            _ => None,
        };
        let Some(number) = named else {
            return own.ok_or_else(not_subscribed);
        };
        let id = SubscriptionId(number);
        let is_everybodys = ordinary_user(peer).is_none();
        let of = self.subscribers.all.get(&id);
        match of.map(|subscriber| subscriber.peer.uid) {
            Some(uid) if is_everybodys || uid == peer.uid => Ok(id),
            None if is_everybodys => {
                let message = format!("there is no reader {number}: `ringtap status` lists them");
                Err(Refused::new(Refusal::BadRequest, message))
            }
            // Nor does a user learn which readers of others there are.
            _ => {
                let message = format!("reader {number} is none of user {}", peer.uid);
                Err(Refused::new(Refusal::NotAllowed, message))
            }
        }
    }
}

/// The answer for a reader that has no rules.
pub(super) fn without_rules(request: &Request) -> Reply {
    match request {
        Request::RemoveRules { .. } => Reply::RulesDone {
            done: 0,
            refused: None,
        },
        Request::Rules { .. } => Reply::Rules {
            rules: Vec::new(),
            more: false,
        },
        Request::FlowEvents { .. } => Reply::FlowEvents {
            events: Vec::new(),
            lost: 0,
            more: false,
        },
        _ => Reply::Refused(ending()),
    }
}

fn is_pattern(flow: &FlowSelector) -> bool {
    matches!(flow, FlowSelector::Pattern(_))
}
