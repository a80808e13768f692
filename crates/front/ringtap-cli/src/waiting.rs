// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for what is not there yet: interfaces, hubs, and groups of hubs.
//!
//! Invariants
//! - Each reason to wait is printed once, until another one takes its place.

use std::time::Duration;

use anyhow::{Error, Result};
use ringtap_capture::CaptureError;
use ringtap_client::{ConnectError, ControlError};
use ringtap_device::DeviceSpec;
use ringtap_ipc::protocol::Refusal;
use ringtap_net::interface::{Interface, InterfaceError};

use crate::interrupt::EndRequests;
use crate::print;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// A request to end the program came before there was anything to read.
#[derive(Debug, thiserror::Error)]
#[error("ended while waiting: nothing was read")]
pub(crate) struct EndedWaiting;

/// Why devices with the option `wait` cannot be opened yet: one sentence for each.
pub(crate) fn absent<'a>(devices: impl IntoIterator<Item = &'a DeviceSpec>) -> Vec<String> {
    let waits = devices.into_iter().filter(|device| device.options.wait);
    waits.filter_map(absence).collect()
}

fn absence(device: &DeviceSpec) -> Option<String> {
    let found = Interface::find(&device.name);
    let ready = found.and_then(|interface| {
        if device.kind.opens_when_down {
            Ok(())
        } else {
            interface.require_up()
        }
    });
    let error = ready.err().filter(is_absence)?;
    Some(error.to_string())
}

fn is_absence(error: &InterfaceError) -> bool {
    use InterfaceError::{Down, NotFound, Removed};
    matches!(error, NotFound { .. } | Down { .. } | Removed { .. })
}

/// Whether the error is that an interface, a hub or a group is not there.
pub(crate) fn is_absent(error: &Error) -> bool {
    match error.downcast_ref() {
        Some(ringtap::Error::Open(CaptureError::Interface(error))) => is_absence(error),
        Some(ringtap::Error::Connect(ConnectError::NoHub { .. })) => true,
        Some(ringtap::Error::Connect(ConnectError::Control(ControlError::Refused(refused)))) => {
            refused.code == Refusal::NoGroup
        }
        _ => match error.downcast_ref() {
            Some(CaptureError::Interface(error)) => is_absence(error),
            _ => false,
        },
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
