// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of one group in the two devices of a guest.
#![forbid(unsafe_code)]

use ringtap_ipc::subscription::Subscription;
use ringtap_pool::control::control_bytes;
use ringtap_pool::format::{Geometry, MAX_CHUNK_SIZE};
use ringtap_pool::memory::Region;
use ringtap_pool::number::{to_u32, to_u64};

use crate::messages::DevicePart;

/// Least chunks of a part: one is written while others are read.
const MIN_CHUNKS: u32 = 4;
/// Chunk size for which a part's control region is made; with smaller chunks a part uses fewer.
const USUAL_CHUNK_BYTES: u64 = 64 * 1024;
/// Parts begin at pages.
const PAGE_BYTES: u64 = 4096;

/// The part of a group.
pub(super) struct GroupPart {
    pub(super) group: String,
    pub(super) pool: Region,
    pub(super) pool_part: DevicePart,
    pub(super) control: Region,
    pub(super) control_part: DevicePart,
}

/// Bytes of one part in each device, for `groups` parts in a pool device of `memory` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartBytes {
    pub(super) pool: u64,
    pub(super) control: u64,
}

impl PartBytes {
    /// `None` if a part would have no room for the largest chunks.
    pub(super) fn of(memory: u64, groups: u64) -> Option<Self> {
        let pool = memory.checked_div(groups)? / PAGE_BYTES * PAGE_BYTES;
        if pool < u64::from(MIN_CHUNKS) * u64::from(MAX_CHUNK_SIZE) {
            return None;
        }
        let chunks = u32::try_from(pool / USUAL_CHUNK_BYTES).ok()?;
        let geometry = Geometry::contiguous(to_u32(USUAL_CHUNK_BYTES), chunks, 1, 0).ok()?;
        let control = to_u64(control_bytes(&geometry)).next_multiple_of(PAGE_BYTES);
        Some(PartBytes { pool, control })
    }
}

/// Sizes of the pool in a part: chunks as large as the sources', as many as the part has room for.
pub(super) fn geometry(
    subscription: &Subscription,
    pool_bytes: u64,
    max_control_bytes: u64,
) -> Option<Geometry> {
    let of = |field: fn(&Geometry) -> u32| {
        let all = subscription.endpoints.iter();
        all.map(|endpoint| field(endpoint.pool.geometry())).max()
    };
    let chunk_size = of(|geometry| geometry.chunk_size).unwrap_or(to_u32(USUAL_CHUNK_BYTES));
    let snap_length = of(|geometry| geometry.snap_length).unwrap_or(u32::MAX);
    let mut chunks = to_u32(pool_bytes / u64::from(chunk_size));
    while chunks >= MIN_CHUNKS {
        let geometry = Geometry::contiguous(chunk_size, chunks, 1, snap_length).ok()?;
        if to_u64(control_bytes(&geometry)) <= max_control_bytes {
            return Some(geometry);
        }
        chunks /= 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_pages_and_have_room_for_the_largest_chunks() {
        let whole = PartBytes::of((64 << 20) - 4096, 1).unwrap();
        assert_eq!(whole.pool, (64 << 20) - 4096);
        let third = PartBytes::of((64 << 20) - 4096, 3).unwrap();
        assert!(third.pool * 3 < 64 << 20 && third.pool.is_multiple_of(4096));
        assert!(third.control.is_multiple_of(4096) && third.control * 3 < 1 << 20);
        assert_eq!(PartBytes::of(2 << 20, 2), None);
        let least = u64::from(MIN_CHUNKS) * u64::from(MAX_CHUNK_SIZE);
        assert!(PartBytes::of(least, 1).is_some() && PartBytes::of(least - 4096, 1).is_none());
        assert_eq!(PartBytes::of(1 << 20, 0), None);
        assert!(PartBytes::of(1 << 60, 1).is_none());
    }
}
