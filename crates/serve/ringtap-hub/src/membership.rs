// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members of groups, and the rules for the sources that result from them.
//!
//! Invariants
//! - Each subscription has its own bit of the mask at every source. Subscriptions beyond the 63
//!   own bits share the last bit and run their filters themselves; if several share it, they get
//!   every packet. Members of a group that divides lanes share one bit, because the reader of a
//!   chunk is not known yet when the chunk's packets are classified.
//! - A balanced group has one more bit, which all its packets have: a member counts packets with
//!   the group's bit but without its own as those of other members.
//! - The filters that run in a source take at most the limited time for a packet, each alone, and those
//!   of users together. This is decided when a filter comes, and never for a filter that runs already.
//! - Round-robin gives consecutive packets to different members.
//! - In a balanced group with members, each bucket belongs to one member; the members' shares differ
//!   by one bucket at most.

mod flows;
mod groups;
mod leaving;
mod patterns;
mod share;

use ringtap_filter::flow::CutOff;
use ringtap_filter::hash::HashSeed;
use ringtap_filter::{BUCKETS, Balance, BucketMasks, Program, Rule, Rules};
use ringtap_ipc::protocol::{Delivery, Division, Refusal, Refused};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_pool::number::{to_u32, to_usize};

use crate::answer::not_subscribed;
use crate::group::Group;
use crate::limits::{FilterOwner, FilterTimes, Limits, TooMuchWork};
pub(crate) use flows::{FlowMembers, no_group, too_many_cut_offs};
#[cfg(feature = "config")]
pub(crate) use patterns::MAX_PATTERN_RULES;
pub(crate) use patterns::{PatternChange, ReaderPattern};
use share::NoRule;
pub(crate) use share::Share;

/// Bits that belong to one subscription each; the one after them is shared.
pub(crate) const OWN_BITS: u32 = 63;

/// A member of a group.
pub(crate) struct Member {
    subscription: SubscriptionId,
    /// The user whose bits are limited; `None` for root and the hub's own user.
    user: Option<u32>,
    /// Owner of the filter and of flow rules; `None`: root or the hub's own user, whose filters and rules are not
    /// limited together.
    filter_owner: Option<FilterOwner>,
    /// The reader copies for a guest.
    is_guest: bool,
    /// `None`: the subscription shares the last bit.
    bit: Option<u32>,
    /// Why, in that case.
    no_bit: NoRule,
    /// The subscription's own filter.
    own: Program,
    /// The hub runs the filter for this subscription where the source does not.
    is_private: bool,
    /// Why the source does not run the subscription's own filter.
    not_in_source: Option<TooMuchWork>,
    /// The reader has left; its relay may still read.
    has_left: bool,
    /// Cut-off of every flow, for this member.
    cutoff: Option<CutOff>,
    /// Bit of the group by which the member marks packets, or 0.
    marks: u64,
}

struct GroupMembers {
    group: Group,
    /// No longer configured: no reader can join. It keeps its place, by which chunk shares are numbered.
    is_removed: bool,
    members: Vec<Member>,
    /// The bit of all packets of a balanced group that has members.
    bit: Option<u32>,
    /// The bit that rules give to packets for this group. Its readers share it.
    by_rule_bit: Option<u32>,
    /// The owner of each bucket.
    owners: Vec<Option<SubscriptionId>>,
    /// The mask of each bucket in a balanced group.
    masks: BucketMasks,
}

pub(crate) struct Membership {
    groups: Vec<GroupMembers>,
    used_bits: u64,
    /// For filters that come from now on.
    pub(crate) limits: Limits,
    /// Seed of the hashes that divide packets.
    pub(crate) seed: HashSeed,
    /// The sources have a table of flows.
    pub(crate) has_table: bool,
    /// Rules of readers for patterns of flows, in the order in which they were set.
    patterns: Vec<ReaderPattern>,
}

impl GroupMembers {
    fn empty(group: Group) -> Self {
        GroupMembers {
            group,
            is_removed: false,
            members: Vec::new(),
            bit: None,
            by_rule_bit: None,
            owners: vec![None; BUCKETS],
            masks: BucketMasks::same(0),
        }
    }
}

