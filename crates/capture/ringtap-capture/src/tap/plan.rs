// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes the sizes of a tap's maps from its options.
//!
//! Invariants
//! - A segment is a power of two of at most 256 MiB: the verifier refuses larger offsets.
//! - Every lane has the same number of chunks.

use ringtap_device::StampClock;
use ringtap_pool::format::{Geometry, GeometryError, MAX_CHUNK_SIZE, MIN_CHUNK_SIZE};
use ringtap_pool::ids::ChunkId;
use ringtap_pool::number::to_u32;
use ringtap_pool::source;

use super::forward::Checksums;
use super::layout::TapConfig;
use super::options::{DEFAULT_CHUNK_SIZE, DEFAULT_POOL_BYTES, Taking, TapOptions};

const MAX_SEGMENT: u64 = 256 << 20;
/// Bytes of a one-packet chunk besides the packet: header, slot and alignment.
const CHUNK_OVERHEAD: u32 = 64 + 32 + 8;
const SMALL_SEGMENT: u64 = 16 << 20;

/// Sizes of a tap's maps.
#[derive(Clone, Debug)]
pub(super) struct TapPlan {
    pub(super) geometry: Geometry,
    /// Entries of each ring and stack of a lane: a power of two with room for every chunk.
    pub(super) ring_entries: u32,
    /// Number of lanes with chunks: the online CPUs.
    pub(super) lanes: u32,
    /// Number of lanes in the maps: all possible CPUs.
    pub(super) possible: u32,
    /// The receive queues to capture; all if empty.
    pub(super) queues: Vec<u16>,
}

impl TapPlan {
    /// Computes sizes for `lanes` online CPUs of `possible`, and frames of up to `largest_frame` bytes.
    pub(super) fn new(
        options: &TapOptions,
        largest_frame: u32,
        lanes: u32,
        possible: u32,
    ) -> Result<Self, GeometryError> {
        let (snap_length, asked) = (options.on.snap_length, &options.on.pool);
        let kept = snap_length.map_or(largest_frame, |snap| snap.min(largest_frame));
        let chunk = match (asked.chunk_bytes, asked.chunks.packets) {
            (None, None) => suitable_chunk(largest_frame),
            (None, Some(packets)) => chunk_of(packets, kept),
            (Some(chosen), _) => chosen,
        };
        let exact = asked.chunks.per_lane;
        let exact = exact.map(|chunks| u64::from(chunks) * u64::from(lanes) + 1);
        let pool_bytes = asked.bytes.unwrap_or(DEFAULT_POOL_BYTES);
        let asked = exact.map_or(pool_bytes, |chunks| chunks * u64::from(chunk));
        let segment = segment_size(asked.max(u64::from(chunk)));
        let total = asked.max(1).next_multiple_of(segment);
        let fitting = total.checked_div(u64::from(chunk)).unwrap_or(0);
        let chunks = exact.unwrap_or(fitting);
        let mut geometry = Geometry {
            chunk_size: chunk,
            chunk_count: to_u32(chunks),
            lane_count: lanes,
            snap_length: snap_length.unwrap_or(0),
            segment_size: segment,
            segment_stride: segment + u64::from(MAX_CHUNK_SIZE),
        }
        .checked()?;
        let most = geometry.max_payload();
        geometry.snap_length = snap_length.map_or(most, |snap| snap.min(most));
        let ring_entries = geometry.chunk_count.next_power_of_two();
        Ok(TapPlan {
            geometry,
            ring_entries,
            lanes,
            possible: possible.max(lanes),
            queues: Vec::new(),
        })
    }

    /// Size of the pool's map, in bytes.
    pub(super) fn map_bytes(&self) -> u64 {
        u64::from(self.segments()) * self.geometry.segment_stride
    }

    pub(super) fn segments(&self) -> u32 {
        let chunks = self.geometry.segment_size / u64::from(self.geometry.chunk_size);
        to_u32(u64::from(self.geometry.chunk_count).div_ceil(chunks))
    }

    /// Entries of a map with one ring for each lane.
    pub(super) fn all_ring_entries(&self) -> u32 {
        self.possible.saturating_mul(self.ring_entries)
    }

    /// Number of chunks of each lane.
    pub(super) fn share(&self) -> u32 {
        (self.geometry.chunk_count - 1) / self.lanes
    }

    /// All chunks with their index in the map of free-chunk stacks.
    pub(super) fn free_chunks(&self) -> impl Iterator<Item = (u32, ChunkId)> {
        (0..self.lanes).flat_map(|lane| {
            let base = lane * self.ring_entries;
            let chunks = source::share(&self.geometry, ringtap_pool::ids::LaneId(lane));
            (base..).zip(chunks)
        })
    }

