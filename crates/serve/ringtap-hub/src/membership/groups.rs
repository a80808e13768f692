// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups that change while the hub runs.

use ringtap_ipc::protocol::Division;

use super::{GroupMembers, Membership};
use crate::group::Group;

impl Membership {
    /// Replaces the groups; members stay, also those of removed groups. Returns what did not change. The users
    /// of a group always change.
    pub(crate) fn replace_groups(&mut self, groups: Vec<Group>) -> Vec<String> {
        for one in &mut self.groups {
            one.is_removed = groups.iter().all(|group| group.name != one.group.name);
        }
        let mut notes = Vec::new();
        for group in groups {
            let mut known = self
                .groups
                .iter_mut()
                .find(|one| one.group.name == group.name);
            if let Some(one) = &mut known {
                one.group.access.clone_from(&group.access);
            }
            let by_lanes = |group: &Group| group.division == Division::Lanes;
            match known {
                Some(one) if one.group.divides_like(&group) => one.group = group,
                None if !by_lanes(&group) => self.groups.push(GroupMembers::empty(group)),
                Some(one) if one.members.is_empty() && !by_lanes(&group) && !by_lanes(&one.group) => {
                    one.group = group;
                }
                Some(one) if !by_lanes(&group) && !by_lanes(&one.group) => notes.push(format!(
                    "group {}: unchanged: its filter, balance and delivery change only while it has no \
                     readers, and it has {}",
                    group.name,
                    one.members.len()
                )),
                _ => notes.push(format!(
                    "group {}: unchanged: a group that divides lanes changes with a restart of the hub",
                    group.name
                )),
            }
        }
        let without = self.assign_by_rule_bits();
        notes.extend(without.iter().map(|name| no_bit_left(name)));
        notes
    }
}

/// Note about a group to which rules can give no packets.
pub(super) fn no_bit_left(name: &str) -> String {
    format!("group {name} gets no packets: no bit of a packet's mask is left for it")
}