impl Membership {
    pub(crate) fn new(groups: Vec<Group>, limits: Limits, seed: HashSeed) -> Self {
        let mut membership = Membership {
            groups: groups.into_iter().map(GroupMembers::empty).collect(),
            used_bits: 0,
            limits,
            seed,
            has_table: false,
            patterns: Vec::new(),
        };
        for name in membership.assign_by_rule_bits() {
            tracing::warn!("{}", groups::no_bit_left(&name));
        }
        membership
    }

    /// Number of groups, with those that were removed.
    pub(crate) fn group_count(&self) -> u32 {
        to_u32(self.groups.len())
    }

    /// The groups that readers can join or are in, each with its number of members.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Group, usize)> {
        let shown = |one: &&GroupMembers| !one.is_removed || !one.members.is_empty();
        let groups = self.groups.iter().filter(shown);
        groups.map(|one| (&one.group, one.members.len()))
    }

    /// The groups that readers can join.
    pub(crate) fn open_groups(&self) -> impl Iterator<Item = &Group> {
        let open = self.groups.iter().filter(|one| !one.is_removed);
        open.map(|one| &one.group)
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        let mut groups = self.groups.iter().map(|one| &one.group);
        groups.find(|group| group.name == name)
    }

    /// A subscription's group and its member there.
    fn member(&self, subscription: SubscriptionId) -> Option<(&GroupMembers, &Member)> {
        self.groups
            .iter()
            .find_map(|one| Some((one, one.members.get(one.position(subscription)?)?)))
    }

    /// The chunk share of this group's members, if it divides lanes.
    pub(crate) fn chunk_share(&self, name: &str) -> Option<u32> {
        let mut numbered = (0..).zip(&self.groups);
        let (number, one) = numbered.find(|(_, one)| one.group.name == name)?;
        (one.group.division == Division::Lanes).then_some(number)
    }

    /// Makes a subscription a member of a group.
    pub(crate) fn join(&mut self, name: &str, mut member: Member) -> Result<(), Refused> {
        let user = member.user;
        let times = member.filter_owner.map(|owner| self.times_in_source(owner));
        let used_bits = self.used_bits;
        let mut free_bits = (0..OWN_BITS).filter(|bit| used_bits & (1 << bit) == 0);
        let of_user = |member: &&Member| member.user == user && member.bit.is_some();
        let with_own = self.groups.iter().filter(|one| !one.group.by_rule);
        let members = with_own.flat_map(|one| &one.members);
        let of_user = to_u32(members.filter(of_user).count());
        // A few users together leave bits for others, unless one user may have all.
        let most = self.limits.mask_bits_per_user.get();
        let left = if most < OWN_BITS {
            to_u32(free_bits.clone().count())
        } else {
            most
        };
        let may_have_bit = user.is_none() || of_user < most.min(2 * left);
        let one = self
            .groups
            .iter_mut()
            .find(|one| one.group.name == name)
            .ok_or_else(not_subscribed)?;
        let bit = match one.members.first() {
            Some(buddy) if one.group.division == Division::Lanes => buddy.bit,
            _ if one.group.by_rule => one.by_rule_bit,
            _ if may_have_bit => free_bits.next(),
            _ => None,
        };
        let group_bit = match one.bit {
            None if one.is_balanced() => free_bits.next(),
            known => known,
        };
        let staying = one.members.iter().filter(|member| !member.has_left).count();
        let most = one.group.max_members;
        if staying >= to_usize(most) {
            return Err(one.group.too_much("readers", most + 1, most));
        }
        if one.is_balanced() && !may_have_bit {
            let what = "the user's readers with a bit of their own (limits.mask_bits_per_user)";
            return Err(one.group.too_much(what, of_user + 1, of_user));
        }
        if one.is_balanced() && (bit.is_none() || group_bit.is_none()) {
            return Err(one.group.too_much("readers of balanced groups", 64, 63));
        }
        let is_private = member.is_private || one.group.delivery == Delivery::Private;
        member.is_private = is_private;
        member.not_in_source = one.admit(&self.limits, times, &member.own, is_private)?;
        member.bit = bit;
        if !may_have_bit {
            member.no_bit = NoRule::NoBitOfUser { bits: of_user };
        }
        one.bit = group_bit;
        for bit in [bit, group_bit].into_iter().flatten() {
            self.used_bits |= 1 << bit;
        }
        let (group, id) = (one.group.clone(), member.subscription);
        one.members.push(member);
        one.share_out();
        let joined = self
            .member(id)
            .map(|(_, member)| self.check_cut_offs(&group, member));
        if let Some(Err(refused)) = joined {
            self.leave(id);
            return Err(refused);
        }
        Ok(())
    }

    /// Longest time that the filters of this owner, and of all owners, take in a source for one packet.
    fn times_in_source(&self, owner: FilterOwner) -> FilterTimes {
        let mut times = FilterTimes::default();
        for one in self.groups.iter().filter(|one| one.gives_rules()) {
            for member in one.members.iter().filter(|member| member.has_rule()) {
                let Some(other) = member.filter_owner else {
                    continue;
                };
                let filter = member.filter_in_source(one.group.filter.program());
                let time = filter.longest_time().unwrap_or_default();
                times.users = times.users.and(time);
                if other == owner {
                    times.user = times.user.and(time);
                }
            }
        }
        times
    }

    /// Changes a subscription's own filter; returns the old one.
    pub(crate) fn set_filter(
        &mut self,
        subscription: SubscriptionId,
        own: Program,
    ) -> Result<Program, Refused> {
        let member = self.member_mut(subscription).ok_or_else(not_subscribed)?;
        let before = std::mem::replace(&mut member.own, Program::everything());
        let reason = member.not_in_source.take();
        let (owner, is_private) = (member.filter_owner, member.is_private);
        let others = owner.map(|owner| self.times_in_source(owner));
        let (group, _) = self.member(subscription).ok_or_else(not_subscribed)?;
        let admitted = group.admit(&self.limits, others, &own, is_private);
        let member = self.member_mut(subscription).ok_or_else(not_subscribed)?;
        match admitted {
            Ok(reason) => {
                (member.own, member.not_in_source) = (own, reason);
                Ok(before)
            }
            Err(refused) => {
                (member.own, member.not_in_source) = (before, reason);
                Err(refused)
            }
        }
    }

    fn member_mut(&mut self, subscription: SubscriptionId) -> Option<&mut Member> {
        let members = self.groups.iter_mut().flat_map(|one| &mut one.members);
        members
            .into_iter()
            .find(|member| member.subscription == subscription)
    }

    /// Number of a subscription's buckets; 0 in a group that does not divide by buckets.
    pub(crate) fn buckets_of(&self, subscription: SubscriptionId) -> u32 {
        match self.member(subscription) {
            Some((one, _)) if one.is_balanced() => {
                let owners = one.owners.iter();
                to_u32(owners.filter(|owner| **owner == Some(subscription)).count())
            }
            _ => 0,
        }
    }

    /// The rules for every source.
    pub(crate) fn rules(&self) -> Rules {
        let mut each = Vec::new();
        self.each_rule(|rule, _| each.push(rule));
        Rules {
            each,
            seed: self.seed,
            verifier: self.limits.verifier(),
            flows: self.flow_settings(),
        }
    }

    /// The packets that this subscription gets under these rules.
    pub(crate) fn share(&self, subscription: SubscriptionId) -> Option<Share> {
        let (one, member) = self.member(subscription)?;
        let is_shared = one.is_balanced() || one.group.division == Division::Lanes;
        let mut rule = Err(member.no_bit.clone());
        let mut index = 0;
        self.each_rule(|_, of| {
            if member.bit.is_some() && of.contains(&subscription) {
                rule = Ok(index);
            }
            index += 1;
        });
        if is_shared && !member.own.takes_everything() {
            rule = Err(NoRule::Balanced);
        } else if let Some(reason) = &member.not_in_source {
            rule = Err(NoRule::TooMuchWork(reason.clone()));
        }
        Some(Share {
            mask: member.mask(),
            group: one.group_mask(),
            marks: member.marks,
            filter: one.group.filter.program().and(&member.own)?,
            has_flow_rules: self.wants_table(),
            rule,
        })
    }

    /// Calls `each` for every rule and the subscriptions that the rule is for.
    fn each_rule(&self, mut each: impl FnMut(Rule, &[SubscriptionId])) {
        for one in &self.groups {
            one.each_rule(&mut each);
        }
        let rest = self.groups.iter().flat_map(|one| {
            let without = one.members.iter().filter(|member| member.bit.is_none());
            without.map(|member| (&one.group, member))
        });
        let rest: Vec<_> = rest.collect();
        let everything = Rule::everything(1 << OWN_BITS);
        match &rest[..] {
            [] => {}
            // One reader: the source captures only what the reader wants. The reader still runs its
            // filter, since other readers may attach.
            [(group, member)] => {
                let rule = Rule {
                    filter: member.filter_in_source(group.filter.program()),
                    ..everything
                };
                each(rule, &[member.subscription]);
            }
            several => {
                let subscriptions: Vec<_> = several
                    .iter()
                    .map(|(_, member)| member.subscription)
                    .collect();
                each(everything, &subscriptions);
            }
        }
    }
}

