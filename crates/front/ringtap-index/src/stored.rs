// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads an index: which blocks of a capture can hold packets of a query.
//!
//! Invariants
//! - An index that is missing, torn, of another version or of another file covers nothing, or only what is certain:
//!   the rest of the capture has to be read.
//! - Of an index only the pages are read that a query needs.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ringtap_file::Packing;
use ringtap_pool::number::{to_u64, to_usize};
use roaring::RoaringBitmap;

use crate::beside::index_path;
use crate::data::{CaptureFile, open, read_up_to};
use crate::layout::{
    BlockEntry, END, EndRecord, FILE_HEADER, GROUP, MAX_BLOCK_BYTES, PageEntry, SEGMENT_HEADER,
    Sample, SegmentHeader, is_checksum, read_end, read_file_header,
};
use crate::narrow::Alternative;
use crate::posting;
use crate::segment::{IndexSizes, take_value};
use crate::term::TermRange;

/// Most bytes of content that a byte of a compressed file stands for: a block of zstd has 128 KiB in 4 bytes.
const MAX_RATIO: u64 = 1 << 15;
/// Ranges that need more pages narrow nothing.
const MAX_RANGE_PAGES: usize = 64;

/// An open index.
pub(crate) struct StoredIndex {
    file: File,
    bytes: u64,
    head: Sample,
}

/// What an index says of a capture.
pub(crate) struct IndexCoverage {
    /// Segments with their offsets in the index.
    pub(crate) segments: Vec<(u64, SegmentHeader)>,
    /// The segments cover the file as it is, up to damage.
    pub(crate) is_complete: bool,
    /// Nothing behind the segments has to be read.
    pub(crate) is_whole: bool,
}

impl StoredIndex {
    /// Opens the index of a capture; `None` if there is none that can be read.
    pub(crate) fn open(capture: &Path) -> Option<Self> {
        StoredIndex::new(open(&index_path(capture)).ok()?)
    }

    /// An index from its file; `None` if it is none.
    pub(crate) fn new(file: File) -> Option<Self> {
        let found = file.metadata().ok().filter(|it| it.is_file())?;
        let mut header = [0; FILE_HEADER];
        read_up_to(&file, &mut header, 0).ok()?;
        Some(StoredIndex {
            bytes: found.len(),
            head: read_file_header(&header)?,
            file,
        })
    }

    /// Whether the index describes all of the file as it is.
    pub(crate) fn is_complete_for(&self, data: &CaptureFile) -> bool {
        self.coverage(data).is_some_and(|it| it.is_complete)
    }

    /// What the index says of a file; `None` if it is that of another file.
    pub(crate) fn coverage(&self, data: &CaptureFile) -> Option<IndexCoverage> {
        if !data.begins_with(self.head) {
            return None;
        }
        let (mut segments, mut at) = (Vec::<(u64, SegmentHeader)>::new(), to_u64(FILE_HEADER));
        let end = loop {
            let mut bytes = [0; SEGMENT_HEADER];
            let count = read_up_to(&self.file, &mut bytes, at).ok()?;
            let bytes = &bytes[..count];
            if let Some(end) = bytes.get(..END).and_then(read_end) {
                break Some(end);
            }
            let covered = segments.last().map_or(0, |(_, last)| last.to);
            let room = self.bytes.saturating_sub(at);
            let Some(header) = SegmentHeader::read(bytes, room).filter(|it| it.from == covered)
            else {
                break None;
            };
            segments.push((at, header));
            at += header.bytes;
        };
        let is_complete = end.is_some_and(|end| end.state == data.state);
        let covered = segments.last().map_or(0, |(_, last)| last.to);
        let max_covered = match data.packing {
            Packing::Plain => data.state.bytes,
            _ => data.state.bytes.saturating_mul(MAX_RATIO),
        };
        if covered > max_covered {
            return None;
        }
        let coverage = IndexCoverage {
            is_complete,
            is_whole: is_complete && end.is_some_and(|end| !end.is_cut),
            segments,
        };
        let is_usable = coverage.is_complete || is_beginning(&coverage, end, data);
        is_usable.then_some(coverage)
    }

    fn read(&self, at: u64, range: Range<usize>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        let count = read_up_to(&self.file, &mut bytes, at + to_u64(range.start)).ok()?;
        (count == bytes.len()).then_some(bytes)
    }

    /// The segment at an offset; `None` if it is torn.
    pub(crate) fn segment(&self, at: u64, header: SegmentHeader) -> Option<StoredSegment<'_>> {
        let directory = self.read(at, header.directory_range())?;
        let (description, pages) = header.read_directory(&directory)?;
        Some(StoredSegment {
            index: self,
            at,
            header,
            description: description.into(),
            pages,
        })
    }
}

