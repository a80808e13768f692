// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out what the agent of a guest asks, on a thread that may wait for the hub.
//!
//! Invariants
//! - A guest that asks without end keeps hub and thread busy at most half of the time.
//! - The subscriptions of an agent end when the agent leaves.
//! - However a hub ends, the agent gets the grants again when a hub is there again.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_client::{ConnectError, Connection, ControlError, SubscriptionRequest};
use ringtap_filter::Program;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::protocol::{HubStatus, Request, SourceState};
use ringtap_pool::wake::Signal;

use super::answers::Answers;
use super::granted_memory::{self, GrantedMemory};
use super::life::{GroupLife, GroupLives};
use super::queue::{CommandQueue, GuestCommand};
use super::relay::{GuestRelay, RelayEnd, RelaySetup, not_in_source};
use super::report::GroupReport;
use crate::messages::{
    GrantedGroup, GuestCounters, GuestGap, GuestPool, GuestRequest, HostMessage,
};

/// Least and longest pause after a request; between them it is as long as the request took.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));
/// Interval between looks for a hub that ended, and for a group that a hub does not have.
const LOOK_FOR_HUB: Duration = Duration::from_secs(1);
const LOOK_FOR_GROUP: Duration = Duration::from_secs(5);
/// Why a subscription ends when the host lets the guest go.
pub(super) const DETACHED: &str = "the host detaches this virtual machine";

/// Reason why a request is refused; the agent gets its text.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The relay does not start.
    #[error(transparent)]
    Relay(#[from] io::Error),
    #[error("the hub's sources have different link types: give the VM a hub of its own for each")]
    LinkTypes,
    #[error("the hub's sources have ended")]
    SourcesEnded,
    #[error("the host does not grant the group to {vm}, only {granted}")]
    NotGranted { vm: String, granted: String },
    #[error("{0}: subscribed already: change the filter")]
    Subscribed(String),
    #[error("{0}: not subscribed")]
    NotSubscribed(String),
    #[error("the VM's memory is smaller than before: attach it with as much --memory")]
    LessMemory,
}

/// The thread's state.
pub(super) struct Commands {
    /// Name of the virtual machine.
    pub(super) vm: String,
    /// The hub.
    pub(super) socket: PathBuf,
    pub(super) memory: Vec<GrantedMemory>,
    pub(super) queue: Arc<CommandQueue>,
    pub(super) answers: Answers,
    /// Wakes the guest's readers.
    pub(super) guest: Arc<dyn Signal>,
    pub(super) relays: BTreeMap<usize, GuestRelay>,
    pub(super) lives: GroupLives,
    pub(super) agent: u64,
    pub(super) has_agent: bool,
    pub(super) epoch: u64,
    /// Names of the groups that the agent may subscribe to, as it was told last; `None`: to be told again when a
    /// hub is there.
    pub(super) granted: Option<Vec<String>>,
}

impl Commands {
    pub(super) fn run(mut self) {
        loop {
            let command = self.queue.next(self.next_look());
            let begin = Instant::now();
            match command {
                None => self.look_for_hub(),
                Some(GuestCommand::Stop) => return self.end_all(Some(DETACHED)),
                Some(command) => self.carry_out(command),
            }
            let worked = begin.elapsed();
            self.queue.pause(worked.clamp(PAUSES.0, PAUSES.1));
        }
    }

    fn carry_out(&mut self, command: GuestCommand) {
        match command {
            GuestCommand::Request(agent, request, what) => self.answer(agent, request, what),
            GuestCommand::Agent { number, is_here } => {
                self.end_all(None);
                let mut lives = lock(&self.lives);
                lives.values_mut().for_each(GroupLife::settle);
                drop(lives);
                (self.agent, self.has_agent) = (number, is_here);
                self.granted = None;
                if is_here {
                    let granted = self.grant();
                    self.send(number, 0, granted);
                }
            }
            GuestCommand::Ended(at, epoch, end) => self.ended(at, epoch, end),
            GuestCommand::Refresh(_done) => {
                for relay in self.relays.values() {
                    // Without the hub, the counters stay as they are known.
                    let _unknown = relay.counters();
                }
            }
            GuestCommand::Stop => {}
        }
    }

    /// Time until the next look for a hub, or for a group that it does not have.
    fn next_look(&self) -> Option<Duration> {
        match &self.granted {
            _ if !self.has_agent => None,
            None => Some(LOOK_FOR_HUB),
            Some(granted) => (granted.len() < self.memory.len()).then_some(LOOK_FOR_GROUP),
        }
    }

