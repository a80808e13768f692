// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins the workers' results of each interval.
//!
//! Invariants
//! - A result appears once all workers have passed its interval, or have ended.
//! - The worker after the last has the analyses in the kernel, for itself.
//! - At most [`MAX_WAITING`] intervals wait; beyond it, the oldest appears without the missing results.

use std::collections::{BTreeMap, HashMap};

use crate::analysis::Meter;
use crate::interval::Interval;
use crate::record::Measurement;

/// Intervals of all analyses that may wait for a worker.
const MAX_WAITING: usize = 256;

/// Results of one worker for one interval of one analysis.
pub(crate) struct WorkerResult {
    pub(crate) worker: usize,
    pub(crate) analysis: String,
    pub(crate) interval: Interval,
    /// Times of the first and the last packet.
    pub(crate) seen: Interval,
    pub(crate) meter: Meter,
}

/// The results of one interval of an analysis; none if no packet came.
pub(crate) struct IntervalResult {
    pub(crate) analysis: String,
    pub(crate) measurements: Vec<Measurement>,
}

/// Results of intervals that some worker has not passed yet.
pub(crate) struct Merger {
    workers: usize,
    ended: Vec<bool>,
    /// The interval that each worker reported last, for each analysis.
    passed: HashMap<String, Vec<Option<Interval>>>,
    waiting: BTreeMap<(Interval, String), (Meter, Interval)>,
}

impl Merger {
    pub(crate) fn new(workers: usize) -> Self {
        Merger {
            workers,
            ended: vec![false; workers + 1],
            passed: HashMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Adds the results of a worker; appends results that are complete now.
    pub(crate) fn add(&mut self, result: WorkerResult, results: &mut Vec<IntervalResult>) {
        let passed = self.passed.entry(result.analysis.clone());
        let passed = passed.or_insert_with(|| {
            if result.worker < self.workers {
                vec![None; self.workers]
            } else {
                // For these, all others have passed every interval.
                [vec![Some(Interval::LAST); self.workers], vec![None]].concat()
            }
        });
        if let Some(passed) = passed.get_mut(result.worker) {
            *passed = Some(result.interval);
        }
        let place = (result.interval, result.analysis);
        match self.waiting.get_mut(&place) {
            Some((meter, seen)) => {
                meter.merge(result.meter);
                *seen = seen.joined(result.seen);
            }
            None => {
                self.waiting.insert(place, (result.meter, result.seen));
            }
        }
        self.take_complete(results);
        while self.waiting.len() > MAX_WAITING
            && let Some((place, value)) = self.waiting.pop_first()
        {
            emit(place, value, results);
        }
    }

    /// A worker that had ended sends results again.
    pub(crate) fn resume(&mut self, worker: usize) {
        if let Some(ended) = self.ended.get_mut(worker) {
            *ended = false;
        }
    }

    /// A worker sends no more results.
    pub(crate) fn end(&mut self, worker: usize, results: &mut Vec<IntervalResult>) {
        if let Some(ended) = self.ended.get_mut(worker) {
            *ended = true;
        }
        self.take_complete(results);
    }

    /// Appends all that waits.
    pub(crate) fn finish(&mut self, results: &mut Vec<IntervalResult>) {
        while let Some((place, value)) = self.waiting.pop_first() {
            emit(place, value, results);
        }
    }

    fn take_complete(&mut self, results: &mut Vec<IntervalResult>) {
        let is_complete = |(interval, analysis): &(Interval, String)| {
            let passed = self.passed.get(analysis);
            let mut workers = passed.into_iter().flatten().zip(&self.ended);
            workers
                .all(|(passed, ended)| *ended || passed.is_some_and(|passed| passed >= *interval))
        };
        let complete: Vec<_> = self
            .waiting
            .keys()
            .filter(|place| is_complete(place))
            .cloned()
            .collect();
        for place in complete {
            if let Some(value) = self.waiting.remove(&place) {
                emit(place, value, results);
            }
        }
    }
}

fn emit(
    (interval, analysis): (Interval, String),
    (meter, seen): (Meter, Interval),
    results: &mut Vec<IntervalResult>,
) {
    // An interval without a start or an end is as long as its packets.
    let is_open = interval.from_ns == 0 || interval.to_ns == u64::MAX;
    if is_open && seen == Interval::NONE {
        return;
    }
    let from_ns = match interval.from_ns {
        0 => seen.from_ns,
        from_ns => from_ns,
    };
    let to_ns = match interval.to_ns {
        u64::MAX => seen.to_ns,
        to_ns => to_ns,
    };
    results.push(IntervalResult {
        measurements: meter.results(&analysis, from_ns, to_ns),
        analysis,
    });
}
