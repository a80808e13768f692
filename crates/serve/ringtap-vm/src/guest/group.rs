// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group of the host on the agent's thread: its subscription at the host, and the copy of its packets.
//!
//! Invariants
//! - At most one request waits for an answer. After the answer the group asks for what differs then.
//! - What the host writes is checked by the pool's reader; memory that cannot be read ends the
//!   subscription.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use ringtap_capture::CaptureError;
use ringtap_capture::source::{NewLane, SourceSetup, ThreadedSource};
use ringtap_filter::Program;
use ringtap_ipc::event::Event;
use ringtap_ipc::time::nanoseconds;
use ringtap_pool::distributor::Policy;
use ringtap_pool::format::Geometry;
use ringtap_pool::memory::Region;
use ringtap_pool::number::{to_u32, to_u64};
use ringtap_pool::reader::{ChunkBatch, NextBatch, Reader};
use ringtap_pool::source::Facts;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::PacketMeta;

use super::source::{GroupState, HostSource, SharedGroup};
use crate::messages::{DevicePart, GrantedGroup, GuestRequest, HostMessage};

/// Bytes of a chunk of the agent's pools.
const CHUNK_BYTES: u32 = 64 << 10;

/// A group of the host.
pub(super) struct HostGroup {
    pub(super) granted: GrantedGroup,
    shared: Arc<SharedGroup>,
    lane: NewLane,
    /// The filter of the subscription at the host; `None` without a subscription.
    filter: Option<Program>,
    part: Option<HostPart>,
    /// The request that waits for its answer.
    asked: Option<GuestRequest>,
    /// Edition and number of requests for counters when it was made.
    asked_at: (u64, u64),
    /// The edition for which the host refused the joined filter, so that everything is asked for.
    joined_refused: Option<u64>,
    /// The edition for which the host refused even that.
    refused: Option<u64>,
    gap: Option<OpenGap>,
    /// Number of gaps that have ended.
    gaps: u64,
    /// Dropping it ends the source.
    _source: Sender<CaptureError>,
}

/// The memory of a subscription.
struct HostPart {
    reader: Reader,
    /// Devices in which it lies.
    devices: [u64; 2],
    /// Sequence of the next packet.
    next: u64,
}

/// Readers wait, and their subscription at the host has ended.
struct OpenGap {
    since: Instant,
    /// Sequence of the packet after the last one that was received.
    from: u64,
}

impl HostGroup {
    /// The group, and the source of its hub.
    ///
    /// # Errors
    ///
    /// The system's, when memory or descriptors are not enough.
    pub(super) fn new(
        granted: GrantedGroup,
        pool_bytes: u64,
        agent: Event,
    ) -> Result<(Self, ThreadedSource), CaptureError> {
        let device = format!("host:{}", granted.name);
        let system = |reason| CaptureError::System {
            device: device.clone(),
            action: "making the pool",
            reason,
        };
        let chunks = to_u32(pool_bytes / u64::from(CHUNK_BYTES));
        let geometry = Geometry::contiguous(CHUNK_BYTES, chunks, 1, CHUNK_BYTES);
        let geometry = geometry.map_err(|error| system(io::Error::other(error)))?;
        let snap_length = geometry.max_payload();
        let mut setup = SourceSetup::new(device.clone(), geometry)?;
        let lane = setup.lane(None)?;
        let shared = SharedGroup::new(agent, setup.event());
        let driver = HostSource {
            shared: Arc::clone(&shared),
            totals: lane.totals.clone(),
            snap_length,
        };
        let facts = Facts {
            device,
            link_type: granted.link_type,
            snap_length,
            policy: Policy::DropNewest,
            notes: vec![format!(
                "captured by the host: {}",
                granted.devices.join(", ")
            )],
            offered_from:
                "the packets that the host copied, and its losses (as lost by the kernel)"
                    .to_owned(),
            ..Facts::default()
        };
        let (source, sender) = setup.without_threads(facts, Box::new(driver))?;
        let group = HostGroup {
            granted,
            shared,
            lane,
            filter: None,
            part: None,
            asked: None,
            asked_at: (0, 0),
            joined_refused: None,
            refused: None,
            gap: None,
            gaps: 0,
            _source: sender,
        };
        Ok((group, source))
    }

    /// Whether the group has a subscription at the host.
    pub(super) fn is_subscribed(&self) -> bool {
        self.filter.is_some()
    }

