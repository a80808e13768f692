// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flow rules need to know of members: their bits, and the cut-offs of all flows.
//!
//! Invariants
//! - A table of flows that was wanted once stays until the hub ends, so that its counts go on.
//! - Once there is a table, a bit that becomes free is not used again before its rules are forgotten.

use ringtap_filter::flow::{CutOff, FlowRule, FlowSettings, MAX_CUTS, StandingCutOff};
use ringtap_filter::{FlowSelector, GroupName};
use ringtap_ipc::protocol::{Division, Refusal, Refused};
use ringtap_ipc::subscription::SubscriptionId;

use super::{GroupMembers, Member, Membership, OWN_BITS};
use crate::answer::not_subscribed;
use crate::group::Group;
use crate::limits::FilterOwner;

/// Error text: a cut-off of one member would be that of all.
const OF_GROUP: &str = "the members of a balanced group have one cut-off: set that of the group";

/// Error text: rules act before a packet is given to a `by-rule` group, so its readers cannot withhold it.
const BY_RULE: &str = "rules of other readers choose the packets of this group: it has no flow rules and cut-offs of its own";

/// Refuses a rule that gives packets to a group that takes none by rules.
pub(crate) fn no_group(group: &GroupName) -> Refused {
    let message = format!(
        "there is no group \"{group}\" that gets packets by rules: start the hub with `-g {group}:by-rule`"
    );
    Refused::new(Refusal::BadRequest, message)
}

/// Error text: the rule of one member would withhold packets from all members, also on the host.
const OF_DIVIDED: &str = "a virtual machine has no flow rules in a group that divides its traffic: they would be \
    those of all members; give it a group of its own";

/// Error text: a guest could fill a group of the host, whose readers would lose packets.
const TO_HOST: &str = "a virtual machine gives packets to no group of the host";

/// The readers that have a rule together: one reader, or all of a group that divides its traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowMembers {
    /// Bit of the reader, or of its group: no other target has it.
    pub(crate) target: u32,
    /// Bits of all whose packets a rule withholds.
    pub(crate) bits: u64,
    /// Bit of the reader.
    pub(crate) own: u32,
    /// Bit that all packets of the reader's balanced group have.
    pub(crate) group: Option<u32>,
}

impl Membership {
    /// Settings of the table of flows; `None`: nothing needs one.
    pub(super) fn flow_settings(&self) -> Option<FlowSettings> {
        let (standing, wildcards) = (self.standing(), self.wildcards());
        let has_rules = |one: &GroupMembers| !one.group.rules.is_empty() && !one.members.is_empty();
        let is_needed = self.has_table
            || !standing.is_empty()
            || !wildcards.is_empty()
            || self.groups.iter().any(has_rules);
        is_needed.then(|| FlowSettings {
            capacity: self.limits.flows.get(),
            standing,
            wildcards,
            adds: self.adds(),
            ..FlowSettings::default()
        })
    }

    /// Bit of a group that gets packets by rules.
    pub(crate) fn by_rule_bit(&self, name: &GroupName) -> Option<u64> {
        let mut groups = self.by_rule_groups();
        groups.find_map(|(group, bit)| (group == *name).then_some(bit))
    }

    /// The groups that get packets by rules, and their bits.
    pub(crate) fn by_rule_groups(&self) -> impl Iterator<Item = (GroupName, u64)> {
        let is_open = |one: &&GroupMembers| !one.is_removed && one.group.by_rule;
        let groups = self.groups.iter().filter(is_open);
        groups.filter_map(|one| Some((one.group.name.parse().ok()?, 1 << one.by_rule_bit?)))
    }

    /// Bits of the groups that get packets by rules, and have readers, or readers that mark by them.
    fn adds(&self) -> u64 {
        let bits = |one: &GroupMembers| {
            let own = one.by_rule_bit.filter(|_| !one.members.is_empty());
            let marks = one.members.iter().map(|member| member.marks);
            marks.fold(own.map_or(0, |bit| 1 << bit), |all, bits| all | bits)
        };
        self.groups.iter().fold(0, |all, one| all | bits(one))
    }

    /// Gives groups that get packets by rules a bit for as long as the hub runs, so that rules stay right when readers
    /// come and go. Returns the names of those for which none is left.
    pub(super) fn assign_by_rule_bits(&mut self) -> Vec<String> {
        let mut without = Vec::new();
        let groups = self.groups.iter_mut();
        for one in groups.filter(|one| one.group.by_rule && one.by_rule_bit.is_none()) {
            // Readers take the lowest ones.
            let used_bits = self.used_bits;
            one.by_rule_bit = (0..OWN_BITS).rev().find(|bit| used_bits & (1 << bit) == 0);
            match one.by_rule_bit {
                Some(bit) => self.used_bits |= 1 << bit,
                None => without.push(one.group.name.clone()),
            }
        }
        without
    }

