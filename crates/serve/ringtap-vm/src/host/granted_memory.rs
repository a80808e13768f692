// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of one group in the two devices of a guest.
#![forbid(unsafe_code)]

use ringtap_pool::control::control_bytes;
use ringtap_pool::format::{Geometry, MAX_CHUNK_SIZE};
use ringtap_pool::memory::Region;
use ringtap_pool::number::to_u64;

use crate::messages::{DeviceRange, GuestPool, chunks_in, pool_geometry};

/// Least chunks of a part: one is written while others are read.
const MIN_CHUNKS: u32 = 4;
/// Largest sequence of a first packet, so that no later one overflows.
const MAX_BEGIN: u64 = 1 << 62;
/// Parts begin at pages.
const PAGE_BYTES: u64 = 4096;

/// The memory of a group: its part of each device.
pub(super) struct GrantedMemory {
    pub(super) group: String,
    pub(super) pool: Region,
    pub(super) pool_range: DeviceRange,
    pub(super) control: Region,
    pub(super) control_range: DeviceRange,
}

/// Bytes of one part in each device, for `groups` parts in a pool device of `memory` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupBytes {
    pub(super) pool: u64,
    pub(super) control: u64,
}

impl GroupBytes {
    /// `None` if a part would have no room for the largest chunks.
    pub(super) fn for_groups(memory: u64, groups: u64) -> Option<Self> {
        let pool = memory.checked_div(groups)? / PAGE_BYTES * PAGE_BYTES;
        if pool < u64::from(MIN_CHUNKS) * u64::from(MAX_CHUNK_SIZE) {
            return None;
        }
        let geometry = pool_geometry(chunks_in(pool)).filter(|one| one.chunk_count < u32::MAX)?;
        let control = to_u64(control_bytes(&geometry)).next_multiple_of(PAGE_BYTES);
        Some(GroupBytes { pool, control })
    }
}

/// Sizes of the pool that a guest wants in a part, if they are no larger than the part.
pub(super) fn geometry(wanted: &GuestPool, granted: &GrantedMemory) -> Option<Geometry> {
    let geometry = pool_geometry(wanted.chunks).filter(|one| one.chunk_count >= MIN_CHUNKS)?;
    if wanted.begins_at > MAX_BEGIN {
        return None;
    }
    let fits = geometry.region_bytes() <= granted.pool_range.bytes
        && to_u64(control_bytes(&geometry)) <= granted.control_range.bytes;
    fits.then_some(geometry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_pages_and_have_room_for_the_largest_chunks() {
        let whole = GroupBytes::for_groups((64 << 20) - 4096, 1).unwrap();
        assert_eq!(whole.pool, (64 << 20) - 4096);
        let third = GroupBytes::for_groups((64 << 20) - 4096, 3).unwrap();
        assert!(third.pool * 3 < 64 << 20 && third.pool.is_multiple_of(4096));
        assert!(third.control.is_multiple_of(4096) && third.control * 3 < 1 << 20);
        assert_eq!(GroupBytes::for_groups(2 << 20, 2), None);
        let least = u64::from(MIN_CHUNKS) * u64::from(MAX_CHUNK_SIZE);
        assert!(
            GroupBytes::for_groups(least, 1).is_some()
                && GroupBytes::for_groups(least - 4096, 1).is_none()
        );
        assert_eq!(GroupBytes::for_groups(1 << 20, 0), None);
        assert!(GroupBytes::for_groups(1 << 60, 1).is_none());
    }
}
