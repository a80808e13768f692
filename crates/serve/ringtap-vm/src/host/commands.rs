// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out what the agent of a guest asks, on a thread that may wait for the hub.
//!
//! Invariants
//! - At most [`MOST_WAITING`] requests wait; further ones are refused.
//! - A guest that asks without end keeps hub and thread busy at most half of the time.
//! - The subscriptions of an agent end when the agent leaves.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver as Inbox, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringtap_client::{Connection, SubscriptionRequest};
use ringtap_filter::Program;
use ringtap_ipc::event::Event;
use ringtap_ipc::mutex::lock;
use ringtap_pool::wake::Signal;

use super::GroupReport;
use super::in_place::SourcePool;
use super::part::{self, GroupPart};
use super::relay::{
    GuestRelay, KeptPools, RelayCommon, RelayEnd, RelayPlace, RelayPool, not_in_source,
};
use crate::messages::{GrantedGroup, GuestCounters, GuestRequest, HostMessage};

/// Most requests that wait.
const MOST_WAITING: usize = 64;
/// Least and longest pause after a request; between them it is as long as the request took.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));
/// Interval between looks for a hub that ended.
const LOOK_FOR_HUB: Duration = Duration::from_secs(1);

/// An answer for the guest's agent of this number.
pub(super) struct GuestAnswer {
    pub(super) agent: u64,
    pub(super) request: u32,
    pub(super) message: HostMessage,
}

/// Takes answers to the thread of the guest.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) sender: Sender<GuestAnswer>,
    /// Wakes that thread.
    pub(super) waker: Event,
}

impl Answers {
    pub(super) fn send(&self, agent: u64, request: u32, message: HostMessage) {
        let answer = GuestAnswer {
            agent,
            request,
            message,
        };
        // Fails if the guest is being detached.
        let _late = self.sender.send(answer);
        self.waker.signal();
    }
}

enum GuestCommand {
    Request(u64, u32, GuestRequest),
    /// The agent of this number arrived, or will be the next; the one before left.
    Agent {
        number: u64,
        is_here: bool,
    },
    /// The thread of a group's relay with this epoch found the end.
    Ended(usize, u64, RelayEnd),
    Stop,
}

/// Requests that wait for the thread.
#[derive(Default)]
pub(super) struct CommandQueue {
    commands: Mutex<VecDeque<GuestCommand>>,
    is_filled: Condvar,
}

impl CommandQueue {
    /// Queues a request of the guest; `false` if too many wait.
    pub(super) fn request(&self, agent: u64, request: u32, what: GuestRequest) -> bool {
        let mut commands = lock(&self.commands);
        if commands.len() >= MOST_WAITING {
            return false;
        }
        commands.push_back(GuestCommand::Request(agent, request, what));
        self.is_filled.notify_one();
        true
    }

    /// Ends the subscriptions of the agent before the one with this number.
    pub(super) fn new_agent(&self, number: u64, is_here: bool) {
        let mut commands = lock(&self.commands);
        commands.retain(|one| matches!(one, GuestCommand::Ended(..) | GuestCommand::Stop));
        commands.push_back(GuestCommand::Agent { number, is_here });
        self.is_filled.notify_one();
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.push(GuestCommand::Stop);
    }

    fn push(&self, command: GuestCommand) {
        lock(&self.commands).push_back(command);
        self.is_filled.notify_one();
    }

    /// The next command; `None` if there is none within `limit`.
    fn next(&self, limit: Option<Duration>) -> Option<GuestCommand> {
        let limit = limit.unwrap_or(Duration::MAX);
        let commands = lock(&self.commands);
        let is_empty = |commands: &mut VecDeque<GuestCommand>| commands.is_empty();
        let woken = self.is_filled.wait_timeout_while(commands, limit, is_empty);
        woken.unwrap_or_else(PoisonError::into_inner).0.pop_front()
    }
}

/// The subscriptions now, by the place of their group, for other threads.
pub(super) type ActiveSubscriptions = Arc<Mutex<BTreeMap<usize, Arc<RelayCommon>>>>;

