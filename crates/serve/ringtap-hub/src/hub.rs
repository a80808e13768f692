// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub's handle: sends work of the hub's owner and server to the control thread.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringtap_filter::Program;
use ringtap_filter::flow::MAX_CUTS;
use ringtap_ipc::event::Event;
use ringtap_ipc::peer::Peer;
use ringtap_ipc::protocol::{
    BridgeStatus, ConfigurationStatus, Delivery, HubStatus, Refused, Reply, Request, Snapshot,
    SourceState,
};
use ringtap_ipc::subscription::{Subscription, SubscriptionId, SubscriptionRequest, Wanted};
use ringtap_ipc::thread::join;
use ringtap_pool::source::Source;
use ringtap_pool::wake::Signal;

use crate::answer::{Responder, ending};
use crate::control::{ControlWork, HubControl};
use crate::elsewhere::{Elsewhere, RulesElsewhere};
use crate::engine::Engine;
use crate::group::{AccessList, Group};
use crate::limits::{Limits, TooMuchWork};
use crate::membership::too_many_cut_offs;
use crate::options::HubOptions;
use crate::subscribers::{Change, StatusView};

/// Time between two looks at a hub that ends.
const FINISH_PAUSE: Duration = Duration::from_millis(10);

/// A running hub, which ends when this is dropped.
pub struct Hub {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// Sends work to a hub, from any thread.
#[derive(Clone)]
pub struct Handle {
    work: Sender<ControlWork>,
    event: Event,
    facts: Arc<RwLock<HubFacts>>,
}

/// Facts about the hub that its server knows.
struct HubFacts {
    limits: Limits,
    /// The pool of a source is a BPF map.
    has_map: bool,
    /// Link type of each source.
    link_types: Vec<u16>,
    /// The users of each group.
    groups: Vec<GroupAccess>,
    /// Number of times that `groups` was replaced.
    edition: u64,
}

/// Users of a group.
#[derive(Clone, Debug)]
pub(crate) struct GroupAccess {
    pub(crate) name: String,
    pub(crate) access: AccessList,
    /// Readers can join the group; otherwise it is configured no longer, and its readers stay.
    pub(crate) is_open: bool,
}

impl GroupAccess {
    fn of_open(group: &Group) -> Self {
        GroupAccess {
            name: group.name.clone(),
            access: group.access.clone(),
            is_open: true,
        }
    }
}

/// Why a hub cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// A group's name is used twice or is not valid.
    #[error("group \"{0}\": a group's name must be unique and consist of letters, digits, - and _")]
    GroupName(String),
    /// A group's filter is too much work for the source, or for private delivery.
    #[error("the filter of group \"{group}\": {reason}")]
    Filter {
        /// The group.
        group: String,
        /// The limit that the filter exceeds.
        reason: String,
    },
    /// The groups have too many different cut-offs.
    #[error("{0}")]
    CutOffs(String),
    /// The system refused an event or a thread.
    #[error("cannot start the hub: {0}")]
    System(#[from] io::Error),
}

impl Hub {
    /// Starts a hub on sources that capture already. The hub serves these requests before it moves any
    /// packet, so that their readers can start with the first captured packet.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ringtap_hub::{Group, Hub, HubOptions};
    /// use ringtap_ipc::subscription::SubscriptionRequest;
    ///
    /// # fn run(source: ringtap_pool::source::Source) -> Result<(), Box<dyn std::error::Error>> {
    /// // `source` is what `ringtap_capture::open` returned.
    /// let groups = vec![Group::new("all")];
    /// let first = SubscriptionRequest::new("all", "first reader");
    /// let (hub, mut subscriptions) =
    ///     Hub::start(vec![source], groups, HubOptions::default(), vec![first])?;
    /// let first = subscriptions.remove(0)?;
    /// // The packets are read from `first` by a `Receiver` of `ringtap-client`. More readers come and leave
    /// // while the hub runs.
    /// let second = hub.handle().attach(SubscriptionRequest::new("all", "second reader"))?;
    /// # drop((first, second));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Every [`HubError`]; a [`Refused`] for each refused request.
    pub fn start(
        sources: Vec<Source>,
        groups: Vec<Group>,
        options: HubOptions,
        requests: Vec<SubscriptionRequest>,
    ) -> Result<(Self, Vec<Result<Subscription, Refused>>), HubError> {
        check_names(&groups)?;
        check_cut_offs(&groups)?;
        check_filters(&groups, &options.limits)?;
        let has_map = sources.iter().any(|source| source.pool_is_map);
        let event = Event::new()?;
        let link_types = sources.iter().map(|source| source.facts.link_type);
        let facts = HubFacts {
            limits: options.limits,
            has_map,
            link_types: link_types.collect(),
            groups: groups.iter().map(GroupAccess::of_open).collect(),
            edition: 0,
        };
        let (work, inbox) = mpsc::channel();
        let control = HubControl::new(sources, groups, options, inbox, event.clone())?;
        let thread = thread::Builder::new()
            .name("control".into())
            .spawn(move || control.run())?;
        let hub = Hub {
            handle: Handle {
                work,
                event,
                facts: Arc::new(RwLock::new(facts)),
            },
            thread: Some(thread),
        };
        let subscriptions = hub.attach_all(requests);
        hub.handle
            .send(|control| drop(control.engine.call(Engine::begin)));
        Ok((hub, subscriptions))
    }

