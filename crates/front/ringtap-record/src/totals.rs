// SPDX-License-Identifier: MIT OR Apache-2.0
//! Totals of packets and of files.

use std::ops::AddAssign;

/// Packets, and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketTotals {
    pub(crate) packets: u64,
    pub(crate) wire_bytes: u64,
}

impl AddAssign for PacketTotals {
    fn add_assign(&mut self, more: Self) {
        self.packets += more.packets;
        self.wire_bytes += more.wire_bytes;
    }
}

/// Whole blocks in files.
#[derive(Clone, Copy, Default)]
pub(crate) struct FileContent {
    pub(crate) size_bytes: u64,
    pub(crate) totals: PacketTotals,
}

impl AddAssign for FileContent {
    fn add_assign(&mut self, more: Self) {
        self.size_bytes += more.size_bytes;
        self.totals += more.totals;
    }
}

/// Totals of all files of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFiles {
    /// Number of files.
    pub files: u64,
    /// Name of the last file.
    pub file: String,
    /// Number of packets in the files.
    pub packets: u64,
    /// Sum of the files' sizes.
    pub size_bytes: u64,
}