/// The thread's state.
pub(super) struct Commands {
    /// Name of the virtual machine.
    pub(super) vm: String,
    /// The hub.
    pub(super) socket: PathBuf,
    pub(super) parts: Vec<GroupPart>,
    /// The hub's pool, if the guest maps that as well.
    pub(super) source: Option<SourcePool>,
    /// Pools that the guest may still read although their subscriptions have ended.
    pub(super) kept: KeptPools,
    pub(super) queue: Arc<CommandQueue>,
    pub(super) answers: Answers,
    /// Wakes the guest's readers.
    pub(super) guest: Arc<dyn Signal>,
    pub(super) relays: BTreeMap<usize, GuestRelay>,
    pub(super) active: ActiveSubscriptions,
    pub(super) agent: u64,
    pub(super) epoch: u64,
    /// The hub ended, or cannot be connected to.
    pub(super) is_hub_gone: bool,
}

impl Commands {
    pub(super) fn run(mut self) {
        loop {
            let command = self.queue.next(self.is_hub_gone.then_some(LOOK_FOR_HUB));
            let begin = Instant::now();
            let Some(command) = command else {
                self.look_for_hub();
                continue;
            };
            match command {
                GuestCommand::Request(agent, request, what) => self.answer(agent, request, what),
                GuestCommand::Agent { number, is_here } => {
                    self.end_all();
                    lock(&self.kept).clear();
                    self.agent = number;
                    self.is_hub_gone = false;
                    if is_here {
                        let granted = self.granted();
                        self.send(number, 0, granted);
                    }
                }
                GuestCommand::Ended(at, epoch, end) => self.ended(at, epoch, end),
                GuestCommand::Stop => return self.end_all(),
            }
            std::thread::sleep(begin.elapsed().clamp(PAUSES.0, PAUSES.1));
        }
    }

    fn answer(&mut self, agent: u64, request: u32, what: GuestRequest) {
        let answer = match what {
            GuestRequest::Subscribe {
                group,
                name,
                filter,
            } => self.subscribe(group, &name, filter),
            GuestRequest::ChangeFilter { group, filter } => {
                match self.change_filter(&group, &filter, agent, request) {
                    // The relay answers.
                    Ok(()) => return,
                    Err(text) => Err(text),
                }
            }
            GuestRequest::Unsubscribe { group } => self.unsubscribe(group),
            GuestRequest::Statistics { group } => self.counters(group),
        };
        self.send(agent, request, answer);
    }

    fn send(&self, agent: u64, request: u32, answer: Result<HostMessage, String>) {
        let message = answer.unwrap_or_else(|text| HostMessage::Refused { text });
        self.answers.send(agent, request, message);
    }

    /// Connects with the hub.
    fn hub(&mut self, reader: &str) -> Result<Connection, String> {
        let connection = Connection::open(&self.socket, reader);
        self.is_hub_gone |= connection.is_err();
        connection.map_err(text)
    }

    /// Sends the grants again once the hub is back, so that the agent subscribes again.
    fn look_for_hub(&mut self) {
        if let Ok(granted) = self.granted() {
            self.is_hub_gone = false;
            self.answers.send(self.agent, 0, granted);
        }
    }

    fn granted(&mut self) -> Result<HostMessage, String> {
        let vm = self.vm.clone();
        let connection = self.hub(&vm)?;
        let status = connection.status().map_err(text)?;
        let link_type = connection.link_type().ok_or(
            "the hub's sources have different link types: give the VM a hub of its own for each",
        )?;
        let is_there = |part: &&GroupPart| status.groups.iter().any(|one| one.name == part.group);
        let granted = |part: &GroupPart| GrantedGroup {
            name: part.group.clone(),
            devices: status
                .sources
                .iter()
                .map(|one| one.device.clone())
                .collect(),
            link_type: link_type.0,
        };
        Ok(HostMessage::Granted {
            groups: self.parts.iter().filter(is_there).map(granted).collect(),
        })
    }