impl Member {
    pub(crate) fn new(
        subscription: SubscriptionId,
        user: Option<u32>,
        own: Program,
        delivery: Delivery,
    ) -> Self {
        Member {
            subscription,
            user,
            filter_owner: user.map(FilterOwner::User),
            is_guest: false,
            bit: None,
            no_bit: NoRule::NoBit,
            own,
            is_private: delivery == Delivery::Private,
            not_in_source: None,
            has_left: false,
            cutoff: None,
            marks: 0,
        }
    }

    /// The member that marks packets with these bits.
    pub(crate) fn marking(self, marks: u64) -> Self {
        Member { marks, ..self }
    }

    /// The member with this cut-off of every flow.
    pub(crate) fn cut_off(self, cutoff: Option<CutOff>) -> Self {
        Member { cutoff, ..self }
    }

    /// The member's filter and flow rules are a guest's, for which the process `pid` asks.
    pub(crate) fn of_guest(self, pid: i32) -> Self {
        let owner = self.filter_owner.unwrap_or(FilterOwner::Guest(pid));
        Member {
            filter_owner: Some(owner),
            is_guest: true,
            ..self
        }
    }

    fn mask(&self) -> u64 {
        1 << self.bit.unwrap_or(OWN_BITS)
    }

    /// Whether the source runs the subscription's own filter.
    fn has_rule(&self) -> bool {
        self.not_in_source.is_none() && !self.own.takes_everything()
    }

