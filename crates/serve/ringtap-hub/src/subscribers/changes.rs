// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of the rules: collected, loaded by the sources, then carried out or undone.
//!
//! One set of rules is loaded at a time, by all sources at once, on threads of their own. Changes
//! that come meanwhile are in the next set, together. If a source refuses a set with several
//! changes, each of them is tried alone, to find the one that is refused.
//!
//! Invariants
//! - Each request is answered once: when a set that includes it is in force at every source, or
//!   when a source refused it and the membership is as before.
//! - The membership holds the changes of the set that is being loaded, and no later ones but
//!   that readers left.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::AsFd as _;

use ringtap_filter::{Place, Program};
use ringtap_ipc::event::sleep_until_readable;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::subscription::{Subscription, SubscriptionId, SubscriptionRequest, Wanted};

use crate::capture::Capture;
use crate::engine::Engine;
use crate::group::Group;
use crate::hub::AttachError;
use crate::membership::Share;
use crate::responder::Responder;

/// A change of the rules that waits for its turn.
pub(crate) enum Change {
    /// A new subscription.
    Attach {
        request: Box<SubscriptionRequest>,
        /// The reader's process.
        peer: Peer,
        responder: Responder<Result<Subscription, AttachError>>,
    },
    /// Another filter of a subscription.
    Filter(
        SubscriptionId,
        Program,
        Responder<Result<Vec<Wanted>, AttachError>>,
    ),
    /// New owners of buckets, which the membership has already.
    Handoff {
        from: SubscriptionId,
        to: SubscriptionId,
    },
}

impl Change {
    /// A new subscription of a reader in this process.
    pub(crate) fn attach(
        request: SubscriptionRequest,
        responder: Responder<Result<Subscription, AttachError>>,
    ) -> Self {
        Change::Attach {
            request: Box::new(request),
            peer: Peer::this_process(),
            responder,
        }
    }
}

/// A change in the set of rules that is being loaded.
enum Applied {
    Attach {
        id: SubscriptionId,
        request: Box<SubscriptionRequest>,
        peer: Peer,
        group: Group,
        share: Option<Share>,
        responder: Responder<Result<Subscription, AttachError>>,
    },
    Filter {
        id: SubscriptionId,
        before: Program,
        share: Option<Share>,
        responder: Responder<Result<Vec<Wanted>, AttachError>>,
    },
    Handoff {
        from: SubscriptionId,
        to: SubscriptionId,
    },
}

/// The changes that are waiting, and those in the set that is being loaded.
#[derive(Default)]
pub(crate) struct Changes {
    waiting: VecDeque<Change>,
    loading: Option<Vec<Applied>>,
    /// The sources have other rules than the membership demands, for a reader that left.
    are_outdated: bool,
    /// So many of those waiting are to be loaded alone.
    one_by_one: usize,
}

impl Changes {
    pub(crate) fn push(&mut self, change: Change) {
        self.waiting.push_back(change);
    }

    /// The rules no longer follow from the membership.
    pub(super) fn outdate(&mut self) {
        self.are_outdated = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.loading.is_none()
    }

    /// Whether new owners of buckets are not yet in force.
    pub(super) fn has_handoff(&self) -> bool {
        let mut waiting = self.waiting.iter();
        let mut loading = self.loading.iter().flatten();
        waiting.any(|change| matches!(change, Change::Handoff { .. }))
            || loading.any(|applied| matches!(applied, Applied::Handoff { .. }))
    }
}

impl Engine {
    /// Attaches these readers before the hub's thread runs.
    pub(crate) fn attach_at_start(
        &mut self,
        requests: Vec<SubscriptionRequest>,
    ) -> Vec<Result<Subscription, AttachError>> {
        let answers: Vec<_> = requests
            .into_iter()
            .map(|request| {
                let (responder, answer) = Responder::new();
                self.changes.push(Change::attach(request, responder));
                answer
            })
            .collect();
        self.update_rules();
        while !self.changes.is_empty() {
            // A sleep that fails ends at once, and the outcomes are looked at again.
            let _slept = sleep_until_readable(&[self.event.as_fd()], None);
            self.event.clear();
            self.update_rules();
        }
        let answers = answers.iter();
        answers
            .map(|answer| answer.recv().unwrap_or(Err(AttachError::Ending)))
            .collect()
    }

    /// Finishes the set of rules that every source has loaded, and begins with the next one.
    pub(crate) fn update_rules(&mut self) {
        loop {
            if self.changes.loading.is_some() {
                if !self.captures.iter_mut().all(Capture::has_outcome) {
                    return;
                }
                self.finish_loading();
            }
            if !self.start_loading() {
                return;
            }
        }
    }

