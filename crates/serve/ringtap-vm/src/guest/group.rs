// SPDX-License-Identifier: MIT OR Apache-2.0
//! A group of the host on the agent's thread: its subscription at the host, and its chunks.
//!
//! Invariants
//! - At most one request waits for an answer. After the answer the group asks for what differs then.
//! - What the host writes is checked by the pool's reader; memory that cannot be read ends the
//!   subscription.
//! - A packet that the host copied into the memory is read, or counted as lost by the host when the
//!   subscription ends.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use ringtap_filter::Program;
use ringtap_hub::Handle;
use ringtap_ipc::event::Event;
use ringtap_ipc::mutex::lock;
use ringtap_ipc::time::nanoseconds;
use ringtap_pool::distributor::Policy;
use ringtap_pool::memory::Region;
use ringtap_pool::number::to_u64;
use ringtap_pool::reader::{NextBatch, Reader};
use ringtap_pool::source::{Facts, Source};
use ringtap_pool::wake::NoSignal;

use super::memory::{DeviceFile, GroupMemory, MemoryError};
use super::rules::{GroupRules, SubscriptionRules};
use super::source::{GroupState, HostLosses, HostRules, HostSource, SharedGroup};
use crate::messages::{
    DeviceRange, GrantedGroup, GuestCounters, GuestGap, GuestRequest, HostMessage, chunks_in,
    pool_geometry,
};

/// Most batches that one step passes on.
const STEP_BATCHES: usize = 64;

/// A group of the host.
pub(super) struct HostGroup {
    pub(super) granted: GrantedGroup,
    shared: Arc<SharedGroup>,
    memory: GroupMemory,
    /// The filter of the subscription at the host; `None` without a subscription.
    filter: Option<Program>,
    rules: SubscriptionRules,
    reader: Option<HostReader>,
    /// Packets that were read in this subscription.
    taken: u64,
    /// Why no packets come although readers wait.
    trouble: Option<String>,
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
}

/// Reads the memory of a subscription.
struct HostReader {
    inner: Reader,
    /// The device of its control region.
    control: u64,
}

/// Memory of a mapped device.
pub(super) struct MappedRange {
    pub(super) region: Region,
    /// The file to map it by.
    pub(super) file: Option<DeviceFile>,
}

/// Readers wait, and their subscription at the host has ended.
struct OpenGap {
    since: Instant,
    /// Number of packets of the capture before it.
    after: u64,
}

