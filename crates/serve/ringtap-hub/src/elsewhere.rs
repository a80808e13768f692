// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of a hub whose sources are classified elsewhere: those of a guest act on the host.
//!
//! What is withheld there reaches no reader of this hub. So at most one reader, the *owner*, has rules or a cut-off, and
//! while it has them it is alone in its group.
//!
//! Invariants
//! - With an owner, no other reader can attach; beside other readers, none becomes the owner.
//! - The rules end with the owner's subscription.

use std::sync::Arc;

use ringtap_ipc::protocol::{Refusal, Refused, Reply, Request};
use ringtap_ipc::subscription::{SubscriptionId, SubscriptionRequest};

use crate::answer::Responder;
use crate::control::HubControl;
use crate::subscribers::without_rules;

/// Takes the answer to a request for flow rules, from any thread.
pub type FlowAnswer = Box<dyn FnOnce(Result<Reply, Refused>) + Send>;

/// Has the flow rules of a hub's readers in place of the hub. Its calls wait for nothing.
pub trait RulesElsewhere: Send + Sync {
    /// Carries out a request of a reader. `reader` of the request is absent, or any number where another program
    /// of the reader's user asks.
    fn request(&self, request: Request, answer: FlowAnswer);

    /// From now on the rules are those of this reader, or of none: those of the reader before end.
    fn set_owner(&self, owner: Option<u64>);
}

/// The place of the rules, and their owner.
pub(crate) struct Elsewhere {
    rules: Arc<dyn RulesElsewhere>,
    owner: Option<SubscriptionId>,
}

impl Elsewhere {
    pub(crate) fn new(rules: Arc<dyn RulesElsewhere>) -> Self {
        Elsewhere { rules, owner: None }
    }

    /// Makes a reader the owner, which is alone in its group.
    pub(crate) fn own(&mut self, id: SubscriptionId) {
        if self.owner != Some(id) {
            self.owner = Some(id);
            self.rules.set_owner(Some(id.0));
        }
    }
}

impl HubControl {
    /// Refuses a reader from which the owner's rules would withhold packets, and a cut-off that would do so to others.
    pub(crate) fn check_rules_elsewhere(
        &self,
        request: &SubscriptionRequest,
    ) -> Result<(), Refused> {
        let Some(elsewhere) = &self.elsewhere else {
            return Ok(());
        };
        let group = &request.group;
        if let Some(owner) = elsewhere.owner {
            let of = self.subscribers.all.get(&owner);
            let name = of.map_or("another", |one| &one.name);
            let pid = of.map_or(0, |one| one.peer.pid);
            let message = format!(
                "{group}: the reader {name} (process {pid}) has flow rules or a cut-off, which hold for all of this \
                 virtual machine's readers of the group: end it, or give the virtual machine another group"
            );
            return Err(Refused::new(Refusal::TooMuch, message));
        }
        let mut groups = self.membership.groups();
        let members = groups.find(|(one, _)| one.name == *group);
        if request.cutoff.is_some() && members.is_some_and(|(_, members)| members > 0) {
            return Err(not_alone(group));
        }
        Ok(())
    }

    /// Passes a reader's request for flow rules on.
    pub(crate) fn ask_elsewhere(
        &mut self,
        id: SubscriptionId,
        request: Request,
        responder: Responder<Reply>,
    ) {
        let is_alone = self.membership.readers_beside(id) == 0;
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        match &request {
            Request::SetRules { .. } if is_alone => elsewhere.own(id),
            Request::SetRules { .. } => {
                let of = self.subscribers.all.get(&id);
                responder.send(Err(not_alone(of.map_or("", |one| &one.group))));
                return;
            }
            // Of several readers none has rules; all have those of the group, in the hub's file elsewhere.
            Request::Rules { .. } => {}
            _ if is_alone => {}
            _ => {
                responder.send(Ok(without_rules(&request)));
                return;
            }
        }
        let answer = move |answer: Result<Reply, Refused>| {
            responder.send(answer.map(|reply| as_own(reply, id)));
        };
        elsewhere.rules.request(request, Box::new(answer));
    }

    /// The owner has left: its rules end.
    pub(crate) fn end_rules_elsewhere(&mut self, id: SubscriptionId) {
        if let Some(elsewhere) = &mut self.elsewhere
            && elsewhere.owner == Some(id)
        {
            elsewhere.owner = None;
            elsewhere.rules.set_owner(None);
        }
    }
}

/// Rules that some reader has elsewhere are those of this one.
fn as_own(reply: Reply, id: SubscriptionId) -> Reply {
    match reply {
        Reply::Rules { mut rules, more } => {
            let readers = rules.iter_mut().filter_map(|rule| rule.reader.as_mut());
            readers.for_each(|reader| *reader = id.0);
            Reply::Rules { rules, more }
        }
        other => other,
    }
}

fn not_alone(group: &str) -> Refused {
    let message = format!(
        "{group} has other readers in this virtual machine, and flow rules and cut-offs hold for all of its readers of \
         a group: give this program a group of its own (`--group` of `ringtap vm attach`)"
    );
    Refused::new(Refusal::TooMuch, message)
}
