// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a call failed: libpcap's status number and a text for people.

use std::ffi::c_int;

use ringtap_client::{ConnectError, ControlError, ReceiveError};
use ringtap_ipc::protocol::Refusal;

use crate::abi::{ERROR, ERROR_NO_SUCH_DEVICE, ERROR_PERM_DENIED};

/// A failed call.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct LibpcapError {
    pub(crate) status: c_int,
    pub(crate) text: String,
}

impl LibpcapError {
    pub(crate) fn new(status: c_int, text: impl Into<String>) -> Self {
        let text = text.into();
        LibpcapError { status, text }
    }

    /// An error with libpcap's general status.
    pub(crate) fn general(text: impl Into<String>) -> Self {
        LibpcapError::new(ERROR, text)
    }
}

impl From<ConnectError> for LibpcapError {
    fn from(error: ConnectError) -> Self {
        let status = match &error {
            ConnectError::NoHub { .. } => ERROR_NO_SUCH_DEVICE,
            ConnectError::System { reason, .. }
                if reason.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                ERROR_PERM_DENIED
            }
            ConnectError::Control(ControlError::Refused(refused)) => match refused.code {
                Refusal::NoGroup => ERROR_NO_SUCH_DEVICE,
                Refusal::NotAllowed => ERROR_PERM_DENIED,
                _ => ERROR,
            },
            _ => ERROR,
        };
        LibpcapError::new(status, error.to_string())
    }
}

impl From<ReceiveError> for LibpcapError {
    fn from(error: ReceiveError) -> Self {
        LibpcapError::general(error.to_string())
    }
}

impl From<ControlError> for LibpcapError {
    fn from(error: ControlError) -> Self {
        LibpcapError::general(error.to_string())
    }
}
