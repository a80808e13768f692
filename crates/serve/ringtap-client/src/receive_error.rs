// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of a receiver.

use std::io;

use ringtap_pool::control::ControlRegionError;
use ringtap_pool::reader::RecvError;

use crate::control::ControlError;

/// Why no more packets can be received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The pool has impossible content.
    #[error(transparent)]
    Corrupt(#[from] RecvError),
    /// The reader's control region is not valid.
    #[error(transparent)]
    Region(#[from] ControlRegionError),
    /// The hub has died or was stopped.
    #[error("the hub ended: start the hub again, then this reader")]
    HubLeft,
    /// The agent in this virtual machine has died or was stopped.
    #[error(
        "the agent of this virtual machine ended: start `ringtap guest` again, then this reader"
    )]
    AgentLeft,
    /// The sources have different link types.
    #[error("the hub's sources have different link types: read them one by one")]
    LinkTypes,
    /// The system refused to wait.
    #[error("cannot wait for packets: {0}")]
    System(#[from] io::Error),
    /// The hub did not carry out a command.
    #[error(transparent)]
    Control(#[from] ControlError),
}
