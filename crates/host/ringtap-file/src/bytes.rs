// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers in the byte order of the machine that wrote the file.
#![forbid(unsafe_code)]

/// The byte order of a pcap file, or of one section of a pcapng file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first (x86, arm64).
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The number in the two bytes at `at`, which the caller knows to be there.
    #[inline]
    pub(super) fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        let mut word = [0; 2];
        word.copy_from_slice(&bytes[at..at + 2]);
        match self {
            Self::Little => u16::from_le_bytes(word),
            Self::Big => u16::from_be_bytes(word),
        }
    }

    /// The number in the four bytes at `at`, which the caller knows to be there.
    #[inline]
    pub(super) fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        match self {
            Self::Little => u32::from_le_bytes(word),
            Self::Big => u32::from_be_bytes(word),
        }
    }

    /// The number in the eight bytes at `at`, which the caller knows to be there.
    #[inline]
    pub(super) fn u64_at(self, bytes: &[u8], at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        match self {
            Self::Little => u64::from_le_bytes(word),
            Self::Big => u64::from_be_bytes(word),
        }
    }

    /// pcapng keeps 64-bit times as two 32-bit words, the high one first in either byte order.
    #[inline]
    pub(super) fn split_u64_at(self, bytes: &[u8], at: usize) -> u64 {
        u64::from(self.u32_at(bytes, at)) << 32 | u64::from(self.u32_at(bytes, at + 4))
    }
}

/// A length from a file as an index; on a 32-bit machine the impossible becomes the maximum.
#[inline]
pub(super) fn index(length: u32) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
