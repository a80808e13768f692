// SPDX-License-Identifier: MIT OR Apache-2.0
//! One receive queue of a simulated NIC and the capture step that empties it, for either clock.
//!
//! Invariants
//! - Every packet that arrived waits in the ring, is captured, is wanted by nobody, or is lost:
//!   for want of a chunk if that is why the ring was full, else in the NIC.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use ringtap_filter::classifier::Verdict;
use ringtap_pool::writer::{LaneCounters, LaneWriter, PacketMeta};

use super::Link;
use super::frames::ByFlow;
use super::ring::Ring;
use super::spread::{Cursor, Steady};
use crate::classify::Judge;

/// What a lane counted, for other threads.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Odd while the numbers change.
    edition: AtomicU64,
    seen: AtomicU64,
    nic: AtomicU64,
    /// What comes meanwhile is lost.
    pub(super) is_paused: AtomicBool,
}

/// What came of a capture step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many packets left the ring.
    Took(u64),
    /// Packets wait, but no chunk is free.
    PoolFull,
    /// No packet waits.
    Nothing,
}

/// A queue with its lane.
pub(super) struct Lane {
    link: Arc<Link>,
    queue: u32,
    ring: Ring,
    cursor: Cursor,
    writer: LaneWriter,
    judge: Judge,
    progress: Arc<Progress>,
    /// A verdict on the first packet in the ring, and the rules' edition: it found no room.
    pending: Option<(Verdict, u64)>,
    lacks_chunk: bool,
    seen: u64,
    nic: u64,
    scratch: Vec<u8>,
}

/// Counters of a lane at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) seen: u64,
    pub(super) nic: u64,
    pub(super) captured: u64,
    pub(super) bytes: u64,
    pub(super) pool_full: u64,
    pub(super) unwanted: u64,
}

/// Stages packets of a queue whose flows take turns, as nothing else is as fast.
#[inline]
fn take_steady(
    writer: &mut LaneWriter,
    queue: u16,
    mut steady: Steady,
    frames: ByFlow<'_>,
    most: u64,
    time_ns: &impl Fn(u64) -> u64,
) -> u64 {
    for taken in 0..most {
        let packet = steady.take();
        let frame = frames.get(packet.flow);
        let meta = PacketMeta {
            time_ns: time_ns(packet.number),
            wire_length: frame.length,
            queue,
            hash: Some(frame.hash),
            ..PacketMeta::default()
        };
        if !writer.offer(&meta, [frame.bytes]) {
            return taken;
        }
    }
    most
}

/// How often counters are read again while they change.
const TRIES: usize = 2000;

impl Progress {
    /// The counters between two batches, as long as the lane's thread runs now and then.
    pub(super) fn moment(&self, lane: &LaneCounters, unwanted: impl Fn() -> u64) -> Moment {
        let read = || Moment {
            captured: lane.captured(),
            bytes: lane.bytes(),
            pool_full: lane.pool_full(),
            unwanted: unwanted(),
            nic: self.nic.load(Acquire),
            seen: self.seen.load(Acquire),
        };
        for _ in 0..TRIES {
            let before = self.edition.load(SeqCst);
            let moment = read();
            if before.is_multiple_of(2) && self.edition.load(SeqCst) == before {
                return moment;
            }
            std::thread::yield_now();
        }
        read()
    }
}

impl Lane {
    pub(super) fn new(link: Arc<Link>, queue: u32, writer: LaneWriter, judge: Judge) -> Self {
        Lane {
            ring: Ring::new(link.ring),
            cursor: Cursor::new(Arc::clone(&link.spread), queue),
            link,
            queue,
            writer,
            judge,
            progress: Arc::default(),
            pending: None,
            lacks_chunk: false,
            seen: 0,
            nic: 0,
            scratch: Vec::new(),
        }
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    pub(super) fn counters(&self) -> Arc<LaneCounters> {
        self.writer.counters()
    }

    /// Packets that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.ring.held()
    }

