// SPDX-License-Identifier: MIT OR Apache-2.0
//! The region's format: offsets and sizes in bytes, specified in `docs/internals/format.md`.
//!
//! Invariants
//! - Every number is little-endian; positions are offsets, never pointers.
//! - `bpf/ringtap.h` defines the same format; a test compares the two.
//! - A change here is a change of the ABI and of [`VERSION`].

#[cfg(test)]
mod abi;
#[cfg(test)]
mod tests;

use crate::ids::{ChunkId, RegionOffset};
use crate::number::{to_u32, to_usize};

/// First eight bytes of a region: "RINGTAP1".
pub const MAGIC: u64 = u64::from_le_bytes(*b"RINGTAP1");
/// Version of this format.
pub const VERSION: u32 = 4;
/// Bytes of the region header at the start of chunk 0.
pub const REGION_HEADER_SIZE: usize = 64;
/// Epoch of a region that replaced no other.
pub const FIRST_EPOCH: u64 = 1;
/// Bytes of a chunk's header.
pub const CHUNK_HEADER_SIZE: usize = 64;
/// Bytes of a slot.
pub const SLOT_SIZE: usize = 32;
/// Smallest chunk, in bytes.
pub const MIN_CHUNK_SIZE: u32 = 4096;
/// Largest chunk, in bytes: a slot stores its payload's offset in 16 bits, in units of 8 bytes.
pub const MAX_CHUNK_SIZE: u32 = 512 * 1024;
/// Flag in a chunk's state: no more slots will be published.
pub const SEALED: u32 = 1 << 31;

/// Flags of a slot.
pub mod flag {
    /// Sent by this host, not received.
    pub const OUT: u8 = 0x01;
    /// The VLAN tag was stripped before capture and restored.
    pub const VLAN_RESTORED: u8 = 0x02;
    /// The slot's flow hash is valid.
    pub const HASHED: u8 = 0x04;
    /// The host left the checksum to the NIC.
    pub const PARTIAL_CHECKSUM: u8 = 0x08;
    /// Merged by GRO, or not yet segmented by GSO: larger than the packets on the wire.
    pub const SUPER: u8 = 0x10;
    /// The time is of the NIC's clock, not of the host's.
    pub const NIC_TIME: u8 = 0x20;
    /// The reader marks the packets of another group, and a flow rule gives this packet to that group. Set only in pools
    /// of one reader.
    pub const MARKED: u8 = 0x40;
}

/// Offsets in the region header.
pub mod region {
    /// Magic, u64.
    pub const MAGIC: usize = 0;
    /// Version, u32.
    pub const VERSION: usize = 8;
    /// Size of the region header, u32.
    pub const HEADER_SIZE: usize = 12;
    /// Feature bits, u64.
    pub const FEATURES: usize = 16;
    /// Bytes of a chunk, u32.
    pub const CHUNK_SIZE: usize = 24;
    /// Chunks with chunk 0, u32.
    pub const CHUNK_COUNT: usize = 28;
    /// Lanes, u32.
    pub const LANE_COUNT: usize = 32;
    /// Snap length in bytes, u32.
    pub const SNAP_LENGTH: usize = 36;
    /// Bytes of chunks in one segment, u64.
    pub const SEGMENT_SIZE: usize = 40;
    /// Bytes from one segment to the next, u64.
    pub const SEGMENT_STRIDE: usize = 48;
    /// Epoch of the region, u64.
    pub const EPOCH: usize = 56;
}

/// Offsets in a chunk's header.
pub mod chunk {
    /// Slots published and [`SEALED`](super::SEALED), u32.
    pub const STATE: usize = 0;
    /// Lane, u32.
    pub const LANE: usize = 4;
    /// Sequence of the packet in slot 0, u64.
    pub const FIRST_SEQUENCE: usize = 8;
    /// Number of this chunk in its lane, u64.
    pub const CHUNK_SEQUENCE: usize = 16;
    /// Packets that the lane lost before this chunk because none was free, u64.
    pub const LOST_BEFORE: usize = 24;
    /// The masks of all published slots combined, u64.
    pub const WANTED: usize = 32;
    /// Sequence of the lane's first packet after its last capture gap, u64.
    pub const GAP_SEQUENCE: usize = 40;
    /// Length of that gap in nanoseconds, u64; 0: the lane had none.
    pub const GAP_NS: usize = 48;
    /// Packets of the capture that the gap ended, u64.
    pub const GAP_AFTER: usize = 56;
}

