// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread of the packets that wait for an inline reader: reads them as the taps capture them, receives verdicts, and
//! sends what passes.
//!
//! Invariants
//! - A waiting packet is sent, dropped or counted as lost, once.
//! - An interface without room, and an inline reader that does not answer, delay nothing beyond the timeout.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use ringtap_capture::tap::Forwarded;
use ringtap_filter::flow::FlowPacket;
use ringtap_filter::hash::Link;
use ringtap_ipc::doorbell::ReaderDoorbell;
use ringtap_ipc::verdict::{Lasting, PacketVerdict, Verdict};
use ringtap_pool::number::to_u32;
use ringtap_pool::reader::{ChunkBatch, NextBatch, Reader, Sleeper};
use ringtap_pool::wake::FIRST_SLEEP;
use rustix::event::{PollFd, PollFlags, epoll, poll};

use super::checksum::completion;
use super::flows::DecidedTable;
use super::reader::{InlineReader, Presence};
use super::sender::PacketSender;
use super::shared::{InlineShared, OutcomeCounters};
use super::waiting::{Fate, WaitingPackets};

/// Maximum number of batches of one side, and of verdicts, in a round.
const MAX_BATCHES: u32 = 64;
const MAX_VERDICTS: u32 = 4096;
/// Verdicts that come before their packets, at most.
const MAX_EARLY: usize = 4096;
/// Time between two sweeps of the decided flows.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for the end of the sources after the request to stop.
const LAST_PACKETS: Duration = Duration::from_secs(2);

/// One side: its waiting packets, and the other interface.
pub(super) struct Side {
    pub(super) reader: Reader,
    /// Mask bits of this reader.
    pub(super) mask: u64,
    pub(super) first_lane: usize,
    pub(super) lanes: Vec<WaitingPackets>,
    pub(super) forwarded: Forwarded,
    /// Packets may have checksums that the sender left to the NIC.
    pub(super) completes_checksums: bool,
    pub(super) out: PacketSender,
    pub(super) has_ended: bool,
}

/// Ends a sleep: the hub's doorbell, and the signals of the sources, which others clear.
pub(super) struct Wakes {
    pub(super) doorbell: Arc<ReaderDoorbell>,
    pub(super) sources: OwnedFd,
    pub(super) sleepers: Vec<Sleeper>,
}

pub(super) struct InlineWorker {
    pub(super) sides: [Side; 2],
    pub(super) wakes: Wakes,
    pub(super) inline: InlineReader,
    pub(super) flows: DecidedTable,
    pub(super) shared: Arc<InlineShared>,
    pub(super) early: VecDeque<(Instant, PacketVerdict)>,
    /// Flows that are decided once the packets of this round have left.
    pub(super) decided: Vec<(FlowPacket, Verdict, Lasting)>,
    pub(super) swept: Instant,
    /// Start time of this round.
    pub(super) now: Instant,
}

impl InlineWorker {
    /// Works until stopped, and until the packets already captured are settled.
    pub(super) fn work(&mut self) {
        let mut sleep = FIRST_SLEEP;
        let mut ends_at = None;
        loop {
            let worked = self.round();
            sleep = if worked { FIRST_SLEEP } else { sleep };
            if self.shared.is_stopping() {
                let ends_at = *ends_at.get_or_insert(self.now + LAST_PACKETS);
                if (!worked && self.is_over()) || self.now > ends_at {
                    break;
                }
            }
            if !worked {
                self.sleep(sleep);
                sleep = SWEEP_INTERVAL;
            }
        }
        let no_verdict = self.inline.no_verdict();
        self.lanes().for_each(|lane| lane.give_up(no_verdict));
        self.release();
        self.flows.clear();
        while self.flows.remove_leaving() {}
    }

    fn lanes(&mut self) -> impl Iterator<Item = &mut WaitingPackets> {
        self.sides.iter_mut().flat_map(|side| &mut side.lanes)
    }

    /// Whether the sources have ended, and no packet waits.
    fn is_over(&mut self) -> bool {
        self.sides.iter().all(|side| side.has_ended) && self.lanes().all(|lane| lane.is_empty())
    }

