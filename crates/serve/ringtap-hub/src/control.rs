// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control thread: groups, subscriptions, rules, and the answers to questions.
//!
//! Invariants
//! - The hub's thread does for a request only what must happen between two chunks: it links and unlinks
//!   readers, and reads its figures.
//! - One reading of the figures answers all questions that wait. The readings take at most a fiftieth of
//!   the hub thread's time, and are [`MIN_INTERVAL`] apart.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use ringtap_ipc::doorbell::DoorbellWatch;
use ringtap_ipc::event::{Event, sleep_until_readable};
use ringtap_ipc::protocol::{BridgeStatus, ConfigurationStatus, HubStatus, Refused, Snapshot};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_ipc::time::now_ns;
use ringtap_pool::source::Source;
use ringtap_pool::wake::Signal;

use crate::answer::{Responder, not_subscribed};
use crate::budgets::Budgets;
use crate::capture::SourceCapture;
use crate::elsewhere::Elsewhere;
use crate::engine::{Engine, EngineThread, Figures};
use crate::flows::{FlowThread, FlowWork};
use crate::group::Group;
use crate::limits::Limits;
use crate::membership::Membership;
use crate::memory::MemoryChange;
use crate::options::{HubOptions, random_seed};
use crate::sources::SourceHandle;
use crate::subscribers::{Changes, StatusView, Subscribers};

/// Shortest time between two readings of the figures.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// Time from a reading to the next, in multiples of the time that the hub's thread spent on it.
const INTERVAL: u32 = 50;
/// Longest duration of a reading that counts; a longer one was interrupted.
const LONGEST: Duration = Duration::from_millis(5);

/// Work for the control thread.
pub(crate) type ControlWork = Box<dyn FnOnce(&mut HubControl) + Send>;
/// Answers from the figures.
type Question = Box<dyn FnOnce(&HubControl, &Figures) + Send>;

pub(crate) struct HubControl {
    pub(crate) engine: EngineThread,
    pub(crate) sources: Vec<SourceHandle>,
    pub(crate) membership: Membership,
    pub(crate) subscribers: Subscribers,
    pub(crate) changes: Changes,
    pub(crate) budgets: Budgets,
    /// The limits now; those in `options` are from the start.
    pub(crate) limits: Limits,
    /// Signalled by new work, loaded rules, ended relays and ended sources.
    pub(crate) event: Event,
    /// Doorbells of all readers.
    pub(crate) doorbells: Arc<DoorbellWatch>,
    pub(crate) started_ns: u64,
    /// The ways of the bridge that the hub belongs to.
    pub(crate) bridges: Vec<BridgeStatus>,
    /// Why the hub captures nothing yet: one sentence for each interface that is not there.
    pub(crate) awaits: Vec<String>,
    /// State of the configuration file, if the hub has one.
    pub(crate) configuration: Option<ConfigurationStatus>,
    /// Sets flow rules, once a reader or a group has some.
    pub(crate) flows: Option<FlowThread>,
    /// Handles flow rules instead of this hub.
    pub(crate) elsewhere: Option<Elsewhere>,
    options: HubOptions,
    engine_event: Event,
    /// Sources to be added when no rules are being loaded.
    pub(crate) new_sources: Vec<(Source, Responder<()>)>,
    inbox: Receiver<ControlWork>,
    /// Changes of sources' memory that wait for readers.
    pub(crate) memory_changes: Vec<MemoryChange>,
    /// The hub ends.
    pub(crate) is_ending: bool,
    /// Questions that wait for the next reading of the figures, and the earliest time of it.
    questions: Vec<Question>,
    next_reading: Instant,
    /// Receives a message when every source has ended and no reader is left.
    pub(crate) over: Option<Sender<()>>,
}

impl HubControl {
    pub(crate) fn new(
        sources: Vec<Source>,
        groups: Vec<Group>,
        options: HubOptions,
        inbox: Receiver<ControlWork>,
        event: Event,
    ) -> io::Result<Self> {
        let engine_event = Event::new()?;
        let doorbells = Arc::new(DoorbellWatch::new()?);
        let engine = Engine::new(
            Arc::clone(&doorbells),
            options.limits.wake_percent_per_reader,
            engine_event.clone(),
            event.clone(),
        );
        let mut control = HubControl {
            engine: EngineThread::start(engine)?,
            sources: Vec::new(),
            membership: Membership::new(
                groups,
                options.limits,
                options.hash_seed.unwrap_or_else(random_seed),
            ),
            subscribers: Subscribers::default(),
            changes: Changes::default(),
            budgets: Budgets::default(),
            limits: options.limits,
            event,
            doorbells,
            started_ns: now_ns(),
            bridges: Vec::new(),
            awaits: Vec::new(),
            configuration: None,
            flows: None,
            elsewhere: None,
            options,
            engine_event,
            new_sources: Vec::new(),
            inbox,
            memory_changes: Vec::new(),
            is_ending: false,
            questions: Vec::new(),
            next_reading: Instant::now(),
            over: None,
        };
        for source in sources {
            control.add_source(source).map_err(io::Error::other)?;
        }
        Ok(control)
    }

