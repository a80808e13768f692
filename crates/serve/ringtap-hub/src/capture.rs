// SPDX-License-Identifier: MIT OR Apache-2.0
//! One source and its distributor, from the first packet to the last.
//!
//! Invariants
//! - A stopped source is drained before its readers receive the end.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_filter::{Place, Rule, Rules};
use ringtap_ipc::time::now_ns;
use ringtap_pool::distributor::{
    AddReaderError, Distributor, Policy, ReaderOptions, Returns, Scheduler,
};
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::memory::Region;
use ringtap_pool::source::{Counts, Facts, Pause, Source, SourceError, Status};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::Signal;

use crate::buddies::BuddyGroups;
use crate::group::Congestion;
use crate::hub::{AttachError, HubOptions};
use crate::loader::{LoaderThread, Outcome};

/// Attempts to read all counters without a packet in between.
const STEADY_TRIES: usize = 16;
/// Attempts to find the start of a subscription while writers change chunks.
const START_TRIES: usize = 10_000;

/// Target of log lines that repeat a source's messages for the user.
pub const SOURCE_NOTES: &str = "ringtap::source";
/// Most messages of a source that `status` shows besides those from its start.
const MOST_NOTES: usize = 16;

/// The hub naps only while each lane has this many free chunks: no lane fills more during a nap.
const NAP_CHUNKS: u32 = 64;

/// Phase of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The source may write.
    Running,
    /// The source has stopped; readers with a blocking policy still receive the rest.
    Draining,
    /// Every chunk is delivered and settled.
    Ended,
}

/// A source, its pool and its distributor.
pub(crate) struct Capture {
    source: Box<dyn Source>,
    pub(crate) facts: Facts,
    pub(crate) pool: Pool,
    /// The source's own signal, on which readers sleep in addition to their doorbells.
    pub(crate) readers_wake: Option<Arc<OwnedFd>>,
    pub(crate) distributor: Distributor,
    /// The distributor's scheduler.
    pub(crate) buddies: Arc<BuddyGroups>,
    pub(crate) stage: Stage,
    pub(crate) failure: Option<String>,
    /// The source failed because its interface was removed.
    pub(crate) is_removed: bool,
    /// The source's interface is down or missing.
    pub(crate) is_waiting: bool,
    /// The latest messages of the source since its start.
    notes: VecDeque<String>,
    pub(crate) paused: Vec<bool>,
    /// Longest time that an opened chunk waited for the hub's thread.
    pub(crate) longest_wait: Duration,
    /// End of the last step.
    stepped: Instant,
    pub(crate) congestion: Option<Congestion>,
    /// The hub has warned that a reader has less than a full guarantee.
    is_scarce: bool,
    /// Loads rules on a thread, for sources that load them slowly.
    loader: Option<LoaderThread>,
    /// The source has no rules yet: every packet has every bit.
    gives_everything: bool,
    /// Outcome of the last rules, and the number of these rules.
    outcome: Option<Outcome>,
    rule_count: usize,
}

/// Counters and positions at the start of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    /// The source's counters at the subscription's first packet, per lane.
    pub(crate) counts: Counts,
    /// Sequence of the subscription's first packet, per lane.
    pub(crate) starts: Vec<u64>,
}

impl Capture {
    pub(crate) fn new(
        mut source: Box<dyn Source>,
        options: &HubOptions,
        signal: Arc<dyn Signal>,
    ) -> io::Result<Self> {
        let guaranteed_readers = options.limits.guaranteed_readers.get();
        let pool = source.pool();
        let gives_everything = source.gives_everything();
        let loader = source.take_rule_loader();
        let loader = loader.map(|loader| LoaderThread::start(loader, Arc::clone(&signal)));
        let lanes = source.take_lanes();
        let readers_wake = source.readers_wake_fd();
        let readers_wake = readers_wake.and_then(|fd| fd.try_clone_to_owned().ok());
        let buddies = Arc::new(BuddyGroups::default());
        Ok(Capture {
            facts: source.facts().clone(),
            paused: vec![false; lanes.len()],
            longest_wait: Duration::ZERO,
            stepped: Instant::now(),
            distributor: Distributor::new(pool.clone(), lanes, signal)
                .with_guaranteed_readers(guaranteed_readers)
                .with_scheduler(Arc::clone(&buddies) as Arc<dyn Scheduler>),
            buddies,
            readers_wake: readers_wake.map(Arc::new),
            pool,
            source,
            stage: Stage::Running,
            failure: None,
            is_removed: false,
            is_waiting: false,
            notes: VecDeque::new(),
            congestion: options.congestion,
            is_scarce: false,
            loader: loader.transpose()?,
            gives_everything,
            outcome: None,
            rule_count: 0,
        })
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        (0..self.pool.geometry().lane_count).map(LaneId)
    }

