// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receive queue in virtual time: times of its packets' arrivals and copies.

use std::sync::atomic::Ordering::Relaxed;

use super::LaneOutcome;
use crate::sim::lane::{CaptureStep, SimQueue};

/// A queue, its capture thread and their clocks.
pub(super) struct VirtualQueue {
    queue: SimQueue,
    capture_ps: u64,
    /// Packets that will have arrived in the end.
    last: u64,
    /// Time at which the capture thread has copied its packet.
    pub(super) copied_ps: Option<u64>,
    /// The capture thread waits for a chunk.
    lacks_chunk: bool,
    pub(super) max_chunks: u32,
}

impl VirtualQueue {
    pub(super) fn new(queue: SimQueue, capture_ps: u64) -> Self {
        VirtualQueue {
            last: queue.link.packets_of(queue.number),
            queue,
            capture_ps,
            copied_ps: None,
            lacks_chunk: false,
            max_chunks: 0,
        }
    }

    /// Arrival of the next packet, unless `retry` will account for it.
    pub(super) fn next_arrival_ps(&self) -> Option<u64> {
        let next = self.queue.ring.arrived();
        let is_awaited = next < self.last && !self.lacks_chunk;
        is_awaited.then(|| self.queue.link.time_of(self.queue.number, next))
    }

    /// The next packet arrives.
    pub(super) fn arrive(&mut self, now_ps: u64) {
        self.queue.arrive(self.queue.ring.arrived() + 1);
        if self.copied_ps.is_none() {
            self.begin(now_ps);
        }
    }

    /// The capture thread puts the packet that it copied into the pool.
    pub(super) fn copy(&mut self, now_ps: u64) {
        self.copied_ps = None;
        self.take(now_ps);
    }

    /// Captures again if the capture thread waits for a chunk: chunks may have come back.
    pub(super) fn retry(&mut self, now_ps: u64) {
        if self.lacks_chunk {
            // Packets from before this moment found the ring as it was.
            self.catch_up(now_ps.saturating_sub(1));
            self.lacks_chunk = false;
            self.take(now_ps);
        }
    }

    /// Begins to copy the packet that has waited longest.
    fn begin(&mut self, now_ps: u64) {
        if self.queue.ring.held() == 0 {
            return;
        }
        if self.capture_ps > 0 {
            self.copied_ps = Some(now_ps + self.capture_ps);
        } else {
            self.take(now_ps);
        }
    }

    fn take(&mut self, now_ps: u64) {
        let most = if self.capture_ps > 0 { 1 } else { u64::MAX };
        match self.queue.capture(most, |_| now_ps / 1000) {
            CaptureStep::PoolFull => self.lacks_chunk = true,
            CaptureStep::Captured => self.begin(now_ps),
            CaptureStep::RingEmpty => {}
        }
    }

    /// Lets all packets arrive that are due by then.
    fn catch_up(&mut self, until_ps: u64) {
        let due = self.queue.link.due_of(self.queue.number, until_ps);
        self.queue.arrive(due);
    }

    /// Ends capture: seals the open chunk.
    pub(super) fn close(&mut self) {
        self.catch_up(u64::MAX);
        self.lacks_chunk = false;
        self.queue.close();
    }

    pub(super) fn outcome(&self) -> LaneOutcome {
        let state = self.queue.state();
        let counts = state.totals.counts();
        LaneOutcome {
            arrived: self.last,
            captured: counts.delivered,
            filtered: counts.filtered,
            nic: state.nic.load(Relaxed),
            pool_full: counts.dropped.pool_full,
            max_chunks: self.max_chunks,
        }
    }
}
