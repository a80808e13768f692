// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control region of a reader: its two queues and the words shared with the distributor.
//!
//! A reader in another process can write no other memory. `docs/internals/format.md` specifies the
//! layout, and a test compares the two.
//!
//! Invariants
//! - The reader reads the sizes from the region once, when it maps the region. The distributor keeps
//!   its own copy, so a reader that overwrites them hurts only itself.
//! - Each index is written by one side; the other side checks it.

use std::mem::offset_of;

use crate::format::Geometry;
use crate::memory::{Region, Words};
use crate::number::to_usize;
use crate::queue::QueueMemory;
use crate::sync::{AtomicU32, AtomicU64, Ordering::*};
use crate::wake::WakeFlag;

const MAGIC: u64 = u64::from_le_bytes(*b"RINGCTL1");
const VERSION: u32 = 1;
/// Limit for the entries of a queue, so that a false header cannot cause a huge mapping.
const MAX_ENTRIES: u32 = 1 << 26;
const MAX_LANES: u32 = 1 << 16;

/// First bytes of the region, written before the reader maps it.
#[repr(C, align(64))]
#[derive(Debug)]
struct ControlHeader {
    magic: AtomicU64,
    version: AtomicU32,
    lanes: AtomicU32,
    deliveries: AtomicU32,
    returns: AtomicU32,
}

/// Words written by the distributor (`wants_returns` is cleared by the reader).
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct HubWords {
    deliveries_tail: AtomicU32,
    returns_head: AtomicU32,
    /// 1 if no more chunks will be delivered.
    pub(crate) ended: AtomicU32,
    /// The level (see [`crate::wake::Level`]) at which the distributor gets a signal.
    pub(crate) watching: AtomicU32,
    /// Whether the distributor waits for chunks to be returned.
    pub(crate) wants_returns: WakeFlag,
    /// Number of the memory in which the pool lies, or [`MEMORY_LOST`].
    pub(crate) memory: AtomicU32,
    /// Time in nanoseconds since 1970 up to which every packet is published in a delivered chunk;
    /// 0 if the source does not know it. Only for readers with `merges`.
    pub(crate) horizon_ns: AtomicU64,
}

/// Words written by the reader (`asleep` is cleared by the distributor).
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct ReaderWords {
    deliveries_head: AtomicU32,
    pub(crate) returns_tail: AtomicU32,
    /// Whether the reader sleeps.
    pub(crate) asleep: WakeFlag,
    /// How often the reader announced a sleep.
    pub(crate) sleeps: AtomicU32,
    pub(crate) progress: Progress,
    /// Sum over the lanes of the sequence number after the last packet taken.
    pub(crate) read_to: AtomicU64,
    /// 1 if the reader merges lanes by time, and so needs `horizon_ns`.
    pub(crate) merges: AtomicU32,
    /// Number of the memory that the reader has mapped.
    pub(crate) memory: AtomicU32,
}

/// In place of the number of a memory: the reader did not map the next one before the last was gone.
pub(crate) const MEMORY_LOST: u32 = u32::MAX;

/// A reader's own counters: to be shown, and to see how many packets wait for it. Nothing is delivered or
/// freed by them.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Progress {
    /// Packets that passed the reader's filter.
    pub delivered: AtomicU64,
    /// Packets that did not pass.
    pub filtered: AtomicU64,
    /// Packets for other members of its group.
    pub other_members: AtomicU64,
    /// Bytes on the wire of the packets that passed.
    pub bytes: AtomicU64,
}

/// One side's view of a control region.
#[derive(Clone)]
pub(crate) struct ControlRegion {
    pub(crate) hub: Words<HubWords>,
    pub(crate) reader: Words<ReaderWords>,
    pub(crate) deliveries: QueueMemory,
    pub(crate) returns: QueueMemory,
    /// Sequence of the first packet that the reader may get, per lane.
    pub(crate) starts: Words<AtomicU64>,
}

/// Why a region is not a usable control region.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum ControlRegionError {
    /// Unknown format or version.
    #[error("no control region of version {VERSION}: update ringtap on both sides")]
    Unknown,
    /// The mapping is smaller than the sizes in the region require.
    #[error("a control region of {have_bytes} bytes is too small for what it says it holds")]
    TooSmall { have_bytes: usize },
    /// The region belongs to another pool.
    #[error("the control region has {lanes} lanes, the pool {want}")]
    Lanes { lanes: usize, want: u32 },
}