    fn add_source(&mut self, mut source: Source) -> Result<(), Refused> {
        let handle = SourceHandle::new(&mut source, Arc::new(self.event.clone()))?;
        let signal: Arc<dyn Signal> = Arc::new(self.engine_event.clone());
        let capture = SourceCapture::new(source, &self.options, signal);
        self.engine.call(move |engine| engine.add(capture))?;
        self.sources.push(handle);
        Ok(())
    }

    /// Adds the waiting sources; returns whether there were any. The caller then loads the rules into them.
    /// Only for moments at which no rules are being loaded: the loading ends once every source has an outcome.
    pub(crate) fn add_new_sources(&mut self) -> bool {
        let new_sources = std::mem::take(&mut self.new_sources);
        let has_some = !new_sources.is_empty();
        for (source, responder) in new_sources {
            let added = self.add_source(source);
            // The answer is dropped if its receiver is gone.
            responder.send(added);
        }
        has_some
    }

    pub(crate) fn set_limits(&mut self, limits: &Limits) {
        // The size of tables stays: rules would be lost with the old ones.
        let limits = &Limits {
            flows: self.limits.flows,
            ..*limits
        };
        self.limits = *limits;
        self.membership.limits = *limits;
        if let Some(flows) = &self.flows {
            flows.send(FlowWork::Limits(*limits));
        }
        let percent = limits.wake_percent_per_reader;
        // A thread that has ended wakes for no reader.
        let _ended = self
            .engine
            .call(move |engine| engine.doorbell_budget.allow(percent));
    }

    pub(crate) fn run(mut self) {
        while self.take_work() {
            self.finish_relays();
            self.release_bits();
            if self.membership.end_patterns(Instant::now()) {
                self.changes.outdate();
            }
            while self.update_rules() {}
            self.answer();
            self.report_end();
            let wait = self.next_reading.saturating_duration_since(Instant::now());
            let timeout = (!self.questions.is_empty()).then_some(wait);
            let look = self.look_at_memory();
            let next_end = self.membership.next_pattern_end();
            let next_end = next_end.map(|end| end.saturating_duration_since(Instant::now()));
            let timeout = timeout.into_iter().chain(look).chain(next_end).min();
            if let Err(error) = sleep_until_readable(&[self.event.as_fd()], timeout) {
                tracing::error!("the hub's control thread cannot sleep: {error}");
            }
            self.event.clear();
        }
    }

    /// Does all waiting work; `false` if the hub ends.
    fn take_work(&mut self) -> bool {
        while !self.is_ending {
            match self.inbox.try_recv() {
                Ok(work) => work(self),
                Err(TryRecvError::Disconnected) => self.is_ending = true,
                Err(TryRecvError::Empty) => return true,
            }
        }
        false
    }

    /// Asks for a subscriber's counters since its start.
    pub(crate) fn ask_snapshot(&mut self, id: SubscriptionId, responder: Responder<Snapshot>) {
        self.questions.push(Box::new(move |control, figures| {
            let snapshot = control.snapshot(id, figures);
            responder.send(snapshot.ok_or_else(not_subscribed));
        }));
    }

    /// Asks for the counters of the hub, as far as a user may see them.
    pub(crate) fn ask_status(&mut self, view: StatusView, responder: Responder<HubStatus>) {
        self.questions.push(Box::new(move |control, figures| {
            responder.send(Ok(control.status(figures, &view)));
        }));
    }

    /// Answers all questions, if the figures may be read again.
    fn answer(&mut self) {
        if self.questions.is_empty() || Instant::now() < self.next_reading {
            return;
        }
        self.sources
            .iter_mut()
            .for_each(SourceHandle::update_losses);
        let groups = self.membership.group_count();
        let questions = std::mem::take(&mut self.questions);
        // Without the hub's thread, the questions are dropped, which ends the wait for answers.
        let Ok(mut figures) = self.engine.call(move |engine| engine.figures(groups)) else {
            return;
        };
        self.name_all_shunted(&mut figures);
        let pause = (figures.took.min(LONGEST) * INTERVAL).max(MIN_INTERVAL);
        self.next_reading = Instant::now() + pause;
        for question in questions {
            question(self, &figures);
        }
    }

    fn report_end(&mut self) {
        if self.over.is_none() || !self.subscribers.all.is_empty() || !self.changes.is_empty() {
            return;
        }
        if self
            .engine
            .call(|engine| engine.has_ended())
            .unwrap_or(true)
            && let Some(over) = self.over.take()
        {
            let _gone = over.send(());
        }
    }
}
