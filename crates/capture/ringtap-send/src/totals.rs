// SPDX-License-Identifier: MIT OR Apache-2.0
//! What became of packets that were to be sent.
#![forbid(unsafe_code)]

use std::ops::Add;

/// Packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) sent: u64,
    pub(super) refused: u64,
    /// Of those sent, without frame check sequence.
    pub(super) bytes: u64,
    /// Number of the latest error that came with a refusal; 0: the device only was full.
    pub(super) refusal: i32,
}

impl Totals {
    pub(super) fn attempted(&self) -> u64 {
        self.sent + self.refused
    }
}

impl Add for Totals {
    type Output = Self;

    /// These, and later ones.
    fn add(self, later: Self) -> Self {
        Self {
            sent: self.sent + later.sent,
            refused: self.refused + later.refused,
            bytes: self.bytes + later.bytes,
            refusal: match later.refused {
                0 => self.refusal,
                _ => later.refusal,
            },
        }
    }
}
