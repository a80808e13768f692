// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layout of an index file; `docs/internals/index-format.md` describes it.
//!
//! Invariants
//! - All numbers are little-endian; each record begins with a magic number, and each part has a checksum.
//! - No memory is allocated for a length from a file before it is checked against the file's size.

use std::ops::Range;

use ringtap_filter::LinkType;
use ringtap_pool::number::{to_u64, to_usize};

use crate::posting::MAX_BLOCKS;
use crate::term::TermKind;

/// Version of the format; an index of another version is not used.
pub(crate) const VERSION: u32 = 2;

/// Bytes of the file's header.
pub(crate) const FILE_HEADER: usize = 24;
/// Bytes of the header of a segment.
pub(crate) const SEGMENT_HEADER: usize = 84;
/// Bytes of the record at the end.
pub(crate) const END: usize = 28;
/// Bytes of a page's entry in the directory.
const PAGE_ENTRY: usize = 28;
/// Bytes of a block's entry.
const BLOCK_ENTRY: usize = 44;
/// Blocks that have a checksum together.
pub(crate) const GROUP: usize = 64;
/// Bytes of a whole group with its checksum.
pub(crate) const GROUP_BYTES: usize = GROUP * BLOCK_ENTRY + 4;

/// Largest block of which an index is believed, in bytes of content; a search may hold all of its packets in memory.
pub(crate) const MAX_BLOCK_BYTES: u64 = 64 << 20;
/// Largest description of a section's interfaces.
pub(crate) const MAX_DESCRIPTION: usize = 1 << 20;
/// Most link types of a segment; with more, it lacks all terms.
pub(crate) const MAX_LINK_TYPES: usize = 4;
/// Largest page.
const MAX_PAGE: u32 = 1 << 16;
/// Most pages of a segment.
const MAX_PAGES: u32 = 1 << 18;

const FILE_MAGIC: [u8; 8] = *b"rtindex\n";
const SEGMENT_MAGIC: [u8; 4] = *b"SEGM";
const END_MAGIC: [u8; 4] = *b"END.";

/// Bytes at one end of what is indexed, to recognise the file: their number and checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

/// Largest sample, in bytes.
pub(crate) const MAX_SAMPLE: u32 = 4096;

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) blocks: u32,
    pub(crate) pages: u32,
    /// Bytes of the interfaces' description.
    pub(crate) description: u32,
    /// Kinds of terms that the segment lacks, one bit each.
    pub(crate) omitted: u32,
    /// Link types of its packets; [`LinkType::UNKNOWN`] fills the rest.
    pub(crate) link_types: [LinkType; MAX_LINK_TYPES],
    /// Bytes of the whole segment.
    pub(crate) bytes: u64,
    /// The bytes of the capture's content that the segment covers.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) min_ns: u64,
    pub(crate) max_ns: u64,
    /// The last bytes of the file before `to`.
    pub(crate) tail: Sample,
    /// Checksum of description and directory.
    pub(crate) directory: u32,
}

/// Page of the dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageEntry {
    pub(crate) kind: TermKind,
    pub(crate) bytes: u32,
    pub(crate) checksum: u32,
    /// The first value in the page.
    pub(crate) first: u128,
}

/// Block of a capture: where it begins, and the times of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub(crate) min_ns: u64,
    pub(crate) max_ns: u64,
    /// Offset in the file, of a compressed file that of a frame.
    pub(crate) offset: u64,
    /// Bytes of the frame's content before the block.
    pub(crate) skip: u64,
    /// Bytes of content.
    pub(crate) length: u64,
    /// Bytes of the segment's description that come before the block.
    pub(crate) description: u32,
}

/// State of a file on disk, as far as it shows changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) bytes: u64,
    pub(crate) modified_ns: i64,
}

/// Appends numbers.
struct NumberWriter<'a>(&'a mut Vec<u8>);

impl NumberWriter<'_> {
    fn words(&mut self, words: &[u32]) {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        self.0.extend(bytes);
    }

    fn longs(&mut self, longs: &[u64]) {
        let bytes = longs.iter().flat_map(|long| long.to_le_bytes());
        self.0.extend(bytes);
    }

    fn checksum(&mut self, from: usize) {
        let checksum = crc32fast::hash(&self.0[from..]);
        self.words(&[checksum]);
    }
}

/// Reads numbers.
struct NumberReader<'a>(&'a [u8]);