/// A slot as four words in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slot {
    /// Nanoseconds since 1970, UTC.
    pub time_ns: u64,
    /// Readers that want this packet; all ones if the source does not classify.
    pub mask: u64,
    /// Symmetric flow hash, valid with [`flag::HASHED`].
    pub hash: u32,
    /// Length on the wire in bytes, without the frame check sequence.
    pub wire_length: u32,
    /// Bytes captured, below 2^24.
    pub captured_length: u32,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Offset of the payload in its chunk, in units of 8 bytes.
    pub payload: u16,
    /// Receive queue.
    pub queue: u16,
}

impl Slot {
    /// The flow hash, if one was computed.
    pub fn hash(&self) -> Option<u32> {
        (self.flags & flag::HASHED != 0).then_some(self.hash)
    }

    /// This slot as four little-endian words.
    #[inline]
    pub fn to_words(self) -> [u64; 4] {
        let captured = (self.captured_length & 0x00ff_ffff) | (u32::from(self.flags) << 24);
        let places = u32::from(self.payload) | (u32::from(self.queue) << 16);
        [
            self.time_ns.to_le(),
            self.mask.to_le(),
            (u64::from(self.hash) | (u64::from(self.wire_length) << 32)).to_le(),
            (u64::from(captured) | (u64::from(places) << 32)).to_le(),
        ]
    }

    /// Decodes a slot without checks: see `ChunkView::packet`.
    #[inline]
    pub fn from_words(words: [u64; 4]) -> Self {
        let [time, mask, lengths, places] = words.map(u64::from_le);
        Slot {
            time_ns: time,
            mask,
            hash: low(lengths),
            wire_length: high(lengths),
            captured_length: low(places) & 0x00ff_ffff,
            flags: low(places).to_le_bytes()[3],
            payload: half(high(places), 0),
            queue: half(high(places), 1),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "taking the low half is the point"
)]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    low(word >> 32)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "taking one half is the point"
)]
const fn half(word: u32, index: u32) -> u16 {
    (word >> (16 * index)) as u16
}

/// Sizes of a pool, as in its region header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a chunk: a power of two.
    pub chunk_size: u32,
    /// Chunks, with chunk 0, which holds the region header.
    pub chunk_count: u32,
    /// Lanes that write into this pool.
    pub lane_count: u32,
    /// Maximum number of bytes captured of a packet.
    pub snap_length: u32,
    /// Bytes of chunks in one segment: a power of two.
    pub segment_size: u64,
    /// Bytes from one segment to the next; the part above `segment_size` is unused slack.
    pub segment_stride: u64,
}

/// Why a pool cannot have these sizes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum GeometryError {
    /// The chunk size is not usable.
    #[error(
        "chunk size {0} bytes: expected a power of two from {MIN_CHUNK_SIZE} to {MAX_CHUNK_SIZE}"
    )]
    ChunkSize(u32),
    /// There are too few chunks.
    #[error(
        "{count} chunks for {lanes} lanes: expected at least {}, two per lane and one for the header",
        lanes.saturating_mul(2).saturating_add(1)
    )]
    ChunkCount { count: u32, lanes: u32 },
    /// The segments do not hold the chunks.
    #[error("segments of {size} bytes every {stride}: expected a power of two that holds a chunk")]
    Segment { size: u64, stride: u64 },
}

impl Geometry {
    /// A pool without gaps: `chunk_count` chunks, including chunk 0, side by side.
    pub fn contiguous(
        chunk_size: u32,
        chunk_count: u32,
        lane_count: u32,
        snap_length: u32,
    ) -> Result<Self, GeometryError> {
        let bytes = u64::from(chunk_size) * u64::from(chunk_count);
        let segment_size = bytes.next_power_of_two();
        Geometry {
            chunk_size,
            chunk_count,
            lane_count,
            snap_length,
            segment_size,
            segment_stride: segment_size,
        }
        .checked()
    }

    /// Checks that a pool can have these sizes.
    pub fn checked(self) -> Result<Self, GeometryError> {
        let chunk = self.chunk_size;
        if !chunk.is_power_of_two() || !(MIN_CHUNK_SIZE..=MAX_CHUNK_SIZE).contains(&chunk) {
            return Err(GeometryError::ChunkSize(chunk));
        }
        let least = self.lane_count.saturating_mul(2).saturating_add(1);
        if self.lane_count == 0 || self.chunk_count < least {
            return Err(GeometryError::ChunkCount {
                count: self.chunk_count,
                lanes: self.lane_count,
            });
        }
        let (size, stride) = (self.segment_size, self.segment_stride);
        if !size.is_power_of_two() || size < u64::from(chunk) || stride < size || stride % 8 != 0 {
            return Err(GeometryError::Segment { size, stride });
        }
        Ok(self)
    }