    fn answer(&mut self, agent: u64, request: u32, what: GuestRequest) {
        let answer = match what {
            GuestRequest::Subscribe {
                group,
                name,
                filter,
                pool,
                gap,
                cutoff,
            } => {
                let request = SubscriptionRequest {
                    filter,
                    cutoff,
                    ..SubscriptionRequest::new(group, name)
                };
                self.subscribe(request, (&pool, gap))
            }
            GuestRequest::ChangeFilter { group, filter } => {
                match self.change_filter(&group, &filter, agent, request) {
                    // The relay answers.
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            GuestRequest::Unsubscribe { group } => self.unsubscribe(group),
            GuestRequest::Statistics { group } => self.counters(group),
            GuestRequest::FlowRules {
                group,
                request: rules,
            } => self.flow_rules(group, rules),
        };
        self.send(agent, request, answer);
    }

    fn send(&self, agent: u64, request: u32, answer: Result<HostMessage, RequestError>) {
        let message = answer.unwrap_or_else(|error| HostMessage::Refused {
            text: error.to_string(),
        });
        self.answers.send(agent, request, message);
    }

    /// Connects with the hub.
    fn hub(&mut self, reader: &str) -> Result<Connection, RequestError> {
        let connection = Connection::open(&self.socket, reader);
        if connection.is_err() {
            self.granted = None;
        }
        Ok(connection?)
    }

    /// Sends the grants again if they have changed, or when a hub is back, so that the agent subscribes again.
    fn look_for_hub(&mut self) {
        let before = self.granted.take();
        let granted = self.grant();
        if let Ok(granted) = granted
            && self.granted != before
        {
            self.answers.send(self.agent, 0, granted);
        }
    }

    /// The grants, which count as sent.
    fn grant(&mut self) -> Result<HostMessage, RequestError> {
        let vm = self.vm.clone();
        let connection = self.hub(&vm)?;
        let status = connection.status()?;
        let link_type = connection.link_type().ok_or(RequestError::LinkTypes)?;
        let ended = |state| state == SourceState::Ended;
        if status.sources.iter().all(|one| ended(one.state)) {
            return Err(RequestError::SourcesEnded);
        }
        let granted = |one: &GrantedMemory| GrantedGroup {
            name: one.group.clone(),
            devices: status
                .sources
                .iter()
                .map(|one| one.device.clone())
                .collect(),
            link_type: link_type.0,
            pool_bytes: one.pool_range.bytes,
        };
        let memory = self.memory.iter();
        let there = memory.filter(|one| has_group(&status, &one.group));
        let groups: Vec<_> = there.map(granted).collect();
        self.granted = Some(groups.iter().map(|one| one.name.clone()).collect());
        Ok(HostMessage::Granted { groups })
    }

    fn subscribe(
        &mut self,
        request: SubscriptionRequest,
        (wanted_pool, gap): (&GuestPool, Option<GuestGap>),
    ) -> Result<HostMessage, RequestError> {
        let group = request.group.clone();
        let at = self.position(&group)?;
        if self.relays.contains_key(&at) {
            return Err(RequestError::Subscribed(group));
        }
        let reader = format!("{}/{}", self.vm, request.name);
        let request = SubscriptionRequest {
            name: reader.clone(),
            for_guest: true,
            ..request
        };
        let connection = self.hub(&reader)?;
        let subscription = connection.subscribe(&request);
        let is_there = |status| has_group(&status, &group);
        if subscription.is_err() && !connection.status().is_ok_and(is_there) {
            self.granted = None;
        }
        let subscription = subscription?;
        let memory = &self.memory[at];
        let (pool, control) = (memory.pool_range, memory.control_range);
        let geometry =
            granted_memory::geometry(wanted_pool, memory).ok_or(RequestError::LessMemory)?;
        let wanted = subscription.endpoints.iter().map(|one| one.wanted.clone());
        let not_in_source = not_in_source(&wanted.collect::<Vec<_>>());
        self.epoch += 1;
        let (queue, epoch) = (Arc::clone(&self.queue), self.epoch);
        // The guest has left the subscription before.
        lock(&self.lives).entry(at).or_default().settle();
        let report = GroupReport {
            group: group.clone(),
            reader: Some(reader),
            not_in_source: not_in_source.clone(),
            counters: GuestCounters::default(),
            not_taken: 0,
        };
        let setup = RelaySetup {
            report,
            epoch,
            pool: (memory.pool.clone(), geometry),
            wanted: wanted_pool.clone(),
            gap,
            control: memory.control.clone(),
            guest: Arc::clone(&self.guest),
            answers: self.answers.clone(),
        };
        let ended = move |end| queue.push(GuestCommand::Ended(at, epoch, end));
        let relay = GuestRelay::start(subscription, Arc::new(connection), setup, ended)?;
        let mut lives = lock(&self.lives);
        lives.entry(at).or_default().begin(&relay.common);
        drop(lives);
        self.relays.insert(at, relay);
        Ok(HostMessage::Subscribed {
            group,
            pool,
            epoch,
            control,
            not_in_source,
        })
    }

    fn change_filter(
        &self,
        group: &str,
        filter: &Program,
        agent: u64,
        request: u32,
    ) -> Result<(), RequestError> {
        let (_, relay) = self.relay_of(group)?;
        Ok(relay.set_filter(filter, agent, request)?)
    }

    fn unsubscribe(&mut self, group: String) -> Result<HostMessage, RequestError> {
        let (at, _) = self.relay_of(&group)?;
        let counters = self.end_relay(at).unwrap_or_default();
        Ok(HostMessage::Unsubscribed { group, counters })
    }

    fn counters(&self, group: String) -> Result<HostMessage, RequestError> {
        let (_, relay) = self.relay_of(&group)?;
        Ok(HostMessage::Counters {
            group,
            epoch: relay.common.epoch,
            counters: relay.counters()?,
        })
    }

    fn flow_rules(&mut self, group: String, request: Request) -> Result<HostMessage, RequestError> {
        let (at, _) = self.relay_of(&group)?;
        let relay = self.relays.get_mut(&at);
        let reply = relay.map(|relay| relay.flow_rules(request));
        let reply = reply.ok_or_else(|| RequestError::NotSubscribed(group.clone()))??;
        Ok(HostMessage::FlowRules { group, reply })
    }

    fn ended(&mut self, at: usize, epoch: u64, end: RelayEnd) {
        let relay = self.relays.get(&at);
        if relay.is_none_or(|relay| relay.common.epoch != epoch) {
            return;
        }
        if end.hub_is_over {
            self.granted = None;
        }
        self.end_and_tell(at, &end.reason);
    }

    fn position(&self, group: &str) -> Result<usize, RequestError> {
        let found = self.memory.iter().position(|one| one.group == group);
        found.ok_or_else(|| {
            let granted: Vec<_> = self.memory.iter().map(|one| &*one.group).collect();
            RequestError::NotGranted {
                vm: self.vm.clone(),
                granted: granted.join(", "),
            }
        })
    }

    fn relay_of(&self, group: &str) -> Result<(usize, &GuestRelay), RequestError> {
        let at = self.position(group)?;
        let relay = self.relays.get(&at);
        let relay = relay.ok_or_else(|| RequestError::NotSubscribed(group.to_owned()))?;
        Ok((at, relay))
    }

    /// Ends a subscription; returns its final counters.
    fn end_relay(&mut self, at: usize) -> Option<GuestCounters> {
        let ended = self.relays.remove(&at)?.end();
        let counters = ended.counters;
        lock(&self.lives).entry(at).or_default().end(ended);
        Some(counters)
    }

    /// Ends a subscription that the guest did not ask to end.
    fn end_and_tell(&mut self, at: usize, reason: &str) {
        let epoch = self.relays.get(&at).map(|relay| relay.common.epoch);
        let counters = self.end_relay(at);
        if let (Some(memory), Some(epoch), Some(counters)) = (self.memory.get(at), epoch, counters)
        {
            let message = HostMessage::Ended {
                group: memory.group.clone(),
                epoch,
                reason: reason.to_owned(),
                counters,
            };
            self.answers.send(self.agent, 0, message);
        }
    }

    /// Ends all subscriptions. The guest learns of it if there is a reason.
    fn end_all(&mut self, reason: Option<&str>) {
        // All of them before the hub is asked for the first one's counters.
        self.relays.values().for_each(|relay| relay.common.stop());
        for at in self.relays.keys().copied().collect::<Vec<_>>() {
            match reason {
                Some(reason) => self.end_and_tell(at, reason),
                None => drop(self.end_relay(at)),
            }
        }
    }
}

fn has_group(status: &HubStatus, group: &str) -> bool {
    status.groups.iter().any(|one| one.name == group)
}
