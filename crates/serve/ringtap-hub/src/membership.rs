// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members of groups, and the rules for the sources that follow from them.
//!
//! Invariants
//! - Each subscription has its own bit of the mask at every source. Subscriptions for which no bit
//!   is left share the last one, and run their filters themselves; if there are several, they get
//!   every packet. Members of a group that divides lanes share one bit: nobody knows the reader of
//!   a chunk while the chunk's packets are classified.
//! - A balanced group has one more bit, which all its packets have: a member counts packets with
//!   this bit but without its own as those of other members.
//! - Each bucket of a balanced group that has members belongs to one of them; shares differ by one
//!   bucket at most.
#![forbid(unsafe_code)]

use std::sync::Arc;

use ringtap_filter::{BUCKETS, Balance, Place, Program, Rule, Rules};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_pool::distributor::Buddies;
use ringtap_pool::number::{to_u32, to_usize};

use crate::group::{Division, Group};

/// Bits that belong to one subscription each; the one after them is shared.
const OWN_BITS: u32 = 63;
const NOT_IN_SOURCE: &str = "a member of a balanced group runs its own filter itself";
const NO_BIT_LEFT: &str = "there are more readers than bits in a packet's mask";

struct Member {
    subscription: SubscriptionId,
    /// `None`: it shares the last one.
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

/// All groups and their members.
pub(crate) struct Membership {
    groups: Vec<GroupMembers>,
    used_bits: u64,
}

/// What a subscription gets.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Its bit.
    pub(crate) mask: u64,
    /// The bit of its balanced group, or 0.
    pub(crate) group: u64,
    /// The program that says which packets are its own: its group's and its own.
    pub(crate) filter: Program,
    /// The rule that stands for it in a source, or why none does.
    pub(crate) rule: Result<usize, &'static str>,
}

/// Why there is no subscription.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Full {
    NoGroup,
    Members(u32),
    NoBit,
    Filter,
}

impl Membership {
    pub(crate) fn new(groups: Vec<Group>) -> Self {
        let subscriptions = |group| GroupMembers {
            group,
            members: Vec::new(),
            bit: None,
            owners: [None; BUCKETS],
        };
        Membership {
            groups: groups.into_iter().map(subscriptions).collect(),
            used_bits: 0,
        }
    }