/// Sizes of a control region.
#[derive(Clone, Copy)]
struct ControlSizes {
    lanes: u32,
    deliveries: u32,
    returns: u32,
}

/// Offset of each part; all are multiples of 64 bytes.
struct ControlOffsets {
    deliveries: usize,
    returns: usize,
    end: usize,
}

const HUB_WORDS: usize = size_of::<ControlHeader>();
const READER_WORDS: usize = HUB_WORDS + size_of::<HubWords>();
const STARTS: usize = READER_WORDS + size_of::<ReaderWords>();

impl ControlSizes {
    fn for_pool(geometry: &Geometry) -> Self {
        let chunks = geometry.chunk_count.clamp(1, MAX_ENTRIES / 4);
        ControlSizes {
            lanes: geometry.lane_count,
            // Two reports of missed packets may precede a delivery.
            deliveries: (3 * chunks).next_power_of_two(),
            returns: chunks.next_power_of_two(),
        }
    }

    fn offsets(self) -> ControlOffsets {
        let line = |bytes: usize| bytes.next_multiple_of(64);
        let entries = |count: u32| to_usize(count) * size_of::<u64>();
        let deliveries = STARTS + line(entries(self.lanes));
        let returns = deliveries + line(entries(self.deliveries));
        ControlOffsets {
            deliveries,
            returns,
            end: returns + line(entries(self.returns)),
        }
    }
}

/// Bytes of a control region for a reader of a pool of these sizes.
pub fn control_bytes(geometry: &Geometry) -> usize {
    ControlSizes::for_pool(geometry).offsets().end
}

/// Clears memory of a control region that another reader used before.
pub(crate) fn clear(region: &Region) {
    let words = region.words::<AtomicU64>(0, region.bytes() / size_of::<u64>());
    for word in words.iter().flat_map(|words| words.iter()) {
        word.store(0, Relaxed);
    }
}

impl ControlRegion {
    /// Writes a control region into zeroed, writable memory that no other code uses yet.
    pub(crate) fn create(
        region: &Region,
        geometry: &Geometry,
        starts: &[u64],
    ) -> Result<Self, ControlRegionError> {
        let sizes = ControlSizes::for_pool(geometry);
        let control = ControlRegion::view(region, sizes)?;
        for (word, start) in control.starts.iter().zip(starts) {
            word.store(start.to_le(), Relaxed);
        }
        let header = header(region)?;
        let header = &header[0];
        header.version.store(VERSION.to_le(), Relaxed);
        header.lanes.store(sizes.lanes.to_le(), Relaxed);
        header.deliveries.store(sizes.deliveries.to_le(), Relaxed);
        header.returns.store(sizes.returns.to_le(), Relaxed);
        header.magic.store(MAGIC.to_le(), Release);
        Ok(control)
    }

    /// Opens a region that a distributor created, as its reader.
    pub(crate) fn open(region: &Region) -> Result<Self, ControlRegionError> {
        let header = header(region)?;
        let header = &header[0];
        let word = |word: &AtomicU32| u32::from_le(word.load(Relaxed));
        let magic = u64::from_le(header.magic.load(Acquire));
        if magic != MAGIC || word(&header.version) != VERSION {
            return Err(ControlRegionError::Unknown);
        }
        let sizes = ControlSizes {
            lanes: word(&header.lanes),
            deliveries: word(&header.deliveries),
            returns: word(&header.returns),
        };
        if sizes.lanes > MAX_LANES || sizes.deliveries.max(sizes.returns) > MAX_ENTRIES {
            return Err(ControlRegionError::Unknown);
        }
        ControlRegion::view(region, sizes)
    }