    /// The filter that the source runs for this member of a group.
    fn filter_in_source(&self, group: &Program) -> Program {
        match self.not_in_source {
            // Refused before if it does not fit: see `GroupMembers::admit`.
            None => group.and(&self.own).unwrap_or_else(Program::everything),
            Some(_) => group.clone(),
        }
    }
}

impl GroupMembers {
    fn is_balanced(&self) -> bool {
        *self.group.division.balance() != Balance::Everyone
    }

    /// Whether the members' own filters are rules of the source.
    fn gives_rules(&self) -> bool {
        !self.is_balanced() && self.group.division != Division::Lanes
    }

    /// Decides where a new filter runs: in the source beside the others, or elsewhere for the returned
    /// reason.
    fn admit(
        &self,
        limits: &Limits,
        others: Option<FilterTimes>,
        own: &Program,
        is_private: bool,
    ) -> Result<Option<TooMuchWork>, Refused> {
        let bad = |why| Refused::new(Refusal::BadFilter, why);
        if self.group.by_rule && !own.takes_everything() {
            let group = &self.group.name;
            return Err(bad(format!(
                "rules of other readers choose the packets of group \"{group}\": read it without a filter"
            )));
        }
        let both = self.group.filter.program().and(own).ok_or_else(|| {
            let group = &self.group.name;
            bad(format!(
                "the filter is too long together with that of group \"{group}\""
            ))
        })?;
        if is_private {
            limits.check_alone(&both).map_err(|work| {
                bad(format!(
                    "the hub does not run this filter for private delivery: {work}; shared delivery lets \
                     the reader run it"
                ))
            })?;
        }
        if own.takes_everything() || !self.gives_rules() {
            return Ok(None);
        }
        Ok(limits.check(&both, others).err())
    }

