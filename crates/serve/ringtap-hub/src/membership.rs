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
//! - In a balanced group with members, each bucket belongs to one member; the members' shares differ
//!   by one bucket at most.
#![forbid(unsafe_code)]

use std::sync::Arc;

use ringtap_filter::{BUCKETS, Balance, Place, Program, Rule, Rules};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_pool::number::{to_u32, to_usize};

use crate::group::{Division, Group};

/// Bits that belong to one subscription each; the one after them is shared.
const OWN_BITS: u32 = 63;
const NOT_IN_SOURCE: &str = "a member of a balanced group runs its own filter itself";
const NO_BIT_LEFT: &str = "there are more readers than bits in a packet's mask";

struct Member {
    subscription: SubscriptionId,
    /// `None`: the subscription shares the last bit.
    bit: Option<u32>,
    own: Program,
}

struct GroupMembers {
    group: Group,
    members: Vec<Member>,
    /// The bit of all packets of a balanced group that has members.
    bit: Option<u32>,
    /// The owner of each bucket.
    owners: [Option<SubscriptionId>; BUCKETS],
}

pub(crate) struct Membership {
    groups: Vec<GroupMembers>,
    used_bits: u64,
}

/// The packets that a subscription gets.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Bit of the subscription.
    pub(crate) mask: u64,
    /// Bit of the subscription's balanced group, or 0.
    pub(crate) group: u64,
    /// The filters of the group and the subscription, combined.
    pub(crate) filter: Program,
    /// Index of the subscription's rule in a source, or the reason why it has none.
    pub(crate) rule: Result<usize, &'static str>,
}

/// Why a subscription is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    NoGroup,
    Members(u32),
    NoBit,
    Filter,
}

impl Membership {
    pub(crate) fn new(groups: Vec<Group>) -> Self {
        let empty = |group| GroupMembers {
            group,
            members: Vec::new(),
            bit: None,
            owners: [None; BUCKETS],
        };
        Membership {
            groups: groups.into_iter().map(empty).collect(),
            used_bits: 0,
        }
    }

    /// The groups, each with its number of members.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Group, usize)> {
        self.groups
            .iter()
            .map(|one| (&one.group, one.members.len()))
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
    pub(crate) fn join(
        &mut self,
        name: &str,
        subscription: SubscriptionId,
        own: Program,
    ) -> Result<(), Full> {
        let used_bits = self.used_bits;
        let mut free_bits = (0..OWN_BITS).filter(|bit| used_bits & (1 << bit) == 0);
        let one = self.groups.iter_mut().find(|one| one.group.name == name);
        let one = one.ok_or(Full::NoGroup)?;
        let bit = match one.members.first() {
            Some(buddy) if one.group.division == Division::Lanes => buddy.bit,
            _ => free_bits.next(),
        };
        let group_bit = match one.bit {
            None if one.is_balanced() => free_bits.next(),
            known => known,
        };
        if one.members.len() >= to_usize(one.group.most_members) {
            return Err(Full::Members(one.group.most_members));
        }
        if one.is_balanced() && (bit.is_none() || group_bit.is_none()) {
            return Err(Full::NoBit);
        }
        one.group.filter.and(&own).ok_or(Full::Filter)?;
        one.bit = group_bit;
        for bit in [bit, group_bit].into_iter().flatten() {
            self.used_bits |= 1 << bit;
        }
        one.members.push(Member {
            subscription,
            bit,
            own,
        });
        one.share_out();
        Ok(())
    }

    /// Removes a subscription; its buckets pass to the other members of its group.
    pub(crate) fn leave(&mut self, subscription: SubscriptionId) {
        for one in &mut self.groups {
            let Some(at) = one.position(subscription) else {
                continue;
            };
            let bit = one.members.remove(at).bit;
            let is_shared = one.members.iter().any(|member| member.bit == bit);
            let is_empty = one.members.is_empty();
            let group_bit = one.bit.take_if(|_| is_empty);
            let own_bit = bit.filter(|_| !is_shared);
            for bit in [own_bit, group_bit].into_iter().flatten() {
                self.used_bits &= !(1 << bit);
            }
            one.share_out();
        }
    }

    /// Changes a subscription's own filter; returns the old one.
    pub(crate) fn set_filter(
        &mut self,
        subscription: SubscriptionId,
        own: Program,
    ) -> Result<Program, Full> {
        for one in &mut self.groups {
            if let Some(at) = one.position(subscription) {
                one.group.filter.and(&own).ok_or(Full::Filter)?;
                return Ok(std::mem::replace(&mut one.members[at].own, own));
            }
        }
        Err(Full::NoGroup)
    }