    fn view(region: &Region, sizes: ControlSizes) -> Result<Self, ControlRegionError> {
        let offsets = sizes.offsets();
        let too_small = || ControlRegionError::TooSmall {
            have_bytes: region.bytes(),
        };
        if region.bytes() < offsets.end {
            return Err(too_small());
        }
        let word = |at| region.words::<AtomicU32>(at, 1).ok_or_else(too_small);
        let entries = |at, count| {
            let words = region.words::<AtomicU64>(at, to_usize(count));
            words.ok_or_else(too_small)
        };
        let deliveries = QueueMemory::new(
            word(READER_WORDS + offset_of!(ReaderWords, deliveries_head))?,
            word(HUB_WORDS + offset_of!(HubWords, deliveries_tail))?,
            entries(offsets.deliveries, sizes.deliveries)?,
        );
        let returns = QueueMemory::new(
            word(HUB_WORDS + offset_of!(HubWords, returns_head))?,
            word(READER_WORDS + offset_of!(ReaderWords, returns_tail))?,
            entries(offsets.returns, sizes.returns)?,
        );
        Ok(ControlRegion {
            hub: region.words(HUB_WORDS, 1).ok_or_else(too_small)?,
            reader: region.words(READER_WORDS, 1).ok_or_else(too_small)?,
            deliveries: deliveries.map_err(|_| ControlRegionError::Unknown)?,
            returns: returns.map_err(|_| ControlRegionError::Unknown)?,
            starts: entries(STARTS, sizes.lanes)?,
        })
    }

    #[inline]
    pub(crate) fn hub(&self) -> &HubWords {
        &self.hub[0]
    }

    #[inline]
    pub(crate) fn reader(&self) -> &ReaderWords {
        &self.reader[0]
    }

    /// Sequence of the first packet that the reader may get, per lane.
    pub(crate) fn starts(&self) -> Vec<u64> {
        let start = |word: &AtomicU64| u64::from_le(word.load(Relaxed));
        self.starts.iter().map(start).collect()
    }
}

fn header(region: &Region) -> Result<Words<ControlHeader>, ControlRegionError> {
    region.words(0, 1).ok_or(ControlRegionError::TooSmall {
        have_bytes: region.bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry::contiguous(4096, 9, 2, 1500).unwrap()
    }

    fn made() -> (Region, ControlRegion) {
        let region = Region::on_heap(control_bytes(&geometry()));
        let control = ControlRegion::create(&region, &geometry(), &[3, 4]).unwrap();
        (region, control)
    }

    #[test]
    fn a_reader_finds_what_the_distributor_wrote() {
        let (region, _) = made();
        assert_eq!(ControlRegion::open(&region).unwrap().starts(), [3, 4]);
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        assert_eq!((HUB_WORDS, READER_WORDS, STARTS), (64, 128, 192));
        assert_eq!(offset_of!(ControlHeader, returns), 20);
        assert_eq!(offset_of!(HubWords, wants_returns), 16);
        assert_eq!(offset_of!(HubWords, memory), 20);
        assert_eq!(offset_of!(HubWords, horizon_ns), 24);
        assert_eq!(offset_of!(ReaderWords, asleep), 8);
        assert_eq!(offset_of!(ReaderWords, sleeps), 12);
        assert_eq!(offset_of!(ReaderWords, progress), 16);
        assert_eq!(offset_of!(ReaderWords, read_to), 48);
        assert_eq!(offset_of!(ReaderWords, merges), 56);
        assert_eq!(offset_of!(ReaderWords, memory), 60);
        // 2 lanes, 3 x 9 deliveries and 9 returns, each rounded up.
        assert_eq!(control_bytes(&geometry()), 192 + 64 + 32 * 8 + 16 * 8);
    }

    #[test]
    fn a_region_with_impossible_sizes_is_refused() {
        let (region, _) = made();
        let word = |at| region.words::<AtomicU32>(at, 1).unwrap();
        for (at, value) in [
            (8, 2),
            (12, 1 << 20),
            (16, 1 << 27),
            (16, 48),
            (20, 1 << 12),
        ] {
            let before = word(at)[0].swap(value, Relaxed);
            assert!(ControlRegion::open(&region).is_err(), "{at}: {value}");
            word(at)[0].store(before, Relaxed);
        }
        assert!(ControlRegion::open(&region).is_ok());
        assert!(ControlRegion::open(&Region::on_heap(64)).is_err());
        assert!(ControlRegion::open(&Region::on_heap(8)).is_err());
    }
}
