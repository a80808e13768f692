// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for what is not there yet: interfaces, hubs, and groups of hubs.
//!
//! Invariants
//! - Each reason to wait is printed once, until another one takes its place.

use std::time::Duration;

use anyhow::{Error, Result};
use ringtap_capture::CaptureError;
use ringtap_client::{ConnectError, ControlError};
use ringtap_ipc::protocol::Refusal;

use crate::interrupt::EndRequests;
use crate::print;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// A request to end the program came before there was anything to read.
#[derive(Debug, thiserror::Error)]
#[error("ended while waiting: nothing was read")]
pub(crate) struct EndedWaiting;

/// Whether the error is that an interface, a hub or a group is not there.
pub(crate) fn is_absent(error: &Error) -> bool {
    use ringtap::Error::{Connect, Open};
    match error.downcast_ref() {
        Some(Open(CaptureError::Interface(error))) => error.is_absence(),
        Some(Connect(ConnectError::NoHub { .. })) => true,
        Some(Connect(ConnectError::Control(ControlError::Refused(refused)))) => {
            refused.code == Refusal::NoGroup
        }
        _ => {
            matches!(error.downcast_ref(), Some(CaptureError::Interface(error)) if error.is_absence())
        }
    }
}

/// Calls `open` again every second while what it opens is not there.
///
/// # Errors
///
/// Other errors of `open`; [`EndedWaiting`].
pub(crate) fn until_there<T>(
    requests: &EndRequests,
    mut open: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut said = String::new();
    loop {
        let error = match open() {
            Err(error) if is_absent(&error) => crate::describe(&error),
            opened => return opened,
        };
        if error != said {
            print::note(format_args!("ringtap: waiting: {error}"));
            said = error;
        }
        if requests.came_within(PAUSE) {
            return Err(EndedWaiting.into());
        }
    }
}