    /// Settings of the programs.
    pub(super) fn config(&self, options: &TapOptions) -> TapConfig {
        let mut queues = [0_u64; 4];
        for queue in &self.queues {
            if let Some(word) = queues.get_mut(usize::from(queue / 64)) {
                *word |= 1 << (queue % 64);
            }
        }
        let per_segment = self.geometry.segment_size / u64::from(self.geometry.chunk_size);
        TapConfig {
            segment_mask: self.geometry.segment_size - 1,
            queues,
            all_queues: u32::from(self.queues.is_empty()),
            exclusive: u32::from(options.taking == Taking::Exclusive),
            snap_length: self.geometry.snap_length,
            chunk_size: self.geometry.chunk_size,
            chunk_shift: self.geometry.chunk_size.ilog2(),
            segment_shift: per_segment.ilog2(),
            chunk_count: self.geometry.chunk_count,
            chunk_packets: options.on.pool.chunks.packets.unwrap_or(0),
            nic_time: u32::from(options.on.stamps == StampClock::Nic),
            ring_shift: self.ring_entries.ilog2(),
            forward_to: options.forward.as_ref().map_or(0, |to| to.interface),
            largest_frame: options.forward.as_ref().map_or(0, |to| to.largest_frame),
            partial: u32::from(
                options
                    .forward
                    .as_ref()
                    .is_some_and(|to| to.checksums == Checksums::MayBeMissing),
            ),
        }
    }
}

/// The default chunk size, or a larger one if a frame of the interface needs it.
fn suitable_chunk(largest_frame: u32) -> u32 {
    let mut chunk = DEFAULT_CHUNK_SIZE;
    while chunk < MAX_CHUNK_SIZE && chunk - CHUNK_OVERHEAD < largest_frame {
        chunk *= 2;
    }
    chunk
}

/// The smallest chunk that holds `packets` packets of `bytes` bytes; later checks refuse it if it
/// is too large.
fn chunk_of(packets: u32, bytes: u32) -> u32 {
    let one = bytes.saturating_add(CHUNK_OVERHEAD - 64);
    let all = packets.saturating_mul(one).saturating_add(64);
    let chunk = all.checked_next_power_of_two().unwrap_or(u32::MAX);
    chunk.max(MIN_CHUNK_SIZE)
}

/// The largest segment that rounds the pool up only slightly.
fn segment_size(pool_bytes: u64) -> u64 {
    if pool_bytes <= SMALL_SEGMENT {
        return pool_bytes.next_power_of_two();
    }
    let mut segment = (1 << pool_bytes.ilog2()).min(MAX_SEGMENT);
    while segment > SMALL_SEGMENT
        && pool_bytes.next_multiple_of(segment) - pool_bytes > pool_bytes / 16
    {
        segment /= 2;
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringtap_device::ChunkOptions;
    use ringtap_testkit::with;

    fn plan(pool_bytes: u64) -> TapPlan {
        let options = with(TapOptions::new("x"), |it| {
            it.on.pool.bytes = Some(pool_bytes)
        });
        TapPlan::new(&options, 1522, 2, 4).unwrap()
    }

    #[test]
    fn a_pool_of_a_power_of_two_is_one_segment() {
        let plan = plan(128 << 20);
        assert_eq!((plan.segments(), plan.geometry.chunk_count), (1, 2048));
        assert_eq!(plan.map_bytes(), (128 << 20) + (512 << 10));
    }

    #[test]
    fn a_pool_is_never_smaller_than_asked_nor_much_larger() {
        for mib in [1, 3, 17, 100, 300, 1000, 5000] {
            let plan = plan(mib << 20);
            let bytes = u64::from(plan.geometry.chunk_count) * 65_536;
            assert!(bytes >= mib << 20, "{mib} MiB: {bytes}");
            assert!(bytes <= (mib + mib / 8 + 16) << 20, "{mib} MiB: {bytes}");
            assert!(plan.geometry.segment_size <= MAX_SEGMENT);
        }
    }

    #[test]
    fn a_frame_of_the_loopback_fits_into_a_chunk() {
        assert_eq!(suitable_chunk(1522), DEFAULT_CHUNK_SIZE);
        assert_eq!(suitable_chunk(65_432), DEFAULT_CHUNK_SIZE);
        assert_eq!(suitable_chunk(65_536 + 22), 2 * DEFAULT_CHUNK_SIZE);
        assert_eq!(suitable_chunk(u32::MAX), MAX_CHUNK_SIZE);
    }

    #[test]
    fn pool_full_is_free_twice_and_none_is_the_header() {
        let plan = plan(8 << 20);
        let mut ids: Vec<_> = plan.free_chunks().map(|(_, id)| id.0).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
        assert_eq!(ids.first(), Some(&1));
        assert_eq!(u32::try_from(count).unwrap(), plan.share() * 2);
    }

    #[test]
    fn chunks_and_packets_are_those_that_were_asked_for() {
        let chunks = ChunkOptions {
            per_lane: Some(100),
            packets: Some(256),
        };
        let options = with(TapOptions::new("x"), |it| {
            it.on.pool.chunks = chunks;
            it.on.snap_length = Some(96);
        });
        let plan = TapPlan::new(&options, 1522, 2, 4).unwrap();
        assert_eq!((plan.share(), plan.geometry.chunk_size), (100, 65_536));
        assert_eq!(plan.config(&options).chunk_packets, 256);
        let whole = with(options, |it| it.on.snap_length = None);
        assert!(
            TapPlan::new(&whole, 9_014, 2, 4).is_err(),
            "256 of them do not fit"
        );
    }

    #[test]
    fn a_pool_without_two_chunks_a_lane_is_refused() {
        let options = with(TapOptions::new("x"), |it| it.on.pool.bytes = Some(4 << 16));
        assert!(matches!(
            TapPlan::new(&options, 1522, 2, 2),
            Err(GeometryError::ChunkCount { .. })
        ));
    }
}
