// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that readers do not get, and why.

use std::ops::AddAssign;

/// Packets of a lane in chunks that a reader did not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// All packets, wanted or not.
    pub sequences: u64,
    /// Packets that the reader wanted and lost, because it was past its credit.
    pub packets: u64,
    /// Those of `packets` that were lost because many chunks came at once, not because the reader was
    /// slow: the distributor's driver came late, or the credit is too small for its pace.
    pub in_bursts: u64,
    /// Packets for other members of the reader's group.
    pub other_members: u64,
}

impl AddAssign for Missing {
    fn add_assign(&mut self, more: Self) {
        self.sequences += more.sequences;
        self.packets += more.packets;
        self.in_bursts += more.in_bursts;
        self.other_members += more.other_members;
    }
}

/// Packets of a chunk, from this slot on, that a reader does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missed {
    pub(super) reader: usize,
    pub(super) from: u32,
    pub(super) why: Why,
}

/// Why a reader does not get a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is past its credit.
    Credit,
    /// It is past its credit because many chunks came at once.
    Burst,
    /// Another reader of its share has the chunk.
    Elsewhere,
}

impl Missed {
    pub(super) fn elsewhere(reader: usize, from: u32) -> Self {
        let why = Why::Elsewhere;
        Missed { reader, from, why }
    }
}
