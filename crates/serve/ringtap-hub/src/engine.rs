// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hub's thread: steps every distributor after a signal, and sleeps in between.
//!
//! Invariants
//! - The thread owns the sources and the distributors. The control thread sends it work, one piece
//!   at a time; the thread moves chunks between two pieces.
//! - The thread touches chunks, never packets.
//! - The thread makes and frees no memory that a process maps, asks the kernel nothing that may wait, signals
//!   no reader of another user itself, and takes no lock that another thread holds for longer than a copy.
//! - Each step ends, however much the writers write and the readers ask for: what remains waits for the next
//!   step, and readers are woken in between.

mod figures;
mod links;
mod readers;
mod thread;

use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ringtap_ipc::doorbell::{DoorbellBudget, DoorbellWatch};
use ringtap_ipc::event::{Event, readable_among};
use ringtap_ipc::time::now_ns;
use ringtap_pool::distributor::Distributor;
use ringtap_pool::wake::{FIRST_SLEEP, Signal as _};

use crate::capture::{SourceCapture, Stage};
pub(crate) use figures::{Figures, SourceFigures, limit_packets};
pub(crate) use links::NewReader;
use links::{ReaderLinks, Sleepers};
pub(crate) use thread::EngineThread;

/// Interval of the checks for losses; a loss is dated by the check that finds it.
const LOSSES_INTERVAL: Duration = Duration::from_millis(200);

/// Longest time after which a step finds the returned chunks of readers that were quiet for long.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Length of a pause, which delays chunks by at most this long.
const PAUSE: Duration = Duration::from_micros(400);

/// Work for the hub's thread.
pub(crate) type EngineWork = Box<dyn FnOnce(&mut Engine) + Send>;

pub(crate) struct Engine {
    captures: Vec<SourceCapture>,
    links: ReaderLinks,
    event: Event,
    /// Doorbells of all readers, and what they may cost.
    doorbells: Arc<DoorbellWatch>,
    pub(crate) doorbell_budget: DoorbellBudget,
    /// Signalled when a source has ended.
    control: Event,
    looked_for_losses: Instant,
    /// When all readers were last looked at, however quiet they are.
    looked_at_all: Instant,
    /// Longest time of one turn of the thread's loop, without its sleep.
    longest_step: Duration,
    /// See [`Engine::begin`].
    has_begun: bool,
    phase: Phase,
    /// Duration of the last sleep, and whether chunks ended it within the length of a pause.
    slept: Duration,
    fast: bool,
    /// Time until the next check of the readers below their watermarks.
    look_again: Option<Duration>,
}

impl Engine {
    /// The thread's state; `event` ends its sleep, and it signals `control` when a source has ended.
    /// Wake-ups of no use by readers' doorbells take at most this percentage of the thread's time.
    pub(crate) fn new(
        doorbells: Arc<DoorbellWatch>,
        wake_percent: NonZeroU32,
        event: Event,
        control: Event,
    ) -> Self {
        Engine {
            captures: Vec::new(),
            links: ReaderLinks::default(),
            event,
            doorbells,
            doorbell_budget: DoorbellBudget::new(wake_percent),
            control,
            looked_for_losses: Instant::now(),
            looked_at_all: Instant::now(),
            longest_step: Duration::ZERO,
            has_begun: false,
            phase: Phase::Awake,
            slept: Duration::MAX,
            fast: false,
            look_again: None,
        }
    }

    /// Runs until the control thread has ended.
    fn run(mut self, inbox: &Receiver<EngineWork>) {
        while !self.has_begun {
            match inbox.recv() {
                Ok(work) => work(&mut self),
                Err(_) => return self.stop(),
            }
        }
        loop {
            let begun = Instant::now();
            let handled = match inbox.try_recv() {
                Ok(work) => {
                    work(&mut self);
                    true
                }
                Err(TryRecvError::Empty) => false,
                Err(TryRecvError::Disconnected) => break,
            };
            let moved = self.step();
            self.longest_step = self.longest_step.max(begun.elapsed());
            if moved {
                self.fast = self.slept < PAUSE;
            }
            if moved || handled {
                self.phase = Phase::Awake;
                continue;
            }
            self.rest();
        }
        self.stop();
    }

