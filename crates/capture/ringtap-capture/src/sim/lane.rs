// SPDX-License-Identifier: MIT OR Apache-2.0
//! One receive queue of a simulated NIC and the capture step that empties it, for either clock.
//!
//! Invariants
//! - Every packet that arrived waits in the ring, is captured, is wanted by no reader, or is lost:
//!   as `pool_full` if a missing chunk made the ring full, else in the NIC.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use ringtap_filter::classifier::Classification;
use ringtap_pool::number::to_u16;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

use super::SimLink;
use super::frames::SimFrame;
use super::ring::ReceiveRing;
use super::spread::LinkPacket;
use crate::classifier::LaneClassifier;
use crate::source::{LaneTotals, NewLane};

/// State of a queue that other threads read and change.
#[derive(Debug)]
pub(super) struct QueueState {
    pub(super) totals: LaneTotals,
    /// Packets that found the ring full because capture was too slow.
    pub(super) nic: AtomicU64,
    /// Packets that arrive meanwhile are lost.
    pub(super) is_paused: AtomicBool,
}

/// Result of a capture step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureStep {
    /// Packets left the ring.
    Captured,
    /// Packets wait, but no chunk is free.
    PoolFull,
    /// No packet waits.
    RingEmpty,
}

/// A queue, its ring and the writing end of its lane.
pub(super) struct SimQueue {
    pub(super) link: Arc<SimLink>,
    pub(super) number: u32,
    pub(super) ring: ReceiveRing,
    writer: LaneWriter,
    classifier: LaneClassifier,
    state: Arc<QueueState>,
    /// Classification of the first packet in the ring, which found no room, and the edition of the rules.
    pending: Option<(Classification, u64)>,
    lacks_chunk: bool,
    scratch: SimFrame,
}

impl SimQueue {
    pub(super) fn new(link: Arc<SimLink>, number: u32, lane: NewLane) -> Self {
        SimQueue {
            ring: ReceiveRing::new(link.ring),
            link,
            number,
            classifier: lane.classifier,
            state: Arc::new(QueueState {
                totals: lane.totals,
                nic: AtomicU64::new(0),
                is_paused: AtomicBool::new(false),
            }),
            writer: lane.writer,
            pending: None,
            lacks_chunk: false,
            scratch: SimFrame::default(),
        }
    }

    pub(super) fn state(&self) -> Arc<QueueState> {
        Arc::clone(&self.state)
    }

    /// Lets all packets of this queue below `until` arrive; those without a place are lost.
    pub(super) fn arrive(&mut self, until: u64) {
        let lost = self.ring.arrive(until);
        if self.lacks_chunk || self.state.is_paused.load(Relaxed) {
            self.writer.count_lost(lost);
        } else {
            self.state.nic.fetch_add(lost, Relaxed);
        }
    }

    /// Lets as many packets arrive as there is room for, up to `until`: the link waits.
    pub(super) fn fill(&mut self, until: u64) {
        let arrived = self.ring.arrived().saturating_add(self.ring.room());
        self.ring.arrive(arrived.min(until));
    }

    /// Whether the source has rules by now.
    pub(super) fn look_for_rules(&mut self) -> bool {
        self.classifier.look_for_rules()
    }

    /// Copies at most `most` packets from the ring into the pool and publishes them.
    ///
    /// `time_ns` gives the time stamp of a packet from its number on the link.
    #[inline]
    pub(super) fn capture(&mut self, most: u64, time_ns: impl Fn(u64) -> u64) -> CaptureStep {
        if self.ring.held() == 0 {
            return CaptureStep::RingEmpty;
        }
        if self.state.is_paused.load(Relaxed) {
            return CaptureStep::PoolFull;
        }
        self.classifier.begin();
        self.lacks_chunk = false;
        let mut captured = 0;
        while !self.lacks_chunk
            && captured < most
            && let Some(waiting) = self.ring.first()
        {
            let wanted = (most - captured).min(waiting.end - waiting.start);
            let (link, number) = (Arc::clone(&self.link), self.number);
            let taken = match link.spread.turns(number, waiting.start) {
                Some(packets) => self.stage(packets, wanted, &time_ns),
                None => {
                    let packets = waiting.map(|n| link.spread.packet(number, n));
                    self.stage(packets, wanted, &time_ns)
                }
            };
            self.ring.pop(taken);
            captured += taken;
            self.lacks_chunk = taken < wanted;
        }
        self.writer.publish();
        self.classifier.end();
        match captured {
            0 => CaptureStep::PoolFull,
            _ => CaptureStep::Captured,
        }
    }

    /// Publishes and seals the open chunk.
    pub(super) fn close(&mut self) {
        self.writer.close();
    }

    /// Stages at most `most` of these packets until there is no room; returns the number staged.
    #[inline]
    fn stage(
        &mut self,
        packets: impl Iterator<Item = LinkPacket>,
        most: u64,
        time_ns: &impl Fn(u64) -> u64,
    ) -> u64 {
        let queue = to_u16(self.number);
        let frames = &self.link.frames;
        let edition = self.classifier.edition();
        let mut pending = self.pending.take().filter(|(_, under)| *under == edition);
        for (taken, packet) in (0..most).zip(packets) {
            let frame = frames.get(packet, &mut self.scratch);
            let verdict = pending
                .take()
                .map(|(verdict, _)| verdict)
                .or_else(|| self.classifier.select(&frame.bytes, frame.length()));
            if let Some(verdict) = verdict {
                if !self.writer.has_room(frame.bytes.len()) {
                    self.pending = Some((verdict, edition));
                    return taken;
                }
                // Not before: the packet may be selected again, but counts in its flow once.
                let verdict = self
                    .classifier
                    .withhold(verdict, &frame.bytes, frame.length());
                let Some(verdict) = verdict else { continue };
                let meta = PacketMeta {
                    time_ns: time_ns(packet.number),
                    wire_length: frame.length(),
                    queue,
                    mask: verdict.mask,
                    hash: Some(verdict.hash.unwrap_or(frame.hash)),
                    ..PacketMeta::default()
                };
                // There is room, so this succeeds; the lane counts a failure.
                let _counted = self.writer.stage(&meta, [&frame.bytes]);
            }
        }
        most
    }
}
