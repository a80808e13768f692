// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receive queue in virtual time: when its packets arrive, when each is copied.
#![forbid(unsafe_code)]

use std::sync::Arc;

use ringtap_pool::classify::Rules;
use ringtap_pool::ids::LaneId;

use super::LaneOutcome;
use crate::sim::lane::{Lane, Step};
use crate::sim::spread::Cursor;
use crate::sim::{Link, Queue as Counters, SimError};
use ringtap_filter::LinkType;

/// A queue, its capture thread and their clocks.
pub(super) struct Queue {
    link: Arc<Link>,
    queue: u32,
    lane: Option<Lane>,
    counters: Counters,
    capture_ps: u64,
    /// The next packet to arrive, and when; absent while arrivals are made up for at once.
    cursor: Cursor,
    next: u64,
    last: u64,
    copied_ps: Option<u64>,
    /// The capture thread waits for a chunk.
    lacks_chunk: bool,
    pub(super) most_chunks: u32,
}

impl Queue {
    pub(super) fn new(
        link: &Arc<Link>,
        queue: u32,
        lane: Lane,
        counters: Counters,
        capture_ps: u64,
    ) -> Self {
        Queue {
            cursor: Cursor::new(Arc::clone(&link.spread), queue),
            last: link.packets_of(queue),
            link: Arc::clone(link),
            queue,
            lane: Some(lane),
            counters,
            capture_ps,
            next: 0,
            copied_ps: None,
            lacks_chunk: false,
            most_chunks: 0,
        }
    }

    /// Has packets judged by these rules from now on.
    pub(super) fn judge_by(&self, rules: &Rules) -> Result<(), SimError> {
        let set = self
            .counters
            .rulebook
            .set(rules, "sim:", LinkType::ETHERNET);
        set.map(drop)
            .map_err(|error| SimError::Run(error.to_string()))
    }

    /// When the next packet arrives that changes anything at once.
    pub(super) fn next_arrival_ps(&self) -> Option<u64> {
        let is_awaited = self.next < self.last && !self.lacks_chunk;
        is_awaited.then(|| self.link.wire.time_ps(self.cursor.get().number))
    }

    /// When the capture thread is done with a packet.
    pub(super) fn copied_ps(&self) -> Option<u64> {
        self.copied_ps
    }

    /// The next packet arrives.
    pub(super) fn arrive(&mut self, now_ps: u64) {
        self.next += 1;
        self.cursor.advance();
        let Some(lane) = &mut self.lane else {
            return;
        };
        lane.arrive(self.next);
        if self.copied_ps.is_none() {
            self.begin(now_ps);
        }
    }

    /// The capture thread puts the packet that it copied into the pool.
    pub(super) fn copy(&mut self, now_ps: u64) {
        self.copied_ps = None;
        self.take(now_ps);
    }

    /// Chunks may have come back.
    pub(super) fn room_may_be(&mut self, now_ps: u64) {
        if !self.lacks_chunk {
            return;
        }
        // What came before this moment found the ring as it was.
        self.catch_up(now_ps.saturating_sub(1));
        self.lacks_chunk = false;
        self.take(now_ps);
    }

    /// Begins to copy what waits longest.
    fn begin(&mut self, now_ps: u64) {
        let waits = self.lane.as_ref().is_some_and(|lane| lane.waiting() > 0);
        if waits && self.capture_ps > 0 {
            self.copied_ps = Some(now_ps + self.capture_ps);
        } else if waits {
            self.take(now_ps);
        }
    }

    fn take(&mut self, now_ps: u64) {
        let most = if self.capture_ps > 0 { 1 } else { u64::MAX };
        let Some(lane) = &mut self.lane else {
            return;
        };
        match lane.capture(most, |_| now_ps / 1000) {
            Step::PoolFull => self.lacks_chunk = true,
            Step::Took(_) => self.begin(now_ps),
            Step::Nothing => {}
        }
    }

    /// Lets all arrive that came by then, while the capture thread waits for a chunk.
    fn catch_up(&mut self, until_ps: u64) {
        let due = self.link.due_of(self.queue, until_ps);
        if due <= self.next {
            return;
        }
        if let Some(lane) = &mut self.lane {
            lane.arrive(due);
        }
        self.next = due;
        self.cursor.seek(due);
    }

    /// Nothing is captured any more.
    pub(super) fn close(&mut self) {
        self.catch_up(u64::MAX);
        self.lane = None;
    }

    pub(super) fn outcome(&self, lane: LaneId) -> LaneOutcome {
        let Counters {
            progress,
            lane: counters,
            rulebook,
        } = &self.counters;
        let moment = progress.moment(counters, || rulebook.unwanted());
        LaneOutcome {
            lane,
            arrived: self.last,
            captured: moment.captured,
            unwanted: moment.unwanted,
            nic: moment.nic,
            pool_full: moment.pool_full,
            most_chunks: self.most_chunks,
        }
    }
}
