// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slots, headers and sizes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::memory::Region;
use crate::number::to_usize;
use crate::view::{Pool, PoolError};

#[test]
fn a_slot_survives_its_words() {
    let slot = Slot {
        time_ns: 1,
        mask: u64::MAX - 1,
        hash: 0xdead_beef,
        wire_length: 70_000,
        captured_length: 0x00ab_cdef,
        flags: flag::OUT | flag::SUPER,
        payload: 0xfffe,
        queue: 513,
    };
    assert_eq!(Slot::from_words(slot.to_words()), slot);
}

#[test]
fn a_geometry_survives_its_header() {
    let geometry = Geometry::contiguous(65_536, 500, 2, 262_144).unwrap();
    assert_eq!(Geometry::from_header(&geometry.header(7)), Ok(geometry));
    assert_eq!(epoch(&geometry.header(7)), 7);
}

#[test]
fn a_region_opens_in_its_epoch_only_and_may_be_larger_than_its_chunks() {
    let geometry = Geometry::contiguous(4096, 5, 1, 100).unwrap();
    let region = Region::on_heap(to_usize(geometry.region_bytes().next_power_of_two()));
    let words = region
        .words::<AtomicU64>(0, REGION_HEADER_SIZE / 8)
        .unwrap();
    for (word, bytes) in words.iter().zip(geometry.header(7).chunks_exact(8)) {
        word.store(u64::from_ne_bytes(bytes.try_into().unwrap()), Relaxed);
    }
    let pool = Pool::open(region.clone(), 7).unwrap();
    assert_eq!((pool.epoch(), *pool.geometry()), (7, geometry));
    let refused = Pool::open(region, FIRST_EPOCH).map(|_| ()).unwrap_err();
    assert_eq!(refused, PoolError::Epoch { have: 7, want: 1 });
}

#[test]
fn a_foreign_header_is_refused() {
    let mut header = Geometry::contiguous(65_536, 5, 2, 100).unwrap().header(1);
    header[region::VERSION] = 9;
    assert_eq!(Geometry::from_header(&header), Err(HeaderError::Version(9)));
    header[0] = b'X';
    assert!(matches!(
        Geometry::from_header(&header),
        Err(HeaderError::Magic(_))
    ));
}

#[test]
fn segments_leave_their_slack_unused() {
    let geometry = Geometry {
        chunk_size: 65_536,
        chunk_count: 8,
        lane_count: 1,
        snap_length: 1,
        segment_size: 4 * 65_536,
        segment_stride: 4 * 65_536 + 524_288,
    }
    .checked()
    .unwrap();
    assert_eq!(geometry.chunk_offset(ChunkId(3)), RegionOffset(3 * 65_536));
    assert_eq!(
        geometry.chunk_offset(ChunkId(4)),
        RegionOffset(4 * 65_536 + 524_288)
    );
}

#[test]
fn impossible_sizes_are_refused() {
    assert_eq!(
        Geometry::contiguous(65_537, 5, 2, 100),
        Err(GeometryError::ChunkSize(65_537))
    );
    assert_eq!(
        Geometry::contiguous(65_536, 4, 2, 100),
        Err(GeometryError::ChunkCount { count: 4, lanes: 2 })
    );
}
