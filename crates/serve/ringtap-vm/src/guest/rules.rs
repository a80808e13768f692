// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of the guest's readers, on their way to the host.
//!
//! The host withholds packets from the guest's one subscription, so that no reader in the guest gets them: the group's
//! hub lets only one reader at a time have rules.
//!
//! Invariants
//! - Rules of a reader that has left are not set: another reader may have its subscription.
//! - Each request gets one answer: the host's, or a refusal while there is no subscription at the host.
//! - At most [`MAX_WAITING`] requests wait.

use std::collections::VecDeque;
use std::sync::Arc;

use ringtap_filter::flow::CutOff;
use ringtap_hub::{FlowAnswer, RulesElsewhere};
use ringtap_ipc::protocol::{Refusal, Refused, Reply, Request};

use super::source::{GroupState, NO_HOST, SharedGroup};
use crate::messages::MAX_ENTRIES;

/// Most requests that wait for the agent's thread.
const MAX_WAITING: usize = 64;

/// A reader's request, of which a part may be done.
pub(super) struct RulesWork {
    /// What is left of the request, in reverse order.
    left: Request,
    /// Rules that were set or removed.
    done: u64,
    /// The reader that had the rules when it was asked.
    pub(super) owner: Option<u64>,
    answer: FlowAnswer,
}

/// Requests that wait for the agent's thread.
#[derive(Default)]
pub(super) struct WaitingRules(VecDeque<RulesWork>);

/// The rules of the group's subscription at the host.
#[derive(Default)]
pub(super) struct SubscriptionRules {
    pub(super) cutoff: Option<CutOff>,
    /// The reader that has rules there, or the cut-off.
    pub(super) owner: Option<u64>,
    /// The request of which a part waits for its answer.
    work: Option<RulesWork>,
}

/// Passes the rules of a group's readers on.
pub(super) struct GroupRules(pub(super) Arc<SharedGroup>);

impl RulesElsewhere for GroupRules {
    fn request(&self, request: Request, answer: FlowAnswer) {
        self.0.push_rules(RulesWork::new(request, answer));
    }

    fn set_owner(&self, owner: Option<u64>) {
        self.0.set_owner(owner);
    }
}

impl WaitingRules {
    /// Takes up a request; gives it back if too many wait.
    pub(super) fn push(&mut self, work: RulesWork) -> Option<RulesWork> {
        if self.0.len() >= MAX_WAITING {
            return Some(work);
        }
        self.0.push_back(work);
        None
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<RulesWork> {
        self.0.pop_front()
    }
}

impl RulesWork {
    fn new(mut request: Request, answer: FlowAnswer) -> Self {
        match &mut request {
            Request::SetRules { rules, .. } => rules.reverse(),
            Request::RemoveRules { flows, .. } => flows.reverse(),
            _ => {}
        }
        RulesWork {
            left: request,
            done: 0,
            owner: None,
            answer,
        }
    }

    /// Whether the request sets rules that the reader has no more right to.
    fn is_outdated(&self, owner: Option<u64>) -> bool {
        matches!(self.left, Request::SetRules { .. }) && self.owner != owner
    }

    /// The next part of the request, which fits into a message.
    fn next_part(&mut self) -> Request {
        fn part<T>(left: &mut Vec<T>) -> Vec<T> {
            let from = left.len().saturating_sub(MAX_ENTRIES);
            left.drain(from..).rev().collect()
        }
        match &mut self.left {
            Request::SetRules { reader, rules } => Request::SetRules {
                reader: *reader,
                rules: part(rules),
            },
            Request::RemoveRules { reader, flows } => Request::RemoveRules {
                reader: *reader,
                flows: part(flows),
            },
            other => other.clone(),
        }
    }

    /// Takes in the answer to a part; returns the work if something is left.
    fn take(mut self, reply: Reply) -> Option<Self> {
        let is_over = match &self.left {
            Request::SetRules { rules, .. } => rules.is_empty(),
            Request::RemoveRules { flows, .. } => flows.is_empty(),
            _ => true,
        };
        let reply = match reply {
            Reply::RulesDone { done, refused } => {
                self.done = self.done.saturating_add(done);
                if refused.is_none() && !is_over {
                    return Some(self);
                }
                let done = self.done;
                Reply::RulesDone { done, refused }
            }
            // The parts before are done.
            Reply::Refused(refused) if self.done > 0 => Reply::RulesDone {
                done: self.done,
                refused: Some(refused),
            },
            other => other,
        };
        (self.answer)(match reply {
            Reply::Refused(refused) => Err(refused),
            reply => Ok(reply),
        });
        None
    }

    /// Answers that the host cannot be asked.
    pub(super) fn refuse(self, text: &str) {
        let refused = Reply::Refused(Refused::new(Refusal::Failed, text));
        let _nothing_left = self.take(refused);
    }
}

impl SubscriptionRules {
    /// Whether they are not those of the reader that has rules now: they hold as long as the subscription.
    pub(super) fn are_others(&self, state: &GroupState) -> bool {
        self.cutoff != state.cutoff || (self.owner.is_some() && self.owner != state.owner)
    }

    /// The next part of the readers' requests.
    pub(super) fn next(&mut self, state: &mut GroupState) -> Option<Request> {
        let mut work = loop {
            let work = self.work.take().or_else(|| state.rules.pop())?;
            if !work.is_outdated(state.owner) {
                break work;
            }
            work.refuse("the reader has left");
        };
        let request = work.next_part();
        self.owner = state.owner;
        self.work = Some(work);
        Some(request)
    }

    /// Takes in the answer to a part.
    pub(super) fn answer(&mut self, reply: Reply) {
        self.work = self.work.take().and_then(|work| work.take(reply));
    }

    /// The host refuses a part.
    pub(super) fn refuse(&mut self, why: &str) {
        if let Some(work) = self.work.take() {
            work.refuse(why);
        }
    }

    /// There is no subscription: nobody has rules there, and all requests are refused.
    pub(super) fn refuse_all(&mut self, state: &mut GroupState) {
        (self.cutoff, self.owner) = (None, None);
        self.refuse(NO_HOST);
        while let Some(work) = state.rules.pop() {
            work.refuse(NO_HOST);
        }
    }
}

#[cfg(test)]
mod tests;
