// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends of flows that wait for a reader.

use std::collections::VecDeque;

use ringtap_ipc::protocol::{FlowEvent, Reply};

/// Most events that wait for a reader; further ones are counted as lost.
pub(super) const MAX_EVENTS: usize = 4096;
/// Most events of an answer, which so fits into a message.
const MAX_OF_ANSWER: usize = 256;

/// The queue of one reader.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    waiting: VecDeque<FlowEvent>,
    /// Events lost since the last answer.
    lost: u64,
}

impl EventQueue {
    pub(super) fn push(&mut self, event: FlowEvent) {
        if self.waiting.len() < MAX_EVENTS {
            self.waiting.push_back(event);
        } else {
            self.lost += 1;
        }
    }

    /// Counts events that were lost before the queue.
    pub(super) fn lose(&mut self, events: u64) {
        self.lost = self.lost.saturating_add(events);
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.lost == 0
    }

    /// The answer with the next events.
    pub(super) fn take(&mut self) -> Reply {
        let count = self.waiting.len().min(MAX_OF_ANSWER);
        Reply::FlowEvents {
            events: self.waiting.drain(..count).collect(),
            lost: std::mem::take(&mut self.lost),
            more: !self.waiting.is_empty(),
        }
    }
}