    /// Reads packets, receives verdicts and sends packets; returns whether there was work.
    fn round(&mut self) -> bool {
        self.now = Instant::now();
        let has_read = self.read();
        let presence = self.inline.look(self.now);
        self.note(presence);
        if has_read {
            self.decide_early();
        }
        let has_heard = self.receive_verdicts();
        self.give_up_late();
        self.release();
        if self.now.saturating_duration_since(self.swept) >= SWEEP_INTERVAL {
            self.swept = self.now;
            self.flows.sweep();
        }
        let has_removed = self.flows.remove_leaving();
        has_read || has_heard || has_removed
    }

    fn note(&mut self, presence: Presence) {
        if presence == Presence::Left {
            self.flows.clear();
            self.early.clear();
        }
    }

    /// Takes over the packets that wait since the last round.
    fn read(&mut self) -> bool {
        let (now, no_verdict) = (self.now, self.inline.no_verdict());
        let mut has_read = false;
        for side in &mut self.sides {
            for _ in 0..MAX_BATCHES {
                match side.reader.try_next() {
                    Ok(NextBatch::Batch(batch)) => side.take(&batch, now, no_verdict),
                    Ok(NextBatch::Empty) => break,
                    // The hub in this process does not fail; what could not be read counts as lost.
                    Ok(NextBatch::Ended) | Err(_) => {
                        side.has_ended = true;
                        break;
                    }
                }
                has_read = true;
            }
        }
        has_read
    }

    fn receive_verdicts(&mut self) -> bool {
        let mut heard = 0;
        while heard < MAX_VERDICTS {
            match self.inline.next() {
                Ok(Some(verdict)) => {
                    heard += 1;
                    if !self.decide(&verdict) && self.early.len() < MAX_EARLY {
                        self.early.push_back((self.now, verdict));
                    }
                    let sides = &self.sides;
                    let next = || sides.iter().flat_map(|it| it.forwarded.next_sequences());
                    self.inline
                        .received(&verdict, || next().collect(), self.now);
                }
                Ok(None) => break,
                Err(presence) => {
                    self.note(presence);
                    break;
                }
            }
        }
        heard > 0
    }

    /// Stores a verdict; `false` if its packet may still come.
    fn decide(&mut self, verdict: &PacketVerdict) -> bool {
        let lane = verdict.lane.index();
        let of = |side: &Side| {
            lane.checked_sub(side.first_lane)
                .filter(|at| *at < side.lanes.len())
        };
        let found = self.sides.iter_mut().find_map(|side| {
            let at = of(side)?;
            side.lanes.get_mut(at)
        });
        found.is_none_or(|lane| lane.decide(verdict))
    }

    /// Tries verdicts again that came before their packets.
    fn decide_early(&mut self) {
        for (since, verdict) in std::mem::take(&mut self.early) {
            let is_fresh = self.inline.left(since, self.now) > Duration::ZERO;
            if is_fresh && !self.decide(&verdict) {
                self.early.push_back((since, verdict));
            }
        }
    }

    /// Arrival time of the packet that waits for longest.
    fn since(&mut self) -> Option<Instant> {
        self.lanes().filter_map(|lane| lane.since()).min()
    }

    /// Settles all packets if the inline reader has left or is late.
    fn give_up_late(&mut self) {
        let Some(since) = self.since() else { return };
        if self.inline.answers() && self.inline.left(since, self.now) > Duration::ZERO {
            return;
        }
        if self.inline.answers() {
            let sides = self.sides.iter();
            let next = sides.flat_map(|side| side.forwarded.next_sequences());
            self.inline.is_late(next.collect(), self.now);
        }
        let no_verdict = self.inline.no_verdict();
        self.lanes().for_each(|lane| lane.give_up(no_verdict));
    }

    /// Sends or drops packets, in the order of each lane, until one has no verdict yet.
    fn release(&mut self) {
        for (side, way) in self.sides.iter_mut().zip(&self.shared.ways) {
            side.release(way, &mut self.decided);
        }
        for (packet, verdict, lasting) in self.decided.drain(..) {
            self.flows.decide(&packet, verdict, lasting);
        }
    }

