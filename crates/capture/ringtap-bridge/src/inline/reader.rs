// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the inline reader: connected or not, in time or late.
//!
//! An inline reader is *late* once a packet waited longer than the timeout. Until the reader has
//! caught up, it sees packets, and none waits for a verdict.
//!
//! Invariants
//! - No packet waits longer than the timeout, or for a reader that is not connected.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use ringtap_capture::tap::{InlineControl, InlineState};
use ringtap_ipc::verdict::{PacketVerdict, Verdict, VerdictChannel, VerdictQueue};

use super::shared::InlineShared;
use super::waiting::Fate;
use crate::InlineOptions;

/// Interval at which a busy bridge checks whether the inline reader is connected.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The point from which a verdict shows that a late reader has caught up.
struct Mark {
    at: Instant,
    /// Sequence number of the next packet, for each lane.
    sequences: Vec<u64>,
}

/// The bridge's side of its inline reader.
pub(super) struct InlineReader {
    channel: Arc<VerdictChannel>,
    pub(super) queue: Option<VerdictQueue>,
    timeout: Duration,
    no_verdict: Verdict,
    late: Option<Mark>,
    /// Time of the last connection check.
    looked: Instant,
    controls: [InlineControl; 2],
    shared: Arc<InlineShared>,
}

/// Whether the inline reader is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Unchanged,
    /// It has left; its verdicts on flows end.
    Left,
}

impl InlineReader {
    pub(super) fn new(
        options: &InlineOptions,
        channel: Arc<VerdictChannel>,
        controls: [InlineControl; 2],
        shared: Arc<InlineShared>,
    ) -> Self {
        InlineReader {
            channel,
            queue: None,
            timeout: options.timeout,
            no_verdict: options.no_verdict,
            late: None,
            looked: Instant::now(),
            controls,
            shared,
        }
    }

    /// Fate of a packet without a verdict.
    pub(super) fn no_verdict(&self) -> Fate {
        Fate::NoVerdict(self.no_verdict)
    }

    /// Whether packets wait for verdicts.
    pub(super) fn answers(&self) -> bool {
        self.queue.is_some() && self.late.is_none()
    }

    /// Remaining wait of a packet that arrived at `since`.
    pub(super) fn left(&self, since: Instant, now: Instant) -> Duration {
        self.timeout
            .saturating_sub(now.saturating_duration_since(since))
    }

    /// Accepts a new inline reader, and checks from time to time whether it is still connected.
    pub(super) fn look(&mut self, now: Instant) -> Presence {
        if self.queue.is_none()
            && let Some(queue) = self.channel.arrived()
        {
            self.queue = Some(queue);
            self.looked = now;
            self.late = None;
            self.tell();
        }
        if now.saturating_duration_since(self.looked) >= LOOK_INTERVAL {
            self.looked = now;
            return self.wake_up();
        }
        Presence::Unchanged
    }

    /// Receives the next verdict; `Err` if the reader is gone.
    pub(super) fn next(&mut self) -> Result<Option<PacketVerdict>, Presence> {
        let Some(queue) = &mut self.queue else {
            return Ok(None);
        };
        queue.take().map_err(|_| self.end())
    }

    /// Clears the inline reader's signals, and detects its departure.
    pub(super) fn wake_up(&mut self) -> Presence {
        let is_gone = |queue: &VerdictQueue| queue.wake_up().is_err();
        if self.queue.as_ref().is_some_and(is_gone) {
            self.end()
        } else {
            Presence::Unchanged
        }
    }

    /// Ends the connection of a reader that left or broke the protocol.
    fn end(&mut self) -> Presence {
        self.queue = None;
        self.late = None;
        self.tell();
        self.channel.left();
        Presence::Left
    }

    /// Marks the reader as late; `sequences` are those of the lanes' next packets.
    pub(super) fn is_late(&mut self, sequences: Vec<u64>, now: Instant) {
        self.late = Some(Mark { at: now, sequences });
        self.shared.late_count.fetch_add(1, Relaxed);
        self.tell();
    }

    /// Marks a late reader as caught up if the verdict is for a new enough packet.
    pub(super) fn received(
        &mut self,
        verdict: &PacketVerdict,
        next: impl Fn() -> Vec<u64>,
        now: Instant,
    ) {
        let Some(mark) = &self.late else { return };
        let lane = verdict.lane.index();
        let is_newest = |next: &[u64]| {
            let newest = next.get(lane).and_then(|next| next.checked_sub(1));
            newest.is_some_and(|newest| verdict.is_of(newest))
        };
        let Some(marked) = mark.sequences.get(lane) else {
            return;
        };
        let is_after = verdict.distance_from(*marked) < PacketVerdict::FAR;
        let sequences = next();
        if is_newest(&sequences) || (is_after && self.left(mark.at, now) > Duration::ZERO) {
            self.late = None;
            self.tell();
        } else if is_after {
            self.late = Some(Mark { at: now, sequences });
        }
    }

    fn tell(&self) {
        let state = match (&self.queue, &self.late) {
            (None, _) => InlineState::Absent,
            (Some(_), None) => InlineState::Deciding,
            (Some(_), Some(_)) => InlineState::Late,
        };
        let mask = self.queue.as_ref().map_or(0, VerdictQueue::mask);
        for control in &self.controls {
            control.set(mask, state);
        }
        self.shared.state.store(state as u32, Release);
    }
}
