// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounded queues in front of the exporters' threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringtap::{CapabilitySet, limit_thread};
use ringtap_pool::number::{to_u64, to_usize};

use super::{ExportCounters, ExportError, Exporter};
use crate::record::Record;

/// Time between two calls of [`Exporter::tick`].
const TICK: Duration = Duration::from_secs(1);
/// Pause of a sender that waits for room, or for the end.
const PAUSE: Duration = Duration::from_millis(2);
/// Records that may wait for each exporter.
const MOST_WAITING: u32 = 100_000;

/// What a sender does when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Drop the records and count them: for live captures.
    Drop,
    /// Wait for room: for files, which wait too.
    Wait,
}

impl WhenFull {
    /// Longest wait for each exporter at the end.
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
}

/// An exporter's thread and its queue.
struct ExportQueue {
    sender: SyncSender<Records>,
    account: Arc<ExportAccount>,
    thread: JoinHandle<()>,
}

/// The counters of an exporter, for any thread.
#[derive(Default)]
pub(crate) struct ExportAccount {
    name: String,
    written: AtomicU64,
    queue_full: AtomicU64,
    failed: AtomicU64,
    waiting: AtomicU64,
    reconnects: AtomicU64,
    most_waiting: u64,
    failure: Mutex<Option<String>>,
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
        let queues = exporters.into_iter();
        let queues = queues.map(|exporter| ExportQueue::start(exporter, MOST_WAITING));
        let queues = queues.collect::<Result<_, _>>()?;
        Ok(ExportQueues { queues, when_full })
    }

    /// Whether packets come by themselves, so that no worker may wait.
    pub(crate) fn is_live(&self) -> bool {
        self.when_full == WhenFull::Drop
    }

    /// The accounts of all exporters.
    pub(crate) fn accounts(&self) -> Vec<Arc<ExportAccount>> {
        let queues = self.queues.iter();
        queues.map(|queue| Arc::clone(&queue.account)).collect()
    }

    /// Sends records to all exporters, and empties the list.
    pub(crate) fn send(&self, records: &mut Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let shared: Records = records.drain(..).collect();
        for queue in &self.queues {
            queue.send(Records::clone(&shared), self.when_full);
        }
    }

    /// Lets all exporters write what waits, at most for `limit` each; returns the final counters.
    pub(crate) fn finish(self, limit: Duration) -> Vec<ExportCounters> {
        let queues = self.queues.into_iter();
        queues.map(|queue| queue.finish(limit)).collect()
    }
}

impl ExportQueue {
    /// Starts the exporter's thread; at most `records` wait for it.
    fn start(exporter: Box<dyn Exporter>, records: u32) -> Result<Self, ExportError> {
        let account = Arc::new(ExportAccount {
            name: exporter.name(),
            most_waiting: records.into(),
            ..ExportAccount::default()
        });
        // A batch has at least one record, so the account is the stricter bound.
        let (sender, batches) = sync_channel(to_usize(records).max(1));
        let (own, builder) = (Arc::clone(&account), thread::Builder::new());
        let builder = builder.name("export".into());
        let thread = builder.spawn(move || {
            // The answers of collectors are foreign.
            let _keeps_them = limit_thread(CapabilitySet::empty());
            run(exporter, &batches, &own)
        })?;
        Ok(ExportQueue {
            sender,
            account,
            thread,
        })
    }

    /// Hands records to the exporter. With [`WhenFull::Drop`] it never waits.
    fn send(&self, records: Records, when_full: WhenFull) {
        let count = count_of(&records);
        let account = &self.account;
        let fits = |waiting: u64| {
            let more = waiting.saturating_add(count);
            (waiting == 0 || more <= account.most_waiting).then_some(more)
        };
        while account
            .waiting
            .fetch_update(Relaxed, Relaxed, fits)
            .is_err()
        {
            if when_full == WhenFull::Drop || self.thread.is_finished() {
                account.queue_full.fetch_add(count, Relaxed);
                return;
            }
            thread::sleep(PAUSE);
        }
        if self.sender.try_send(records).is_err() {
            account.waiting.fetch_sub(count, Relaxed);
            account.queue_full.fetch_add(count, Relaxed);
        }
    }

