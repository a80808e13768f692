// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a group: filter, division, delivery, limits, access.

use ringtap_filter::flow::{CutOff, FlowRule};
use ringtap_filter::{FlowSelector, Program};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{Delivery, Division, Refusal, Refused};
use ringtap_pool::distributor::Policy;

/// Users and groups that may attach. Root and the hub's own user always may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    /// User ids that may attach.
    pub uids: Vec<u32>,
    /// Group ids that may attach; a user's supplementary groups count.
    pub gids: Vec<u32>,
}

impl AccessList {
    /// Whether the process `peer` may attach to a hub that runs as `hub_uid`.
    pub fn allows(&self, peer: &Peer, hub_uid: u32) -> bool {
        peer.uid == 0
            || peer.uid == hub_uid
            || self.uids.contains(&peer.uid)
            || peer.gids.iter().any(|gid| self.gids.contains(gid))
    }
}

/// Where the user of a hub admits a user to a group, for those who are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdmissionOption {
    /// Option or file of `ringtap hub`.
    #[default]
    Hub,
    /// Option of `ringtap guest`.
    Guest,
}

impl AdmissionOption {
    /// Advice on admitting a user to a group.
    pub(crate) fn advice(self, group: &str, uid: u32) -> String {
        match self {
            AdmissionOption::Hub => format!(
                "add it to the group's users (`-g {group}:users={uid}`, or `users` in hub.toml)"
            ),
            AdmissionOption::Guest => format!(
                "start the agent in this virtual machine with `ringtap guest --users {uid}`"
            ),
        }
    }
}

/// A group's filter: the program, and its text for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFilter {
    text: String,
    program: Program,
}

impl GroupFilter {
    /// A filter: its text, and the program that was compiled from it.
    ///
    /// Readers take an empty text for a group that grants every packet. So a program that selects packets gets a text
    /// if it has none.
    #[must_use]
    pub fn new(text: &str, program: Program) -> Self {
        let is_missing = text.trim().is_empty() && !program.takes_everything();
        let text = if is_missing {
            "a filter without a text"
        } else {
            text
        };
        GroupFilter {
            text: text.to_owned(),
            program,
        }
    }

    /// The text for readers; empty only if the filter takes everything.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// Takes everything.
impl Default for GroupFilter {
    fn default() -> Self {
        Program::everything().into()
    }
}

impl From<Program> for GroupFilter {
    fn from(program: Program) -> Self {
        GroupFilter::new("", program)
    }
}

/// Readers that share the traffic of one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name that readers use: `hub:NAME`.
    pub name: String,
    /// The group's filter.
    pub filter: GroupFilter,
    /// How traffic is divided between members.
    pub division: Division,
    /// Offload threshold of a group that divides lanes: a member that holds more than this percentage
    /// of a lane's chunks leaves further chunks to the least busy member.
    pub offload_percent: Option<u8>,
    /// How packets reach the members.
    pub delivery: Delivery,
    /// Cut-off of every flow, for all members.
    pub cutoff: Option<CutOff>,
    /// Flow rules, for all members.
    pub rules: Vec<FlowRule<FlowSelector>>,
    /// The group gets the packets that rules of readers in other groups give to it.
    pub by_rule: bool,
    /// Policy for a reader past its credit.
    pub policy: Policy,
    /// Chunks of one lane that a reader may hold; absent: all but a reserve.
    pub credit_chunks: Option<u32>,
    /// Bytes of a reader's private pool.
    pub private_pool_bytes: u64,
    /// Most readers at one time.
    pub max_members: u32,
    /// Largest watermark that a reader may ask for, in packets.
    pub max_watermark_packets: u32,
    /// Users that may attach.
    pub access: AccessList,
    /// How others are admitted.
    pub admission: AdmissionOption,
}

impl Group {
    /// Whether members of this group get what members of the other get.
    pub(crate) fn divides_like(&self, other: &Group) -> bool {
        let terms = |group: &Group| Group {
            credit_chunks: None,
            cutoff: None,
            rules: Vec::new(),
            max_members: 0,
            max_watermark_packets: 0,
            policy: other.policy,
            access: AccessList::default(),
            ..group.clone()
        };
        terms(self) == terms(other)
    }

    /// The refusal of a request for more than this group allows.
    pub(crate) fn too_much(&self, what: &str, asked: u32, allowed: u32) -> Refused {
        let group = &self.name;
        Refused::new(
            Refusal::TooMuch,
            format!("{what}: {asked} is more than the {allowed} that group \"{group}\" allows"),
        )
    }

    /// A group of this name that gives every packet to every member.
    pub fn new(name: impl Into<String>) -> Self {
        Group {
            name: name.into(),
            filter: GroupFilter::default(),
            division: Division::BROADCAST,
            offload_percent: None,
            delivery: Delivery::Shared,
            cutoff: None,
            rules: Vec::new(),
            by_rule: false,
            policy: Policy::DropNewest,
            credit_chunks: None,
            private_pool_bytes: 32 << 20,
            max_members: 256,
            max_watermark_packets: 100_000,
            access: AccessList::default(),
            admission: AdmissionOption::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_for_less_than_everything_has_a_text() {
        let nothing = Program::from_entries(&[6]).unwrap();
        assert_eq!(GroupFilter::new("", Program::everything()).text(), "");
        assert_eq!(GroupFilter::new("udp", nothing.clone()).text(), "udp");
        assert_eq!(
            GroupFilter::new(" ", nothing).text(),
            "a filter without a text"
        );
    }

    #[test]
    fn a_refused_user_learns_the_option_of_the_program_that_serves_the_group() {
        let hub = AdmissionOption::Hub.advice("ids", 7);
        assert!(hub.contains("`-g ids:users=7`"), "{hub}");
        let guest = AdmissionOption::Guest.advice("ids", 7);
        assert!(guest.contains("`ringtap guest --users 7`"), "{guest}");
    }

    fn peer(uid: u32, gids: &[u32]) -> Peer {
        Peer {
            pid: 1,
            uid,
            gids: gids.to_vec(),
        }
    }

    #[test]
    fn by_default_root_and_the_hubs_own_user_may() {
        let access = AccessList::default();
        assert!(access.allows(&peer(0, &[0]), 1000));
        assert!(access.allows(&peer(1000, &[1000]), 1000));
        assert!(!access.allows(&peer(1001, &[1000, 0]), 1000));
    }

    #[test]
    fn listed_users_and_groups_may() {
        let access = AccessList {
            uids: vec![33],
            gids: vec![44],
        };
        assert!(access.allows(&peer(33, &[1]), 0));
        assert!(access.allows(&peer(34, &[1, 44]), 0));
        assert!(!access.allows(&peer(44, &[33]), 0));
    }
}