    /// Attaches readers whose rules the sources load together.
    fn attach_all(&self, requests: Vec<SubscriptionRequest>) -> Vec<Result<Subscription, Refused>> {
        let changes = requests.into_iter().map(|request| {
            let (responder, answer) = Responder::new(None);
            (Change::attach(request, responder), answer)
        });
        let (changes, answers): (Vec<_>, Vec<_>) = changes.unzip();
        self.handle.send(move |control| {
            changes
                .into_iter()
                .for_each(|one| control.changes.push(one))
        });
        let answers = answers.iter();
        answers
            .map(|answer| answer.recv().unwrap_or_else(|_| Err(ending())))
            .collect()
    }

    /// Sends work to this hub.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Refuses more different cut-offs than a table of flows has.
fn check_cut_offs(groups: &[Group]) -> Result<(), HubError> {
    let mut cuts: Vec<_> = groups.iter().filter_map(|group| group.cutoff).collect();
    cuts.sort_unstable_by_key(|cut| (cut.packets, cut.bytes));
    cuts.dedup();
    if cuts.len() > MAX_CUTS {
        return Err(HubError::CutOffs(too_many_cut_offs()));
    }
    Ok(())
}

/// Refuses groups' filters that are too much work. Readers of shared delivery run loops themselves.
fn check_filters(groups: &[Group], limits: &Limits) -> Result<(), HubError> {
    for group in groups {
        let reason = match limits.check_alone(group.filter.program()) {
            Ok(_) => continue,
            Err(TooMuchWork::Loops) if group.delivery == Delivery::Shared => continue,
            Err(reason) => reason.to_string(),
        };
        let group = group.name.clone();
        return Err(HubError::Filter { group, reason });
    }
    Ok(())
}

fn check_names(groups: &[Group]) -> Result<(), HubError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    for (at, group) in groups.iter().enumerate() {
        let again = groups[..at].iter().any(|other| other.name == group.name);
        if again || group.name.is_empty() || !group.name.chars().all(good) {
            return Err(HubError::GroupName(group.name.clone()));
        }
    }
    Ok(())
}

impl Handle {
    fn facts(&self) -> RwLockReadGuard<'_, HubFacts> {
        self.facts.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hub's limits.
    pub(crate) fn limits(&self) -> Limits {
        self.facts().limits
    }

    /// Whether the pool of a source is a BPF map.
    pub(crate) fn has_map(&self) -> bool {
        self.facts().has_map
    }

    /// Link type of each source.
    pub(crate) fn link_types(&self) -> Vec<u16> {
        self.facts().link_types.clone()
    }

    /// Whether a process may attach to a group.
    pub(crate) fn may_attach(&self, peer: &Peer) -> bool {
        let hub_uid = Peer::this_process().uid;
        let facts = self.facts();
        let mut open = facts.groups.iter().filter(|one| one.is_open);
        open.any(|one| one.access.allows(peer, hub_uid))
    }

    /// Names of the groups of which a process may be a member now.
    pub(crate) fn groups_of(&self, peer: &Peer) -> Vec<String> {
        let hub_uid = Peer::this_process().uid;
        let facts = self.facts();
        let own = facts
            .groups
            .iter()
            .filter(|one| one.access.allows(peer, hub_uid));
        own.map(|one| one.name.clone()).collect()
    }