    /// Lets the exporter write what waits, at most for `limit`, and returns the final counters.
    ///
    /// Records that still wait then are lost with the thread, and stay in `waiting`.
    fn finish(self, limit: Duration) -> ExportCounters {
        drop(self.sender);
        let started = Instant::now();
        while !self.thread.is_finished() && started.elapsed() < limit {
            thread::sleep(PAUSE);
        }
        self.account.counters()
    }
}

fn count_of(records: &Records) -> u64 {
    to_u64(records.len())
}

fn run(mut exporter: Box<dyn Exporter>, batches: &Receiver<Records>, account: &ExportAccount) {
    let mut due = Instant::now() + TICK;
    let (mut lost_before, mut is_broken) = (0, false);
    loop {
        let left = due.saturating_duration_since(Instant::now());
        let outcome = match batches.recv_timeout(left) {
            Ok(records) => {
                let outcome = exporter.write(&records);
                let counter = match outcome {
                    Ok(()) => &account.written,
                    Err(_) => &account.failed,
                };
                counter.fetch_add(count_of(&records), Relaxed);
                account.waiting.fetch_sub(count_of(&records), Relaxed);
                outcome
            }
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let ticked = match Instant::now() < due {
            true => Ok(()),
            false => {
                due = Instant::now() + TICK;
                let ticked = exporter.tick();
                let was_broken = std::mem::replace(&mut is_broken, ticked.is_err());
                if was_broken && !is_broken {
                    account.reconnects.fetch_add(1, Relaxed);
                }
                ticked
            }
        };
        account.note(outcome.and(ticked));
        account.move_lost(exporter.lost(), &mut lost_before);
    }
    account.note(exporter.flush());
    account.move_lost(exporter.lost(), &mut lost_before);
}

impl ExportAccount {
    /// The counters now.
    pub(crate) fn counters(&self) -> ExportCounters {
        ExportCounters {
            name: self.name.clone(),
            written: self.written.load(Relaxed),
            dropped_queue_full: self.queue_full.load(Relaxed),
            dropped_failed: self.failed.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
        }
    }

    /// The failure that lasts, if one does.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = self.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, outcome: Result<(), ExportError>) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *failure = outcome.err().map(|error| error.to_string());
    }

    /// Counts records as failed that had counted as written.
    fn move_lost(&self, lost: u64, before: &mut u64) {
        let more = lost.saturating_sub(*before);
        *before = lost;
        self.written.fetch_sub(more, Relaxed);
        self.failed.fetch_add(more, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Measurement;

    /// Waits for a permit before each batch; fails if the permit says so.
    struct Gated(Receiver<Result<(), ExportError>>);

    impl Exporter for Gated {
        fn name(&self) -> String {
            "gated".into()
        }

        fn write(&mut self, _: &[Record]) -> Result<(), ExportError> {
            self.0.recv().unwrap_or(Ok(()))
        }

        fn flush(&mut self) -> Result<(), ExportError> {
            Ok(())
        }
    }

    fn records(count: usize) -> Records {
        let one = Measurement {
            analysis: "test".into(),
            name: "test".into(),
            key: None,
            from_ns: 0,
            to_ns: 0,
            values: Vec::new(),
        };
        vec![Record::Measurement(Box::new(one)); count].into()
    }

    #[test]
    fn a_stopped_exporter_delays_nobody_and_each_record_is_counted() {
        let (permits, gate) = sync_channel(1000);
        let queue = ExportQueue::start(Box::new(Gated(gate)), 100).expect("a thread");
        for _ in 0..50 {
            queue.send(records(10), WhenFull::Drop);
        }
        let counters = queue.account.counters();
        assert_eq!(counters.dropped_queue_full, 400, "{counters:?}");
        assert_eq!(counters.waiting, 100, "{counters:?}");
        permits
            .send(Err(ExportError("gone".into())))
            .expect("it runs");
        drop(permits);
        let counters = queue.finish(Duration::from_secs(300));
        let want = ExportCounters {
            name: "gated".into(),
            written: 90,
            dropped_queue_full: 400,
            dropped_failed: 10,
            waiting: 0,
            reconnects: 0,
        };
        assert_eq!(counters, want);
    }

    #[test]
    fn the_end_does_not_wait_for_a_stopped_exporter_for_ever() {
        let (_permits, gate) = sync_channel(1);
        let queue = ExportQueue::start(Box::new(Gated(gate)), 100).expect("a thread");
        queue.send(records(7), WhenFull::Drop);
        let counters = queue.finish(Duration::from_millis(50));
        assert_eq!(counters.waiting, 7);
    }
}
