// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of the rules: a reader attaches, leaves, changes its filter, sets the first flow rule, or rules for patterns.
//!
//! All sources load one set of rules at a time, on threads of their own. Changes that arrive
//! meanwhile form the next set. If a source refuses a set with several changes, each change is
//! loaded alone, to find the refused one.
//!
//! Invariants
//! - Each request gets one answer: when every source has put its set in force, or when a source
//!   has refused it and the membership is as before.
//! - The membership contains the changes of the set that is being loaded; of later changes, only the
//!   departures of readers.

use std::collections::VecDeque;

use ringtap_filter::Program;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{Refused, Reply, Request};
use ringtap_ipc::subscription::{Subscription, SubscriptionId, SubscriptionRequest, Wanted};

use crate::answer::Responder;
use crate::budgets::Charge;
use crate::membership::{PatternChange, ReaderPattern, Share};

/// A change of the rules, with the responder for its request.
pub(crate) enum Change {
    Attach {
        request: Box<SubscriptionRequest>,
        /// The reader's process.
        peer: Peer,
        responder: Responder<Subscription>,
    },
    /// Another filter of a subscription.
    Filter {
        id: SubscriptionId,
        filter: Program,
        responder: Responder<Vec<Wanted>>,
    },
    /// The sources get a table of flows, for a reader's first rules.
    Flows {
        id: SubscriptionId,
        request: Request,
        responder: Responder<Reply>,
    },
    /// Rules of a reader for patterns of flows.
    Patterns {
        id: SubscriptionId,
        change: PatternChange,
        responder: Responder<Reply>,
    },
}

/// What a change has replaced.
pub(super) enum Before {
    Filter(Program),
    /// Rules for patterns, and the answer once the new ones are in force.
    Patterns {
        rules: Vec<ReaderPattern>,
        reply: Reply,
    },
}

impl Change {
    /// A new subscription for a reader in this process.
    pub(crate) fn attach(request: SubscriptionRequest, responder: Responder<Subscription>) -> Self {
        Change::Attach {
            request: Box::new(request),
            peer: Peer::this_process(),
            responder,
        }
    }

    /// Answers the request with the reason of the refusal.
    pub(super) fn refuse(self, error: Refused) {
        // A reader that left needs no answer.
        match self {
            Change::Attach { responder, .. } => drop(responder.send(Err(error))),
            Change::Filter { responder, .. } => drop(responder.send(Err(error))),
            Change::Flows { responder, .. } | Change::Patterns { responder, .. } => {
                responder.send(Err(error));
            }
        }
    }
}

/// A change in the set of rules that is being loaded; the membership contains it.
pub(super) struct Applied {
    pub(super) change: Change,
    /// The new or changed subscription.
    pub(super) id: SubscriptionId,
    /// The charge for a new subscription.
    pub(super) charge: Option<Charge>,
    /// What the change has replaced.
    pub(super) before: Option<Before>,
    /// The packets that the subscription gets under this set of rules.
    pub(super) share: Option<Share>,
}

/// Waiting changes, and the changes in the set that is being loaded.
#[derive(Default)]
pub(crate) struct Changes {
    pub(super) waiting: VecDeque<Change>,
    pub(super) loading: Option<Vec<Applied>>,
    /// Number of rules in that set.
    pub(super) rule_count: usize,
    /// That set has a table of flows.
    pub(super) has_flows: bool,
    /// A reader left since the current rules were made.
    pub(super) are_outdated: bool,
    /// Number of waiting changes to load alone.
    pub(super) one_by_one: usize,
}

impl Changes {
    pub(crate) fn push(&mut self, change: Change) {
        self.waiting.push_back(change);
    }

    /// Marks the rules as outdated by the membership.
    pub(crate) fn outdate(&mut self) {
        self.are_outdated = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.loading.is_none()
    }
}