    fn subscribe(
        &mut self,
        group: String,
        name: &str,
        filter: Program,
    ) -> Result<HostMessage, String> {
        let at = self.place_of(&group)?;
        if self.relays.contains_key(&at) {
            return Err(format!("{group}: subscribed already: change the filter"));
        }
        let reader = format!("{}/{name}", self.vm);
        let request = SubscriptionRequest {
            filter,
            for_guest: true,
            ..SubscriptionRequest::new(&group, &reader)
        };
        let connection = self.hub(&reader)?;
        let subscription = connection.subscribe(&request).map_err(text)?;
        let part = self.parts.get(at).ok_or("no such part")?;
        let (pool, control) = (part.pool_part, part.control_part);
        let in_place = match &self.source {
            None => Err(None),
            Some(source) => {
                // The group does not change while it has this reader.
                let status = connection.status().map_err(text)?;
                let served = source.serves(&status, &group, &subscription, control.bytes);
                served.map(|()| source.part).map_err(Some)
            }
        };
        let geometry = part::geometry(&subscription, pool.bytes, control.bytes).ok_or(
            "the VM's memory is too small for the hub's chunks: attach it with more --memory",
        )?;
        let wanted = subscription.endpoints.iter().map(|one| one.wanted.clone());
        let not_in_source = not_in_source(&wanted.collect::<Vec<_>>());
        self.epoch += 1;
        let (queue, epoch) = (Arc::clone(&self.queue), self.epoch);
        let source_epoch = subscription.endpoints.first().map(|one| one.pool.epoch());
        let (pool, pool_epoch, relay_pool) = match (&in_place, source_epoch) {
            (Ok(whole), Some(of_source)) => (*whole, of_source, RelayPool::InPlace),
            _ => (pool, epoch, RelayPool::Copied(part.pool.clone(), geometry)),
        };
        // The guest has left the subscription before.
        lock(&self.kept).clear();
        let report = GroupReport {
            group: group.clone(),
            reader: Some(reader),
            not_in_source: not_in_source.clone(),
            copied_because: in_place.err().flatten(),
            counters: GuestCounters::default(),
        };
        let place = RelayPlace {
            report,
            epoch,
            pool: relay_pool,
            control: part.control.clone(),
            guest: Arc::clone(&self.guest),
            answers: self.answers.clone(),
            kept: Arc::clone(&self.kept),
        };
        let ended = move |end| queue.push(GuestCommand::Ended(at, epoch, end));
        let relay = GuestRelay::start(subscription, Arc::new(connection), place, ended);
        let relay = relay.map_err(text)?;
        lock(&self.active).insert(at, Arc::clone(&relay.common));
        self.relays.insert(at, relay);
        Ok(HostMessage::Subscribed {
            group,
            pool,
            pool_epoch,
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
    ) -> Result<(), String> {
        let (_, relay) = self.relay_of(group)?;
        relay.set_filter(filter, agent, request).map_err(text)
    }

    fn unsubscribe(&mut self, group: String) -> Result<HostMessage, String> {
        let (at, relay) = self.relay_of(&group)?;
        let counters = relay
            .counters()
            .unwrap_or_else(|_| relay.common.known().counters);
        self.remove(at);
        // The guest has left the memory before it asked.
        lock(&self.kept).clear();
        Ok(HostMessage::Unsubscribed { group, counters })
    }

    fn counters(&self, group: String) -> Result<HostMessage, String> {
        let (_, relay) = self.relay_of(&group)?;
        Ok(HostMessage::Counters {
            group,
            epoch: relay.common.epoch,
            counters: relay.counters().map_err(text)?,
        })
    }

    fn ended(&mut self, at: usize, epoch: u64, end: RelayEnd) {
        let relay = self.relays.get(&at);
        if relay.is_none_or(|relay| relay.common.epoch != epoch) {
            return;
        }
        self.remove(at);
        self.is_hub_gone |= end.hub_left;
        if let Some(part) = self.parts.get(at) {
            let message = HostMessage::Ended {
                group: part.group.clone(),
                epoch,
                reason: end.reason,
            };
            self.answers.send(self.agent, 0, message);
        }
    }

    fn place_of(&self, group: &str) -> Result<usize, String> {
        let found = self.parts.iter().position(|part| part.group == group);
        found.ok_or_else(|| {
            let granted: Vec<_> = self.parts.iter().map(|part| &*part.group).collect();
            let granted = granted.join(", ");
            format!(
                "the host does not grant the group to {}, only {granted}",
                self.vm
            )
        })
    }

    fn relay_of(&self, group: &str) -> Result<(usize, &GuestRelay), String> {
        let at = self.place_of(group)?;
        let relay = self.relays.get(&at);
        let relay = relay.ok_or_else(|| format!("{group}: not subscribed"))?;
        Ok((at, relay))
    }

    fn remove(&mut self, at: usize) {
        self.relays.remove(&at);
        lock(&self.active).remove(&at);
    }

    fn end_all(&mut self) {
        self.relays.clear();
        lock(&self.active).clear();
    }
}

/// Answers that have arrived for this agent.
pub(super) fn answers_of(
    inbox: &Inbox<GuestAnswer>,
    agent: u64,
) -> impl Iterator<Item = GuestAnswer> {
    inbox.try_iter().filter(move |answer| answer.agent == agent)
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