    /// Descriptor by which another process maps the pool.
    pub(crate) fn pool_file(&self) -> Option<OwnedFd> {
        self.source.pool_file()?.try_clone_to_owned().ok()
    }

    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        (self.stage == Stage::Running).then(|| self.source.wake_fd())
    }

    /// Starts to load these rules; [`Capture::has_outcome`] tells when the loading is over.
    ///
    /// A source without rules gives every packet to every reader. The hub loads no rules while all of
    /// them want every packet, which saves a tap the loading of programs.
    pub(crate) fn load(&mut self, rules: &Rules) {
        let Rules(each) = rules;
        let wants_all = !each.is_empty() && each.iter().all(Rule::takes_everything);
        self.rule_count = each.len();
        if wants_all && self.gives_everything {
            self.outcome = Some(Ok(vec![Place::Source; each.len()]));
            return;
        }
        self.gives_everything = false;
        match &self.loader {
            Some(loader) => loader.load(rules),
            None => self.outcome = Some(self.source.classify(rules)),
        }
    }

    /// Whether the source has put the rules in force or refused them.
    pub(crate) fn has_outcome(&mut self) -> bool {
        if self.outcome.is_none() {
            self.outcome = self.loader.as_ref().and_then(LoaderThread::outcome);
        }
        self.outcome.is_some()
    }

    /// Where each rule's filter runs, or why the rules are refused.
    pub(crate) fn outcome(&mut self) -> Result<Vec<Place>, AttachError> {
        let refused = |error: SourceError| AttachError::Source {
            device: self.facts.device.clone(),
            reason: error.to_string(),
        };
        match self.outcome.take() {
            Some(Ok(places)) => Ok(places),
            Some(Err(error)) if self.stage == Stage::Running => Err(refused(error)),
            // This source captures no more; the other sources go on.
            _ => {
                let why = "the source has ended".to_owned();
                Ok(vec![Place::Reader(why); self.rule_count])
            }
        }
    }

    /// Moves chunks between queues; returns whether any chunk moved.
    pub(crate) fn step(&mut self) -> bool {
        if self.stage == Stage::Ended {
            return false;
        }
        self.measure_wait();
        let merges = self.stage == Stage::Running && self.distributor.wants_horizon();
        let horizon = merges.then(|| self.source.horizon_ns()).flatten();
        let moved = self.distributor.step();
        self.stepped = Instant::now();
        if let (Ok(_), Some(time_ns)) = (&moved, horizon) {
            self.distributor.set_horizon(time_ns);
        }
        match moved {
            Ok(true) => {
                self.check_congestion();
                true
            }
            Ok(false) if self.stage == Stage::Draining && self.distributor.is_drained() => {
                self.finish();
                true
            }
            Ok(false) => {
                self.check_congestion();
                false
            }
            Err(error) => {
                self.fail(error.into());
                self.finish();
                true
            }
        }
    }

    /// Measures how late the hub's thread is for the chunks that wait. Stamps may come from another
    /// clock than the system's, so the time since the last step bounds the wait.
    fn measure_wait(&mut self) {
        // Where the source waits for its readers, chunks wait for them, not for the hub.
        if self.facts.policy == Policy::Block {
            return;
        }
        if let Some(since) = self.distributor.waits_since_ns() {
            let wait = Duration::from_nanos(now_ns().saturating_sub(since));
            self.longest_wait = self.longest_wait.max(wait.min(self.stepped.elapsed()));
        }
    }

    /// Clears the source's signal, and stops a source that has ended or failed.
    pub(crate) fn look(&mut self) {
        if self.stage != Stage::Running {
            return;
        }
        self.source.clear_wake();
        for note in self.source.take_notes() {
            self.note(note);
        }
        let status = self.source.status();
        self.is_waiting = matches!(status, Status::Waiting);
        match status {
            Status::Running | Status::Waiting => {}
            Status::Ended => self.stop(),
            Status::Failed(error) => self.fail(error),
            Status::Removed(error) => {
                self.is_removed = true;
                self.fail(error);
            }
        }
    }

    /// Logs a message of the source, and keeps it for `status`.
    fn note(&mut self, note: String) {
        tracing::warn!(target: SOURCE_NOTES, "{note}");
        if self.notes.len() == MOST_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(note);
    }

    /// Number of times that another program detached the source's program.
    pub(crate) fn detached_count(&self) -> u64 {
        self.source.detached_count()
    }

    /// Messages of the source for the user: those from its start, and the latest since.
    pub(crate) fn all_notes(&self) -> Vec<String> {
        self.facts
            .notes
            .iter()
            .chain(&self.notes)
            .cloned()
            .collect()
    }

    /// Stops the source, which then writes no more packets.
    pub(crate) fn stop(&mut self) {
        if self.stage == Stage::Running {
            self.source.stop();
            self.stage = Stage::Draining;
        }
    }

    /// Whether the hub may nap: no lane is short of chunks.
    pub(crate) fn has_room_for_a_nap(&self) -> bool {
        let roomy = |lane| {
            let chunks = self.distributor.chunks_of(lane);
            let used = self.distributor.chunks_in_use(lane);
            chunks.saturating_sub(used) >= NAP_CHUNKS.max(chunks / 2)
        };
        self.stage == Stage::Running
            && !self.paused.contains(&true)
            && self.distributor.is_drained()
            && self.lanes().all(roomy)
    }

    /// Announces that the hub is about to sleep, so that lanes signal.
    pub(crate) fn arm(&mut self) {
        let paused = self.paused.iter().any(|paused| *paused);
        let returns = if paused {
            Returns::Wanted
        } else {
            Returns::WhenDry
        };
        self.distributor.arm(returns);
    }

    fn fail(&mut self, error: SourceError) {
        tracing::error!(device = self.facts.device, "{error}");
        self.failure.get_or_insert(error.to_string());
        self.stop();
    }

    fn finish(&mut self) {
        self.distributor.finish();
        self.stage = Stage::Ended;
    }

    /// The source's counters, read without a packet in between if possible.
    pub(crate) fn counts(&mut self) -> Counts {
        let mut counts = self.source.counts();
        for _ in 0..STEADY_TRIES {
            let again = self.source.counts();
            if again == counts {
                break;
            }
            counts = again;
        }
        counts
    }

    /// Adds a reader that starts with the next packet, or with the source's first packet.
    pub(crate) fn add_reader(
        &mut self,
        options: &ReaderOptions,
        control: &Region,
        from_the_first: bool,
    ) -> Result<(ReaderId, Beginning), AddReaderError> {
        if from_the_first {
            let beginning = self.first();
            let id = self
                .distributor
                .add_reader_at(options, control, &beginning.starts)?;
            return Ok((id, beginning));
        }
        let mut tries = 0;
        loop {
            // The next step reports an error again.
            while self.step() {}
            let mut counts = self.source.counts();
            for lane in &mut counts.lanes {
                // A packet that is being captured now belongs to the subscription.
                lane.offered = lane.settled();
            }
            let starts: Vec<_> = counts.lanes.iter().map(|lane| lane.captured).collect();
            match self.distributor.add_reader_at(options, control, &starts) {
                Err(AddReaderError::Start { .. }) if tries < START_TRIES => tries += 1,
                Err(error) => return Err(error),
                Ok(id) => return Ok((id, Beginning { counts, starts })),
            }
        }
    }

    /// Warns once when a new reader finds too little left for a full guarantee.
    pub(crate) fn warn_if_scarce(&mut self, reader: ReaderId) {
        let missing = |lane: &LaneId| {
            self.distributor.guarantee(reader, *lane) < self.distributor.full_guarantee(*lane)
        };
        let waits = self.facts.policy == Policy::Block;
        let lane = self
            .lanes()
            .find(missing)
            .filter(|_| !waits && !self.is_scarce);
        if let Some(lane) = lane {
            self.is_scarce = true;
            let chunks = self.distributor.guarantee(reader, lane);
            let full = self.distributor.full_guarantee(lane);
            tracing::warn!(
                device = self.facts.device,
                "a further reader is guaranteed {chunks} chunks of a lane instead of {full}: slow \
                 readers together can make it lose packets; for more readers with a full share \
                 raise guaranteed_readers in [limits], and ask for a larger pool="
            );
        }
    }

    fn first(&self) -> Beginning {
        let lanes = self.paused.len();
        Beginning {
            counts: Counts {
                lanes: vec![Default::default(); lanes],
                ..Counts::default()
            },
            starts: vec![0; lanes],
        }
    }

    /// Pauses lanes whose readers cannot keep up, and resumes them when chunks are free again.
    fn check_congestion(&mut self) {
        let Some(congestion) = self.congestion.filter(|_| self.stage == Stage::Running) else {
            return;
        };
        for (at, lane) in self.lanes().enumerate() {
            let chunks = self.distributor.chunks_of(lane).max(1);
            let free = chunks - self.distributor.chunks_in_use(lane).min(chunks);
            let percent = u64::from(free) * 100 / u64::from(chunks);
            let credit = self.distributor.anyone_has_credit(lane);
            let pause = !credit || congestion.pauses(percent, self.paused[at]);
            if pause != self.paused[at] {
                self.paused[at] = pause;
                let how = if pause {
                    Pause::Paused
                } else {
                    Pause::Capturing
                };
                self.source.pause(lane, how);
            }
        }
    }
}
