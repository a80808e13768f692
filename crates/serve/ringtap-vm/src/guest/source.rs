// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of a group's hub in the guest: what the hub's threads and the agent's thread share.
//!
//! Invariants
//! - A thread of the hub waits for the host at most [`ANSWER_TIME`], and not while there is no host.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use ringtap_filter::flow::CutOff;
use ringtap_filter::{Balance, FilterLocation, Program, Rules};
use ringtap_ipc::event::Event;
use ringtap_ipc::mutex::lock;
use ringtap_pool::counters::Dropped;
use ringtap_pool::source::{Counts, LossUpdate, RuleLoader, SourceDriver, SourceError, Status};
use ringtap_pool::wake::Signal as _;

use super::memory::GroupLane;
use super::rules::{RulesWork, WaitingRules};
use crate::messages::GuestCounters;

/// Longest wait for the host to answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Most messages that wait for the hub.
const MAX_NOTES: usize = 64;

/// Error text: the agent has no subscription to which rules could belong.
pub(super) const NO_HOST: &str = "the host captures nothing for this virtual machine now: set flow rules again once packets come";

/// State of a group that several threads use.
#[derive(Default)]
pub(super) struct GroupState {
    /// Filter of what the readers want; `None` without readers.
    pub(super) wanted: Option<Program>,
    /// Cut-off of every flow: the only reader's.
    pub(super) cutoff: Option<CutOff>,
    /// The only reader with flow rules or a cut-off, if there is one.
    pub(super) owner: Option<u64>,
    /// Requests for flow rules that wait for the agent's thread.
    pub(super) rules: WaitingRules,
    /// Why the host refused a subscription with a cut-off.
    pub(super) refusal: Option<String>,
    /// Number of changes of what is wanted, and of those that are settled with the host.
    pub(super) edition: u64,
    pub(super) settled: u64,
    /// Number of requests for the counters, and of those answered.
    pub(super) counters_asked: u64,
    pub(super) counters_had: u64,
    /// The host's losses, and what flow rules withheld, in subscriptions that have ended, and in this one.
    pub(super) ended: HostLosses,
    pub(super) current: HostLosses,
    /// Whether a host process serves this agent.
    pub(super) has_host: bool,
    /// Whether readers wait for the subscription at the host to begin again.
    pub(super) is_interrupted: bool,
    /// The group is gone.
    pub(super) has_ended: bool,
    notes: Vec<String>,
}

/// Packets that the host lost for this guest, and those that flow rules withheld from it.
#[derive(Clone, Copy, Default)]
pub(super) struct HostLosses {
    nic: u64,
    others: u64,
    shunted: u64,
}

/// The shared part of a group.
pub(super) struct SharedGroup {
    state: Mutex<GroupState>,
    changed: Condvar,
    /// Wakes the agent's thread.
    agent: Event,
    /// Wakes the hub's thread.
    hub: Event,
}

impl From<GuestCounters> for HostLosses {
    fn from(host: GuestCounters) -> Self {
        HostLosses {
            nic: host.nic,
            shunted: host.shunted,
            others: [host.pool_full, host.overrun, host.part_full]
                .into_iter()
                .fold(host.kernel, u64::saturating_add),
        }
    }
}

impl HostLosses {
    pub(super) fn add(&mut self, other: HostLosses) {
        self.nic = self.nic.saturating_add(other.nic);
        self.others = self.others.saturating_add(other.others);
        self.shunted = self.shunted.saturating_add(other.shunted);
    }

    /// Adds packets that the host copied, and that this agent has not read.
    pub(super) fn add_not_taken(&mut self, packets: u64) {
        self.others = self.others.saturating_add(packets);
    }
}

