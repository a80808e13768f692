// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's thread: steps every distributor after a signal, and sleeps in between.
//!
//! Invariants
//! - The thread owns the sources and the distributors; other threads only send it commands.
//! - The thread touches chunks, never packets.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use ringtap_ipc::doorbell::{RING_INTERVAL, Rings};
use ringtap_ipc::event::{Event, readable_among};
use ringtap_ipc::time::now_ns;
use ringtap_pool::source::Source;
use ringtap_pool::wake::Signal;

use crate::budgets::Budgets;
use crate::capture::{Capture, Stage};
use crate::filter_work::FilterLimits;
use crate::group::Group;
use crate::hub::{Command, HubOptions};
use crate::membership::Membership;
use crate::phase::{NAP, Next, Phase};
use crate::subscribers::{Changes, Sleepers, Subscribers};
use crate::work_share::WorkShare;

/// Interval of the checks for losses; a loss is dated by the check that finds it.
const LOSSES_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) struct Engine {
    pub(crate) captures: Vec<Capture>,
    pub(crate) membership: Membership,
    pub(crate) subscribers: Subscribers,
    pub(crate) changes: Changes,
    pub(crate) budgets: Budgets,
    pub(crate) event: Event,
    /// Doorbells of all readers, and when one last ended a sleep.
    pub(crate) rings: Rings,
    rang: Instant,
    pub(crate) started_ns: u64,
    inbox: Receiver<Command>,
    /// Receives a message when every source has ended and no reader is left.
    over: Option<Sender<()>>,
    looked_for_losses: Instant,
    phase: Phase,
    /// Duration of the last sleep, and whether chunks ended it within a nap's length.
    slept: Duration,
    fast: bool,
    /// Time until the next check of the readers below their watermarks.
    look_again: Option<Duration>,
    /// The thread's time for status, statistics and credit.
    questions: WorkShare,
}

impl Engine {
    pub(crate) fn new(
        sources: Vec<Box<dyn Source>>,
        groups: Vec<Group>,
        options: HubOptions,
        inbox: Receiver<Command>,
        event: Event,
    ) -> io::Result<Self> {
        let capture = |source| {
            let signal: Arc<dyn Signal> = Arc::new(event.clone());
            Capture::new(source, &options, signal)
        };
        Ok(Engine {
            captures: sources
                .into_iter()
                .map(capture)
                .collect::<io::Result<_>>()?,
            membership: Membership::new(groups, FilterLimits::of(&options.limits)),
            subscribers: Subscribers::default(),
            changes: Changes::default(),
            budgets: Budgets::new(&options.limits),
            event,
            rings: Rings::new()?,
            rang: Instant::now(),
            started_ns: now_ns(),
            inbox,
            over: None,
            looked_for_losses: Instant::now(),
            phase: Phase::Awake,
            slept: Duration::MAX,
            fast: false,
            look_again: None,
            questions: WorkShare::new(),
        })
    }

    pub(crate) fn run(mut self) {
        while let Some(handled) = self.handle_request() {
            self.finish_relays();
            let moved = self.step();
            self.report_end();
            if moved {
                self.fast = self.slept < NAP;
            }
            if moved || handled {
                self.phase = Phase::Awake;
                continue;
            }
            self.rest();
        }
        for capture in &mut self.captures {
            capture.stop();
        }
    }

    /// Moves chunks between queues; returns whether any chunk moved.
    pub(crate) fn step(&mut self) -> bool {
        let mut moved = false;
        for (at, capture) in self.captures.iter_mut().enumerate() {
            let before = capture.stage;
            moved |= capture.step();
            if capture.stage == Stage::Ended && before != Stage::Ended {
                self.subscribers.wake_all_of(at);
            }
        }
        if moved {
            self.wake_sleepers();
            if self.looked_for_losses.elapsed() >= LOSSES_INTERVAL {
                self.looked_for_losses = Instant::now();
                self.note_losses(now_ns());
            }
        }
        moved
    }

    fn report_end(&mut self) {
        let ended = |capture: &Capture| capture.stage == Stage::Ended;
        if self.over.is_none()
            || !self.subscribers.all.is_empty()
            || !self.changes.is_empty()
            || !self.captures.iter().all(ended)
        {
            return;
        }
        if let Some(over) = self.over.take() {
            let _gone = over.send(());
        }
    }

    pub(crate) fn wake_sleepers(&mut self) {
        self.wake(Sleepers::All);
    }

    fn wake(&mut self, sleepers: Sleepers) {
        self.look_again = self
            .subscribers
            .wake(sleepers, &mut self.captures, Instant::now());
    }

