// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a call failed.

use std::ffi::c_int;

use ringtap_client::{ConnectError, ReceiveError};
use ringtap_filter::text::FilterError;

use crate::abi;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RingError {
    /// A null pointer, or a text that is not UTF-8.
    #[error("a null pointer or an invalid value")]
    Argument,
    /// Not a group of a hub.
    #[error(
        "{0}: this library reads groups of a hub: start `ringtap hub -i {0} -g all`, and open hub:all"
    )]
    Device(String),
    /// `pfring_enable_ring` was not called.
    #[error("the ring is not enabled")]
    NotEnabled,
    /// The hub's sources have ended, and every packet was received.
    #[error("the capture has ended")]
    Ended,
    /// Ringtap has no such function.
    #[error("not supported")]
    Unsupported,
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Filter(#[from] FilterError),
}

impl RingError {
    /// The error's number in `pfring.h`.
    pub(crate) fn code(&self) -> c_int {
        match self {
            RingError::Argument => abi::ERROR_INVALID_ARGUMENT,
            RingError::NotEnabled => abi::ERROR_RING_NOT_ENABLED,
            RingError::Unsupported => abi::ERROR_NOT_SUPPORTED,
            _ => abi::ERROR_GENERIC,
        }
    }
}