impl HostGroup {
    /// The group, and the source of its hub.
    ///
    /// # Errors
    ///
    /// The system's, when memory or descriptors are not enough.
    pub(super) fn new(granted: GrantedGroup, agent: Event) -> io::Result<(Self, Source)> {
        let device = format!("host:{}", granted.name);
        let geometry = pool_geometry(chunks_in(granted.pool_bytes));
        let geometry = geometry.ok_or(io::ErrorKind::InvalidInput)?;
        let event = Event::new()?;
        let (memory, ends) = GroupMemory::new(geometry, Arc::new(event.clone()))?;
        let snap_length = geometry.max_payload();
        let shared = SharedGroup::new(agent, event.clone());
        let driver = HostSource {
            shared: Arc::clone(&shared),
            lane: Arc::clone(&memory.lane),
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
        let rules = HostRules {
            shared: Arc::clone(&shared),
            snap_length,
        };
        let source = Source {
            facts,
            pool: memory.pool.clone(),
            pool_file: Some(memory.file()?),
            pool_is_map: false,
            lanes: vec![ends],
            rules: Box::new(rules),
            update_losses: Some(driver.loss_update()),
            driver: Box::new(driver),
            wake: event.as_fd().try_clone_to_owned()?,
            readers_wake: None,
        };
        let group = HostGroup {
            granted,
            shared,
            memory,
            filter: None,
            rules: SubscriptionRules::default(),
            reader: None,
            taken: 0,
            trouble: None,
            asked: None,
            asked_at: (0, 0),
            joined_refused: None,
            refused: None,
            gap: None,
            gaps: 0,
        };
        Ok((group, source))
    }

    /// The hub of the group has started.
    pub(super) fn serve(&mut self, hub: Handle) {
        hub.pass_rules_on(Arc::new(GroupRules(Arc::clone(&self.shared))));
        self.memory.serve(hub);
    }

    /// Whether the readers can go on with what a host grants.
    pub(super) fn fits(&self, granted: &GrantedGroup) -> bool {
        self.memory.pool.geometry().chunk_count <= chunks_in(granted.pool_bytes)
    }

    /// Whether no reader needs memory of a device that leaves.
    pub(super) fn is_settled(&mut self) -> bool {
        self.memory.is_settled()
    }

    /// Whether readers have chunks that the host waits for without a signal.
    pub(super) fn awaits_returns(&self) -> bool {
        self.reader.is_some() && lock(&self.memory.lane).out().nth(1).is_some()
    }

    /// Whether the group has a subscription at the host.
    pub(super) fn is_subscribed(&self) -> bool {
        self.filter.is_some()
    }

    /// Why no packets come although readers wait.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// A host process serves the agent, and grants the group.
    pub(super) fn begin(&mut self, granted: GrantedGroup) {
        self.granted = granted;
        (self.joined_refused, self.refused) = (None, None);
        self.shared.set_host(true);
    }

    /// The host process is gone, or grants the group no more.
    pub(super) fn end(&mut self) {
        self.interrupt(None);
        self.leave_memory();
        self.asked = None;
        self.shared.set_host(false);
        // From now on nobody queues any.
        self.rules.refuse_all(&mut self.shared.lock());
    }

    /// Leaves the memory if it lies in this device.
    pub(super) fn leave(&mut self, device: u64) {
        let has_control = self
            .reader
            .as_ref()
            .is_some_and(|reader| reader.control == device);
        let is_pool = self.memory.is_in(device);
        if has_control || (is_pool && self.reader.is_some()) {
            self.interrupt(None);
        }
        if is_pool {
            self.leave_memory();
        }
    }

    /// The memory goes with its device.
    fn leave_memory(&mut self) {
        if let Err(error) = self.memory.leave() {
            self.note(&format!("what readers had of the host is lost: {error}"));
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
                (self.gap, self.trouble) = (None, None);
                state.is_interrupted = false;
            }
            if self.filter.is_none() {
                state.counters_had = state.counters_asked;
                self.rules.refuse_all(&mut state);
            } else if state.counters_had < state.counters_asked {
                let group = self.granted.name.clone();
                self.asked = Some(GuestRequest::Statistics { group });
            } else {
                let request = self.rules.next(&mut state);
                let group = self.granted.name.clone();
                self.asked = request.map(|request| GuestRequest::FlowRules { group, request });
            }
        }
        let owner = state.owner.filter(|_| state.cutoff.is_some());
        drop(state);
        shared.answer();
        if let Some(GuestRequest::Subscribe { .. }) = self.asked {
            self.taken = 0;
            self.rules.owner = owner;
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
            (_, Some(_)) if self.rules.are_others(state) => {
                Some(GuestRequest::Unsubscribe { group })
            }
            (None, Some(_)) => Some(GuestRequest::Unsubscribe { group }),
            (Some(filter), None) => Some(GuestRequest::Subscribe {
                group,
                name: "guest".to_owned(),
                filter,
                pool: self.memory.wanted(),
                gap: self.gap.as_ref().map(|gap| GuestGap {
                    after: gap.after,
                    duration_ns: nanoseconds(gap.since.elapsed()),
                }),
                cutoff: state.cutoff,
            }),
            (Some(filter), Some(now)) if filter != *now => {
                Some(GuestRequest::ChangeFilter { group, filter })
            }
            _ => None,
        }
    }

    #[cfg(test)]
    pub(super) fn has_rules_waiting(&self) -> bool {
        !self.shared.lock().rules.is_empty()
    }

