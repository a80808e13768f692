// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of a capture in which a search finds packets.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ringtap_file::{FileInterface, FileReader, PacketDirection, ReadError};
use ringtap_pool::number::{to_u32, to_u64, to_usize};

use crate::data::{CaptureFile, FileFrom};
use crate::layout::BlockEntry;
use crate::members::{self, FrameStarts};
use crate::query::Query;

/// Content after which a block ends.
const BLOCK_BYTES: u64 = 64 * 1024;

/// Most bytes of descriptions that the blocks of a file have together.
const MAX_DESCRIPTIONS: usize = 64 << 20;

/// A block, with the description of its interfaces.
#[derive(Clone, Debug)]
pub(crate) struct FoundBlock {
    /// Offset in the content of the file; of a block of an index, that of its frame in the file.
    pub(crate) content: u64,
    /// A scan found the block.
    pub(crate) is_scanned: bool,
    pub(crate) entry: BlockEntry,
    /// Begins with the description of the block, which other blocks share.
    description: Arc<[u8]>,
    /// Packets at its beginning that have been read before.
    read_packets: u64,
}

impl FoundBlock {
    /// A block of an index, in a segment with this description.
    pub(crate) fn from_index(entry: BlockEntry, description: &Arc<[u8]>) -> Self {
        FoundBlock {
            content: entry.offset,
            is_scanned: false,
            entry,
            description: Arc::clone(description),
            read_packets: 0,
        }
    }

    /// The block without its first packets.
    pub(crate) fn without_first(self, read_packets: u64) -> Self {
        FoundBlock {
            read_packets,
            ..self
        }
    }

    /// The description of the interfaces before the block.
    pub(crate) fn description(&self) -> &[u8] {
        let length = to_usize(self.entry.description);
        self.description.get(..length).unwrap_or_default()
    }
}

/// Matching packets of a block, in the order of their times.
#[derive(Default)]
pub(crate) struct PacketRun {
    data: Vec<u8>,
    packets: Vec<RunPacket>,
    /// Bytes of their interfaces.
    interface_bytes: usize,
}

/// A packet of a run.
#[derive(Clone)]
pub(crate) struct RunPacket {
    pub(crate) time_ns: u64,
    pub(crate) wire_length: u32,
    pub(crate) interface: Arc<FileInterface>,
    pub(crate) direction: PacketDirection,
    pub(crate) dropped_before: u64,
    start: usize,
    end: usize,
}

/// How the reading of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    Complete,
    /// The block cannot be read to its end.
    Damaged,
    /// The run is as large as it may be, with so many packets of the block read.
    Full {
        read_packets: u64,
    },
}

impl PacketRun {
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() + self.packets.len() * size_of::<RunPacket>() + self.interface_bytes
    }

    pub(crate) fn get(&self, at: usize) -> Option<(&RunPacket, &[u8])> {
        let packet = self.packets.get(at)?;
        Some((packet, self.data.get(packet.start..packet.end)?))
    }

    /// Reads the matching packets of a block, until they have `max_bytes`.
    pub(crate) fn read(
        mut reader: FileReader,
        block: &FoundBlock,
        query: &mut Query,
        max_bytes: usize,
    ) -> (Self, RunEnd) {
        let mut run = PacketRun::default();
        let mut read_packets = 0;
        let mut interfaces: Vec<Option<Arc<FileInterface>>> = Vec::new();
        let end = loop {
            if run.bytes() > max_bytes {
                break RunEnd::Full { read_packets };
            }
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break RunEnd::Complete,
                Err(_) => break RunEnd::Damaged,
            };
            read_packets += 1;
            if read_packets <= block.read_packets || !query.matches(&packet) {
                continue;
            }
            let start = run.data.len();
            run.data.extend_from_slice(packet.data);
            let (time_ns, wire_length) = (packet.time_ns, packet.wire_length);
            let (direction, dropped_before) = (packet.direction(), packet.drop_count());
            let number = to_usize(packet.interface);
            if interfaces.len() <= number {
                interfaces.resize(reader.interfaces().len(), None);
            }
            let (Some(known), Some(described)) =
                (interfaces.get_mut(number), reader.interfaces().get(number))
            else {
                continue;
            };
            let interface = known.get_or_insert_with(|| {
                run.interface_bytes += interface_bytes(described);
                Arc::new(FileInterface {
                    statistics: None,
                    ..described.clone()
                })
            });
            run.packets.push(RunPacket {
                time_ns,
                wire_length,
                interface: Arc::clone(interface),
                direction,
                dropped_before: dropped_before.unwrap_or(0),
                start,
                end: run.data.len(),
            });
        };
        run.packets.sort_by_key(|packet| packet.time_ns);
        (run, end)
    }
}

