// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that are missing between two batches of a reader.

use std::fmt;
use std::time::Duration;

/// Missing packets of a lane, just before a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Sequence of the first missing packet.
    pub first_sequence: u64,
    /// Number of missing packets, wanted or not.
    pub sequences: u64,
    /// Number of missing packets that this reader wanted: its losses.
    pub packets: u64,
    /// Number of missing packets that other members of the reader's group get.
    pub other_members: u64,
}

/// A time in which a lane captured nothing, because its capture ended and another one began: a guest
/// was detached from its host, or migrated. How many packets passed meanwhile is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureGap {
    /// Sequence of the lane's first packet after the gap.
    pub sequence: u64,
    /// Length in nanoseconds, at least 1.
    pub duration_ns: u64,
    /// Number of packets that the capture before the gap had of this lane, by its own sequences.
    pub after: u64,
}

impl fmt::Display for CaptureGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Duration::from_nanos(self.duration_ns).as_secs_f64();
        write!(
            f,
            "gap of {seconds:.3} s before sequence {}: after packet {} of the capture before, up to an unknown \
             one (another capture)",
            self.sequence, self.after
        )
    }
}
