// SPDX-License-Identifier: MIT OR Apache-2.0
//! Use of the hub's memory and subscriptions by each user.
//!
//! A [`Charge`] is made before the memory is allocated, and ends when the memory is free again, which
//! can be later than the subscription.
//!
//! Invariants
//! - The charges of one user, and those of all ordinary users, stay within the limits.
//! - A user's charges are at most as large as what is left for others, so that a few users cannot
//!   take everything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ringtap_ipc::memfd::Reclaimable;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::protocol::{Refusal, Refused};

use crate::limits::Limits;

/// Subscriptions and private memory of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    subscriptions: u32,
    private_bytes: u64,
}

/// Subscriptions and private memory of all ordinary users.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets {
    users: Arc<Mutex<HashMap<u32, Usage>>>,
}

/// A subscription and its private memory, until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    users: Arc<Mutex<HashMap<u32, Usage>>>,
    uid: u32,
    private_bytes: u64,
}

impl Budgets {
    /// Charges a user for a subscription with this private memory.
    pub(crate) fn charge(
        &self,
        limits: &Limits,
        uid: u32,
        private_bytes: u64,
    ) -> Result<Charge, Refused> {
        let too_much = |why| Err(Refused::new(Refusal::TooMuch, why));
        let mut users = lock(&self.users);
        let own = users.get(&uid).copied().unwrap_or_default();
        let have = own.subscriptions;
        if have >= limits.subscriptions_per_user.get() {
            return too_much(format!(
                "user {uid} has {have} subscriptions, counting ended ones whose memory is in use \
                 (limits.subscriptions_per_user): end one"
            ));
        }
        let all: u64 = users.values().map(|usage| usage.private_bytes).sum();
        let left = limits.private_memory.0.saturating_sub(all);
        let want = own.private_bytes.saturating_add(private_bytes);
        let exceeded = match want {
            _ if private_bytes == 0 => None,
            want if want > limits.private_memory_per_user.0 => Some("private_memory_per_user"),
            want if want > left => Some("private_memory"),
            _ => None,
        };
        if let Some(key) = exceeded {
            return too_much(format!(
                "private delivery: user {uid} has {} bytes of private pools, and {private_bytes} more \
                 exceed limits.{key}: end a private reader, or use a smaller private_pool",
                own.private_bytes
            ));
        }
        let usage = users.entry(uid).or_default();
        usage.subscriptions += 1;
        usage.private_bytes = want;
        Ok(Charge {
            users: Arc::clone(&self.users),
            uid,
            private_bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut users = lock(&self.users);
        if let Some(usage) = users.get_mut(&self.uid) {
            usage.subscriptions = usage.subscriptions.saturating_sub(1);
            usage.private_bytes = usage.private_bytes.saturating_sub(self.private_bytes);
            if *usage == Usage::default() {
                users.remove(&self.uid);
            }
        }
    }
}

/// Memory that a reader of an ordinary user maps, and the charge for it.
#[derive(Debug, Default)]
pub(crate) struct ReaderMemory {
    pub(crate) memory: Vec<Reclaimable>,
    pub(crate) charge: Option<Charge>,
}

impl ReaderMemory {
    /// Frees the memory, then ends the charge. The reader can make this wait.
    pub(crate) fn reclaim(self) {
        self.memory.into_iter().for_each(Reclaimable::reclaim);
        drop(self.charge);
    }

    /// As [`ReaderMemory::reclaim`], on a thread of its own.
    pub(crate) fn reclaim_elsewhere(self) {
        if self.charge.is_none() {
            return;
        }
        let thread = std::thread::Builder::new().name("reclaiming".into());
        if let Err(error) = thread.spawn(move || self.reclaim()) {
            tracing::error!("cannot free the memory of a detached reader: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: u64 = 32 << 20;

    /// Charges a user until it is refused.
    fn fill(budgets: &Budgets, uid: u32, bytes: u64) -> (Vec<Charge>, Refused) {
        let mut charges = Vec::new();
        loop {
            match budgets.charge(&Limits::default(), uid, bytes) {
                Ok(charge) => charges.push(charge),
                Err(refusal) => return (charges, refusal),
            }
        }
    }

    #[test]
    fn a_user_has_its_limits_and_gets_back_what_is_free_again() {
        let budgets = Budgets::default();
        let (mut private, refusal) = fill(&budgets, 1, POOL);
        assert_eq!(private.len(), 8);
        assert!(
            refusal
                .to_string()
                .contains("limits.private_memory_per_user"),
            "{refusal}"
        );
        let (shared, refusal) = fill(&budgets, 1, 0);
        assert_eq!(shared.len(), 64 - 8);
        assert!(
            refusal
                .to_string()
                .contains("limits.subscriptions_per_user"),
            "{refusal}"
        );
        private.pop();
        assert!(budgets.charge(&Limits::default(), 1, POOL).is_ok());
        drop((private, shared));
        assert!(lock(&budgets.users).is_empty());
    }

    #[test]
    fn a_few_users_leave_private_memory_for_another() {
        let budgets = Budgets::default();
        let hogs: Vec<_> = (1..5).map(|uid| fill(&budgets, uid, POOL)).collect();
        assert!(
            hogs[3].1.to_string().contains("limits.private_memory:"),
            "{}",
            hogs[3].1
        );
        assert!(budgets.charge(&Limits::default(), 5, POOL).is_ok());
    }
}
