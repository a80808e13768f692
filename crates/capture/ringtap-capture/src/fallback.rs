// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries the hooks of an interface in order.

use ringtap_bpf::BpfError;
use ringtap_bpf::link::Hook;

use crate::CaptureError;

/// Runs `attempt` with each hook until the kernel accepts one; `attempt` gets the notes so far.
///
/// # Errors
///
/// The error of the last attempt, or the first error that another hook would not avoid.
pub(crate) fn first_accepted<T>(
    hooks: &[Hook],
    notes: &mut Vec<String>,
    mut attempt: impl FnMut(Hook, &[String]) -> Result<T, CaptureError>,
) -> Result<T, CaptureError> {
    let (last, others) = hooks.split_last().unwrap_or((&Hook::Generic, &[]));
    for (at, hook) in others.iter().enumerate() {
        match attempt(*hook, notes) {
            Err(CaptureError::Bpf(
                error @ (BpfError::Refused { .. } | BpfError::TooOld { .. }),
            )) => {
                let next = hooks[at + 1].words();
                notes.push(format!("{error}; falling back to {next}"));
            }
            done => return done,
        }
    }
    attempt(*last, notes)
}
