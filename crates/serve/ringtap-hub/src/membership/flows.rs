// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flow rules need to know of members: their bits, and the cut-offs of all flows.
//!
//! Invariants
//! - A table of flows that was wanted once stays until the hub ends, so that its counts go on.
//! - Once there is a table, a bit that becomes free is not used again before its rules are forgotten.

use ringtap_filter::flow::{CutOff, FlowSettings, MAX_CUTS, StandingCutOff};
use ringtap_ipc::protocol::{Division, Refusal, Refused};
use ringtap_ipc::subscription::SubscriptionId;

use super::{GroupMembers, Member, Membership};
use crate::answer::not_subscribed;
use crate::group::Group;
use crate::limits::FilterOwner;

/// Error text: a cut-off of one member would be that of all.
const OF_GROUP: &str = "the members of a balanced group have one cut-off: set that of the group";

/// Error text: the group has readers of others, which trust no guest.
const OF_DIVIDED: &str = "a virtual machine has no flow rules in a group that divides its traffic: they would be \
    those of all members; give it a group of its own";

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
            ..FlowSettings::default()
        })
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

    /// Refuses rules of a guest that would withhold packets from readers of others.
    pub(crate) fn check_rules_of_guest(&self, id: SubscriptionId) -> Result<(), Refused> {
        let (one, member) = self.member(id).ok_or_else(not_subscribed)?;
        if member.is_guest && one.group.division != Division::BROADCAST {
            return Err(Refused::new(Refusal::NotAllowed, OF_DIVIDED));
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