fn interface_bytes(interface: &FileInterface) -> usize {
    let FileInterface {
        name,
        comment,
        filter,
        ..
    } = interface;
    let texts = [name, comment, filter].into_iter().flatten();
    size_of::<FileInterface>() + texts.map(String::len).sum::<usize>()
}

/// Where a scan begins.
pub(crate) struct ScanStart<'a> {
    /// Offset in the file, which is not compressed unless it is 0.
    pub(crate) at: u64,
    /// Description of the interfaces before.
    pub(crate) description: &'a [u8],
    /// Part of the content to search.
    pub(crate) within: Range<u64>,
    /// Ends the scan once it is set.
    pub(crate) stop: &'a Arc<AtomicBool>,
}

/// Result of a scan.
#[derive(Default)]
pub(crate) struct ScanResult {
    pub(crate) blocks: Vec<FoundBlock>,
    pub(crate) content_bytes: u64,
    pub(crate) error: Option<ReadError>,
}

/// Reads a capture, and lists the blocks with matching packets and the times of these, at most `max_blocks` with at
/// most [`MAX_DESCRIPTIONS`]: beyond that, neighbours are joined.
pub(crate) fn scan(
    data: &CaptureFile,
    start: &ScanStart<'_>,
    query: &mut Query,
    max_blocks: usize,
) -> ScanResult {
    let mut result = ScanResult::default();
    let stream = FileFrom {
        file: Arc::clone(&data.file),
        at: start.at,
    };
    let (stream, frames) = members::unpack(Box::new(stream), data.packing);
    let before = to_u64(start.description.len());
    let stream = io::Cursor::new(start.description.to_vec()).chain(stream);
    let mut reader = match FileReader::from_stream(&data.name, stream) {
        Ok(reader) => reader.stop_when(Arc::clone(start.stop)),
        Err(error) => {
            result.error = Some(error);
            return result;
        }
    };
    let mut blocks = ScannedBlocks::new(frames, max_blocks);
    // Offsets of the reader count the description that comes first, too.
    let content = |offset: u64| start.at + (offset.max(before) - before);
    // Where a block would begin.
    let mut point = reader.split_point();
    loop {
        let place = content(reader.offset());
        let is_end = place >= start.within.end;
        let split = reader.split_point();
        if is_end || split.is_some() && blocks.may_end(place) {
            blocks.end(place);
            point = split;
        }
        if is_end {
            break;
        }
        let packet = match reader.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(error) => {
                result.error = Some(shifted(error, start.at, before));
                break;
            }
        };
        if place < start.within.start || !query.matches(&packet) {
            continue;
        }
        let time_ns = packet.time_ns;
        if !blocks.is_open {
            let section = reader.section_offset();
            let (offset, description) = match point {
                // The reader has not read all of the description that comes first.
                Some(point) if point.offset <= before && section < before => {
                    (before, start.description)
                }
                // Without: since the point another section has begun, which has a description of its own.
                point => point
                    .and_then(|it| Some((it.offset, reader.description_at(&it)?)))
                    .unwrap_or((section, &[])),
            };
            blocks.begin(content(offset), description);
        }
        blocks.extend_times(time_ns);
    }
    let end = content(reader.offset());
    blocks.end(end);
    result.content_bytes = end - start.at;
    result.blocks = blocks.blocks;
    result
}

/// Blocks that a scan has found.
struct ScannedBlocks {
    blocks: Vec<FoundBlock>,
    frames: FrameStarts,
    max_blocks: usize,
    /// Packets are added to the last block.
    is_open: bool,
    /// Bytes of the blocks' descriptions. Successive blocks share one.
    description_bytes: usize,
}

