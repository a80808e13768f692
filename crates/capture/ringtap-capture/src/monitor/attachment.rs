// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source's attachment to its interface, and its repair after another program detached it.

use std::time::{Duration, Instant};

use ringtap_net::interface::{Interface, InterfaceError};

use crate::CaptureError;

/// Shortest time between two repairs of an attachment.
const REPAIR_INTERVAL: Duration = Duration::from_secs(60);

/// Actions of a source on its interface. The monitor's thread runs them; they may wait.
pub trait Attachment: Send {
    /// Checks the attachment, every second while the interface exists; returns a message if it
    /// attached again what was detached from outside.
    ///
    /// # Errors
    ///
    /// The reason why the source has to end.
    fn check(&mut self, interface: &Interface) -> Result<Option<String>, CaptureError> {
        let _nothing = interface;
        Ok(None)
    }

    /// Detaches from an interface that was removed or moved to another namespace.
    fn detach(&mut self) {}

    /// Attaches to an interface that has the name of the removed one.
    ///
    /// # Errors
    ///
    /// The reason why the source has to end.
    fn attach(&mut self, interface: &Interface) -> Result<(), CaptureError> {
        let _cannot = interface;
        Ok(())
    }
}

/// Repairs of an attachment that another program detached: one a minute at most.
#[derive(Default)]
pub struct Repairs {
    last: Option<Instant>,
}

impl Repairs {
    /// Runs `repair`, which returns whether it attached anything again, and returns the same.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Detached`]: the attachment cannot be repaired, or does not last.
    pub fn attempt(
        &mut self,
        interface: &Interface,
        repair: impl FnOnce() -> Result<bool, CaptureError>,
    ) -> Result<bool, CaptureError> {
        let detached = |reason: String| CaptureError::Detached {
            interface: interface.name.clone(),
            reason,
        };
        match repair() {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(error @ CaptureError::Interface(InterfaceError::Removed { .. })) => {
                return Err(error);
            }
            Err(error) => return Err(detached(error.to_string())),
        }
        if self
            .last
            .is_some_and(|last| last.elapsed() < REPAIR_INTERVAL)
        {
            return Err(detached("twice within a minute".to_owned()));
        }
        self.last = Some(Instant::now());
        Ok(true)
    }
}

/// Message after a repair; `unseen` is the number of packets that passed meanwhile, if it is known.
pub fn repaired_note(interface: &Interface, unseen: Option<u64>) -> String {
    let passed = match unseen {
        Some(0) => "no packet passed unseen".to_owned(),
        Some(1) => "1 packet passed unseen and counts as dropped.kernel".to_owned(),
        Some(count) => format!("{count} packets passed unseen and count as dropped.kernel"),
        None => "packets that passed meanwhile are neither captured nor counted".to_owned(),
    };
    format!(
        "{}: another program detached the capture program; it is attached again: {passed}",
        interface.name
    )
}