/// Whether the segments describe the beginning of a file that has grown, or whose index was not completed.
fn is_beginning(coverage: &IndexCoverage, end: Option<EndRecord>, data: &CaptureFile) -> bool {
    let Some((_, last)) = coverage.segments.last() else {
        return false;
    };
    let has_grown = end.is_none_or(|end| end.state.bytes < data.state.bytes);
    data.packing == Packing::Plain
        && has_grown
        && last.to <= data.state.bytes
        && data.has_tail(last.to, last.tail)
}

/// Whether these can be blocks of a segment: each frame has at most one, and all fit into the segment's content.
fn are_possible(blocks: &[(u32, BlockEntry)], header: &SegmentHeader) -> bool {
    let is_possible = |block: &BlockEntry| {
        block.skip <= IndexSizes::USUAL.frame_bytes && block.length <= MAX_BLOCK_BYTES
    };
    let lengths = blocks.iter().map(|(_, block)| block.length);
    let sum = lengths.fold(0_u64, u64::saturating_add);
    sum <= header.to - header.from
        && blocks.iter().all(|(_, block)| is_possible(block))
        && blocks.is_sorted_by(|(_, one), (_, next)| one.offset < next.offset)
}

/// A segment whose directory was read.
pub(crate) struct StoredSegment<'a> {
    index: &'a StoredIndex,
    at: u64,
    pub(crate) header: SegmentHeader,
    pub(crate) description: Arc<[u8]>,
    pages: Vec<PageEntry>,
}

impl StoredSegment<'_> {
    /// The entries of the blocks in which a packet of these times can be for which an alternative holds, with their
    /// numbers; `None` if a part is torn.
    pub(crate) fn candidates(
        &self,
        alternatives: &[Alternative],
        times: &Range<u64>,
    ) -> Option<Vec<(u32, BlockEntry)>> {
        if self.header.max_ns < times.start || times.end <= self.header.min_ns {
            return Some(Vec::new());
        }
        let mut known = HashMap::new();
        let mut found = RoaringBitmap::new();
        for alternative in alternatives {
            let mut blocks = self.all_blocks();
            for range in alternative {
                if !known.contains_key(range) {
                    known.insert(range, self.range(range)?);
                }
                blocks &= &known[range];
            }
            found |= blocks;
        }
        let mut found = self.blocks(&found)?;
        if !are_possible(&found, &self.header) {
            return None;
        }
        found.retain(|(_, block)| block.meets(times));
        Some(found)
    }

    fn all_blocks(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        all.insert_range(0..self.header.blocks);
        all
    }

    /// Blocks with a term in this range.
    fn range(&self, range: &TermRange) -> Option<RoaringBitmap> {
        let (min, max) = (range.min, range.max);
        if self.header.omitted & 1 << range.kind.number() != 0 {
            return Some(self.all_blocks());
        }
        let behind = |value| {
            self.pages
                .partition_point(|page| (page.kind, page.first) <= (range.kind, value))
        };
        let (first, end) = (behind(min).saturating_sub(1), behind(max));
        if end.saturating_sub(first) > MAX_RANGE_PAGES {
            return Some(self.all_blocks());
        }
        let before: u64 = self.pages[..first]
            .iter()
            .map(|page| u64::from(page.bytes))
            .sum();
        let mut at = to_usize(before) + self.header.pages_at();
        let mut found = RoaringBitmap::new();
        for page in self.pages.get(first..end).unwrap_or_default() {
            let place = at..at + to_usize(page.bytes);
            at = place.end;
            if page.kind != range.kind {
                continue;
            }
            let bytes = self.index.read(self.at, place)?;
            if !is_checksum(&bytes, page.checksum) {
                return None;
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let value = take_value(page.kind, &mut rest)?;
                if value > max {
                    break;
                }
                if value < min {
                    posting::skip(&mut rest)?;
                } else {
                    posting::read(&mut rest, self.header.blocks, &mut found)?;
                }
            }
        }
        Some(found)
    }

    /// The entries of these blocks with their numbers; `None` if one is torn.
    pub(crate) fn blocks(&self, wanted: &RoaringBitmap) -> Option<Vec<(u32, BlockEntry)>> {
        let (mut found, mut group) = (Vec::new(), (usize::MAX, Vec::new()));
        for number in wanted {
            let place = to_usize(number);
            if group.0 != place / GROUP {
                let range = self.header.group_range(place / GROUP);
                let bytes = self.index.read(self.at, range)?;
                group = (place / GROUP, self.header.read_group(&bytes)?);
            }
            found.push((number, *group.1.get(place % GROUP)?));
        }
        Some(found)
    }
}