impl ScannedBlocks {
    fn new(frames: FrameStarts, max_blocks: usize) -> Self {
        ScannedBlocks {
            blocks: Vec::new(),
            frames,
            max_blocks: max_blocks.max(2),
            is_open: false,
            description_bytes: 0,
        }
    }

    /// Whether the last block may end at a place in the content. A block is as long as its description, at least: less
    /// is copied for descriptions than is read.
    fn may_end(&self, place: u64) -> bool {
        let open = self.blocks.last().filter(|_| self.is_open);
        open.is_none_or(|block| {
            let min_bytes = to_u64(block.description.len()).max(BLOCK_BYTES);
            place - block.content >= min_bytes
        })
    }

    /// Ends the last block, if it has not ended.
    fn end(&mut self, place: u64) {
        if let Some(block) = self.blocks.last_mut().filter(|_| self.is_open) {
            block.entry.length = place - block.content;
        }
        self.is_open = false;
        while self.blocks.len() >= self.max_blocks
            || self.blocks.len() > 1 && self.description_bytes > MAX_DESCRIPTIONS
        {
            join_neighbours(&mut self.blocks);
            self.description_bytes = description_bytes(&self.blocks);
        }
    }

    fn begin(&mut self, content: u64, description: &[u8]) {
        let last = self.blocks.last().map(|block| &block.description);
        let description = match last {
            Some(known) if **known == *description => Arc::clone(known),
            _ => {
                self.description_bytes += description.len();
                description.into()
            }
        };
        let frame = self.frames.frame_at(content);
        self.blocks.push(FoundBlock {
            content,
            is_scanned: true,
            entry: BlockEntry {
                min_ns: u64::MAX,
                max_ns: 0,
                offset: frame.offset,
                skip: content - frame.content,
                length: 0,
                description: to_u32(description.len()),
            },
            description,
            read_packets: 0,
        });
        self.is_open = true;
    }

    fn extend_times(&mut self, time_ns: u64) {
        if let Some(block) = self.blocks.last_mut() {
            block.entry.min_ns = block.entry.min_ns.min(time_ns);
            block.entry.max_ns = block.entry.max_ns.max(time_ns);
        }
    }
}

/// Bytes of the descriptions, of which successive blocks share one.
fn description_bytes(blocks: &[FoundBlock]) -> usize {
    let shared = blocks.chunk_by(|one, next| Arc::ptr_eq(&one.description, &next.description));
    let first = shared.filter_map(<[FoundBlock]>::first);
    first.map(|block| block.description.len()).sum()
}

/// Joins each block with the next one.
fn join_neighbours(blocks: &mut Vec<FoundBlock>) {
    let joined = blocks.chunks(2).filter_map(|pair| {
        let (first, last) = (pair.first()?, pair.last()?);
        let mut joined = first.clone();
        joined.entry.length = last.content + last.entry.length - first.content;
        joined.entry.min_ns = first.entry.min_ns.min(last.entry.min_ns);
        joined.entry.max_ns = first.entry.max_ns.max(last.entry.max_ns);
        Some(joined)
    });
    *blocks = joined.collect();
}

/// The error with the offset in the file, of one behind a description.
fn shifted(error: ReadError, at: u64, before: u64) -> ReadError {
    let moved = |offset: u64| at.saturating_add(offset).saturating_sub(before);
    match error {
        ReadError::Truncated {
            file,
            offset,
            what,
            needed,
            found,
        } => ReadError::Truncated {
            file,
            offset: moved(offset),
            what,
            needed,
            found,
        },
        ReadError::Corrupt {
            file,
            offset,
            damage,
        } => ReadError::Corrupt {
            file,
            offset: moved(offset),
            damage,
        },
        ReadError::Unsupported {
            file,
            offset,
            variant,
        } => ReadError::Unsupported {
            file,
            offset: moved(offset),
            variant,
        },
        ReadError::Read {
            file,
            offset,
            cause,
        } => ReadError::Read {
            file,
            offset: moved(offset),
            cause,
        },
        other => other,
    }
}
