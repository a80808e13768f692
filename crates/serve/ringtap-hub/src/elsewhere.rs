// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of a hub whose sources are classified elsewhere: those of a guest act on the host.
//!
//! What is withheld there reaches no reader of this hub. So at most one reader, the *owner*, has rules or a cut-off,
//! and while it has them it is alone in its group.
//!
//! Invariants
//! - With an owner, no other reader can attach; beside other readers, none becomes the owner.
//! - The rules end with the owner's subscription.

use std::sync::Arc;

use ringtap_ipc::protocol::{Refused, Reply, Request};
use ringtap_ipc::subscription::SubscriptionId;

/// Takes the answer to a request for flow rules, from any thread.
pub type FlowAnswer = Box<dyn FnOnce(Result<Reply, Refused>) + Send>;

/// Handles the flow rules of a hub's readers instead of the hub. Its methods never wait.
pub trait RulesElsewhere: Send + Sync {
    /// Carries out a request of the owner. `reader` of the request is present if another program of the owner's user
    /// sent it; its number has no meaning here.
    fn request(&self, request: Request, answer: FlowAnswer);

    /// Makes this reader, or no reader, the owner of the rules. The rules of the previous owner end.
    fn set_owner(&self, owner: Option<u64>);
}

/// The handler of the rules, and the reader that owns them.
pub(crate) struct Elsewhere {
    pub(crate) rules: Arc<dyn RulesElsewhere>,
    owner: Option<SubscriptionId>,
}

impl Elsewhere {
    pub(crate) fn new(rules: Arc<dyn RulesElsewhere>) -> Self {
        Elsewhere { rules, owner: None }
    }

    pub(crate) fn owner(&self) -> Option<SubscriptionId> {
        self.owner
    }

    /// Makes a reader the owner, which is alone in its group.
    pub(crate) fn own(&mut self, id: SubscriptionId) {
        if self.owner != Some(id) {
            self.owner = Some(id);
            self.rules.set_owner(Some(id.0));
        }
    }

    /// The rules of a reader that has left end.
    pub(crate) fn leave(&mut self, id: SubscriptionId) {
        if self.owner == Some(id) {
            self.owner = None;
            self.rules.set_owner(None);
        }
    }
}
