// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a capture cannot start or continue.

use ringtap_capture::CaptureError;
use ringtap_client::{ConnectError, ControlError, ReceiveError};
use ringtap_device::DeviceError;
use ringtap_filter::text::FilterError;
use ringtap_hub::HubError;
use ringtap_ipc::protocol::Refused;
use ringtap_ipc::socket::ListenError;
use ringtap_net::confine::ConfineError;

/// Why a call of this library failed; the message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device's text is not valid, or an option does not fit the device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device cannot be captured.
    #[error(transparent)]
    Open(#[from] CaptureError),
    /// The filter is not valid.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The process cannot give up rights.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The hub cannot be reached, or refused the subscription.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The capture's own hub cannot start.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The capture's own hub cannot serve other processes.
    #[error("{0}: choose another --socket")]
    Listen(#[from] ListenError),
    /// The capture's own hub refused the subscription.
    #[error(transparent)]
    Attach(#[from] Refused),
    /// The capture cannot read any more.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The hub did not carry out a command.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Several workers were asked for at a group of a hub.
    #[error(
        "hub:{0}: one process is one reader of a group: use one worker, and a process for each member"
    )]
    OneWorker(String),
    /// The source failed.
    #[error("{0}")]
    SourceFailed(String),
    /// The source ended because its interface was removed.
    #[error("{0}")]
    InterfaceRemoved(String),
}

impl Error {
    /// The error of a source that failed for this reason.
    #[must_use]
    pub fn from_source(failure: String, is_removed: bool) -> Self {
        if is_removed {
            Error::InterfaceRemoved(failure)
        } else {
            Error::SourceFailed(failure)
        }
    }
}
