// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shape of a user-space pool: chunk size, chunks per lane, packets per chunk.
//!
//! Invariants
//! - A requested number of packets per chunk (M) is exact for packets of any size.
//! - A requested number of chunks per lane (R) is exact.

use ringtap_pool::format::{
    CHUNK_HEADER_SIZE, Geometry, GeometryError, MAX_CHUNK_SIZE, MIN_CHUNK_SIZE, SLOT_SIZE,
};
use ringtap_pool::number::{to_u32, to_u64};

use ringtap_device::{ChunkOptions, Options};

/// Sizes of a pool, and the number of packets that a writer puts into each chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolShape {
    pub(crate) geometry: Geometry,
    /// Packets per chunk; as many as fit if absent.
    pub(crate) packets: Option<u32>,
}

/// Requested sizes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolAsked {
    /// Total bytes of all chunks.
    pub bytes: Option<u64>,
    /// Bytes of a chunk.
    pub chunk_bytes: Option<u32>,
    /// Chunks per lane and packets per chunk.
    pub chunks: ChunkOptions,
}

/// Why a pool cannot have the requested shape.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum ShapeError {
    /// Two sizes that exclude each other.
    #[error("pool={pool_bytes} and chunks={chunks} both set the size of the pool: give only one")]
    Both { pool_bytes: u64, chunks: u32 },
    /// The packets do not fit into a chunk.
    #[error(
        "{packets} packets of {packet_bytes} bytes need a chunk of {need_bytes} bytes, more than \
         the {most} possible here: ask for fewer packets, or a smaller snap length (snap)"
    )]
    Packets {
        packets: u32,
        packet_bytes: u32,
        need_bytes: u64,
        most: u32,
    },
    /// A pool cannot have these sizes.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

impl PoolAsked {
    /// The sizes in a device's options.
    #[must_use]
    pub fn from_options(options: &Options) -> Self {
        let narrow = |size: ringtap_device::Size| to_u32(size.0);
        PoolAsked {
            bytes: options.pool.map(|size| size.0),
            chunk_bytes: options.chunk.map(narrow),
            chunks: options.chunks,
        }
    }

    /// Computes a pool with `lanes` lanes for packets of at most `packet_bytes` bytes. `usual` gives
    /// the default pool and chunk sizes in bytes.
    pub(crate) fn shape(
        &self,
        lanes: u32,
        packet_bytes: u32,
        usual: (u64, u32),
    ) -> Result<PoolShape, ShapeError> {
        let chunk_bytes = self.chunk_bytes(packet_bytes, usual.1)?;
        let chunks = match (self.chunks.per_lane, self.bytes) {
            (Some(chunks), Some(pool_bytes)) => {
                return Err(ShapeError::Both { pool_bytes, chunks });
            }
            (Some(chunks), None) => chunks.saturating_mul(lanes),
            (None, bytes) => {
                let chunks = bytes.unwrap_or(usual.0) / u64::from(chunk_bytes);
                to_u32(chunks).max(lanes.saturating_mul(2))
            }
        };
        let chunks = chunks.saturating_add(1);
        Ok(PoolShape {
            geometry: Geometry::contiguous(chunk_bytes, chunks, lanes, packet_bytes)?,
            packets: self.chunks.packets,
        })
    }

    fn chunk_bytes(&self, packet_bytes: u32, usual: u32) -> Result<u32, ShapeError> {
        let one = to_u64(SLOT_SIZE) + u64::from(packet_bytes).next_multiple_of(8);
        let need =
            |packets: u32| to_u64(CHUNK_HEADER_SIZE) + u64::from(packets).saturating_mul(one);
        let packets = self.chunks.packets.unwrap_or(1);
        let need_bytes = need(packets);
        let most = self.chunk_bytes.unwrap_or(MAX_CHUNK_SIZE);
        if need_bytes > most.into() {
            return Err(ShapeError::Packets {
                packets,
                packet_bytes,
                need_bytes,
                most,
            });
        }
        let least = u32::try_from(need_bytes).map_or(MAX_CHUNK_SIZE, u32::next_power_of_two);
        Ok(match (self.chunk_bytes, self.chunks.packets) {
            (Some(bytes), _) => bytes,
            (None, Some(_)) => least.max(MIN_CHUNK_SIZE),
            (None, None) => least.max(usual),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(chunks: Option<u32>, packets: Option<u32>) -> PoolAsked {
        let chunks = ChunkOptions {
            per_lane: chunks,
            packets,
        };
        PoolAsked {
            chunks,
            ..PoolAsked::default()
        }
    }

    #[test]
    fn chunks_and_packets_are_exactly_those_that_were_asked_for() {
        let shape = asked(Some(100), Some(256))
            .shape(4, 60, (1 << 26, 1 << 16))
            .unwrap();
        assert_eq!(shape.geometry.chunk_count, 4 * 100 + 1);
        assert_eq!(shape.geometry.chunk_size, 32_768);
        assert_eq!(shape.packets, Some(256));
        let usual = asked(None, None).shape(1, 60, (1 << 26, 1 << 16)).unwrap();
        assert_eq!((usual.geometry.chunk_count, usual.packets), (1025, None));
    }

    #[test]
    fn packets_that_do_not_fit_are_refused() {
        let refused = asked(None, Some(1000)).shape(1, 1514, (1 << 26, 1 << 16));
        assert!(
            matches!(refused, Err(ShapeError::Packets { .. })),
            "{refused:?}"
        );
        let both = PoolAsked {
            bytes: Some(1 << 20),
            ..asked(Some(3), None)
        };
        assert!(both.shape(1, 60, (1 << 26, 1 << 16)).is_err());
    }
}
