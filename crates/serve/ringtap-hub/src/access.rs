// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which users may attach to a group.

use ringtap_ipc::peer::Peer;

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

#[cfg(test)]
mod tests {
    use super::*;

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