    /// Number of a subscription's buckets; 0 in a group that does not divide by buckets.
    pub(crate) fn buckets_of(&self, subscription: SubscriptionId) -> u32 {
        let divides =
            |one: &GroupMembers| one.is_balanced() && one.group.division == Division::Packets;
        match self.member(subscription) {
            Some((one, _)) if divides(one) => {
                let owners = one.owners.iter();
                to_u32(owners.filter(|owner| **owner == Some(subscription)).count())
            }
            _ => 0,
        }
    }

    /// The rules for every source.
    pub(crate) fn rules(&self) -> Rules {
        let mut rules = Vec::new();
        self.each_rule(|rule, _| rules.push(rule));
        Rules(rules)
    }

    /// The packets that this subscription gets under these rules.
    pub(crate) fn share(&self, subscription: SubscriptionId) -> Option<Share> {
        let (one, member) = self.member(subscription)?;
        let is_shared = one.is_balanced() || one.group.division == Division::Lanes;
        let mut rule = Err(NO_BIT_LEFT);
        let mut index = 0;
        self.each_rule(|_, of| {
            if member.bit.is_some() && of.contains(&subscription) {
                rule = Ok(index);
            }
            index += 1;
        });
        if is_shared && !member.own.takes_everything() {
            rule = Err(NOT_IN_SOURCE);
        }
        Some(Share {
            mask: member.mask(),
            group: one.group_mask(),
            filter: one.group.filter.and(&member.own)?,
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
                let both = group.filter.and(&member.own);
                let rule = Rule {
                    filter: both.unwrap_or_else(Program::everything),
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
    fn mask(&self) -> u64 {
        1 << self.bit.unwrap_or(OWN_BITS)
    }
}

impl GroupMembers {
    fn is_balanced(&self) -> bool {
        self.group.balance != Balance::Everyone
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
        let group = self.group.filter.clone();
        if self.is_balanced() {
            if !members.is_empty() {
                let balance = self.group.balance.clone();
                let members_by_bucket = self.masks();
                let rule = Rule {
                    filter: group,
                    balance,
                    members: members_by_bucket,
                };
                each(rule, &subscriptions(&members));
            }
            return;
        }
        let by_lanes = self.group.division == Division::Lanes;
        let (plain, own): (Vec<&Member>, Vec<&Member>) = members
            .into_iter()
            .partition(|m| by_lanes || m.own.takes_everything());
        if !plain.is_empty() {
            let mask = plain.iter().fold(0, |mask, member| mask | member.mask());
            let rule = Rule {
                filter: group,
                ..Rule::everything(mask)
            };
            each(rule, &subscriptions(&plain));
        }
        for member in own {
            let both = self.group.filter.and(&member.own);
            let rule = Rule {
                filter: both.unwrap_or_else(Program::everything),
                ..Rule::everything(member.mask())
            };
            each(rule, &[member.subscription]);
        }
    }

    fn ids(&self) -> Vec<SubscriptionId> {
        self.members
            .iter()
            .map(|member| member.subscription)
            .collect()
    }

    fn masks(&self) -> Arc<[u64; BUCKETS]> {
        let mask = |subscription: &Option<SubscriptionId>| {
            let owner = subscription.and_then(|owner| self.position(owner));
            owner.map_or(0, |at| self.members[at].mask()) | self.group_mask()
        };
        Arc::new(self.owners.each_ref().map(mask))
    }

    /// Bit of all packets of a balanced group, or 0.
    fn group_mask(&self) -> u64 {
        self.bit.map_or(0, |bit| 1 << bit)
    }

    /// Gives every bucket an owner and moves as few buckets as possible.
    fn share_out(&mut self) {
        let members = self.ids();
        for owner in &mut self.owners {
            *owner = owner.filter(|owner| members.contains(owner));
        }
        let Some(least) = BUCKETS.checked_div(members.len()) else {
            return;
        };
        let extra = BUCKETS % members.len();
        let due = |at: usize| least + usize::from(at < extra);
        for (at, member) in members.iter().enumerate() {
            let own = self.owners.iter_mut();
            let own = own.filter(|owner| **owner == Some(*member));
            own.skip(due(at)).for_each(|surplus| *surplus = None);
        }
        for (at, member) in members.iter().enumerate() {
            let have = self.owners.iter().filter(|owner| **owner == Some(*member));
            let lacks = due(at).saturating_sub(have.count());
            let free = self.owners.iter_mut().filter(|owner| owner.is_none());
            free.take(lacks).for_each(|owner| *owner = Some(*member));
        }
    }
}

/// Where a subscription's filter runs, given the places that a source reported for its rules.
pub(crate) fn place(share: &Share, places: &[Place]) -> Place {
    match share.rule {
        Ok(rule) => places.get(rule).cloned().unwrap_or(Place::Source),
        Err(why) => Place::Reader(why.to_owned()),
    }
}

#[cfg(test)]
mod tests;