    /// Offset of a chunk in the region.
    #[inline]
    pub fn chunk_offset(&self, id: ChunkId) -> RegionOffset {
        let linear = u64::from(id.0) * u64::from(self.chunk_size);
        // A segment's size is a power of two: a shift replaces the division.
        let segment = linear >> self.segment_size.trailing_zeros();
        RegionOffset(segment * self.segment_stride + (linear & (self.segment_size - 1)))
    }

    /// Bytes from the region's start to the end of its last chunk.
    pub fn region_bytes(&self) -> u64 {
        let last = ChunkId(self.chunk_count - 1);
        self.chunk_offset(last).0 + u64::from(self.chunk_size)
    }

    /// Size of the largest packet that fits into a chunk, in bytes.
    pub fn max_payload(&self) -> u32 {
        self.chunk_size - to_u32(CHUNK_HEADER_SIZE + SLOT_SIZE)
    }

    /// Whether this chunk can hold packets.
    #[inline]
    pub fn holds(&self, id: ChunkId) -> bool {
        id.0 != 0 && id.0 < self.chunk_count
    }

    /// Bytes of a chunk as `usize`.
    #[inline]
    pub fn chunk_bytes(&self) -> usize {
        to_usize(self.chunk_size)
    }

    /// The header of a region with these sizes.
    pub fn header(&self, epoch: u64) -> [u8; REGION_HEADER_SIZE] {
        let mut bytes = [0; REGION_HEADER_SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(region::MAGIC, &MAGIC.to_le_bytes());
        put(region::VERSION, &VERSION.to_le_bytes());
        put(
            region::HEADER_SIZE,
            &to_u32(REGION_HEADER_SIZE).to_le_bytes(),
        );
        put(region::CHUNK_SIZE, &self.chunk_size.to_le_bytes());
        put(region::CHUNK_COUNT, &self.chunk_count.to_le_bytes());
        put(region::LANE_COUNT, &self.lane_count.to_le_bytes());
        put(region::SNAP_LENGTH, &self.snap_length.to_le_bytes());
        put(region::SEGMENT_SIZE, &self.segment_size.to_le_bytes());
        put(region::SEGMENT_STRIDE, &self.segment_stride.to_le_bytes());
        put(region::EPOCH, &epoch.to_le_bytes());
        bytes
    }

    /// Reads the sizes from a region header.
    ///
    /// # Errors
    ///
    /// - [`HeaderError::Magic`], [`HeaderError::Version`]: not a Ringtap region of this version.
    /// - [`HeaderError::Geometry`]: impossible sizes.
    pub fn from_header(bytes: &[u8; REGION_HEADER_SIZE]) -> Result<Self, HeaderError> {
        let magic = u64_at(bytes, region::MAGIC);
        if magic != MAGIC {
            return Err(HeaderError::Magic(magic));
        }
        let version = u32_at(bytes, region::VERSION);
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let features = u64_at(bytes, region::FEATURES);
        if features != 0 {
            return Err(HeaderError::Features(features));
        }
        Ok(Geometry {
            chunk_size: u32_at(bytes, region::CHUNK_SIZE),
            chunk_count: u32_at(bytes, region::CHUNK_COUNT),
            lane_count: u32_at(bytes, region::LANE_COUNT),
            snap_length: u32_at(bytes, region::SNAP_LENGTH),
            segment_size: u64_at(bytes, region::SEGMENT_SIZE),
            segment_stride: u64_at(bytes, region::SEGMENT_STRIDE),
        }
        .checked()?)
    }
}

/// The epoch in a region header.
pub fn epoch(bytes: &[u8; REGION_HEADER_SIZE]) -> u64 {
    u64_at(bytes, region::EPOCH)
}

/// Why bytes are not a region header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// Another magic number.
    #[error("not a Ringtap region: it begins with {0:#x}")]
    Magic(u64),
    /// Another version.
    #[error("region format version {0}, this program knows {VERSION}: use programs of one release")]
    Version(u32),
    /// Unknown features.
    #[error("the region uses features {0:#x} that this program does not know: update it")]
    Features(u64),
    /// Impossible sizes.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

fn u32_at(bytes: &[u8; REGION_HEADER_SIZE], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8; REGION_HEADER_SIZE], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}
