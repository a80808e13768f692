// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads changed rules into all sources, and answers the requests; see [`super::changes`].

use std::time::Instant;

use ringtap_filter::FilterLocation;
use ringtap_ipc::protocol::{Refusal, Refused};

use super::changes::{Applied, Before, Change};
use crate::answer::not_subscribed;
use crate::control::HubControl;
use crate::sources::SourceHandle;

impl HubControl {
    /// Finishes the set of rules that every source has loaded, and starts the next one; returns
    /// whether there was something to do.
    pub(crate) fn update_rules(&mut self) -> bool {
        let finishes = self.changes.loading.is_some();
        if finishes {
            if !self.sources.iter_mut().all(SourceHandle::has_outcome) {
                return false;
            }
            self.finish_loading();
        }
        if self.add_new_sources() {
            self.changes.outdate();
        }
        self.start_loading() || finishes
    }

    /// Passes the next set of rules to every source; `false` if nothing changes.
    fn start_loading(&mut self) -> bool {
        let most = match self.changes.one_by_one {
            0 => usize::MAX,
            _ => 1,
        };
        self.changes.one_by_one = self.changes.one_by_one.saturating_sub(1);
        // The changes may be a reader's first rules.
        let had_table = self.membership.has_table;
        let mut applied = Vec::new();
        while applied.len() < most
            && let Some(change) = self.changes.waiting.pop_front()
        {
            applied.extend(self.apply(change));
        }
        if applied.is_empty() && !self.changes.are_outdated {
            return false;
        }
        self.changes.are_outdated = false;
        // A share is valid for this set only: later sets number their rules differently.
        for one in &mut applied {
            one.share = self.membership.share(one.id);
        }
        let rules = self.membership.rules();
        self.changes.rule_count = rules.each.len();
        self.changes.has_flows = rules.flows.is_some();
        if rules.flows.is_some() && !had_table {
            self.count_by_own_bits();
        }
        for source in &mut self.sources {
            source.load(&rules);
        }
        self.changes.loading = Some(applied);
        true
    }

    /// Makes a change part of the membership, or refuses it.
    fn apply(&mut self, change: Change) -> Option<Applied> {
        let applied = match &change {
            Change::Attach { request, peer, .. } => {
                let joined = self.join(request, peer);
                joined.map(|(id, charge)| (id, charge, None))
            }
            Change::Filter { id, filter, .. } => {
                let before = self.replace_filter(*id, filter.clone());
                before.map(|before| (*id, None, Some(Before::Filter(before))))
            }
            Change::Flows { id, .. } => {
                let members = self.membership.flow_members(*id);
                self.membership.has_table |= members.is_ok();
                members.map(|_| (*id, None, None))
            }
            Change::Patterns { id, change, .. } => {
                let (reply, rules) = self.membership.change_patterns(*id, change, Instant::now());
                Ok((*id, None, Some(Before::Patterns { rules, reply })))
            }
        };
        match applied {
            Ok((id, charge, before)) => Some(Applied {
                change,
                id,
                charge,
                before,
                share: None,
            }),
            Err(refused) => {
                change.refuse(refused);
                None
            }
        }
    }

    fn finish_loading(&mut self) {
        let applied = self.changes.loading.take().unwrap_or_default();
        match self.outcome() {
            Ok(places) => {
                if self.changes.has_flows {
                    self.open_tables();
                }
                // Packets after these are classified by the new rules.
                let from = if applied
                    .iter()
                    .any(|one| matches!(one.before, Some(Before::Filter(_))))
                {
                    self.engine.call(|engine| engine.positions())
                } else {
                    Ok(Vec::new())
                };
                let from = from.unwrap_or_default();
                for one in applied {
                    self.carry_out(one, &places, &from);
                }
            }
            Err(error) => self.undo(applied, error),
        }
    }

    /// Where each rule's filter runs in each source, or why a source refuses the rules.
    fn outcome(&mut self) -> Result<Vec<Vec<FilterLocation>>, Refused> {
        let mut places = Vec::new();
        for (at, source) in self.sources.iter_mut().enumerate() {
            places.push(match source.take_outcome() {
                Some(Ok(places)) => places,
                Some(Err(error)) if self.engine.call(move |one| one.is_running(at))? => {
                    let message = format!("{}: {error}", source.facts.device);
                    return Err(Refused::new(Refusal::Failed, message));
                }
                // This source captures no more; the other sources go on.
                _ => {
                    let why = "the source has ended".to_owned();
                    vec![FilterLocation::Reader(why); self.changes.rule_count]
                }
            });
        }
        Ok(places)
    }

    /// Completes a change whose rules are in force at every source.
    fn carry_out(&mut self, applied: Applied, places: &[Vec<FilterLocation>], from: &[Vec<u64>]) {
        let Applied {
            change,
            id,
            charge,
            before,
            ..
        } = applied;
        let share = applied.share.ok_or_else(not_subscribed);
        match change {
            Change::Attach {
                request,
                peer,
                responder,
            } => {
                let subscription =
                    share.and_then(|share| self.take((id, charge), &request, peer, &share, places));
                let is_attached = subscription.is_ok();
                // A reader that left meanwhile needs no subscription.
                if !responder.send(subscription) || !is_attached {
                    self.leave(id);
                }
            }
            Change::Filter { responder, .. } => {
                let wanted = share.and_then(|share| self.filtered(id, &share, places, from));
                responder.send(wanted);
            }
            Change::Flows {
                request, responder, ..
            } => self.ask_flows(id, request, responder),
            Change::Patterns { responder, .. } => {
                let reply = match before {
                    Some(Before::Patterns { reply, .. }) => Ok(reply),
                    _ => Err(not_subscribed()),
                };
                responder.send(reply);
            }
        }
    }

    /// Undoes the changes of a refused set; refuses the change if it was the only one.
    fn undo(&mut self, applied: Vec<Applied>, error: Refused) {
        if applied.is_empty() {
            tracing::error!("new rules, for no reader that waits, are not in force: {error}");
            return;
        }
        // Other sources may have put the refused rules in force.
        self.changes.outdate();
        self.changes.one_by_one = applied.len();
        let is_alone = applied.len() == 1;
        if self.flows.is_none() {
            self.membership.has_table = false;
        }
        for one in applied.into_iter().rev() {
            let has_left = match (&one.change, one.before) {
                (Change::Attach { .. }, _) => {
                    self.membership.leave(one.id);
                    self.end_rules_elsewhere(one.id);
                    false
                }
                (Change::Patterns { .. }, Some(Before::Patterns { rules, .. })) => {
                    self.membership.restore_patterns(rules);
                    false
                }
                (Change::Filter { .. }, Some(Before::Filter(before))) => {
                    self.membership.set_filter(one.id, before).is_err()
                }
                _ => false,
            };
            if is_alone {
                self.changes.one_by_one = 0;
                one.change.refuse(error);
                return;
            }
            if !has_left {
                self.changes.waiting.push_front(one.change);
            }
        }
    }
}