    /// Packets of this queue that have arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.ring.arrived()
    }

    /// All packets of this queue below `until` have arrived; those without a place are lost.
    pub(super) fn arrive(&mut self, until: u64) {
        let paused = self.progress.is_paused.load(Relaxed);
        let lost = self.ring.arrive(until);
        if lost == 0 {
            return;
        }
        self.change(|lane| {
            if lane.lacks_chunk || paused {
                lane.seen += lost;
                lane.writer.count_lost(lost);
            } else {
                lane.nic += lost;
            }
        });
    }

    /// As many arrive as there is room for: the link waits for us. `until` is the last.
    pub(super) fn fill(&mut self, until: u64) {
        let arrived = self.ring.arrived().saturating_add(self.ring.room());
        self.ring.arrive(arrived.min(until));
    }

    /// Copies at most so many packets from the ring into the pool and publishes them. `time_ns`
    /// gives the time of the packet of this number.
    #[inline]
    pub(super) fn capture(&mut self, most: u64, time_ns: impl Fn(u64) -> u64) -> Step {
        if self.ring.held() == 0 {
            return Step::Nothing;
        }
        if self.progress.is_paused.load(Relaxed) {
            return Step::PoolFull;
        }
        let before = self.seen;
        self.change(|lane| {
            lane.judge.begin();
            lane.lacks_chunk = false;
            while lane.seen - before < most && !lane.lacks_chunk {
                let Some(waiting) = lane.ring.first() else {
                    break;
                };
                lane.cursor.seek(waiting.start);
                let left = most - (lane.seen - before);
                let most = left.min(waiting.end - waiting.start);
                let taken = match lane.judge.has_rules() {
                    true => lane.take_judged(most, &time_ns),
                    false => lane.take_all(most, &time_ns),
                };
                lane.ring.pop(taken);
                lane.seen += taken;
                lane.lacks_chunk = taken < most;
            }
            lane.writer.publish();
            lane.judge.end();
        });
        match self.seen - before {
            0 => Step::PoolFull,
            taken => Step::Took(taken),
        }
    }

    /// Stages packets from the cursor on, until there is no room; gives how many.
    #[inline]
    fn take_all(&mut self, most: u64, time_ns: &impl Fn(u64) -> u64) -> u64 {
        match (self.cursor.steady(), self.link.frames.by_flow()) {
            (Some(steady), Some(frames)) => {
                let queue = u16::try_from(self.queue).unwrap_or(u16::MAX);
                let writer = &mut self.writer;
                let taken = take_steady(writer, queue, steady, frames, most, time_ns);
                self.cursor.skip(taken);
                taken
            }
            _ => self.take_any(most, time_ns),
        }
    }

    /// As `take_all`, whatever the packets are.
    fn take_any(&mut self, most: u64, time_ns: &impl Fn(u64) -> u64) -> u64 {
        let queue = u16::try_from(self.queue).unwrap_or(u16::MAX);
        for taken in 0..most {
            let packet = self.cursor.get();
            let time_ns = time_ns(packet.number);
            let frame = self.link.frames.get(packet, time_ns, &mut self.scratch);
            let meta = PacketMeta {
                time_ns,
                wire_length: frame.length,
                queue,
                hash: Some(frame.hash),
                ..PacketMeta::default()
            };
            if !self.writer.offer(&meta, [frame.bytes]) {
                return taken;
            }
            self.cursor.advance();
        }
        most
    }

    /// As `take_all`, but only those that somebody wants take room.
    fn take_judged(&mut self, most: u64, time_ns: &impl Fn(u64) -> u64) -> u64 {
        for taken in 0..most {
            if !self.take(time_ns) {
                return taken;
            }
            self.cursor.advance();
        }
        most
    }

    /// Stages the packet at the cursor, if anybody wants it; `false` if there is no room.
    fn take(&mut self, time_ns: &impl Fn(u64) -> u64) -> bool {
        let packet = self.cursor.get();
        let time_ns = time_ns(packet.number);
        let frame = self.link.frames.get(packet, time_ns, &mut self.scratch);
        let edition = self.judge.edition();
        let pending = self.pending.take().filter(|(_, under)| *under == edition);
        let verdict = match pending {
            Some((verdict, _)) => Some(verdict),
            None => {
                let kept = self.writer.captured_length(frame.bytes.len());
                self.judge.judge(&frame.bytes[..kept], frame.length)
            }
        };
        let Some(verdict) = verdict else {
            return true;
        };
        let meta = PacketMeta {
            time_ns,
            wire_length: frame.length,
            queue: u16::try_from(self.queue).unwrap_or(u16::MAX),
            mask: verdict.mask,
            hash: Some(verdict.hash.unwrap_or(frame.hash)),
            ..PacketMeta::default()
        };
        let fits = self.writer.offer(&meta, [frame.bytes]);
        if !fits {
            self.pending = Some((verdict, edition));
        }
        fits
    }

    /// Changes counters that others read together.
    #[inline]
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        self.progress.edition.fetch_add(1, SeqCst);
        change(self);
        self.progress.seen.store(self.seen, Release);
        self.progress.nic.store(self.nic, Release);
        self.progress.edition.fetch_add(1, SeqCst);
    }
}
