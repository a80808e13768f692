// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of a guest, and other work, that waits for the thread that carries it out.
//!
//! Invariants
//! - At most [`MAX_WAITING`] requests wait; further ones are refused.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringtap_ipc::mutex::lock;

use super::relay::RelayEnd;
use crate::messages::GuestRequest;

/// Most requests that wait.
const MAX_WAITING: usize = 64;
/// Longest wait of a report for the counters of the hub.
const REFRESH_LIMIT: Duration = Duration::from_secs(1);

/// Work for the thread.
pub(super) enum GuestCommand {
    /// A request of the agent of this number.
    Request(u64, u32, GuestRequest),
    /// The agent of this number arrived, or will be the next; the one before left.
    Agent { number: u64, is_here: bool },
    /// The thread of a group's relay with this epoch found the end.
    Ended(usize, u64, RelayEnd),
    /// Asks the hub for the counters of all subscriptions; the sender is dropped then.
    Refresh(SyncSender<()>),
    /// Ends all subscriptions, and the thread.
    Stop,
}

/// Requests that wait for the thread.
#[derive(Default)]
pub(super) struct CommandQueue {
    waiting: Mutex<WaitingCommands>,
    is_filled: Condvar,
}

#[derive(Default)]
struct WaitingCommands {
    commands: VecDeque<GuestCommand>,
    /// Nothing is queued any more.
    is_stopping: bool,
}

impl CommandQueue {
    /// Queues a request of the guest; `false` if too many wait, or the guest is being detached.
    pub(super) fn request(&self, agent: u64, request: u32, what: GuestRequest) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.is_stopping || waiting.commands.len() >= MAX_WAITING {
            return false;
        }
        let command = GuestCommand::Request(agent, request, what);
        waiting.commands.push_back(command);
        self.is_filled.notify_one();
        true
    }

    /// Ends the subscriptions of the agent before the one with this number.
    pub(super) fn new_agent(&self, number: u64, is_here: bool) {
        let mut waiting = lock(&self.waiting);
        let is_of_agent = |one: &GuestCommand| {
            matches!(one, GuestCommand::Request(..) | GuestCommand::Agent { .. })
        };
        waiting.commands.retain(|one| !is_of_agent(one));
        drop(waiting);
        self.push(GuestCommand::Agent { number, is_here });
    }

    /// Ends all subscriptions, and then the thread.
    pub(super) fn stop(&self) {
        let mut waiting = lock(&self.waiting);
        if !waiting.is_stopping {
            waiting.is_stopping = true;
            waiting.commands.clear();
            waiting.commands.push_back(GuestCommand::Stop);
        }
        self.is_filled.notify_one();
    }

    /// Lets the counters be what the hub knows, if the thread and the hub answer soon.
    pub(super) fn refresh(&self) {
        let (done, is_done) = sync_channel(0);
        let is_refresh = |one: &GuestCommand| matches!(one, GuestCommand::Refresh(_));
        // A thread that has not come to the one before does not answer soon.
        if lock(&self.waiting).commands.iter().any(is_refresh) {
            return;
        }
        self.push(GuestCommand::Refresh(done));
        // An error is the end of the time, or of the work.
        let _over = is_done.recv_timeout(REFRESH_LIMIT);
    }

    pub(super) fn push(&self, command: GuestCommand) {
        let mut waiting = lock(&self.waiting);
        if !waiting.is_stopping {
            waiting.commands.push_back(command);
            self.is_filled.notify_one();
        }
    }

    /// The next command; `None` if there is none within `limit`.
    pub(super) fn next(&self, limit: Option<Duration>) -> Option<GuestCommand> {
        let limit = limit.unwrap_or(Duration::MAX);
        let is_empty = |waiting: &mut WaitingCommands| waiting.commands.is_empty();
        self.wait_while(limit, is_empty).commands.pop_front()
    }

    /// Sleeps, but not while the guest is being detached.
    pub(super) fn pause(&self, limit: Duration) {
        drop(self.wait_while(limit, |waiting| !waiting.is_stopping));
    }

    fn wait_while(
        &self,
        limit: Duration,
        condition: impl Fn(&mut WaitingCommands) -> bool,
    ) -> MutexGuard<'_, WaitingCommands> {
        let waiting = lock(&self.waiting);
        let woken = self.is_filled.wait_timeout_while(waiting, limit, condition);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }
}
