// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounded queues in front of the exporters' threads.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringtap::{CapabilitySet, limit_thread};
use ringtap_ipc::mutex::lock;
use ringtap_pool::number::{to_u64, to_usize};

use super::{ExportError, Exporter, FlowSum};
use crate::ledger::ExportCounters;
use crate::record::Record;

/// Time between two calls of [`Exporter::tick`].
const TICK: Duration = Duration::from_secs(1);
/// Pause of a sender that waits for room, or for the end.
const PAUSE: Duration = Duration::from_millis(2);
/// Time between two looks of a helper at the records that wait.
const HELPER_LOOK: Duration = Duration::from_millis(20);
/// Longest wait for room in the queues, once a live capture has ended.
const LAST_ROOM: Duration = Duration::from_secs(20);
/// Records that may wait for each exporter.
const MAX_WAITING: u32 = 100_000;
/// Records that wait before the helpers of an exporter write too.
const HELPED_WAITING: u64 = 10_000;
/// Most helpers of an exporter; at most one for each two processors.
const MAX_HELPERS: usize = 4;

/// Reaction of a sender to a full queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Drop the records and count them: for live captures.
    Drop,
    /// Wait for room: for files, which wait too.
    Wait,
}

impl WhenFull {
    /// Longest wait at the end, once all records are in the queues.
    pub(crate) fn end_limit(self) -> Duration {
        Duration::from_secs(match self {
            WhenFull::Drop => 10,
            WhenFull::Wait => 3600,
        })
    }
}

/// Records that several exporters share.
type Records = Arc<[Record]>;

/// The queues of all exporters of a probe; any number of threads may send.
pub(crate) struct ExportQueues {
    queues: Vec<ExportQueue>,
    when_full: WhenFull,
    /// Until when senders wait for room, once a live capture has ended.
    room_until: OnceLock<Instant>,
}

/// An exporter's threads and their queue.
struct ExportQueue {
    sender: SyncSender<Records>,
    status: Arc<ExportStatus>,
    threads: Vec<JoinHandle<()>>,
}

/// State that the threads of an exporter share with senders, and with readers of its counters.
#[derive(Default)]
pub(crate) struct ExportStatus {
    /// Records in the queue. A live capture takes no lock unless it drops records.
    waiting: AtomicU64,
    max_waiting: u64,
    /// No records come any more.
    ended: AtomicBool,
    past: Mutex<ExportPast>,
}

/// Outcomes of records.
#[derive(Default)]
struct ExportPast {
    /// Without those in the queue.
    counters: ExportCounters,
    /// The flows that found the queue full.
    not_queued: FlowSum,
    /// The failure that lasts.
    failure: Option<String>,
    /// The last failure, which explains losses.
    reason: Option<String>,
    has_warned: bool,
}

impl ExportQueues {
    /// Starts the threads of all exporters.
    ///
    /// # Errors
    ///
    /// The system refuses a further thread.
    pub(crate) fn start(
        exporters: Vec<Box<dyn Exporter>>,
        when_full: WhenFull,
    ) -> Result<Self, ExportError> {
        let queues = exporters
            .into_iter()
            .map(|exporter| ExportQueue::start(exporter, MAX_WAITING));
        Ok(ExportQueues {
            queues: queues.collect::<Result<_, _>>()?,
            when_full,
            room_until: OnceLock::new(),
        })
    }

    /// Whether packets come by themselves, so that no worker may wait.
    pub(crate) fn is_live(&self) -> bool {
        self.when_full == WhenFull::Drop
    }

    /// The status of each exporter.
    pub(crate) fn status(&self) -> Vec<Arc<ExportStatus>> {
        self.queues
            .iter()
            .map(|one| Arc::clone(&one.status))
            .collect()
    }

    /// Sends records to all exporters, and empties the list.
    pub(crate) fn send(&self, records: &mut Vec<Record>) {
        self.send_until(records, None);
    }

    /// The same once the capture has ended: waits for room also if it was live, as no packet waits any more.
    pub(crate) fn send_last(&self, records: &mut Vec<Record>) {
        let until = self.room_until.get_or_init(|| Instant::now() + LAST_ROOM);
        self.send_until(records, Some(*until));
    }

    fn send_until(&self, records: &mut Vec<Record>, until: Option<Instant>) {
        if records.is_empty() {
            return;
        }
        let shared: Records = records.drain(..).collect();
        for queue in &self.queues {
            queue.send(Records::clone(&shared), self.when_full, until);
        }
    }

