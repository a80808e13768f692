// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether the server accepts a further connection.
//!
//! A fixed limit per user would let a few users take all connections together, or waste most of them when there are few
//! users. So a user's limit falls with what is left: a quarter of it.
//!
//! Invariants
//! - Connections of ordinary users never take the last sixteenth of all connections, which is for root
//!   and the hub's own user.
//! - However many connections other users have, a user that may attach to a group gets one, as long as
//!   these users are fewer than half of the limit: a user may take a further connection only while it
//!   has fewer than a quarter of the free ones.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::limits::Limits;

/// Relation of a connection's user to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserClass {
    /// Root or the hub's own user.
    Own,
    /// May attach to at least one group, or see the status.
    Member,
    /// May do neither.
    Stranger,
}

/// Numbers of connections.
#[derive(Debug, Default)]
pub(super) struct Occupancy {
    all: usize,
    ordinary: usize,
    strangers: usize,
    by_user: HashMap<u32, usize>,
}

/// The reason why the server refuses a connection; the message is for its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConnectionRefusal {
    #[error("the hub has {limit} connections (limits.connections): end one")]
    Full { limit: usize },
    #[error("user {uid} has {count} connections (limits.connections_per_user): end one")]
    PerUser { uid: u32, count: usize },
    #[error(
        "users who may attach to no group have {count} connections (limits.connections_of_strangers): \
         ask the hub's owner to add user {uid} to a group"
    )]
    Strangers { uid: u32, count: usize },
    #[error(
        "user {uid} has {count} connections, more than a quarter of the {left} left of {limit} \
         (limits.connections): end one"
    )]
    Quarter {
        uid: u32,
        count: usize,
        left: usize,
        limit: usize,
    },
}

impl Occupancy {
    /// Counts these connections.
    pub(super) fn from_connections(connections: impl Iterator<Item = (u32, UserClass)>) -> Self {
        let mut occupancy = Occupancy::default();
        for (uid, class) in connections {
            occupancy.all += 1;
            occupancy.ordinary += usize::from(class != UserClass::Own);
            occupancy.strangers += usize::from(class == UserClass::Stranger);
            *occupancy.by_user.entry(uid).or_default() += 1;
        }
        occupancy
    }

    /// Accepts a further connection of this user.
    pub(super) fn admit(
        &self,
        limits: &Limits,
        uid: u32,
        class: UserClass,
    ) -> Result<(), ConnectionRefusal> {
        let count = self.by_user.get(&uid).copied().unwrap_or(0);
        let number = |limit: NonZeroU32| limit.get().try_into().unwrap_or(usize::MAX);
        let limit: usize = number(limits.connections);
        let max_strangers = number(limits.connections_of_strangers);
        let left = (limit - limit / 16).saturating_sub(self.ordinary);
        let left = left.min(limit.saturating_sub(self.all));
        match class {
            UserClass::Own if self.all < limit => Ok(()),
            UserClass::Own => Err(ConnectionRefusal::Full { limit }),
            _ if count >= number(limits.connections_per_user) => {
                Err(ConnectionRefusal::PerUser { uid, count })
            }
            UserClass::Stranger if self.strangers >= max_strangers.min(left) => {
                let count = self.strangers;
                Err(ConnectionRefusal::Strangers { uid, count })
            }
            UserClass::Member if count >= left.div_ceil(4) => Err(ConnectionRefusal::Quarter {
                uid,
                count,
                left,
                limit,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 10_000;

    /// Opens connections of these users in turn until the hub refuses each of them.
    fn fill(users: &[(u32, UserClass)]) -> Vec<(u32, UserClass)> {
        let limits = Limits::default();
        let mut open = Vec::new();
        for _ in 0..MANY {
            let before = open.len();
            for (uid, class) in users {
                let occupancy = Occupancy::from_connections(open.iter().copied());
                if occupancy.admit(&limits, *uid, *class).is_ok() {
                    open.push((*uid, *class));
                }
            }
            if open.len() == before {
                return open;
            }
        }
        panic!("there is no limit")
    }

    fn admit(
        open: &[(u32, UserClass)],
        uid: u32,
        class: UserClass,
    ) -> Result<(), ConnectionRefusal> {
        Occupancy::from_connections(open.iter().copied()).admit(&Limits::default(), uid, class)
    }

    #[test]
    fn one_user_gets_its_limit_and_the_refusal_names_it() {
        let open = fill(&[(1000, UserClass::Member)]);
        assert_eq!(open.len(), 64);
        let refusal = admit(&open, 1000, UserClass::Member)
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("limits.connections_per_user"), "{refusal}");
    }

    #[test]
    fn many_users_and_strangers_together_leave_room_for_another_user_and_for_root() {
        for hogs in [8, 64, 200] {
            let mut users: Vec<_> = (1000..1000 + hogs)
                .map(|uid| (uid, UserClass::Member))
                .collect();
            users.extend((9000..9100).map(|uid| (uid, UserClass::Stranger)));
            let open = fill(&users);
            assert_eq!(admit(&open, 1, UserClass::Member), Ok(()), "{hogs} users");
            assert_eq!(admit(&open, 0, UserClass::Own), Ok(()), "{hogs} users");
            let refusal = admit(&open, 9999, UserClass::Stranger)
                .unwrap_err()
                .to_string();
            assert!(
                refusal.contains("limits.connections_of_strangers"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn where_members_have_all_connections_strangers_get_none_and_root_gets_one() {
        let members: Vec<_> = (1000..1600).map(|uid| (uid, UserClass::Member)).collect();
        let open = fill(&members);
        assert_eq!(open.len(), 512 - 512 / 16);
        assert!(admit(&open, 9999, UserClass::Stranger).is_err());
        assert_eq!(admit(&open, 0, UserClass::Own), Ok(()));
    }

    #[test]
    fn root_gets_every_connection_but_not_more() {
        let open = fill(&[(0, UserClass::Own)]);
        assert_eq!(open.len(), 512);
        let refusal = admit(&open, 0, UserClass::Own).unwrap_err().to_string();
        assert!(refusal.contains("(limits.connections)"), "{refusal}");
        assert!(admit(&open, 1, UserClass::Member).is_err());
    }
}
