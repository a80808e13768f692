// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a call failed.

use std::ffi::c_int;

use ringtap_client::{ConnectError, ControlError, ReceiveError};
use ringtap_device::DeviceError;
use ringtap_filter::text::FilterError;
use ringtap_net::interface::InterfaceError;

use crate::abi;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RingError {
    /// A null pointer, or a text that is not UTF-8.
    #[error("a null pointer or an invalid value")]
    Argument,
    /// The ring's packets come from no interface of this namespace.
    #[error("the ring has no interface here")]
    NoInterface,
    /// No packet was received yet, or it is no longer there.
    #[error("there is no packet")]
    NoPacket,
    /// `pfring_enable_ring` was not called.
    #[error("the ring is not enabled")]
    NotEnabled,
    /// The hub's sources have ended, and every packet was received.
    #[error("the capture has ended")]
    Ended,
    /// The ring has no such rule.
    #[error("there is no such rule")]
    NoRule,
    /// A signal handler called while its thread was in another call.
    #[error("this thread is in another call")]
    Interrupted,
    /// Ringtap has no such function.
    #[error("not supported")]
    Unsupported,
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    #[error(transparent)]
    Open(#[from] ringtap::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error("sending: {0}")]
    Send(#[from] std::io::Error),
}

impl RingError {
    /// The error's number in `pfring.h`.
    pub(crate) fn code(&self) -> c_int {
        match self {
            RingError::Argument => abi::ERROR_INVALID_ARGUMENT,
            RingError::NotEnabled => abi::ERROR_RING_NOT_ENABLED,
            RingError::Unsupported | RingError::NoInterface => abi::ERROR_NOT_SUPPORTED,
            RingError::NoPacket => abi::ERROR_NO_PACKET,
            _ => abi::ERROR_GENERIC,
        }
    }
}
