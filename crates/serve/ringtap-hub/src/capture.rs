// SPDX-License-Identifier: MIT OR Apache-2.0
//! One source and its distributor, from the first packet to the last.
//!
//! Invariants
//! - A stopped source is drained before its readers receive the end.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringtap_ipc::time::now_ns;
use ringtap_pool::congestion::Congestion;
use ringtap_pool::counters::{Counters, Dropped};
use ringtap_pool::distributor::{
    AddReaderError, Distributor, Policy, ReaderOptions, Returns, Scheduler,
};
use ringtap_pool::ids::{LaneId, ReaderId};
use ringtap_pool::memory::Region;
use ringtap_pool::source::{Counts, Facts, Pause, Source, SourceError, Status};
use ringtap_pool::view::Pool;
use ringtap_pool::wake::Signal;

use crate::buddies::BuddyGroups;
use crate::options::HubOptions;

/// Attempts to read all counters without a packet in between.
const STEADY_TRIES: usize = 16;
/// Target of log lines that repeat a source's messages for the user.
pub const SOURCE_NOTES: &str = "ringtap::source";
/// Most messages of a source that `status` shows besides those from its start.
const MAX_NOTES: usize = 16;

/// The hub pauses only while each lane has this many free chunks, and an eighth of its chunks: no lane
/// fills more in a pause. (Not more than an eighth: readers that hold all that they may leave as much.)
const PAUSE_CHUNKS: u32 = 64;

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
pub(crate) struct SourceCapture {
    source: Box<dyn Source>,
    pub(crate) facts: Facts,
    pub(crate) pool: Pool,
    /// Readers also sleep on the source's own signal.
    pub(crate) wakes_readers: bool,
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
    /// End of the last step that left no chunk.
    stepped: Instant,
    pub(crate) congestion: Option<Congestion>,
}

/// Counters and positions at the start of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    /// The source's counters at the subscription's first packet, per lane.
    pub(crate) counts: Counts,
    /// Sequence of the first packet that the rules classified, per lane. Before, every packet has every
    /// bit.
    pub(crate) classified: Vec<u64>,
    /// A lane on which the reader's guarantee is less than a full one, with both.
    pub(crate) scarce: Option<[u32; 2]>,
}

impl SourceCapture {
    pub(crate) fn new(
        mut source: Box<dyn Source>,
        options: &HubOptions,
        signal: Arc<dyn Signal>,
    ) -> Self {
        let guaranteed_readers = options.limits.guaranteed_readers.get();
        let pool = source.pool();
        let lanes = source.take_lanes();
        let buddies = Arc::new(BuddyGroups::default());
        SourceCapture {
            facts: source.facts().clone(),
            paused: vec![false; lanes.len()],
            longest_wait: Duration::ZERO,
            stepped: Instant::now(),
            distributor: Distributor::new(pool.clone(), lanes, signal)
                .with_guaranteed_readers(guaranteed_readers)
                .with_scheduler(Arc::clone(&buddies) as Arc<dyn Scheduler>),
            buddies,
            wakes_readers: source.readers_wake_fd().is_some(),
            pool,
            source,
            stage: Stage::Running,
            failure: None,
            is_removed: false,
            is_waiting: false,
            notes: VecDeque::new(),
            congestion: options.congestion,
        }
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneId> + use<> {
        (0..self.pool.geometry().lane_count).map(LaneId)
    }

    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        (self.stage == Stage::Running).then(|| self.source.wake_fd())
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
        if !self.distributor.is_behind() {
            self.stepped = Instant::now();
        }
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
        if self.notes.len() == MAX_NOTES {
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

    /// Whether the hub may pause: the source has ended, or no lane is short of chunks.
    pub(crate) fn has_room_for_a_pause(&self) -> bool {
        let roomy = |lane| {
            let chunks = self.distributor.chunks_of(lane);
            let used = self.distributor.chunks_in_use(lane);
            chunks.saturating_sub(used) >= PAUSE_CHUNKS.max(chunks / 8)
        };
        let has_room = || self.distributor.is_drained() && self.lanes().all(roomy);
        match self.stage {
            Stage::Running => !self.paused.contains(&true) && has_room(),
            Stage::Draining => false,
            Stage::Ended => true,
        }
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
    ///
    /// # Errors
    ///
    /// [`AddReaderError::Start`] if a writer changed its chunk since the last step: step and try again.
    pub(crate) fn add_reader(
        &mut self,
        options: &ReaderOptions,
        control: &Region,
        from_the_first: bool,
    ) -> Result<(ReaderId, Beginning), AddReaderError> {
        let mut counts = self.source.counts();
        let classified: Vec<_> = counts.lanes.iter().map(|lane| lane.delivered).collect();
        for lane in &mut counts.lanes {
            if from_the_first {
                *lane = Counters::default();
            } else {
                // A packet that is being captured now belongs to the subscription.
                lane.offered = lane.accounted();
            }
        }
        if from_the_first {
            counts.dropped = Dropped::default();
        }
        let starts: Vec<_> = counts.lanes.iter().map(|lane| lane.delivered).collect();
        let id = self.distributor.add_reader_at(options, control, &starts)?;
        let beginning = Beginning {
            counts,
            classified,
            scarce: self.scarce(id),
        };
        Ok((id, beginning))
    }

    /// The reader's guarantee and a full one, of a lane where the reader's is less.
    fn scarce(&self, reader: ReaderId) -> Option<[u32; 2]> {
        let guarantees = |lane: LaneId| {
            let full = self.distributor.full_guarantee(lane);
            [self.distributor.guarantee(reader, lane), full]
        };
        let waits = self.facts.policy == Policy::Block;
        let mut lanes = self.lanes().map(guarantees).filter(|_| !waits);
        lanes.find(|[chunks, full]| chunks < full)
    }

    /// Pauses lanes whose readers cannot keep up, and resumes them when chunks are free again.
    fn check_congestion(&mut self) {
        let Some(congestion) = self.congestion.filter(|_| self.stage == Stage::Running) else {
            return;
        };
        for (at, lane) in self.lanes().enumerate() {
            let chunks = self.distributor.chunks_of(lane).max(1);
            let free = chunks - self.distributor.backlog(lane).min(chunks);
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

#[cfg(test)]
mod tests;