    fn sleep(&mut self, longest: Duration) {
        let now = Instant::now();
        let left = self.since().map(|since| self.inline.left(since, now));
        let limit = left.map_or(longest, |left| left.min(longest));
        self.wakes.doorbell.clear();
        let queue = self.inline.queue.as_ref();
        let mut polled = vec![
            PollFd::new(&self.shared.wake, PollFlags::IN),
            PollFd::new(&self.wakes.sources, PollFlags::IN),
        ];
        let news = self.wakes.doorbell.fd();
        polled.push(PollFd::new(&news, PollFlags::IN));
        polled.extend(queue.map(|queue| PollFd::new(queue, PollFlags::IN)));
        self.wakes.sleepers.iter().for_each(Sleeper::arm);
        let has_verdicts = queue.is_some_and(|queue| !queue.announce_sleep());
        // An interruption by a signal counts as a wake-up; the first sleep is short, instead of a fence.
        if !has_verdicts {
            let _interrupted = poll(&mut polled, limit.try_into().ok().as_ref());
        }
        self.wakes.sleepers.iter().for_each(Sleeper::disarm);
        self.wakes.clear();
        self.shared.wake.clear();
        let presence = self.inline.wake_up();
        self.note(presence);
    }
}

impl Wakes {
    /// Discards the signals of the sources.
    fn clear(&self) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 8];
        let _none = epoll::wait(
            &self.sources,
            &mut events[..],
            Some(&rustix::event::Timespec::default()),
        );
    }
}

impl Side {
    /// Takes over the packets of a batch that wait, and publishes the reader's progress.
    fn take(&mut self, batch: &ChunkBatch, now: Instant, too_many: Fate) {
        let Some(lane) = self.lanes.get_mut(batch.lane.index()) else {
            return;
        };
        let (mut taken, mut passed_over, mut bytes) = (0, 0, 0);
        for packet in batch.packets().flatten() {
            let slot = packet.slot();
            if slot.mask & self.mask == 0 {
                passed_over += 1;
                continue;
            }
            taken += 1;
            bytes += u64::from(slot.wire_length);
            lane.push(packet.sequence, packet.data.to_vec(), now, too_many);
        }
        let progress = self.reader.progress();
        progress.delivered.fetch_add(taken, Relaxed);
        progress.filtered.fetch_add(passed_over, Relaxed);
        progress.bytes.fetch_add(bytes, Relaxed);
    }

    fn release(
        &mut self,
        way: &OutcomeCounters,
        decided: &mut Vec<(FlowPacket, Verdict, Lasting)>,
    ) {
        for lane in &mut self.lanes {
            while let Some((fate, mut bytes)) = lane.pop() {
                if let Fate::Decided(verdict, Some(lasting)) = fate {
                    let packet =
                        FlowPacket::from_bytes(&bytes, to_u32(bytes.len()), Link::Ethernet);
                    decided.extend(packet.map(|packet| (packet, verdict, lasting)));
                }
                match fate {
                    Fate::Decided(Verdict::Drop, _) => {
                        way.filtered.fetch_add(1, Release);
                        continue;
                    }
                    Fate::NoVerdict(Verdict::Drop) => {
                        way.no_verdict_dropped.fetch_add(1, Release);
                        continue;
                    }
                    Fate::NoVerdict(Verdict::Pass) => {
                        way.no_verdict_passed.fetch_add(1, Release);
                    }
                    Fate::Decided(Verdict::Pass, _) => {}
                }
                if self.completes_checksums
                    && let Some((field, value)) = completion(&bytes)
                    && let Some(place) = bytes.get_mut(field..field + 2)
                {
                    place.copy_from_slice(&value);
                }
                self.out.push(bytes);
            }
        }
        let sent = self.out.flush();
        way.sent.fetch_add(sent.sent, Release);
        way.refused.fetch_add(sent.refused, Release);
    }
}

/// A set of the sources' signals: only a new signal ends a sleep.
pub(super) fn signals(wakes: impl Iterator<Item = Arc<OwnedFd>>) -> std::io::Result<OwnedFd> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for wake in wakes {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, wake.as_fd(), epoll::EventData::new_u64(0), flags)?;
    }
    Ok(set)
}