    /// Tells the user once of each exporter that has begun to lose records.
    pub(crate) fn warn(&self, note: &mut impl FnMut(String)) {
        self.queues
            .iter()
            .filter_map(|queue| queue.status.warning())
            .for_each(note);
    }

    /// Lets all exporters write what waits, at most for `limit`; returns the final counters, and tells the user of
    /// losses.
    pub(crate) fn finish(
        self,
        limit: Duration,
        note: &mut impl FnMut(String),
    ) -> Vec<ExportCounters> {
        let until = Instant::now() + limit;
        let queues = self.queues.into_iter();
        queues.map(|queue| queue.finish(until, note)).collect()
    }
}

impl ExportQueue {
    /// Starts the exporter's thread; at most `records` wait for it.
    fn start(exporter: Box<dyn Exporter>, records: u32) -> Result<Self, ExportError> {
        let status = Arc::new(ExportStatus {
            max_waiting: records.into(),
            past: Mutex::new(ExportPast {
                counters: ExportCounters {
                    name: exporter.name(),
                    ..ExportCounters::default()
                },
                ..ExportPast::default()
            }),
            ..ExportStatus::default()
        });
        // A batch has at least one record, so the number of records is the stricter bound.
        let (sender, batches) = sync_channel(to_usize(records).max(1));
        let batches = Arc::new(Mutex::new(batches));
        let processors = thread::available_parallelism().map_or(0, NonZero::get);
        let mut writers: Vec<_> = (0..MAX_HELPERS.min(processors / 2))
            .map_while(|_| exporter.helper())
            .map(|helper| (helper, HELPED_WAITING))
            .collect();
        writers.push((exporter, 0));
        let threads = writers.into_iter().map(|(exporter, from)| {
            let (own, batches) = (Arc::clone(&status), Arc::clone(&batches));
            thread::Builder::new().name("export".into()).spawn(move || {
                // The answers of collectors are foreign.
                let _keeps_them = limit_thread(CapabilitySet::empty());
                run(exporter, &batches, &own, from)
            })
        });
        Ok(ExportQueue {
            sender,
            threads: threads.collect::<io::Result<_>>()?,
            status,
        })
    }

    /// Whether all threads have ended.
    fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Hands records to the exporter. With [`WhenFull::Drop`] it waits for room until then at most, if at all, and
    /// not for a destination that fails.
    fn send(&self, records: Records, when_full: WhenFull, until: Option<Instant>) {
        let count = count_of(&records);
        let status = &self.status;
        let waits = || match when_full {
            WhenFull::Wait => true,
            WhenFull::Drop => {
                until.is_some_and(|until| Instant::now() < until) && status.failure().is_none()
            }
        };
        let fits = |waiting: u64| {
            let more = waiting.saturating_add(count);
            (waiting == 0 || more <= status.max_waiting).then_some(more)
        };
        while status.waiting.fetch_update(Relaxed, Relaxed, fits).is_err() {
            if !waits() || self.is_finished() {
                status.drop_records(&records);
                return;
            }
            thread::sleep(PAUSE);
        }
        if let Err(TrySendError::Full(records) | TrySendError::Disconnected(records)) =
            self.sender.try_send(records)
        {
            status.waiting.fetch_sub(count, Relaxed);
            status.drop_records(&records);
        }
    }

    /// Lets the exporter write what waits, at most until then, and returns the final counters.
    ///
    /// Records that still wait then are lost with the thread, and stay in `waiting`.
    fn finish(mut self, until: Instant, note: &mut impl FnMut(String)) -> ExportCounters {
        // The threads see that nothing more comes.
        self.status.ended.store(true, Relaxed);
        drop(std::mem::replace(&mut self.sender, sync_channel(0).0));
        while !self.is_finished() && Instant::now() < until {
            self.status.warning().into_iter().for_each(&mut *note);
            thread::sleep(PAUSE);
        }
        self.status.summary().into_iter().for_each(note);
        self.status.counters()
    }
}

fn count_of(records: &Records) -> u64 {
    to_u64(records.len())
}

/// Takes the next records once at least `from` wait; waits for them until `due`.
fn next_batch(
    batches: &Mutex<Receiver<Records>>,
    status: &ExportStatus,
    from: u64,
    due: Instant,
) -> Result<Records, RecvTimeoutError> {
    let left = due.saturating_duration_since(Instant::now());
    if from == 0 {
        return lock(batches).recv_timeout(left);
    }
    if status.waiting.load(Relaxed) < from {
        thread::sleep(left.min(HELPER_LOOK));
        // At the end, the other thread writes what is left.
        let is_over = status.ended.load(Relaxed);
        return Err(if is_over {
            RecvTimeoutError::Disconnected
        } else {
            RecvTimeoutError::Timeout
        });
    }
    lock(batches).recv_timeout(PAUSE)
}

