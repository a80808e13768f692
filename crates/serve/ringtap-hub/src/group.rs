// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a group: filter, division, delivery, limits, access.

use ringtap_filter::{Balance, Headers, Program};
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{Refusal, Refused};
use ringtap_pool::distributor::Policy;

/// How packets reach the readers of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Readers read in place, and can see the whole pool of the source.
    #[default]
    Shared,
    /// Packets that pass a reader's filter are copied into a pool of the reader's own.
    Private,
}

/// Unit in which a group's traffic is divided between its readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Division {
    /// Packets, by the group's balance.
    #[default]
    Packets,
    /// Chunks: each lane has one owner among the readers (WireCAP's basic mode).
    Lanes,
}

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
    /// What admits a user to a group.
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

/// Readers that share the traffic of one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name that readers use: `hub:NAME`.
    pub name: String,
    /// The group's filter.
    pub filter: Program,
    /// The filter as the user wrote it.
    pub filter_text: String,
    /// Unit in which traffic is divided between members.
    pub division: Division,
    /// How packets are divided between members, if they are.
    pub balance: Balance,
    /// Offload threshold of a group that divides lanes: a member that holds more than this percentage
    /// of a lane's chunks leaves further chunks to the least busy member.
    pub offload_percent: Option<u8>,
    /// How packets reach the members.
    pub delivery: Delivery,
    /// What happens to a reader past its credit.
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
            filter: Program::everything(),
            filter_text: String::new(),
            division: Division::Packets,
            balance: Balance::Everyone,
            offload_percent: None,
            delivery: Delivery::Shared,
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

impl Delivery {
    /// The delivery's word in configurations and reports.
    pub fn word(self) -> &'static str {
        match self {
            Delivery::Shared => "shared",
            Delivery::Private => "private",
        }
    }
}

/// A policy's word in configurations and reports.
pub fn policy_word(policy: Policy) -> String {
    match policy {
        Policy::DropNewest => "drop".to_owned(),
        Policy::Sample { one_in } => format!("sample:{one_in}"),
        Policy::Cut { snap_bytes } => format!("cut:{snap_bytes}"),
        Policy::Block => "block".to_owned(),
    }
}

/// The policy of this word; `None` if there is none.
pub fn parse_policy(word: &str) -> Option<Policy> {
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    match word.split_once(':') {
        None if word == "drop" => Some(Policy::DropNewest),
        None if word == "block" => Some(Policy::Block),
        Some(("sample", text)) => number(text).map(|one_in| Policy::Sample { one_in }),
        Some(("cut", text)) => number(text).map(|snap_bytes| Policy::Cut { snap_bytes }),
        _ => None,
    }
}

/// The word for a group's division or balance, in configurations and reports.
pub fn division_word(group: &Group) -> String {
    match group.division {
        Division::Lanes => LANES.to_owned(),
        Division::Packets => balance_word(&group.balance),
    }
}

/// The word for [`Division::Lanes`].
pub const LANES: &str = "lanes";

/// A balance's word in configurations and reports.
pub fn balance_word(balance: &Balance) -> String {
    match balance {
        Balance::Everyone => "broadcast".to_owned(),
        Balance::Flow(Headers::Outer) => "flow".to_owned(),
        Balance::Flow(Headers::Inner) => "inner-flow".to_owned(),
        Balance::Address(Headers::Outer) => "address".to_owned(),
        Balance::Address(Headers::Inner) => "inner-address".to_owned(),
        Balance::Vlan => "vlan".to_owned(),
        Balance::RoundRobin => "round-robin".to_owned(),
        Balance::Program(object) => format!("program:{}", object.display()),
    }
}

/// The balance of this word; `None` if there is none.
pub fn parse_balance(word: &str) -> Option<Balance> {
    Some(match word {
        "broadcast" => Balance::Everyone,
        "flow" => Balance::Flow(Headers::Outer),
        "inner-flow" => Balance::Flow(Headers::Inner),
        "address" => Balance::Address(Headers::Outer),
        "inner-address" => Balance::Address(Headers::Inner),
        "vlan" => Balance::Vlan,
        "round-robin" => Balance::RoundRobin,
        other => Balance::Program(other.strip_prefix("program:")?.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_user_learns_the_option_of_the_program_that_serves_the_group() {
        let hub = AdmissionOption::Hub.advice("ids", 7);
        assert!(hub.contains("`-g ids:users=7`"), "{hub}");
        let guest = AdmissionOption::Guest.advice("ids", 7);
        assert!(guest.contains("`ringtap guest --users 7`"), "{guest}");
    }

    #[test]
    fn every_balance_has_one_word() {
        for word in [
            "broadcast",
            "flow",
            "inner-flow",
            "address",
            "inner-address",
            "vlan",
            "round-robin",
            "program:/tmp/steer.o",
        ] {
            assert_eq!(balance_word(&parse_balance(word).unwrap()), word);
        }
        assert_eq!(parse_balance("hash"), None);
    }

    #[test]
    fn every_policy_has_one_word() {
        for word in ["drop", "sample:8", "cut:96", "block"] {
            assert_eq!(policy_word(parse_policy(word).unwrap()), word);
        }
        for bad in ["sample:0", "sample", "cut:x", "dropnewest", ""] {
            assert_eq!(parse_policy(bad), None, "{bad}");
        }
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