    /// Number of times that the groups were replaced: others may be allowed to join since.
    pub(crate) fn edition(&self) -> u64 {
        self.facts().edition
    }

    fn set_facts(&self, change: impl FnOnce(&mut HubFacts)) {
        change(&mut self.facts.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds a source, which captures already. Readers that attach from now on read it, too; attached
    /// readers do not.
    ///
    /// # Errors
    ///
    /// The system's, or the hub is ending; the hub has no further source then.
    pub fn add_source(&self, source: Source) -> Result<(), Refused> {
        let (link_type, is_map) = (source.facts.link_type, source.pool_is_map);
        // Before any reader can get the pool.
        self.set_facts(|facts| facts.has_map |= is_map);
        self.ask(move |control, responder| control.new_sources.push((source, responder)))?;
        self.set_facts(|facts| facts.link_types.push(link_type));
        Ok(())
    }

    /// Stops the source with this index. Readers get the packets that it captured.
    pub fn stop_source(&self, source: usize) {
        self.send(move |control| {
            drop(
                control
                    .engine
                    .call(move |engine| engine.stop_source(source)),
            )
        });
    }

    /// Replaces the limits, for what readers ask from now on; all but `guaranteed_readers`.
    pub fn set_limits(&self, limits: Limits) {
        self.set_facts(|facts| facts.limits = limits);
        self.send(move |control| control.set_limits(&limits));
    }

    /// Attaches a reader to a group; waits until its rules are in force at every source.
    ///
    /// # Errors
    ///
    /// Every [`Refused`].
    pub fn attach(&self, request: SubscriptionRequest) -> Result<Subscription, Refused> {
        self.ask(|control, responder| control.changes.push(Change::attach(request, responder)))
    }

    /// Changes a subscription's own filter and waits until the rules are in force at every source;
    /// returns where the filter runs and from which packets on.
    ///
    /// # Errors
    ///
    /// Every [`Refused`]; the old filter stays in force then.
    pub fn set_filter(&self, id: SubscriptionId, filter: Program) -> Result<Vec<Wanted>, Refused> {
        self.ask(move |control, responder| {
            control.changes.push(Change::Filter {
                id,
                filter,
                responder,
            });
        })
    }

    /// Changes how many chunks of a lane a subscription's reader may hold.
    ///
    /// # Errors
    ///
    /// [`Refusal::TooMuch`](ringtap_ipc::protocol::Refusal::TooMuch), or the reader has no subscription.
    pub fn set_credit(&self, subscription: SubscriptionId, chunks: u32) -> Result<(), Refused> {
        self.ask(move |control, responder| {
            responder.send(control.set_credit(subscription, chunks));
        })
    }

    /// Sets, removes or lists flow rules of a subscription, or takes the ends of its flows.
    ///
    /// # Errors
    ///
    /// Every [`Refused`].
    pub fn flow_request(&self, id: SubscriptionId, request: Request) -> Result<Reply, Refused> {
        self.ask(move |control, responder| {
            control.flow_request((Some(id), &Peer::this_process()), request, responder);
        })
    }

    /// Passes the flow rules of readers on from now on, for sources whose packets are classified elsewhere. Only one
    /// reader at a time can have rules or a cut-off then, and only while it is alone in its group.
    pub fn pass_rules_on(&self, to: Arc<dyn RulesElsewhere>) {
        self.send(move |control| control.elsewhere = Some(Elsewhere::new(to)));
    }

    /// Ends a subscription; the hub takes back all chunks that its reader holds.
    pub fn leave(&self, subscription: SubscriptionId) {
        self.send(move |control| control.leave(subscription));
    }

    /// Sets why the hub captures nothing yet, for its status and for readers that it refuses.
    pub fn set_awaits(&self, reasons: Vec<String>) {
        self.send(|control| control.awaits = reasons);
    }

    /// Sets the state of the configuration file, for the hub's status.
    pub fn set_configuration(&self, state: ConfigurationStatus) {
        self.send(|control| control.configuration = Some(state));
    }

    /// Checks groups as [`Handle::replace_groups`] does.
    ///
    /// # Errors
    ///
    /// Every [`HubError`] but [`HubError::System`].
    pub fn check_groups(&self, groups: &[Group]) -> Result<(), HubError> {
        check_names(groups)?;
        check_cut_offs(groups)?;
        check_filters(groups, &self.limits())
    }

    /// Sets the counters of the bridge that the hub belongs to, for its status.
    pub fn set_bridges(&self, ways: Vec<BridgeStatus>) {
        self.send(|control| control.bridges = ways);
    }

    /// Replaces the hub's groups. Attached readers stay; new ones find the new groups. Returns what the hub
    /// did not change, and why.
    ///
    /// # Errors
    ///
    /// Every [`HubError`]; nothing has changed then.
    pub fn replace_groups(&self, groups: Vec<Group>) -> Result<Vec<String>, HubError> {
        self.check_groups(&groups)?;
        let replaced = self.ask(|control, responder| {
            let notes = control.membership.replace_groups(groups);
            let open = control.membership.open_groups();
            let mut groups: Vec<_> = open.map(GroupAccess::of_open).collect();
            let shown = control.membership.groups().map(|(group, _)| group);
            for group in shown {
                if !groups.iter().any(|one| one.name == group.name) {
                    let is_open = false;
                    groups.push(GroupAccess {
                        is_open,
                        ..GroupAccess::of_open(group)
                    });
                }
            }
            if control.membership.wants_table() {
                control.changes.outdate();
                control.introduce_all();
            }
            responder.send(Ok((notes, groups)));
        });
        let (notes, groups) = replaced.map_err(io::Error::other)?;
        self.set_facts(|facts| {
            facts.groups = groups;
            facts.edition += 1;
        });
        Ok(notes)
    }

    /// A subscription's counters now, final once the source has ended; `None` for an unknown one.
    pub fn snapshot(&self, subscription: SubscriptionId) -> Option<Snapshot> {
        self.ask_snapshot(subscription)()
    }

    /// Asks for [`snapshot`](Self::snapshot) without waiting; the returned function waits for the answer. One reading
    /// of the counters answers all questions that wait.
    pub fn ask_snapshot(
        &self,
        subscription: SubscriptionId,
    ) -> impl FnOnce() -> Option<Snapshot> + use<> {
        let answer = self.begin(move |control, responder| {
            control.ask_snapshot(subscription, responder);
        });
        move || answer.recv().ok()?.ok()
    }

    /// The counters of the whole hub; `None` if the hub has ended.
    pub fn status(&self) -> Option<HubStatus> {
        self.ask(|control, responder| control.ask_status(StatusView::Whole, responder))
            .ok()
    }

    /// Sends to `over` once every source has ended and no reader is left.
    pub fn when_over(&self, over: Sender<()>) {
        self.send(|control| control.over = Some(over));
    }

    /// Stops all sources; readers then receive the rest and the end.
    pub fn stop(&self) {
        self.send(|control| drop(control.engine.call(Engine::stop)));
    }

    /// Lets the control thread do this work.
    /// As [`stop`](Self::stop); returns the counters once every source has ended and every reader has left. Readers
    /// get at most this time to take the remaining packets. `None`: the hub's thread has ended.
    pub fn finish(&self, readers: Duration) -> Option<HubStatus> {
        self.stop();
        let deadline = Instant::now() + readers;
        loop {
            let status = self.status()?;
            let mut sources = status.sources.iter();
            let is_over = sources.all(|source| source.state == SourceState::Ended);
            if (is_over && status.readers.is_empty()) || Instant::now() > deadline {
                return Some(status);
            }
            thread::sleep(FINISH_PAUSE);
        }
    }

    pub(crate) fn send(&self, work: impl FnOnce(&mut HubControl) + Send + 'static) {
        // A hub that has ended drops the work with its responder, which ends the wait.
        let _gone = self.work.send(Box::new(work));
        self.event.signal();
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut HubControl, Responder<T>) + Send + 'static,
    ) -> Result<T, Refused> {
        let answer = self.begin(work).recv();
        answer.unwrap_or_else(|_| Err(ending()))
    }

    /// Gives this work to the control thread and returns at once; the answer comes through the receiver.
    fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut HubControl, Responder<T>) + Send + 'static,
    ) -> Receiver<Result<T, Refused>> {
        let (responder, answer) = Responder::new(None);
        self.send(move |control| work(control, responder));
        answer
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.handle.send(|control| control.is_ending = true);
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}
