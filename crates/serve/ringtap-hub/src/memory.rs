// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source's pool moves to other memory under its readers.
//!
//! Invariants
//! - What a source writes into the new memory is delivered after every reader was told of it.
//! - Nobody waits for a reader that does not map the new memory.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ringtap_ipc::pool_memory::PoolMemory;
use ringtap_ipc::protocol::{Refusal, Refused};
use ringtap_ipc::subscription::SubscriptionId;

use crate::answer::Responder;
use crate::control::HubControl;
use crate::engine::Engine;
use crate::hub::Handle;

/// Interval between two looks at whether the readers have mapped the new memory.
const LOOK: Duration = Duration::from_millis(2);

/// A reader has this long to map the new memory, if the one before goes.
pub const MEMORY_TIME: Duration = Duration::from_secs(15);

/// What has happened since a source's memory was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryStep {
    /// Every reader was told: the source may deliver what it writes there.
    Told,
    /// Every reader has mapped it, or has ended: the memory before is used no more.
    Taken,
}

/// A change of memory that waits for readers.
pub(crate) struct MemoryChange {
    source: usize,
    number: u32,
    deadline: Instant,
    steps: std::sync::mpsc::Sender<MemoryStep>,
}

impl Handle {
    /// Moves the pool of a source to other memory, which this process has mapped in its place already; waits for
    /// nothing. If the one before `goes`, readers that do not map the next one within [`MEMORY_TIME`] end with
    /// an error. The steps end with the hub, or the next change.
    pub fn set_memory(
        &self,
        source: usize,
        memory: PoolMemory,
        goes: bool,
    ) -> Receiver<MemoryStep> {
        let (steps, taken) = channel();
        self.send(move |control| control.set_memory(source, memory, goes, steps));
        taken
    }
}

impl HubControl {
    fn set_memory(
        &mut self,
        source: usize,
        memory: PoolMemory,
        goes: bool,
        steps: std::sync::mpsc::Sender<MemoryStep>,
    ) {
        let Some(handle) = self.sources.get_mut(source) else {
            return;
        };
        let number = memory.number;
        handle.set_memory(memory);
        let told = move |engine: &mut Engine| engine.set_memory(source, number);
        if self.engine.call(told).is_err() {
            return;
        }
        let _gone = steps.send(MemoryStep::Told);
        if goes {
            self.memory_changes.push(MemoryChange {
                source,
                number,
                deadline: Instant::now() + MEMORY_TIME,
                steps,
            });
        }
    }

    /// Looks at the changes that wait for readers; returns the time of the next look.
    pub(crate) fn look_at_memory(&mut self) -> Option<Duration> {
        let mut changes = std::mem::take(&mut self.memory_changes);
        changes.retain(|change| {
            let (source, number) = (change.source, change.number);
            let is_late = Instant::now() >= change.deadline;
            let look = move |engine: &mut Engine| engine.is_memory_taken(source, is_late);
            let is_now = self.sources[source]
                .memory()
                .is_some_and(|one| one.number == number);
            let is_over = !is_now || self.engine.call(look).unwrap_or(true);
            if is_over {
                let _gone = change.steps.send(MemoryStep::Taken);
            }
            !is_over
        });
        self.memory_changes = changes;
        (!self.memory_changes.is_empty()).then_some(LOOK)
    }

    /// Answers a reader that asks for the memory of its endpoint.
    pub(crate) fn ask_memory(
        &self,
        id: SubscriptionId,
        endpoint: usize,
        responder: Responder<PoolMemory>,
    ) {
        let subscriber = self
            .subscribers
            .all
            .get(&id)
            .filter(|one| one.relay.is_none());
        let source = subscriber.and_then(|_| self.sources.get(endpoint));
        let memory = source.and_then(|source| source.memory());
        let refused = || Refused::new(Refusal::BadRequest, "the endpoint has no other memory");
        responder.send(memory.cloned().ok_or_else(refused));
    }
}

impl Engine {
    fn set_memory(&mut self, source: usize, number: u32) {
        if let Some(distributor) = self.distributor(source) {
            distributor.set_memory(number);
        }
        self.call_all();
    }

    /// Whether all readers of a source have mapped its memory; the others end if it `is_late`.
    fn is_memory_taken(&mut self, source: usize, is_late: bool) -> bool {
        let Some(distributor) = self.distributor(source) else {
            return true;
        };
        if is_late {
            distributor.lose_memory();
            self.call_all();
            return true;
        }
        distributor.is_memory_taken()
    }
}