    /// A host process serves the agent, and grants the group.
    pub(super) fn begin(&mut self, granted: GrantedGroup) {
        self.granted = granted;
        self.refused = None;
        self.shared.set_host(true);
    }

    /// The host process is gone, or grants the group no more.
    pub(super) fn end(&mut self) {
        self.interrupt();
        self.asked = None;
        self.shared.set_host(false);
    }

    /// Drops the memory if it lies in this device.
    pub(super) fn leave(&mut self, device: u64) {
        let lies = |part: &HostPart| part.devices.contains(&device);
        if self.part.as_ref().is_some_and(lies) {
            while self.step() {}
            self.interrupt();
        }
    }

    /// The next request to the host, if there is one; the group counts it as sent.
    pub(super) fn request(&mut self) -> Option<GuestRequest> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if self.asked.is_some() || !state.has_host {
            return None;
        }
        self.asked = self.change(&state);
        self.asked_at = (state.edition, state.counters_asked);
        if self.asked.is_none() {
            state.settled = state.edition;
            if state.wanted.is_none() {
                self.gap = None;
            }
            if self.filter.is_none() {
                state.counters_had = state.counters_asked;
            } else if state.counters_had < state.counters_asked {
                let group = self.granted.name.clone();
                self.asked = Some(GuestRequest::Statistics { group });
            }
        }
        drop(state);
        shared.answer();
        if matches!(self.asked, Some(GuestRequest::Unsubscribe { .. })) {
            // Once the host has answered, it may use the memory for another subscription.
            while self.step() {}
            self.part = None;
        }
        self.asked.clone()
    }

    /// The request that makes the subscription what the readers want.
    fn change(&self, state: &GroupState) -> Option<GuestRequest> {
        let group = self.granted.name.clone();
        if self.refused == Some(state.edition) {
            return None;
        }
        let wanted = match &state.wanted {
            Some(_) if self.joined_refused == Some(state.edition) => Some(Program::everything()),
            wanted => wanted.clone(),
        };
        match (wanted, &self.filter) {
            (None, Some(_)) => Some(GuestRequest::Unsubscribe { group }),
            (Some(filter), None) => Some(GuestRequest::Subscribe {
                group,
                name: "guest".to_owned(),
                filter,
            }),
            (Some(filter), Some(now)) if filter != *now => {
                Some(GuestRequest::ChangeFilter { group, filter })
            }
            _ => None,
        }
    }

    /// Takes in the answer to the request; `memory` finds a part of a device.
    pub(super) fn answer(
        &mut self,
        answer: HostMessage,
        memory: impl Fn(DevicePart) -> Option<Region>,
    ) {
        let not_in_source = match (self.asked.take(), answer) {
            (
                Some(GuestRequest::Subscribe { filter, .. }),
                HostMessage::Subscribed {
                    pool,
                    pool_epoch,
                    control,
                    not_in_source,
                    ..
                },
            ) => {
                self.filter = Some(filter);
                match HostPart::open(pool, pool_epoch, control, memory) {
                    Ok(part) => self.resume(part),
                    Err(reason) => {
                        self.note(&format!("the host's memory cannot be read: {reason}"))
                    }
                }
                not_in_source
            }
            (
                Some(GuestRequest::ChangeFilter { filter, .. }),
                HostMessage::Filtered { not_in_source, .. },
            ) => {
                self.filter = Some(filter);
                not_in_source
            }
            (
                Some(GuestRequest::Unsubscribe { .. }),
                HostMessage::Unsubscribed { counters, .. },
            ) => {
                self.shared.lock().current = counters.into();
                self.forget();
                None
            }
            (Some(GuestRequest::Statistics { .. }), HostMessage::Counters { counters, .. }) => {
                let mut state = self.shared.lock();
                state.current = counters.into();
                state.counters_had = self.asked_at.1;
                None
            }
            (Some(request), HostMessage::Refused { text }) => {
                self.be_refused(&request, &text);
                None
            }
            (asked, _) => {
                self.asked = asked;
                None
            }
        };
        if let Some(reason) = not_in_source {
            self.note(&format!(
                "the filter does not run in the host's kernel: {reason}"
            ));
        }
    }

    fn be_refused(&mut self, request: &GuestRequest, text: &str) {
        self.note(&format!("refused by the host: {text}"));
        match request {
            GuestRequest::Subscribe { filter, .. } | GuestRequest::ChangeFilter { filter, .. }
                if !filter.takes_everything() =>
            {
                self.joined_refused = Some(self.asked_at.0);
            }
            GuestRequest::Unsubscribe { .. } => self.forget(),
            GuestRequest::Statistics { .. } => self.shared.lock().counters_had = self.asked_at.1,
            _ => self.refused = Some(self.asked_at.0),
        }
    }

    /// The host has ended the subscription.
    pub(super) fn end_subscription(&mut self, reason: &str) {
        self.note(&format!("the host has ended the capture: {reason}"));
        self.interrupt();
        self.asked = None;
        let edition = self.shared.lock().edition;
        self.refused = Some(edition);
    }

    /// Counts the subscription at the host as one that has ended.
    fn forget(&mut self) {
        self.filter = None;
        self.part = None;
        let mut state = self.shared.lock();
        let current = std::mem::take(&mut state.current);
        state.ended.add(current);
    }

    fn interrupt(&mut self) {
        if let Some(part) = self.part.take() {
            self.gap = Some(OpenGap {
                since: Instant::now(),
                from: part.next,
            });
        }
        self.forget();
    }

    fn resume(&mut self, part: HostPart) {
        if let Some(OpenGap { since, from }) = self.gap.take() {
            let length = since.elapsed();
            self.lane.writer.capture_gap(from, nanoseconds(length));
            let seconds = length.as_secs_f64();
            self.gaps += 1;
            let number = self.gaps;
            self.note(&format!(
                "gap {number}: after packet {from} of the capture before, up to an unknown one (another \
                 capture), {seconds:.2} s"
            ));
        }
        self.part = Some(part);
    }

    fn note(&self, text: &str) {
        self.shared
            .note(format!("host:{}: {text}", self.granted.name));
    }

    /// Announces that the agent's thread sleeps; call [`HostGroup::step`] once more after it.
    pub(super) fn arm(&self) {
        self.part
            .iter()
            .for_each(|part| part.reader.sleeper().arm());
    }

    /// Withdraws [`HostGroup::arm`].
    pub(super) fn disarm(&self) {
        self.part
            .iter()
            .for_each(|part| part.reader.sleeper().disarm());
    }

    /// Copies the next packets; returns whether there were any.
    pub(super) fn step(&mut self) -> bool {
        let Some(part) = &mut self.part else {
            return false;
        };
        match part.reader.try_next() {
            Ok(NextBatch::Batch(batch)) => {
                part.next = batch.first_sequence + to_u64(batch.len());
                copy(&batch, &mut self.lane);
                true
            }
            Ok(NextBatch::Empty | NextBatch::Ended) => false,
            Err(error) => {
                self.note(&format!("the host's memory cannot be read: {error}"));
                self.part = None;
                false
            }
        }
    }
}