    /// The groups with the number of their members.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Group, usize)> {
        self.groups
            .iter()
            .map(|subscriptions| (&subscriptions.group, subscriptions.members.len()))
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        let subscriptions = self
            .groups
            .iter()
            .find(|subscriptions| subscriptions.group.name == name)?;
        Some(&subscriptions.group)
    }

    /// With sleepers a member of this group shares chunks, if the group divides them.
    pub(crate) fn buddies(&self, name: &str) -> Option<Buddies> {
        let mut numbered = (0..).zip(&self.groups);
        let (number, subscriptions) =
            numbered.find(|(_, subscriptions)| subscriptions.group.name == name)?;
        (subscriptions.group.division == Division::Lanes).then_some(Buddies {
            group: number,
            offload_percent: subscriptions.group.offload_percent,
        })
    }

    /// Gives a subscription in a group.
    pub(crate) fn join(
        &mut self,
        name: &str,
        subscription: SubscriptionId,
        own: Program,
    ) -> Result<(), Full> {
        let used_bits = self.used_bits;
        let mut free_bits = (0..OWN_BITS).filter(|bit| used_bits & (1 << bit) == 0);
        let subscriptions = self
            .groups
            .iter_mut()
            .find(|subscriptions| subscriptions.group.name == name);
        let subscriptions = subscriptions.ok_or(Full::NoGroup)?;
        let bit = match subscriptions.members.first() {
            Some(buddy) if subscriptions.group.division == Division::Lanes => buddy.bit,
            _ => free_bits.next(),
        };
        let is_balanced = subscriptions.group.balance != Balance::Everyone;
        let group_bit = match subscriptions.bit {
            None if is_balanced => free_bits.next(),
            known => known,
        };
        if subscriptions.members.len() >= to_usize(subscriptions.group.most_members) {
            return Err(Full::Members(subscriptions.group.most_members));
        }
        if is_balanced && (bit.is_none() || group_bit.is_none()) {
            return Err(Full::NoBit);
        }
        subscriptions.group.filter.and(&own).ok_or(Full::Filter)?;
        subscriptions.bit = group_bit;
        for bit in [bit, group_bit].into_iter().flatten() {
            self.used_bits |= 1 << bit;
        }
        subscriptions.members.push(Member {
            subscription,
            bit,
            own,
        });
        subscriptions.share_out();
        Ok(())
    }

    /// Takes a subscription away; what it had goes to the other members.
    pub(crate) fn leave(&mut self, subscription: SubscriptionId) {
        for subscriptions in &mut self.groups {
            let Some(at) = subscriptions
                .members
                .iter()
                .position(|member| member.subscription == subscription)
            else {
                continue;
            };
            let bit = subscriptions.members.remove(at).bit;
            let is_shared = subscriptions.members.iter().any(|member| member.bit == bit);
            let is_empty = subscriptions.members.is_empty();
            let group_bit = subscriptions.bit.take_if(|_| is_empty);
            for bit in [bit.filter(|_| !is_shared), group_bit]
                .into_iter()
                .flatten()
            {
                self.used_bits &= !(1 << bit);
            }
            subscriptions.share_out();
        }
    }

    /// Changes a subscription's own filter; gives the one before.
    pub(crate) fn set_filter(
        &mut self,
        subscription: SubscriptionId,
        own: Program,
    ) -> Result<Program, Full> {
        for subscriptions in &mut self.groups {
            let found = subscriptions
                .members
                .iter_mut()
                .find(|member| member.subscription == subscription);
            if let Some(member) = found {
                subscriptions.group.filter.and(&own).ok_or(Full::Filter)?;
                return Ok(std::mem::replace(&mut member.own, own));
            }
        }
        Err(Full::NoGroup)
    }

    /// Buckets that are a subscription's own; 0 in a group that does not divide by buckets.
    pub(crate) fn buckets_of(&self, subscription: SubscriptionId) -> u32 {
        let has = |subscriptions: &&GroupMembers| subscriptions.ids().contains(&subscription);
        let subscriptions = self.groups.iter().find(has);
        let divided = subscriptions.filter(|subscriptions| {
            subscriptions.group.division == Division::Packets
                && subscriptions.group.balance != Balance::Everyone
        });
        let own = divided.map_or(0, |subscriptions| {
            let owners = subscriptions.owners.iter();
            owners.filter(|owner| **owner == Some(subscription)).count()
        });
        to_u32(own)
    }

    /// The rules for every source.
    pub(crate) fn rules(&self) -> Rules {
        let mut rules = Vec::new();
        self.each_rule(|rule, _| rules.push(rule));
        Rules(rules)
    }

    /// What this subscription gets under these rules.
    pub(crate) fn share(&self, subscription: SubscriptionId) -> Option<Share> {
        let (subscriptions, member) = self.groups.iter().find_map(|subscriptions| {
            let member = subscriptions
                .members
                .iter()
                .find(|member| member.subscription == subscription)?;
            Some((subscriptions, member))
        })?;
        let balanced = subscriptions.group.balance != Balance::Everyone
            || subscriptions.group.division == Division::Lanes;
        let mut rule = Err(NO_BIT_LEFT);
        let mut index = 0;
        self.each_rule(|_, of| {
            if member.bit.is_some() && of.contains(&subscription) {
                rule = Ok(index);
            }
            index += 1;
        });
        if balanced && !member.own.takes_everything() {
            rule = Err(NOT_IN_SOURCE);
        }
        Some(Share {
            mask: member.mask(),
            group: subscriptions.group_mask(),
            filter: subscriptions.group.filter.and(&member.own)?,
            rule,
        })
    }

    /// Calls `each` for every rule and the subscriptions it stands for.
    fn each_rule(&self, mut each: impl FnMut(Rule, &[SubscriptionId])) {
        for subscriptions in &self.groups {
            subscriptions.each_rule(&mut each);
        }
        let rest = self.groups.iter().flat_map(|subscriptions| {
            let without = subscriptions
                .members
                .iter()
                .filter(|member| member.bit.is_none());
            without.map(|member| (&subscriptions.group, member))
        });
        let rest: Vec<_> = rest.collect();
        let everything = Rule::everything(1 << OWN_BITS);
        match &rest[..] {
            [] => {}
            // As long as it is alone nothing need be captured that it does not want. It runs its
            // filter all the same: others may come.
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
    fn each_rule(&self, each: &mut impl FnMut(Rule, &[SubscriptionId])) {
        let members: Vec<_> = self.members.iter().filter(|m| m.bit.is_some()).collect();
        let subscriptions =
            |of: &[&Member]| -> Vec<SubscriptionId> { of.iter().map(|m| m.subscription).collect() };
        let group = self.group.filter.clone();
        if self.group.balance != Balance::Everyone {
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
            let member = self
                .members
                .iter()
                .find(|member| Some(member.subscription) == *subscription);
            member.map_or(0, Member::mask) | self.group_mask()
        };
        Arc::new(self.owners.each_ref().map(mask))
    }

    /// The bit that all packets of a balanced group have, or 0.
    fn group_mask(&self) -> u64 {
        self.bit.map_or(0, |bit| 1 << bit)
    }

    /// Gives every bucket an owner, moving as few as possible.
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

/// Where a subscription's filter runs, by what a source said of its rules.
pub(crate) fn place(share: &Share, places: &[Place]) -> Place {
    match share.rule {
        Ok(rule) => places.get(rule).cloned().unwrap_or(Place::Source),
        Err(why) => Place::Reader(why.to_owned()),
    }
}

#[cfg(test)]
mod tests;
