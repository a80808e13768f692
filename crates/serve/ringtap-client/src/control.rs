// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that a reader sends to its hub, in this process or another.

use std::os::fd::BorrowedFd;

use ringtap_filter::Program;
use ringtap_ipc::pool_memory::PoolMemory;
use ringtap_ipc::protocol::{Refusal, Refused, Reply, Request, Snapshot};
use ringtap_ipc::subscription::Wanted;

/// Why the hub did not carry out a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The hub is gone.
    #[error("the hub ended: {0}")]
    Gone(String),
    /// The agent in this virtual machine has died or was stopped.
    #[error(
        "the agent of this virtual machine ended: start `ringtap guest` again, then this reader"
    )]
    AgentGone,
    /// The hub did not answer in time. The connection is closed, because the answer may still come.
    #[error(
        "the hub did not answer for {seconds} seconds: its process is stopped, or this machine is too busy; \
         try again"
    )]
    Late {
        /// Seconds that the reader waited.
        seconds: u64,
    },
    /// The hub refused the command.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl ControlError {
    /// Whether no hub and no agent is there any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, ControlError::Gone(_) | ControlError::AgentGone)
    }
}

/// A function that waits for a hub's answer and returns it.
pub type AwaitedAnswer<'a, T> = Box<dyn FnOnce() -> Result<T, ControlError> + 'a>;

/// Sends a reader's commands to its hub.
pub trait Control: Send + Sync {
    /// The reader's counters now, as the hub sees them.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    fn snapshot(&self) -> Result<Snapshot, ControlError>;

    /// Asks for [`Control::snapshot`], without waiting if the hub is in this process; the returned function waits. A hub
    /// reads its counters at most every 10 ms, and answers all questions that wait then: to get the counters of many
    /// readers, ask for all of them first.
    fn ask_snapshot(&self) -> AwaitedAnswer<'_, Snapshot> {
        Box::new(|| self.snapshot())
    }

    /// Changes the reader's filter; see [`Receiver::set_filter`](crate::Receiver::set_filter).
    ///
    /// # Errors
    ///
    /// Every [`ControlError`]; the old filter stays in force then.
    fn set_filter(&self, filter: &Program) -> Result<Vec<Wanted>, ControlError>;

    /// Sets, removes or lists flow rules, or takes the ends of flows; see [`ReaderRules`](crate::ReaderRules).
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    fn flow_request(&self, request: Request) -> Result<Reply, ControlError> {
        drop(request);
        let message = "this reader's hub has no flow rules";
        Err(Refused::new(Refusal::BadRequest, message).into())
    }

    /// Ends the capture for this reader, which then receives the remaining packets.
    fn stop(&self);

    /// The memory in which the pool of an endpoint lies now; `None`: this process has mapped it already.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    fn memory(&self, endpoint: usize) -> Result<Option<PoolMemory>, ControlError> {
        let _mapped_by_the_hub = endpoint;
        Ok(None)
    }

    /// Whether this reader ends while the hub goes on.
    fn is_leaving(&self) -> bool {
        false
    }

    /// Whether the hub is the agent of this virtual machine.
    fn is_agent(&self) -> bool {
        false
    }

    /// The connection to a hub in another process; it hangs up when the hub dies.
    fn connection(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