    /// Handles the next command, unless the thread answered a question just now, and changes of the
    /// rules. Returns whether there were any; `None` after the quit command.
    fn handle_request(&mut self) -> Option<bool> {
        let begun = Instant::now();
        let mut handled = false;
        while self.questions.may_begin(begun) && !handled {
            match self.inbox.try_recv() {
                Ok(Command::Quit) | Err(TryRecvError::Disconnected) => return None,
                // Changes that wait together are loaded together.
                Ok(Command::Change(change)) => self.changes.push(change),
                Ok(command) => {
                    let is_question = !matches!(command, Command::Leave(_));
                    self.handle(command);
                    handled = true;
                    if is_question {
                        self.questions.took(begun.elapsed(), Instant::now());
                    }
                }
                Err(TryRecvError::Empty) => break,
            }
        }
        Some(self.update_rules() || handled)
    }

    fn handle(&mut self, command: Command) {
        // An answer is dropped if its receiver is gone.
        match command {
            Command::Change(change) => self.changes.push(change),
            Command::Credit(subscriber, chunks, responder) => {
                responder.send(self.set_credit(subscriber, chunks));
            }
            Command::Leave(subscriber) => self.leave(subscriber),
            Command::Snapshot(subscriber, responder) => {
                responder.send(self.snapshot(subscriber));
            }
            Command::Status(responder) => {
                responder.send(self.status());
            }
            Command::WhenOver(over) => self.over = Some(over),
            Command::Stop | Command::Quit => {
                for capture in &mut self.captures {
                    capture.stop();
                }
            }
        }
    }

    fn rest(&mut self) {
        let may_nap = self.fast && self.captures.iter().all(Capture::has_room_for_a_nap);
        let (next, then) = self.phase.next(may_nap);
        self.phase = then;
        match next {
            Next::Nap => self.nap(),
            Next::Arm => {
                for capture in &mut self.captures {
                    capture.arm();
                }
                // Packets captured before the reader attached caused no signal.
                self.wake_sleepers();
            }
            Next::Sleep(at_most) => self.sleep(at_most),
        }
    }

    /// Sleeps while packets are captured. After the nap the hub finds chunks and wakes sleepers, or
    /// arms itself; both happen before the first sleep of a reader is over.
    fn nap(&mut self) {
        self.sleep_on(false, Some(NAP));
    }

    /// Sleeps until a signal comes or a reader below its watermark is due.
    fn sleep(&mut self, at_most: Option<Duration>) {
        let timeouts = [
            at_most,
            self.look_again,
            self.questions.wait(Instant::now()),
        ];
        let timeout = timeouts.into_iter().flatten().min();
        let begun = Instant::now();
        let signalled = self.sleep_on(true, timeout);
        (self.slept, self.fast) = (begun.elapsed(), false);
        if signalled {
            self.phase = Phase::Awake;
        } else {
            // After the first sleep: readers of packets published while the hub fell asleep.
            self.wake_sleepers();
        }
    }

    /// Sleeps until a command, a reader's doorbell or (with `sources`) a source signals.
    fn sleep_on(&mut self, sources: bool, timeout: Option<Duration>) -> bool {
        // The hub does not listen to doorbells right after one, so that readers cannot keep it awake.
        let deaf = RING_INTERVAL.saturating_sub(self.rang.elapsed());
        let mut fds = vec![self.event.as_fd()];
        let timeout = match deaf.is_zero() {
            true => {
                fds.push(self.rings.as_fd());
                timeout
            }
            false => Some(timeout.map_or(deaf, |timeout| timeout.min(deaf))),
        };
        let of_sources = fds.len();
        if sources {
            fds.extend(self.captures.iter().filter_map(Capture::wake_fd));
        }
        let ready = readable_among(&fds, timeout).unwrap_or_else(|error| {
            tracing::error!("the hub cannot sleep: {error}");
            vec![true; fds.len()]
        });
        if !ready.contains(&true) {
            return false;
        }
        // Wake the sleepers first: they may share this core.
        if sources {
            self.wake(Sleepers::WithoutSourceSignal);
        }
        let signalled = ready[of_sources..].contains(&true);
        if signalled {
            // The same signal woke the readers. Let them run first on this core: they have a packet to
            // read, the hub has work only with the next one.
            std::thread::yield_now();
        }
        if ready[0] {
            self.event.clear();
        }
        if ready[1..of_sources].contains(&true) && self.rings.take() {
            self.rang = Instant::now();
        }
        if signalled {
            self.captures.iter_mut().for_each(Capture::look);
        }
        true
    }
}
