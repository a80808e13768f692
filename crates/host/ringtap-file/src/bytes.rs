// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers in the byte order of the machine that wrote the file.

/// The byte order of a pcap file, or of one section of a pcapng file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first (x86, arm64).
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The number at `at`; the caller guarantees that its two bytes exist.
    #[inline]
    pub(super) fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(array(bytes, at)),
            Self::Big => u16::from_be_bytes(array(bytes, at)),
        }
    }

    /// The number at `at`; the caller guarantees that its four bytes exist.
    #[inline]
    pub(super) fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(array(bytes, at)),
            Self::Big => u32::from_be_bytes(array(bytes, at)),
        }
    }

    /// The number at `at`; the caller guarantees that its eight bytes exist.
    #[inline]
    pub(super) fn u64_at(self, bytes: &[u8], at: usize) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(array(bytes, at)),
            Self::Big => u64::from_be_bytes(array(bytes, at)),
        }
    }

    /// A 64-bit time of pcapng: two 32-bit words, the high one first in either byte order.
    #[inline]
    pub(super) fn split_u64_at(self, bytes: &[u8], at: usize) -> u64 {
        u64::from(self.u32_at(bytes, at)) << 32 | u64::from(self.u32_at(bytes, at + 4))
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}
