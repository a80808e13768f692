// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow rules of readers: a thread of its own sets and removes them, and tells readers the ends of flows.
//!
//! Invariants
//! - No other thread of the hub waits for a table of flows.
//! - Work that grows with the number of rules is done in slices; requests of readers come in between.
//! - A rule is in the book of its target if it may be in a table.

mod book;
mod events;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use ringtap_filter::GroupName;
use ringtap_filter::flow::FlowRule;
use ringtap_ipc::event::Event;
use ringtap_ipc::protocol::{Reply, Request};
use ringtap_ipc::subscription::SubscriptionId;
use ringtap_ipc::thread::join;
use ringtap_pool::source::FlowRules;

use crate::answer::Responder;
use crate::limits::{FilterOwner, Limits};
use crate::membership::FlowMembers;

/// A reader that may have flow rules.
#[derive(Clone, Debug)]
pub(crate) struct FlowReader {
    pub(crate) id: SubscriptionId,
    pub(crate) members: FlowMembers,
    /// The user or guest whose rules are limited; `None` for root and the hub's own user.
    pub(crate) user: Option<FilterOwner>,
    /// The reader may see counts of flows: its group has all packets, or its user may see everything.
    pub(crate) sees_counts: bool,
    /// The reader gets the ends of all flows: its group has a cut-off, or itself.
    pub(crate) sees_all: bool,
    /// Rules that the hub's file has for the group.
    pub(crate) file_rules: Vec<FlowRule>,
}

/// Work for the thread.
pub(crate) enum FlowWork {
    /// The tables of all sources.
    Tables(Vec<Arc<dyn FlowRules>>),
    Limits(Limits),
    /// The groups that get packets by rules, and their bits.
    Groups(BTreeMap<GroupName, u64>),
    /// A reader has come, or its group has changed.
    Reader(FlowReader),
    /// A reader has left. Its rules go; these bits are then in no table.
    Leave {
        id: SubscriptionId,
        bits: u64,
    },
    /// A reader's request for flow rules.
    Request {
        id: SubscriptionId,
        request: Request,
        responder: Responder<Reply>,
    },
}

/// The thread, which ends when this is dropped.
pub(crate) struct FlowThread {
    work: Option<Sender<FlowWork>>,
    released: Receiver<u64>,
    thread: Option<JoinHandle<()>>,
}

impl FlowThread {
    /// Starts the thread, which signals `event` when bits are in no table any more.
    ///
    /// # Errors
    ///
    /// The system's, when no thread can start.
    pub(crate) fn start(limits: &Limits, event: Event) -> io::Result<Self> {
        let (work, inbox) = mpsc::channel();
        let (free, released) = mpsc::channel();
        let worker = worker::FlowWorker::new(*limits, free, event);
        // Of usual priority: readers set rules because the machine is busy.
        let thread = std::thread::Builder::new().name("flow rules".into());
        let thread = thread.spawn(move || worker.run(&inbox))?;
        Ok(FlowThread {
            work: Some(work),
            released,
            thread: Some(thread),
        })
    }

    pub(crate) fn send(&self, work: FlowWork) {
        if let Some(to) = &self.work {
            // A thread that has ended drops the work with its responder, which ends the wait.
            let _gone = to.send(work);
        }
    }

    /// Bits that are in no table any more, since the last call.
    pub(crate) fn released(&self) -> u64 {
        self.released.try_iter().fold(0, |all, bits| all | bits)
    }
}

impl Drop for FlowThread {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            join(thread);
        }
    }
}

#[cfg(test)]
mod tests;