/// Writes until the queue has ended; a helper only while at least `from` records wait.
fn run(
    mut exporter: Box<dyn Exporter>,
    batches: &Mutex<Receiver<Records>>,
    status: &ExportStatus,
    from: u64,
) {
    let mut due = Instant::now() + TICK;
    let (mut lost_before, mut is_broken) = (0, false);
    loop {
        let outcome = match next_batch(batches, status, from, due) {
            Ok(records) => {
                let outcome = exporter.write(&records);
                status.count(&records, outcome.is_ok());
                outcome
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let ticked = if Instant::now() < due {
            Ok(())
        } else {
            due = Instant::now() + TICK;
            exporter.not_queued(status.past().not_queued);
            let ticked = exporter.tick();
            let was_broken = std::mem::replace(&mut is_broken, ticked.is_err());
            if was_broken && !is_broken && from == 0 {
                status.past().counters.reconnects += 1;
            }
            ticked
        };
        let outcome = outcome.and(ticked);
        // That a helper has nothing to do ends no failure.
        if from == 0 || outcome.is_err() {
            status.note(outcome);
        }
        status.follow(&*exporter, &mut lost_before);
    }
    exporter.not_queued(status.past().not_queued);
    let flushed = exporter.flush();
    if from == 0 || flushed.is_err() {
        status.note(flushed);
    }
    status.follow(&*exporter, &mut lost_before);
}

impl ExportStatus {
    fn past(&self) -> MutexGuard<'_, ExportPast> {
        lock(&self.past)
    }

    /// The counters now.
    pub(crate) fn counters(&self) -> ExportCounters {
        ExportCounters {
            waiting: self.waiting.load(Relaxed),
            ..self.past().counters.clone()
        }
    }

    /// A line for the user when records have begun to be lost; only once.
    fn warning(&self) -> Option<String> {
        let mut past = self.past();
        let reason = self.reason(&past)?;
        let is_new = past.counters.lost() > 0 && !past.has_warned;
        past.has_warned |= is_new;
        let name = &past.counters.name;
        is_new.then(|| format!("{name}: records are being lost: {reason}"))
    }

    /// A line for the user about all records that were lost.
    fn summary(&self) -> Option<String> {
        let counters = self.counters();
        let lost = counters.lost() + counters.waiting;
        let all = counters.written + lost;
        let reason = (lost > 0).then(|| self.reason(&self.past())).flatten()?;
        let name = counters.name;
        Some(format!(
            "{name}: {lost} of {all} records were lost: {reason}"
        ))
    }

    /// Why records were lost; `None` if nobody reads them any more, or it is not known yet.
    fn reason(&self, past: &ExportPast) -> Option<String> {
        if past.counters.unread {
            return None;
        }
        let is_slow = past.counters.dropped_failed == 0;
        let slow = || {
            format!(
                "the destination takes them slower than they come, and {} wait at most",
                self.max_waiting
            )
        };
        // A failure is known at the latest with the next tick.
        past.reason.clone().or_else(|| is_slow.then(slow))
    }

    /// The failure that lasts, if one does.
    pub(crate) fn failure(&self) -> Option<String> {
        self.past().failure.clone()
    }

    /// Counts records that found the queue full.
    fn drop_records(&self, records: &Records) {
        let mut past = self.past();
        past.counters.dropped_queue_full += count_of(records);
        past.not_queued += FlowSum::from_records(records);
    }

    /// Counts records from the queue.
    fn count(&self, records: &Records, is_written: bool) {
        let (count, counters) = (count_of(records), &mut self.past().counters);
        if is_written {
            counters.written += count;
        } else {
            counters.dropped_failed += count;
        }
        self.waiting.fetch_sub(count, Relaxed);
    }

    fn note(&self, outcome: Result<(), ExportError>) {
        let mut past = self.past();
        past.failure = outcome.err().map(|error| error.to_string());
        if past.failure.is_some() {
            past.reason = past.failure.clone();
        }
    }

    /// Takes over what an exporter says of its reader and of records that had counted as written; `before` are those
    /// that it said already.
    fn follow(&self, exporter: &dyn Exporter, before: &mut u64) {
        let counters = &mut self.past().counters;
        counters.unread |= exporter.is_unread();
        let more = exporter.lost().saturating_sub(*before);
        *before += more;
        counters.written -= more;
        counters.dropped_failed += more;
    }
}

#[cfg(test)]
mod tests;
