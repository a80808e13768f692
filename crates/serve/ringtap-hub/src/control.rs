// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control thread: groups, subscriptions, rules, and the answers to questions.
//!
//! Invariants
//! - The hub's thread does for a command only what must happen between two chunks: it links and unlinks
//!   readers, and reads its figures.
//! - One reading of the figures answers all questions that wait. The readings take at most a fiftieth of
//!   the hub thread's time, and are [`LEAST_INTERVAL`] apart.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use ringtap_ipc::doorbell::DoorbellWatch;
use ringtap_ipc::event::{Event, sleep_until_readable};
use ringtap_ipc::protocol::BridgeStatus;
use ringtap_ipc::time::now_ns;
use ringtap_pool::source::Source;
use ringtap_pool::wake::Signal;

use crate::budgets::Budgets;
use crate::capture::SourceCapture;
use crate::engine::{Engine, EngineThread};
use crate::filter_work::FilterLimits;
use crate::group::Group;
use crate::hub::{AttachError, Command, HubOptions, NewSource, Question, random_seed};
use crate::limits::Limits;
use crate::membership::Membership;
use crate::sources::SourceHandle;
use crate::subscribers::{Changes, Subscribers};

/// Shortest time between two readings of the figures.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);
/// Time from a reading to the next, in multiples of the time that the hub's thread spent on it.
const INTERVAL: u32 = 50;
/// Longest duration of a reading that counts; a longer one was interrupted.
const LONGEST: Duration = Duration::from_millis(5);

pub(crate) struct HubControl {
    pub(crate) engine: EngineThread,
    pub(crate) sources: Vec<SourceHandle>,
    pub(crate) membership: Membership,
    pub(crate) subscribers: Subscribers,
    pub(crate) changes: Changes,
    pub(crate) budgets: Budgets,
    /// Most percent of a processor's time for waking one reader of another user.
    pub(crate) wake_percent: NonZeroU32,
    /// Signalled by commands, loaded rules, ended relays and ended sources.
    pub(crate) event: Event,
    /// Doorbells of all readers.
    pub(crate) doorbells: Arc<DoorbellWatch>,
    pub(crate) started_ns: u64,
    /// The ways of the bridge that the hub belongs to.
    pub(crate) bridges: Vec<BridgeStatus>,
    options: HubOptions,
    engine_event: Event,
    /// Sources to be added when no rules are being loaded.
    new_sources: Vec<NewSource>,
    inbox: Receiver<Command>,
    /// Questions that wait for the next reading of the figures, and the earliest time of it.
    questions: Vec<Question>,
    next_reading: Instant,
    /// Receives a message when every source has ended and no reader is left.
    over: Option<Sender<()>>,
}

impl HubControl {
    pub(crate) fn new(
        sources: Vec<Box<dyn Source>>,
        groups: Vec<Group>,
        options: HubOptions,
        inbox: Receiver<Command>,
        event: Event,
    ) -> io::Result<Self> {
        let engine_event = Event::new()?;
        let doorbells = Arc::new(DoorbellWatch::new()?);
        let engine = Engine::new(Arc::clone(&doorbells), engine_event.clone(), event.clone());
        let mut control = HubControl {
            engine: EngineThread::new(engine),
            sources: Vec::new(),
            membership: Membership::new(
                groups,
                FilterLimits::of(&options.limits),
                options.hash_seed.unwrap_or_else(random_seed),
            ),
            subscribers: Subscribers::default(),
            changes: Changes::default(),
            budgets: Budgets::new(&options.limits),
            wake_percent: options.limits.wake_percent_per_reader,
            event,
            doorbells,
            started_ns: now_ns(),
            bridges: Vec::new(),
            options,
            engine_event,
            new_sources: Vec::new(),
            inbox,
            questions: Vec::new(),
            next_reading: Instant::now(),
            over: None,
        };
        for source in sources {
            control.add_source(source).map_err(io::Error::other)?;
        }
        Ok(control)
    }

    fn add_source(&mut self, mut source: Box<dyn Source>) -> Result<(), AttachError> {
        let handle = SourceHandle::new(&mut *source, Arc::new(self.event.clone()))?;
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
        for NewSource { source, responder } in new_sources {
            let added = self.add_source(source);
            // The answer is dropped if its receiver is gone.
            responder.send(added);
        }
        has_some
    }

    fn set_limits(&mut self, limits: &Limits) {
        self.membership.set_limits(FilterLimits::of(limits));
        self.budgets.set_limits(limits);
        self.wake_percent = limits.wake_percent_per_reader;
    }

    /// Starts the hub's thread: from now on chunks move.
    ///
    /// # Errors
    ///
    /// The system's, when no thread can start.
    pub(crate) fn start_engine(self) -> io::Result<Self> {
        let engine = self.engine.start()?;
        Ok(HubControl { engine, ..self })
    }

    pub(crate) fn run(mut self) {
        while self.take_commands() {
            self.finish_relays();
            while self.update_rules() {}
            self.answer();
            self.report_end();
            let wait = self.next_reading.saturating_duration_since(Instant::now());
            let timeout = (!self.questions.is_empty()).then_some(wait);
            if let Err(error) = sleep_until_readable(&[self.event.as_fd()], timeout) {
                tracing::error!("the hub's control thread cannot sleep: {error}");
            }
            self.event.clear();
        }
    }

    /// Takes all waiting commands; `false` after the last one.
    fn take_commands(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Command::Quit) | Err(TryRecvError::Disconnected) => return false,
                Ok(command) => self.handle(command),
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            // Changes that wait together are loaded together.
            Command::Change(change) => self.changes.push(change),
            Command::Credit(subscriber, chunks, responder) => {
                // An answer is dropped if its receiver is gone.
                responder.send(self.set_credit(subscriber, chunks));
            }
            Command::Leave(subscriber) => self.leave(subscriber),
            Command::Bridges(ways) => self.bridges = ways,
            Command::Groups(groups, responder) => {
                responder.send(Ok(self.membership.replace_groups(groups)));
            }
            Command::Limits(limits) => self.set_limits(&limits),
            Command::AddSource(new) => self.new_sources.push(new),
            Command::StopSource(at) => {
                drop(self.engine.call(move |engine| engine.stop_source(at)));
            }
            Command::Ask(question) => self.questions.push(question),
            Command::WhenOver(over) => self.over = Some(over),
            Command::Stop | Command::Quit => drop(self.engine.call(Engine::stop)),
        }
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
        let Ok(figures) = self.engine.call(move |engine| engine.figures(groups)) else {
            return;
        };
        let pause = (figures.took.min(LONGEST) * INTERVAL).max(LEAST_INTERVAL);
        self.next_reading = Instant::now() + pause;
        for question in questions {
            match question {
                Question::Snapshot(subscriber, responder) => {
                    let snapshot = self.snapshot(subscriber, &figures);
                    responder.send(snapshot.ok_or(AttachError::NotSubscribed));
                }
                Question::Status(responder) => {
                    responder.send(Ok(self.status(&figures)));
                }
            }
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