impl NumberReader<'_> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    fn long(&mut self) -> Option<u64> {
        let (long, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*long))
    }

    fn link_types(&mut self) -> Option<[LinkType; MAX_LINK_TYPES]> {
        let (bytes, rest) = self.0.split_first_chunk::<{ 2 * MAX_LINK_TYPES }>()?;
        self.0 = rest;
        let mut numbers = bytes.as_chunks().0.iter();
        Some([(); MAX_LINK_TYPES].map(|()| {
            let number = numbers.next();
            number.map_or(LinkType::UNKNOWN, |it| LinkType(u16::from_le_bytes(*it)))
        }))
    }
}

/// The bytes before a checksum at their end, if it is right.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    is_checksum(content, u32::from_le_bytes(*checksum)).then_some(content)
}

/// Whether this is the checksum of the bytes. A fuzzer, which cannot guess it, gets past it.
pub(crate) fn is_checksum(bytes: &[u8], checksum: u32) -> bool {
    cfg!(fuzzing) || crc32fast::hash(bytes) == checksum
}

/// The file's header, with a sample of the capture's start.
pub(crate) fn write_file_header(into: &mut Vec<u8>, head: Sample) {
    let start = into.len();
    into.extend_from_slice(&FILE_MAGIC);
    let mut out = NumberWriter(into);
    out.words(&[VERSION, head.length, head.checksum]);
    out.checksum(start);
}

/// The sample of the capture's start; `None` if this is no index of this version.
pub(crate) fn read_file_header(bytes: &[u8]) -> Option<Sample> {
    let content = checked(bytes.get(..FILE_HEADER)?)?;
    let mut numbers = NumberReader(content.strip_prefix(&FILE_MAGIC)?);
    let version = numbers.word()?;
    let head = read_sample(&mut numbers)?;
    (version == VERSION).then_some(head)
}

fn read_sample(numbers: &mut NumberReader<'_>) -> Option<Sample> {
    let sample = Sample {
        length: numbers.word()?,
        checksum: numbers.word()?,
    };
    (sample.length <= MAX_SAMPLE).then_some(sample)
}

/// Record at the end of a complete index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndRecord {
    /// The file that the index describes.
    pub(crate) state: FileState,
    /// The file is damaged or cut off behind the last segment.
    pub(crate) is_cut: bool,
}

/// Appends the record at the end of a complete index.
pub(crate) fn write_end(into: &mut Vec<u8>, EndRecord { state, is_cut }: EndRecord) {
    let start = into.len();
    into.extend_from_slice(&END_MAGIC);
    let mut out = NumberWriter(into);
    out.words(&[is_cut.into()]);
    out.longs(&[state.bytes, state.modified_ns.cast_unsigned()]);
    out.checksum(start);
}

/// The record at the end, if the bytes are one.
pub(crate) fn read_end(bytes: &[u8]) -> Option<EndRecord> {
    let content = checked(bytes.get(..END)?)?;
    let mut numbers = NumberReader(content.strip_prefix(&END_MAGIC)?);
    let is_cut = numbers.word()? != 0;
    let state = FileState {
        bytes: numbers.long()?,
        modified_ns: numbers.long()?.cast_signed(),
    };
    Some(EndRecord { state, is_cut })
}