    /// Index of a subscription among the members.
    fn position(&self, subscription: SubscriptionId) -> Option<usize> {
        let mut members = self.members.iter();
        members.position(|member| member.subscription == subscription)
    }

    fn each_rule(&self, each: &mut impl FnMut(Rule, &[SubscriptionId])) {
        let members: Vec<_> = self.members.iter().filter(|m| m.bit.is_some()).collect();
        let subscriptions =
            |of: &[&Member]| -> Vec<SubscriptionId> { of.iter().map(|m| m.subscription).collect() };
        let group = self.group.filter.program().clone();
        if self.is_balanced() {
            if !members.is_empty() {
                let balance = self.group.division.balance().clone();
                let rule = Rule {
                    filter: group,
                    balance,
                    members: self.masks.clone(),
                };
                each(rule, &subscriptions(&members));
            }
            return;
        }
        let by_lanes = self.group.division == Division::Lanes;
        let (plain, own): (Vec<&Member>, Vec<&Member>) =
            members.into_iter().partition(|m| by_lanes || !m.has_rule());
        if !plain.is_empty() {
            let mask = plain.iter().fold(0, |mask, member| mask | member.mask());
            let rule = Rule {
                filter: group,
                ..Rule::everything(mask)
            };
            each(rule, &subscriptions(&plain));
        }
        for member in own {
            let rule = Rule {
                filter: member.filter_in_source(self.group.filter.program()),
                ..Rule::everything(member.mask())
            };
            each(rule, &[member.subscription]);
        }
    }

    fn new_masks(&self) -> BucketMasks {
        let count = self.members.len().max(1);
        let owner = |bucket: usize| match self.group.division.balance() {
            // The members take turns.
            Balance::RoundRobin => Some(bucket % count),
            Balance::Vlan => Some(spread(bucket) * count / BUCKETS),
            _ => self.owners[bucket].and_then(|owner| self.position(owner)),
        };
        let mask = |bucket| {
            let member = owner(bucket).and_then(|at| self.members.get(at));
            member.map_or(0, Member::mask) | self.group_mask()
        };
        BucketMasks::new(mask)
    }

    /// Bit of all packets of a balanced group, or 0.
    fn group_mask(&self) -> u64 {
        self.bit.map_or(0, |bit| 1 << bit)
    }

    /// Gives every bucket an owner and moves as few buckets as possible.
    fn share_out(&mut self) {
        if !self.is_balanced() {
            return;
        }
        let count = self.members.len();
        let least = BUCKETS.checked_div(count).unwrap_or(0);
        let extra = BUCKETS.checked_rem(count).unwrap_or(0);
        let due =
            |(at, member): (usize, &Member)| (member.subscription, least + usize::from(at < extra));
        let mut due: Vec<_> = self.members.iter().enumerate().map(due).collect();
        for owner in &mut self.owners {
            let mut left = due.iter_mut().filter(|(_, left)| *left > 0);
            match left.find(|(member, _)| Some(*member) == *owner) {
                Some((_, left)) => *left -= 1,
                None => *owner = None,
            }
        }
        let mut lacking = due
            .into_iter()
            .flat_map(|(member, left)| std::iter::repeat_n(member, left));
        for owner in self.owners.iter_mut().filter(|owner| owner.is_none()) {
            *owner = lacking.next();
        }
        self.masks = self.new_masks();
    }
}

/// Puts neighbouring buckets far apart: VLANs have neighbouring numbers, or numbers in equal steps.
fn spread(bucket: usize) -> usize {
    /// Odd, and the number of buckets divided by the golden ratio.
    const STEP: usize = 1267;
    bucket * STEP % BUCKETS
}

#[cfg(test)]
mod tests;