    /// Moves chunks from now on; until then the thread only does work for the control thread.
    pub(crate) fn begin(&mut self) {
        self.has_begun = true;
    }

    /// Stops every source.
    pub(crate) fn stop(&mut self) {
        self.captures.iter_mut().for_each(SourceCapture::stop);
    }

    /// Adds a source, for readers that attach from now on.
    pub(crate) fn add(&mut self, capture: SourceCapture) {
        self.captures.push(capture);
    }

    /// Stops one source.
    pub(crate) fn stop_source(&mut self, source: usize) {
        if let Some(capture) = self.captures.get_mut(source) {
            capture.stop();
        }
    }

    /// The distributor of a source.
    pub(crate) fn distributor(&mut self, source: usize) -> Option<&mut Distributor> {
        let capture = self.captures.get_mut(source);
        capture.map(|capture| &mut capture.distributor)
    }

    /// Wakes all readers.
    pub(crate) fn call_all(&mut self) {
        self.links.call_all();
        self.wake(Sleepers::All);
    }

    /// Whether every source has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = |capture: &SourceCapture| capture.stage == Stage::Ended;
        self.captures.iter().all(ended)
    }

    /// Whether this source may write.
    pub(crate) fn is_running(&self, source: usize) -> bool {
        let capture = self.captures.get(source);
        capture.is_some_and(|capture| capture.stage == Stage::Running)
    }

    /// Sequence of the next packet, per source and lane.
    pub(crate) fn positions(&mut self) -> Vec<Vec<u64>> {
        let position = |capture: &mut SourceCapture| {
            let lanes = capture.counts().lanes;
            lanes.iter().map(|lane| lane.delivered).collect()
        };
        self.captures.iter_mut().map(position).collect()
    }

    /// Moves the chunks that wait now: those that the writers add meanwhile may remain.
    fn catch_up(&mut self) {
        let steps = self
            .captures
            .iter()
            .map(|capture| capture.distributor.steps_behind());
        for _ in 0..steps.max().unwrap_or(0) {
            if !self.step() {
                return;
            }
        }
    }

    /// Moves chunks between queues, a limited number, and wakes readers; returns whether any chunk moved.
    fn step(&mut self) -> bool {
        let mut moved = false;
        if self.looked_at_all.elapsed() >= LOOK_INTERVAL {
            self.look_at_all();
        }
        for capture in &mut self.captures {
            let before = capture.stage;
            moved |= capture.step();
            if capture.stage == Stage::Ended && before != Stage::Ended {
                self.links.call_all();
                self.control.signal();
            }
        }
        if moved {
            self.doorbell_budget.found_work();
            self.wake(Sleepers::All);
            if self.looked_for_losses.elapsed() >= LOSSES_INTERVAL {
                self.looked_for_losses = Instant::now();
                self.links.note_losses(&self.captures, now_ns());
            }
        }
        moved
    }

    fn look_at_all(&mut self) {
        self.looked_at_all = Instant::now();
        for capture in &mut self.captures {
            capture.distributor.look_at_all();
        }
    }

    fn wake(&mut self, sleepers: Sleepers) {
        let now = Instant::now();
        self.look_again = self.links.wake(sleepers, &mut self.captures, now);
    }

    fn rest(&mut self) {
        let mut captures = self.captures.iter();
        let may_pause = self.fast && captures.all(SourceCapture::has_room_for_a_pause);
        let (next, then) = self.phase.next(may_pause);
        self.phase = then;
        match next {
            IdleAction::Pause => self.pause(),
            IdleAction::Arm => {
                for capture in &mut self.captures {
                    capture.arm();
                }
                // Packets captured before the reader attached caused no signal.
                self.wake(Sleepers::All);
            }
            IdleAction::Sleep(at_most) => self.sleep(at_most),
        }
    }

    /// Sleeps while packets are captured. After the pause the hub finds chunks and wakes sleepers, or
    /// arms itself; both happen before the first sleep of a reader is over.
    fn pause(&mut self) {
        self.sleep_on(false, Some(PAUSE));
    }

    /// Sleeps until a signal comes or a reader below its watermark is due.
    fn sleep(&mut self, at_most: Option<Duration>) {
        let timeout = [at_most, self.look_again].into_iter().flatten().min();
        let begun = Instant::now();
        let signalled = self.sleep_on(true, timeout);
        (self.slept, self.fast) = (begun.elapsed(), false);
        if signalled {
            self.phase = Phase::Awake;
        } else {
            // After the first sleep: readers of packets published while the hub fell asleep.
            self.wake(Sleepers::All);
        }
    }

    /// Sleeps until work or, with `sources`, a reader's doorbell or a source signals.
    fn sleep_on(&mut self, sources: bool, timeout: Option<Duration>) -> bool {
        self.doorbell_budget.sleeps();
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let mut ready = self.ready(sources, timeout);
        // Doorbells were ignored for a while: the sleep goes on.
        while sources && !ready.any && ready.ignored_doorbells {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            ready = self.ready(sources, left);
        }
        if !ready.any {
            return false;
        }
        if ready.doorbell {
            self.look_at_all();
        }
        // Wake the sleepers first: they may share this core.
        if sources {
            self.wake(Sleepers::WithoutSourceSignal);
        }
        if ready.source {
            // The same signal woke the readers. Let them run first on this core: they have a packet to
            // read, the hub has work only with the next one.
            std::thread::yield_now();
        }
        if ready.work {
            self.event.clear();
        }
        if ready.doorbell && self.doorbells.take() {
            self.doorbell_budget.woke();
        }
        if ready.source {
            self.captures.iter_mut().for_each(SourceCapture::look);
        }
        true
    }

    /// Sleeps once.
    fn ready(&self, sources: bool, timeout: Option<Duration>) -> WakeCause {
        // Readers cannot keep the hub awake: it ignores doorbells after one, and in a pause.
        let ignored_for = self.doorbell_budget.ignored_for();
        let listens = sources && ignored_for.is_zero();
        let mut fds = vec![self.event.as_fd()];
        let timeout = if sources && !listens {
            Some(timeout.map_or(ignored_for, |timeout| timeout.min(ignored_for)))
        } else {
            timeout
        };
        if listens {
            fds.push(self.doorbells.as_fd());
        }
        let of_sources = fds.len();
        if sources {
            fds.extend(self.captures.iter().filter_map(SourceCapture::wake_fd));
        }
        let ready = readable_among(&fds, timeout).unwrap_or_else(|error| {
            tracing::error!("the hub cannot wait for events: {error}");
            vec![true; fds.len()]
        });
        WakeCause {
            any: ready.contains(&true),
            work: ready[0],
            doorbell: ready[1..of_sources].contains(&true),
            source: ready[of_sources..].contains(&true),
            ignored_doorbells: !listens,
        }
    }
}