    /// Takes in the answer to the request; `memory` finds a part of a device.
    pub(super) fn answer(
        &mut self,
        answer: HostMessage,
        memory: impl Fn(DeviceRange) -> Option<MappedRange>,
    ) {
        let not_in_source = match (self.asked.take(), answer) {
            (
                Some(GuestRequest::Subscribe { filter, cutoff, .. }),
                HostMessage::Subscribed {
                    pool,
                    control,
                    not_in_source,
                    ..
                },
            ) => {
                self.filter = Some(filter);
                self.rules.cutoff = cutoff;
                match self.open(pool, control, memory) {
                    Ok(reader) => self.resume(reader),
                    Err(reason) => self.cannot_read(&reason.to_string()),
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
                self.leave_reader(Some(counters));
                self.forget();
                None
            }
            (Some(GuestRequest::Statistics { .. }), HostMessage::Counters { counters, .. }) => {
                let mut state = self.shared.lock();
                state.current = counters.into();
                state.counters_had = self.asked_at.1;
                None
            }
            (Some(GuestRequest::FlowRules { .. }), HostMessage::FlowRules { reply, .. }) => {
                self.rules.answer(reply);
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
            GuestRequest::FlowRules { .. } => self.rules.refuse(text),
            _ => {
                if let GuestRequest::Subscribe {
                    cutoff: Some(_), ..
                } = request
                {
                    self.shared.lock().refusal = Some(text.to_owned());
                }
                self.refused = Some(self.asked_at.0);
                self.wait_for_packets(text);
            }
        }
    }

    /// The host has ended the subscription, with these final counters.
    pub(super) fn end_subscription(&mut self, reason: &str, counters: GuestCounters) {
        self.note(&format!("the host has ended the capture: {reason}"));
        self.interrupt(Some(counters));
        self.asked = None;
        let edition = self.shared.lock().edition;
        self.refused = Some(edition);
        self.wait_for_packets(reason);
    }

    /// No packets come, for this reason.
    fn wait_for_packets(&mut self, reason: &str) {
        self.trouble = Some(reason.to_owned());
        self.shared.lock().is_interrupted = true;
    }

    fn cannot_read(&mut self, reason: &str) {
        let text = format!("the host's memory cannot be read: {reason}");
        self.note(&text);
        self.wait_for_packets(&text);
    }

    /// Counts the subscription at the host as one that has ended.
    fn forget(&mut self) {
        self.filter = None;
        self.reader = None;
        lock(&self.memory.lane).writer_has_ended();
        let mut state = self.shared.lock();
        let current = std::mem::take(&mut state.current);
        state.ended.add(current);
        self.rules.refuse_all(&mut state);
    }

    /// Reads what is left in the memory, and leaves it. Returns the number of packets of the capture that ends,
    /// of which `counters` are the final ones, if they are known.
    fn leave_reader(&mut self, counters: Option<GuestCounters>) -> u64 {
        // A host that still copies must not keep this thread for ever.
        let most = self.reader.as_ref().map_or(0, HostReader::max_batches);
        let _read = (0..most).take_while(|_| self.step()).count();
        self.reader = None;
        let Some(counters) = counters else {
            return self.taken;
        };
        let lost = counters.copied.saturating_sub(self.taken);
        let mut current = HostLosses::from(counters);
        current.add_not_taken(lost);
        self.shared.lock().current = current;
        if lost > 0 {
            self.note(&format!(
                "{lost} packets that the host had copied are lost: they were not read in time"
            ));
        }
        self.taken + lost
    }

    fn interrupt(&mut self, counters: Option<GuestCounters>) {
        // A subscription that was asked for may have begun.
        let was_subscribed = self.filter.is_some() || counters.is_some();
        let after = self.leave_reader(counters);
        if was_subscribed && self.gap.is_none() {
            let since = Instant::now();
            self.gap = Some(OpenGap { since, after });
        }
        self.forget();
    }

    fn resume(&mut self, reader: HostReader) {
        if let Some(OpenGap { since, after }) = self.gap.take() {
            let length = since.elapsed();
            let seconds = length.as_secs_f64();
            self.gaps += 1;
            let number = self.gaps;
            self.note(&format!(
                "gap {number}: after packet {after} of the capture before, up to an unknown one (another \
                 capture), {seconds:.2} s"
            ));
        }
        self.reader = Some(reader);
        self.trouble = None;
        self.shared.lock().is_interrupted = false;
    }

    fn note(&self, text: &str) {
        self.shared
            .note(format!("host:{}: {text}", self.granted.name));
    }

    /// Announces that the agent's thread sleeps; call [`HostGroup::step`] once more after it.
    pub(super) fn arm(&self) {
        self.reader
            .iter()
            .for_each(|reader| reader.inner.sleeper().arm());
    }

    /// Withdraws [`HostGroup::arm`].
    pub(super) fn disarm(&self) {
        self.reader
            .iter()
            .for_each(|reader| reader.inner.sleeper().disarm());
    }

    /// Passes the next chunks on; returns whether there were any packets.
    pub(super) fn step(&mut self) -> bool {
        if !self.memory.is_told() {
            return false;
        }
        let mut lane = lock(&self.memory.lane);
        let taken_back = lane.take_back();
        let Some(reader) = &mut self.reader else {
            return false;
        };
        let mut failure = taken_back.err().map(|error| error.to_string());
        let before = self.taken;
        for _ in 0..STEP_BATCHES {
            match reader.inner.try_next() {
                Ok(NextBatch::Batch(batch)) => {
                    self.taken = self.taken.saturating_add(to_u64(batch.len()));
                    lane.pass(batch.chunk(), batch);
                }
                Ok(NextBatch::Empty | NextBatch::Ended) => break,
                Err(error) => {
                    failure = Some(error.to_string());
                    break;
                }
            }
        }
        drop(lane);
        // For the host's account.
        let delivered = &reader.inner.progress().delivered;
        delivered.store(self.taken, Relaxed);
        if let Some(reason) = failure {
            self.reader = None;
            self.cannot_read(&reason);
        }
        self.taken > before
    }

    /// Opens the pool and the control region of a subscription.
    fn open(
        &mut self,
        pool: DeviceRange,
        control: DeviceRange,
        memory: impl Fn(DeviceRange) -> Option<MappedRange>,
    ) -> Result<HostReader, MemoryError> {
        let find = |range| memory(range).ok_or(MemoryError::NotMapped);
        let file = find(pool)?.file.ok_or(MemoryError::NoFile)?;
        self.memory.enter((pool.device, pool.at), file)?;
        // The host takes returned chunks back when it needs them.
        let host = Arc::new(NoSignal);
        let there = self.memory.pool.clone();
        let reader = Reader::open(there, &find(control)?.region, Policy::DropNewest, host);
        Ok(HostReader {
            inner: reader?,
            control: control.device,
        })
    }
}

impl Drop for HostGroup {
    fn drop(&mut self) {
        self.end();
        self.shared.end();
    }
}

impl HostReader {
    /// At least the number of batches that the memory holds.
    fn max_batches(&self) -> u32 {
        let chunks = self.inner.pool().geometry().chunk_count;
        chunks.saturating_add(1).saturating_mul(2)
    }
}