impl Drop for HostGroup {
    fn drop(&mut self) {
        self.end();
    }
}

/// Copies the packets that some reader wants.
fn copy(batch: &ChunkBatch, lane: &mut NewLane) {
    lane.classifier.begin();
    for packet in batch.packets().map_while(Result::ok) {
        let slot = packet.slot();
        let Some(verdict) = lane.classifier.classify(packet.data, slot.wire_length) else {
            continue;
        };
        let meta = PacketMeta {
            mask: verdict.mask,
            hash: verdict.hash,
            ..PacketMeta::of(&slot)
        };
        // The writer counts a packet without room.
        let _full = lane.writer.stage(&meta, [packet.data]);
    }
    lane.writer.publish();
    lane.classifier.end();
}

impl HostPart {
    fn open(
        pool: DevicePart,
        epoch: u64,
        control: DevicePart,
        memory: impl Fn(DevicePart) -> Option<Region>,
    ) -> Result<Self, String> {
        let devices = [pool.device, control.device];
        let memory = |part| memory(part).ok_or("its device is not mapped");
        let pool = Pool::open(memory(pool)?, epoch).map_err(|error| error.to_string())?;
        // The host takes returned chunks back when it needs them.
        let host = Arc::new(NoSignal);
        let reader = Reader::open(pool, &memory(control)?, Policy::DropNewest, host);
        Ok(HostPart {
            reader: reader.map_err(|error| error.to_string())?,
            devices,
            next: 0,
        })
    }
}
