// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of a guest's subscription, at the hub.
//!
//! Invariants
//! - Whatever number a guest names, the request is for its own subscription; other requests do not reach the hub.
//! - Of the guest's ends of flows, at most one answer of the hub is kept.
#![forbid(unsafe_code)]

use ringtap_client::{Control, ControlError};
use ringtap_ipc::protocol::{FlowEvent, Refusal, Refused, Reply, Request};
use ringtap_ipc::subscription::SubscriptionId;

use crate::messages::MAX_ENTRIES;

/// The flow rules of one subscription.
pub(super) struct GuestRules {
    /// Number of the subscription at the hub.
    own: SubscriptionId,
    /// Ends of flows that the guest has not asked for: for its reader, and for programs beside it.
    kept: [Vec<FlowEvent>; 2],
}

impl GuestRules {
    pub(super) fn new(own: SubscriptionId) -> Self {
        GuestRules {
            own,
            kept: Default::default(),
        }
    }

    /// Carries out a request of the guest. The hub's refusal is a reply.
    pub(super) fn carry_out(
        &mut self,
        hub: &dyn Control,
        mut request: Request,
    ) -> Result<Reply, ControlError> {
        let (reader, entries) = match &mut request {
            Request::SetRules { reader, rules } => (reader, rules.len()),
            Request::RemoveRules { reader, flows } => (reader, flows.len()),
            Request::Rules { reader, .. } | Request::FlowEvents { reader } => (reader, 0),
            _ => return Ok(refused("this is no request for flow rules")),
        };
        if entries > MAX_ENTRIES {
            return Ok(refused("a request of a guest has too many rules"));
        }
        let is_beside = reader.is_some();
        *reader = is_beside.then_some(self.own.0);
        let kept = &mut self.kept[usize::from(is_beside)];
        let reply = match &request {
            Request::FlowEvents { .. } if !kept.is_empty() => Reply::FlowEvents {
                events: std::mem::take(kept),
                lost: 0,
                more: true,
            },
            _ => match hub.flow_request(request) {
                Err(ControlError::Refused(refused)) => Reply::Refused(refused),
                answered => answered?,
            },
        };
        Ok(match reply {
            Reply::FlowEvents {
                mut events,
                lost,
                more,
            } => {
                *kept = events.split_off(events.len().min(MAX_ENTRIES));
                let more = more || !kept.is_empty();
                Reply::FlowEvents { events, lost, more }
            }
            Reply::Rules { mut rules, more } => {
                // The guest asks for those behind the last one.
                let more = more || rules.len() > MAX_ENTRIES;
                rules.truncate(MAX_ENTRIES);
                Reply::Rules { rules, more }
            }
            other => other,
        })
    }
}

fn refused(text: &str) -> Reply {
    Reply::Refused(Refused::new(Refusal::BadRequest, text))
}

#[cfg(test)]
mod tests;