/// Cause that ended a sleep.
struct WakeCause {
    any: bool,
    work: bool,
    doorbell: bool,
    source: bool,
    ignored_doorbells: bool,
}

/// The hub's progress towards a sleep: it announces the sleep, looks for chunks once more, sleeps briefly, then
/// sleeps without limit.
///
/// A signal for each chunk costs more than the chunk itself. While chunks follow each other within the length of
/// a pause, the hub pauses without an announcement, and no lane signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The hub moved a chunk just now.
    Awake,
    /// A pause is over.
    Paused,
    /// The sleep is announced and begins after one more look for chunks.
    Armed,
    /// One short sleep is over.
    ShortSleep,
}

/// Action of the hub when it has no chunks to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdleAction {
    /// Announce the sleep, then look for chunks once more.
    Arm,
    /// Pause; only commands end the pause sooner.
    Pause,
    /// Sleep at most this long; absent: without limit.
    Sleep(Option<Duration>),
}

impl Phase {
    /// The next action and phase when the hub found no chunk. `may_pause`: the last sleep was short, and
    /// the lanes have enough free chunks for a pause.
    fn next(self, may_pause: bool) -> (IdleAction, Phase) {
        match self {
            Phase::Awake if may_pause => (IdleAction::Pause, Phase::Paused),
            Phase::Awake | Phase::Paused => (IdleAction::Arm, Phase::Armed),
            Phase::Armed => (IdleAction::Sleep(Some(FIRST_SLEEP)), Phase::ShortSleep),
            Phase::ShortSleep => (IdleAction::Sleep(None), Phase::ShortSleep),
        }
    }
}

#[cfg(test)]
mod tests;