impl SharedGroup {
    pub(super) fn new(agent: Event, hub: Event) -> Arc<Self> {
        Arc::new(SharedGroup {
            state: Mutex::default(),
            changed: Condvar::new(),
            agent,
            hub,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, GroupState> {
        lock(&self.state)
    }

    /// A host process came or left.
    pub(super) fn set_host(&self, has_host: bool) {
        self.lock().has_host = has_host;
        self.answer();
        self.hub.signal();
    }

    /// Wakes the threads that wait for the host.
    pub(super) fn answer(&self) {
        self.changed.notify_all();
    }

    /// Ends the source.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.hub.signal();
    }

    /// Tells the hub's user something.
    pub(super) fn note(&self, text: String) {
        let mut state = self.lock();
        if state.notes.len() < MAX_NOTES {
            state.notes.push(text);
        }
        drop(state);
        self.hub.signal();
    }

    /// Passes a request for flow rules to the agent's thread.
    pub(super) fn push_rules(&self, mut work: RulesWork) {
        let mut state = self.lock();
        work.owner = state.owner;
        let refused = if state.has_host {
            let pushed = state.rules.push(work);
            pushed.map(|work| (work, "too many requests wait"))
        } else {
            Some((work, NO_HOST))
        };
        drop(state);
        if let Some((work, why)) = refused {
            work.refuse(why);
        }
        self.agent.signal();
    }

    /// The flow rules are those of this reader from now on.
    pub(super) fn set_owner(&self, owner: Option<u64>) {
        let mut state = self.lock();
        if state.owner.is_some() {
            // Its rules end with the subscription.
            state.edition += 1;
        }
        state.owner = owner;
        drop(state);
        self.agent.signal();
    }

    /// Asks the agent's thread for something, and waits for the host's answer.
    fn ask(&self, ask: impl FnOnce(&mut GroupState), is_open: impl Fn(&GroupState) -> bool) {
        let mut state = self.lock();
        ask(&mut state);
        self.agent.signal();
        let waits = |state: &mut GroupState| state.has_host && is_open(state);
        let _late = self.changed.wait_timeout_while(state, ANSWER_TIME, waits);
    }
}

/// The hub's side of a group.
pub(super) struct HostSource {
    pub(super) shared: Arc<SharedGroup>,
    pub(super) lane: GroupLane,
}

/// Asks the host for what readers want; they filter themselves, too.
pub(super) struct HostRules {
    pub(super) shared: Arc<SharedGroup>,
    pub(super) snap_length: u32,
}

impl HostSource {
    /// Asks the host for its losses.
    pub(super) fn loss_update(&self) -> LossUpdate {
        let shared = Arc::clone(&self.shared);
        Box::new(move || {
            let asked = |state: &mut GroupState| state.counters_asked += 1;
            shared.ask(asked, |state| state.counters_had < state.counters_asked);
        })
    }
}

impl SourceDriver for HostSource {
    fn counts(&mut self) -> Counts {
        let state = self.shared.lock();
        let mut losses = state.ended;
        losses.add(state.current);
        drop(state);
        let mut lane = lock(&self.lane).counts();
        // Neither is in the memory: the host did not copy them.
        lane.shunted = lane.shunted.saturating_add(losses.shunted);
        lane.offered = lane.offered.saturating_add(losses.shunted);
        Counts {
            lanes: vec![lane],
            dropped: Dropped {
                nic: losses.nic,
                kernel: losses.others,
                ..Dropped::default()
            },
        }
    }

    fn status(&mut self) -> Status {
        let state = self.shared.lock();
        match *state {
            GroupState {
                has_ended: true, ..
            } => Status::Ended,
            GroupState {
                has_host: false, ..
            }
            | GroupState {
                is_interrupted: true,
                ..
            } => Status::Waiting,
            _ => Status::Running,
        }
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().notes)
    }

    fn clear_wake(&mut self) {
        self.shared.hub.clear();
    }

    fn stop(&mut self) {
        let leave = |state: &mut GroupState| state.want(None, None);
        self.shared.ask(leave, |_| false);
    }
}

impl RuleLoader for HostRules {
    fn classify(&mut self, rules: &Rules) -> Result<Vec<FilterLocation>, SourceError> {
        let divides = |rule: &ringtap_filter::Rule| rule.balance != Balance::Everyone;
        if rules.each.iter().any(divides) {
            return Err("a guest's group is not divided between its readers".into());
        }
        let wanted = union(rules, self.snap_length);
        // The group's hub lets a reader with a cut-off in only if it is alone.
        let standing = rules.flows.iter().flat_map(|flows| &flows.standing);
        let cutoff = standing.map(|one| one.cut).next();
        let want = |state: &mut GroupState| {
            state.want(wanted, cutoff);
            state.refusal = None;
            // What was withheld before a reader came is not the reader's.
            state.counters_asked += 1;
        };
        self.shared.ask(want, |state| {
            state.settled < state.edition || state.counters_had < state.counters_asked
        });
        if let Some(refusal) = self.shared.lock().refusal.take() {
            return Err(refusal.into());
        }
        let why = "the host captures what any reader of this guest wants".to_owned();
        Ok(vec![FilterLocation::Reader(why); rules.each.len()])
    }
}

impl GroupState {
    fn want(&mut self, wanted: Option<Program>, cutoff: Option<CutOff>) {
        if self.wanted != wanted || self.cutoff != cutoff {
            (self.wanted, self.cutoff) = (wanted, cutoff);
            self.edition += 1;
        }
    }
}

/// The filter of all packets that some rule wants; `None` without rules.
fn union(rules: &Rules, snap_length: u32) -> Option<Program> {
    let filters: Vec<_> = rules.each.iter().map(|rule| rule.filter.clone()).collect();
    if filters.is_empty() {
        None
    } else {
        Some(Program::any_of(&filters, snap_length))
    }
}
