// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader may ask of its hub, wherever that is.
#![forbid(unsafe_code)]

use std::os::fd::BorrowedFd;

use ringtap_filter::Program;
use ringtap_ipc::protocol::{Refusal, Snapshot};
use ringtap_ipc::subscription::Wanted;

/// Why the hub did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// It is gone.
    #[error("the hub left: {0}")]
    Gone(String),
    /// It said no.
    #[error("{message}")]
    Refused {
        /// What kind of refusal.
        code: Refusal,
        /// What to tell the user.
        message: String,
    },
}

/// A reader's side of its hub.
pub trait Control: Send + Sync {
    /// The reader's account now.
    ///
    /// # Errors
    ///
    /// Every [`ControlError`].
    fn snapshot(&self) -> Result<Snapshot, ControlError>;

    /// Changes the reader's filter; see [`Receiver::set_filter`](crate::Receiver::set_filter).
    ///
    /// # Errors
    ///
    /// Every [`ControlError`]; the filter before is still in force then.
    fn set_filter(&self, filter: &Program) -> Result<Vec<Wanted>, ControlError>;

    /// Lets the capture end for this reader, which then finds what is left and the end.
    fn stop(&self);

    /// Whether it was asked to end and the hub itself goes on.
    fn is_leaving(&self) -> bool {
        false
    }

    /// What hangs up when the hub dies, if it is another process.
    fn connection(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
