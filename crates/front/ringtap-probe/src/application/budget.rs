// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that the payload of one packet may cause.
//!
//! Invariants
//! - In each analysis, each packet has the same budget, whatever it carries.
//! - What a parser does is proportional to what it spends: bytes that it touches, each time that it touches them,
//!   and a constant for each item of a list.

/// Work that is left for a packet, in bytes touched.
#[derive(Debug)]
pub(super) struct WorkBudget {
    left: usize,
}

impl WorkBudget {
    /// Work for one packet.
    pub(super) const PER_PACKET: usize = 8192;
    /// Work that an item costs besides its bytes: a label, a record, an extension, a line, a character that is
    /// escaped or replaced.
    const ITEM: usize = 48;

    /// The budget of a new packet.
    pub(super) fn for_packet() -> Self {
        WorkBudget {
            left: Self::PER_PACKET,
        }
    }

    /// Another budget, to compare with.
    #[cfg(test)]
    pub(super) fn with(left: usize) -> Self {
        WorkBudget { left }
    }

    /// Pays for touching bytes; `None`, and nothing is left, if they cost more than is left.
    pub(super) fn bytes(&mut self, count: usize) -> Option<()> {
        let left = self.left.checked_sub(count);
        self.left = left.unwrap_or_default();
        left.map(|_| ())
    }

    /// Pays for `count` items and their bytes, likewise.
    pub(super) fn items(&mut self, count: usize, bytes: usize) -> Option<()> {
        self.bytes(count.saturating_mul(Self::ITEM).saturating_add(bytes))
    }
}