impl SegmentHeader {
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend_from_slice(&SEGMENT_MAGIC);
        let mut out = NumberWriter(into);
        out.words(&[self.blocks, self.pages, self.description, self.omitted]);
        let types = self.link_types.iter().flat_map(|it| it.0.to_le_bytes());
        out.0.extend(types);
        out.longs(&[self.bytes, self.from, self.to, self.min_ns, self.max_ns]);
        out.words(&[self.tail.length, self.tail.checksum, self.directory]);
        out.checksum(start);
    }

    /// A header that fits into the `room` bytes of the file from its first byte on.
    pub(crate) fn read(bytes: &[u8], room: u64) -> Option<Self> {
        let content = checked(bytes.get(..SEGMENT_HEADER)?)?;
        let mut numbers = NumberReader(content.strip_prefix(&SEGMENT_MAGIC)?);
        let header = SegmentHeader {
            blocks: numbers.word()?,
            pages: numbers.word()?,
            description: numbers.word()?,
            omitted: numbers.word()?,
            link_types: numbers.link_types()?,
            bytes: numbers.long()?,
            from: numbers.long()?,
            to: numbers.long()?,
            min_ns: numbers.long()?,
            max_ns: numbers.long()?,
            tail: read_sample(&mut numbers)?,
            directory: numbers.word()?,
        };
        let is_possible = header.blocks <= MAX_BLOCKS
            && header.pages <= MAX_PAGES
            && to_usize(header.description) <= MAX_DESCRIPTION
            && header.bytes <= room
            && to_u64(header.pages_at()) <= header.bytes
            && header.from <= header.to;
        is_possible.then_some(header)
    }

    /// Where description and directory lie in the segment.
    pub(crate) fn directory_range(&self) -> Range<usize> {
        let end = SEGMENT_HEADER + to_usize(self.description) + to_usize(self.pages) * PAGE_ENTRY;
        SEGMENT_HEADER..end
    }

    /// Where a group of blocks lies in the segment.
    pub(crate) fn group_range(&self, group: usize) -> Range<usize> {
        let start = self.directory_range().end + group * GROUP_BYTES;
        let blocks = to_usize(self.blocks)
            .saturating_sub(group * GROUP)
            .min(GROUP);
        start..start + blocks * BLOCK_ENTRY + 4
    }

    /// Where the pages begin in the segment.
    pub(crate) fn pages_at(&self) -> usize {
        let blocks = to_usize(self.blocks);
        self.directory_range().end + blocks * BLOCK_ENTRY + blocks.div_ceil(GROUP) * 4
    }

    /// Description and pages, from the bytes of [`directory_range`](Self::directory_range).
    pub(crate) fn read_directory(&self, bytes: &[u8]) -> Option<(Vec<u8>, Vec<PageEntry>)> {
        if !is_checksum(bytes, self.directory) {
            return None;
        }
        let (description, pages) = bytes.split_at_checked(to_usize(self.description))?;
        let (mut entries, mut end) = (Vec::new(), to_u64(self.pages_at()));
        for page in pages.chunks_exact(PAGE_ENTRY) {
            let entry = PageEntry::read(page)?;
            end += u64::from(entry.bytes);
            let is_behind = |last: &PageEntry| (last.kind, last.first) < (entry.kind, entry.first);
            let is_ordered = entries.last().is_none_or(is_behind);
            if !is_ordered || entry.bytes > MAX_PAGE || end > self.bytes {
                return None;
            }
            entries.push(entry);
        }
        Some((description.to_vec(), entries))
    }

    /// The blocks of a group, from the bytes of [`group_range`](Self::group_range).
    pub(crate) fn read_group(&self, bytes: &[u8]) -> Option<Vec<BlockEntry>> {
        let entries = checked(bytes)?.chunks_exact(BLOCK_ENTRY);
        let entries = entries.map(|entry| {
            let block = BlockEntry::read(entry)?;
            (block.description <= self.description).then_some(block)
        });
        entries.collect()
    }
}

impl PageEntry {
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        let mut out = NumberWriter(into);
        out.words(&[self.kind.number().into(), self.bytes, self.checksum]);
        into.extend_from_slice(&self.first.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut numbers = NumberReader(bytes);
        let number = u8::try_from(numbers.word()?).ok()?;
        Some(PageEntry {
            kind: TermKind::from_number(number)?,
            bytes: numbers.word()?,
            checksum: numbers.word()?,
            first: u128::from_le_bytes(*numbers.0.first_chunk()?),
        })
    }
}

impl BlockEntry {
    fn write(&self, into: &mut Vec<u8>) {
        let mut out = NumberWriter(into);
        out.longs(&[
            self.min_ns,
            self.max_ns,
            self.offset,
            self.skip,
            self.length,
        ]);
        out.words(&[self.description]);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut numbers = NumberReader(bytes);
        Some(BlockEntry {
            min_ns: numbers.long()?,
            max_ns: numbers.long()?,
            offset: numbers.long()?,
            skip: numbers.long()?,
            length: numbers.long()?,
            description: numbers.word()?,
        })
    }

    /// Whether a packet of the block may be in this range of times.
    pub(crate) fn meets(&self, times: &Range<u64>) -> bool {
        self.min_ns < times.end && times.start <= self.max_ns
    }
}

/// Appends the entries of all blocks, in groups.
pub(crate) fn write_blocks(into: &mut Vec<u8>, blocks: &[BlockEntry]) {
    for group in blocks.chunks(GROUP) {
        let start = into.len();
        group.iter().for_each(|block| block.write(into));
        NumberWriter(into).checksum(start);
    }
}
