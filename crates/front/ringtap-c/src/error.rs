// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a call failed: a number for programs and a text for people.

use std::ffi::c_int;
use std::io;

use ringtap_client::{AttachedError, ConnectError, ControlError, ReceiveError, VerdictError};
use ringtap_filter::text::FilterError;

use crate::types;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CallError {
    /// An invalid argument, and what is expected.
    #[error("{0}")]
    Argument(String),
    #[error("this is no open handle: it was closed already, or never opened")]
    Handle,
    #[error("another thread is using this handle: use a handle in one thread at a time")]
    Busy,
    #[error("this process has {0} open handles, the largest possible number: close one")]
    TooManyHandles(usize),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error(transparent)]
    Verdict(#[from] VerdictError),
    #[error("the system refused a descriptor: {0}")]
    System(#[from] io::Error),
    #[error("a bug in libringtap, please report it: {0}")]
    Internal(String),
}

impl CallError {
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        CallError::Argument(text.into())
    }

    pub(crate) fn null(what: &str) -> Self {
        CallError::Argument(format!("{what} is NULL"))
    }

    /// The error's number in `ringtap.h`.
    pub(crate) fn code(&self) -> c_int {
        match self {
            CallError::Argument(_) => types::ERROR_ARGUMENT,
            CallError::Handle => types::ERROR_HANDLE,
            CallError::Busy => types::ERROR_BUSY,
            CallError::TooManyHandles(_) | CallError::System(_) => types::ERROR_SYSTEM,
            CallError::Connect(error) => connect_code(error),
            CallError::Receive(error) => receive_code(error),
            CallError::Control(error) => control_code(error),
            CallError::Filter(_) => types::ERROR_FILTER,
            CallError::Verdict(VerdictError::Corrupt(_)) => types::ERROR_CORRUPT,
            CallError::Verdict(_) => types::ERROR_HUB_LEFT,
            CallError::Internal(_) => types::ERROR_INTERNAL,
        }
    }
}

fn connect_code(error: &ConnectError) -> c_int {
    match error {
        ConnectError::NoHub { .. } => types::ERROR_NO_HUB,
        ConnectError::System { .. }
        | ConnectError::Memory(_)
        | ConnectError::Attached(AttachedError::Mapping(_)) => types::ERROR_SYSTEM,
        ConnectError::Control(error) => control_code(error),
        _ => types::ERROR_CORRUPT,
    }
}

fn receive_code(error: &ReceiveError) -> c_int {
    match error {
        ReceiveError::LinkTypes => types::ERROR_FILTER,
        ReceiveError::HubLeft | ReceiveError::AgentLeft => types::ERROR_HUB_LEFT,
        ReceiveError::System(_) => types::ERROR_SYSTEM,
        ReceiveError::Control(error) => control_code(error),
        _ => types::ERROR_CORRUPT,
    }
}

fn control_code(error: &ControlError) -> c_int {
    match error {
        ControlError::Refused(_) => types::ERROR_REFUSED,
        _ => types::ERROR_HUB_LEFT,
    }
}
