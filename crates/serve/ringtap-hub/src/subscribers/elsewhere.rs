// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readers whose flow rules the hub passes on: see [`crate::elsewhere`].

use ringtap_ipc::protocol::{Refusal, Refused, Reply, Request};
use ringtap_ipc::subscription::{SubscriptionId, SubscriptionRequest};

use super::shunted::without_rules;
use crate::answer::Responder;
use crate::control::HubControl;

impl HubControl {
    /// Refuses a reader from which the owner's rules would withhold packets, and a cut-off that would do so to others.
    pub(super) fn check_rules_elsewhere(
        &self,
        request: &SubscriptionRequest,
    ) -> Result<(), Refused> {
        let Some(elsewhere) = &self.elsewhere else {
            return Ok(());
        };
        let group = &request.group;
        if let Some(owner) = elsewhere.owner() {
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
    pub(super) fn ask_elsewhere(
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

    /// A reader has left; its rules end if it is the owner.
    pub(super) fn end_rules_elsewhere(&mut self, id: SubscriptionId) {
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.leave(id);
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