    /// Hands the next set of rules to every source; `false` if nothing is to be changed.
    fn start_loading(&mut self) -> bool {
        let most = match self.changes.one_by_one {
            0 => usize::MAX,
            _ => 1,
        };
        self.changes.one_by_one = self.changes.one_by_one.saturating_sub(1);
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
        // Of this very set of rules: later ones may have other numbers.
        for one in &mut applied {
            if let Applied::Attach { id, share, .. } | Applied::Filter { id, share, .. } = one {
                *share = self.membership.share(*id);
            }
        }
        let rules = self.membership.rules();
        for capture in &mut self.captures {
            capture.load(&rules);
        }
        self.changes.loading = Some(applied);
        true
    }

    /// Makes a change part of the membership, unless the reader may not.
    fn apply(&mut self, change: Change) -> Option<Applied> {
        match change {
            Change::Attach {
                request,
                peer,
                responder,
            } => match self.join(&request, &peer) {
                Ok((id, group)) => Some(Applied::Attach {
                    id,
                    request,
                    peer,
                    group,
                    share: None,
                    responder,
                }),
                Err(error) => {
                    responder.send(Err(error));
                    None
                }
            },
            Change::Filter(id, filter, responder) => match self.replace_filter(id, filter) {
                Ok(before) => Some(Applied::Filter {
                    id,
                    before,
                    share: None,
                    responder,
                }),
                Err(error) => {
                    responder.send(Err(error));
                    None
                }
            },
            Change::Handoff { from, to } => Some(Applied::Handoff { from, to }),
        }
    }

    fn finish_loading(&mut self) {
        let applied = self.changes.loading.take().unwrap_or_default();
        let outcomes: Vec<_> = self.captures.iter_mut().map(Capture::outcome).collect();
        match outcomes.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(places) => {
                for one in applied {
                    self.carry_out(one, &places);
                }
            }
            Err(error) => self.undo(applied, error),
        }
    }

    /// Does what was to be done once the rules are in force.
    fn carry_out(&mut self, applied: Applied, places: &[Vec<Place>]) {
        match applied {
            Applied::Attach {
                id,
                request,
                peer,
                group,
                share,
                responder,
            } => {
                let share = share.ok_or(AttachError::NotSubscribed);
                let subscription =
                    share.and_then(|share| self.take(id, &request, peer, &group, &share, places));
                let is_attached = subscription.is_ok();
                // A reader that left meanwhile needs no subscription.
                if !responder.send(subscription) || !is_attached {
                    self.leave(id);
                }
            }
            Applied::Filter {
                id,
                share,
                responder,
                ..
            } => {
                let share = share.ok_or(AttachError::NotSubscribed);
                responder.send(share.map(|share| self.filtered(id, &share, places)));
            }
            Applied::Handoff { from, to } => self.change_hands(from, to),
        }
    }

    /// Takes changes back that a source refused: for good if there is only one.
    fn undo(&mut self, applied: Vec<Applied>, error: AttachError) {
        if applied.is_empty() {
            tracing::error!("the rules without a reader that left: {error}");
            return;
        }
        // Other sources may have the refused rules.
        self.changes.outdate();
        let count = applied.len();
        let mut refusal = Some(error).filter(|_| count == 1);
        for one in applied.into_iter().rev() {
            let change = match one {
                Applied::Attach {
                    id,
                    request,
                    peer,
                    responder,
                    ..
                } => {
                    self.membership.leave(id);
                    if let Some(error) = refusal.take() {
                        responder.send(Err(error));
                        return;
                    }
                    Change::Attach {
                        request,
                        peer,
                        responder,
                    }
                }
                Applied::Filter {
                    id,
                    before,
                    responder,
                    ..
                } => {
                    let restored = self.membership.set_filter(id, before);
                    if let Some(error) = refusal.take() {
                        responder.send(Err(error));
                        return;
                    }
                    match restored {
                        Ok(filter) => Change::Filter(id, filter, responder),
                        Err(_left) => continue,
                    }
                }
                Applied::Handoff { from, to } => {
                    if let Some(error) = refusal.take() {
                        tracing::error!("the rules by which flows move: {error}");
                        self.end_handoff(to);
                        return;
                    }
                    Change::Handoff { from, to }
                }
            };
            self.changes.waiting.push_front(change);
        }
        self.changes.one_by_one = count;
    }
}
