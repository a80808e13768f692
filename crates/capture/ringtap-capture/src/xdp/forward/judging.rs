// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bridge's side of its judge: whether there is one, whether it answers in time.
//!
//! A judge that lets packets wait for too long is *late*: what waits is given up, and what comes is
//! not kept waiting, until it has caught up.
//!
//! Invariants
//! - Nothing waits for longer than the limit, and nothing waits for a judge that is not there.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use ringtap_ipc::verdict::{Bench, Judgement, Session, Verdict};

use super::shared::{JudgeState, Shared};
use super::waiting::Fate;

/// How often it is looked whether a judge is there while the bridge does not sleep.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How a bridge is judged by a reader.
#[derive(Clone, Debug)]
pub struct JudgeOptions {
    /// The group that the judge is a reader of.
    pub group: String,
    /// What becomes of packets that nobody judged.
    pub unjudged: Verdict,
    /// How long a packet waits.
    pub limit: Duration,
}

/// The moment from which on a late judge's verdicts show that it has caught up.
struct Mark {
    at: Instant,
    /// The next packet's sequence on each lane.
    sequences: Vec<u64>,
}

/// The bridge's side of its judge.
pub(super) struct Judging {
    bench: Arc<Bench>,
    pub(super) session: Option<Session>,
    limit: Duration,
    unjudged: Verdict,
    late: Option<Mark>,
    /// When it was last looked whether the judge is there.
    looked: Instant,
    shared: Arc<Shared>,
}

impl Judging {
    pub(super) fn new(options: &JudgeOptions, bench: Arc<Bench>, shared: Arc<Shared>) -> Self {
        Judging {
            bench,
            session: None,
            limit: options.limit,
            unjudged: options.unjudged,
            late: None,
            looked: Instant::now(),
            shared,
        }
    }

    /// What becomes of packets that nobody judged.
    pub(super) fn unjudged(&self) -> Fate {
        Fate::Unjudged(self.unjudged)
    }

    /// Whether packets wait for verdicts.
    pub(super) fn answers(&self) -> bool {
        self.session.is_some() && self.late.is_none()
    }

    /// How long a packet waits that came at this time, from now on.
    pub(super) fn left(&self, since: Instant, now: Instant) -> Duration {
        self.limit
            .saturating_sub(now.saturating_duration_since(since))
    }

    /// Lets a judge in that has come, and looks now and then whether it is there.
    pub(super) fn look(&mut self, now: Instant) {
        if self.session.is_none()
            && let Some(session) = self.bench.arrived()
        {
            self.session = Some(session);
            self.looked = now;
            self.late = None;
            self.tell();
        }
        if now.saturating_duration_since(self.looked) >= LOOK_INTERVAL {
            self.looked = now;
            self.wake_up();
        }
    }

    /// The judge's next verdict.
    pub(super) fn next(&mut self) -> Option<Judgement> {
        match self.session.as_mut()?.take() {
            Ok(judgement) => judgement,
            Err(_) => {
                self.end();
                None
            }
        }
    }

    /// Forgets the judge's signals; whether it is still there shows by the way.
    pub(super) fn wake_up(&mut self) {
        if self
            .session
            .as_ref()
            .is_some_and(|session| session.wake_up().is_err())
        {
            self.end();
        }
    }

    /// The judge has left, or is of no use.
    fn end(&mut self) {
        if self.session.take().is_some() {
            self.bench.left();
            self.late = None;
            self.tell();
        }
    }

    /// It let a packet wait for too long; `sequences` are those of the lanes' next packets.
    pub(super) fn is_late(&mut self, sequences: Vec<u64>, now: Instant) {
        self.late = Some(Mark { at: now, sequences });
        self.shared.judge_lates.fetch_add(1, Relaxed);
        self.tell();
    }

    /// A late judge said something: whether it has caught up follows from what it was about.
    pub(super) fn heard(
        &mut self,
        judgement: &Judgement,
        next: impl Fn() -> Vec<u64>,
        now: Instant,
    ) {
        let Some(mark) = &self.late else { return };
        let lane = judgement.lane.index();
        let is_newest = |next: &[u64]| {
            let newest = next.get(lane).and_then(|next| next.checked_sub(1));
            newest.is_some_and(|newest| judgement.is_of(newest))
        };
        let Some(marked) = mark.sequences.get(lane) else {
            return;
        };
        let is_after = judgement.distance_from(*marked) < Judgement::FAR;
        let sequences = next();
        if is_newest(&sequences) || (is_after && self.left(mark.at, now) > Duration::ZERO) {
            self.late = None;
            self.tell();
        } else if is_after {
            self.late = Some(Mark { at: now, sequences });
        }
    }

    fn tell(&self) {
        let state = match (&self.session, &self.late) {
            (None, _) => JudgeState::Absent,
            (Some(_), None) => JudgeState::Judging,
            (Some(_), Some(_)) => JudgeState::Late,
        };
        self.shared.judge.store(state as u32, Release);
    }
}