    /// Whether sources have, or get, a table of flows.
    pub(crate) fn wants_table(&self) -> bool {
        self.flow_settings().is_some()
    }

    /// The cut-offs of all flows, each with its members.
    fn standing(&self) -> Vec<StandingCutOff> {
        let mut all: Vec<StandingCutOff> = Vec::new();
        let mut add = |cut: CutOff, members: u64| match all.iter_mut().find(|one| one.cut == cut) {
            Some(one) => one.members |= members,
            None => all.push(StandingCutOff { members, cut }),
        };
        for one in self.groups.iter().filter(|one| !one.members.is_empty()) {
            if let Some(cut) = one.group.cutoff {
                let with_bit = one.members.iter().filter(|member| member.bit.is_some());
                add(
                    cut,
                    with_bit.fold(one.group_mask(), |all, it| all | it.mask()),
                );
            }
            for member in &one.members {
                if let (Some(cut), Some(_)) = (member.cutoff, member.bit) {
                    add(cut, member.mask());
                }
            }
        }
        all
    }

    /// Refuses a member whose cut-off the table cannot have. The member has joined.
    pub(super) fn check_cut_offs(&self, group: &Group, member: &Member) -> Result<(), Refused> {
        let refused = |message: &str| Err(Refused::new(Refusal::TooMuch, message));
        let divides = group.division != Division::BROADCAST;
        if member.cutoff.is_some() && divides {
            return Err(Refused::new(Refusal::BadRequest, OF_GROUP));
        }
        let has_cut = member.cutoff.or(group.cutoff).is_some() || !group.rules.is_empty();
        if has_cut && group.by_rule {
            return Err(Refused::new(Refusal::BadRequest, BY_RULE));
        }
        if has_cut && member.bit.is_none() {
            return refused(&format!(
                "no cut-off and no flow rule is possible: {}",
                member.no_bit
            ));
        }
        if self.standing().len() > MAX_CUTS {
            return refused(&too_many_cut_offs());
        }
        Ok(())
    }

    /// Refuses rules of a guest that would withhold packets from readers of others, or give them some.
    pub(crate) fn check_rules_of_guest(
        &self,
        id: SubscriptionId,
        rules: &[FlowRule<FlowSelector>],
    ) -> Result<(), Refused> {
        let (one, member) = self.member(id).ok_or_else(not_subscribed)?;
        let refused = |why: &str| Err(Refused::new(Refusal::NotAllowed, why));
        if !member.is_guest {
            return Ok(());
        }
        if one.group.division != Division::BROADCAST {
            return refused(OF_DIVIDED);
        }
        if rules.iter().any(|rule| rule.action.group().is_some()) {
            return refused(TO_HOST);
        }
        Ok(())
    }

    /// The user or guest whose rules are limited; `None` for root and the hub's own user.
    pub(crate) fn rule_owner(&self, id: SubscriptionId) -> Option<FilterOwner> {
        self.member(id).and_then(|(_, member)| member.filter_owner)
    }

    /// Number of other readers in the group of a subscription.
    pub(crate) fn readers_beside(&self, id: SubscriptionId) -> usize {
        let members = self.member(id).map(|(one, _)| &one.members);
        let stays = |member: &&Member| !member.has_left && member.subscription != id;
        members.map_or(0, |members| members.iter().filter(stays).count())
    }

    /// The bits of a subscription for flow rules.
    pub(crate) fn flow_members(&self, id: SubscriptionId) -> Result<FlowMembers, Refused> {
        let (one, member) = self.member(id).ok_or_else(not_subscribed)?;
        if one.group.by_rule {
            return Err(Refused::new(Refusal::BadRequest, BY_RULE));
        }
        let no_bit = || {
            let message = format!("this reader can have no flow rules: {}", member.no_bit);
            Refused::new(Refusal::TooMuch, message)
        };
        let own = member.bit.ok_or_else(no_bit)?;
        let bits = if one.is_balanced() {
            let members = one.members.iter();
            members.fold(one.group_mask(), |all, it| all | it.mask())
        } else {
            member.mask()
        };
        Ok(FlowMembers {
            target: one.bit.unwrap_or(own),
            bits,
            own,
            group: one.bit,
        })
    }
}

/// Why a table has no room for the cut-offs of all flows.
pub(crate) fn too_many_cut_offs() -> String {
    format!(
        "readers and groups of a hub have at most {MAX_CUTS} different cut-offs: use an equal one"
    )
}
