// SPDX-License-Identifier: MIT OR Apache-2.0
//! Blocks of a capture in which a search finds packets.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use ringtap_file::{FileInterface, FileReader, PacketDirection, Packing, ReadError};
use ringtap_ipc::mutex::lock;
use ringtap_pool::number::{to_u64, to_usize};

use crate::data::{CaptureFile, FileFrom};
use crate::layout::BlockEntry;
use crate::members::{CompressedFrame, FrameLog, FrameReader};
use crate::query::Query;

/// Content after which a block ends.
const BLOCK_BYTES: u64 = 64 * 1024;

/// A block, with the description of its interfaces.
#[derive(Clone, Debug)]
pub(crate) struct FoundBlock {
    /// Offset in the content of the file; of a block of an index, that of its frame in the file.
    pub(crate) content: u64,
    /// A scan found the block.
    pub(crate) is_scanned: bool,
    pub(crate) entry: BlockEntry,
    pub(crate) description: Arc<[u8]>,
}

/// Matching packets of a block, in the order of their times.
#[derive(Default)]
pub(crate) struct PacketRun {
    data: Vec<u8>,
    packets: Vec<RunPacket>,
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

impl PacketRun {
    pub(crate) fn bytes(&self) -> usize {
        self.data.len() + self.packets.len() * size_of::<RunPacket>()
    }

    pub(crate) fn get(&self, at: usize) -> Option<(&RunPacket, &[u8])> {
        let packet = self.packets.get(at)?;
        Some((packet, self.data.get(packet.start..packet.end)?))
    }

    /// Reads the matching packets of a block.
    pub(crate) fn read(mut reader: FileReader, query: &mut Query) -> (Self, Option<ReadError>) {
        let mut run = PacketRun::default();
        let mut interfaces: Vec<Arc<FileInterface>> = Vec::new();
        let error = loop {
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            if !query.matches(&packet) {
                continue;
            }
            let start = run.data.len();
            run.data.extend_from_slice(packet.data);
            let (time_ns, wire_length) = (packet.time_ns, packet.wire_length);
            let (direction, dropped_before) = (packet.direction(), packet.drop_count());
            let number = to_usize(packet.interface);
            for known in reader.interfaces().iter().skip(interfaces.len()) {
                let mut known = known.clone();
                known.statistics = None;
                interfaces.push(Arc::new(known));
            }
            let Some(interface) = interfaces.get(number) else {
                continue;
            };
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
        (run, error)
    }
}

/// Where a scan begins.
pub(crate) struct ScanStart<'a> {
    /// Offset in the file, which is not compressed unless it is 0.
    pub(crate) at: u64,
    /// Description of the interfaces before.
    pub(crate) description: &'a [u8],
    /// Part of the content to search.
    pub(crate) within: Range<u64>,
}

/// Result of a scan.
#[derive(Default)]
pub(crate) struct ScanResult {
    pub(crate) blocks: Vec<FoundBlock>,
    pub(crate) content_bytes: u64,
    pub(crate) error: Option<ReadError>,
}

/// Reads a capture, and lists the blocks with matching packets and the times of these, at most `max_blocks`: beyond
/// that, neighbours are joined.
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
    let (stream, log): (Box<dyn Read + Send>, _) = match data.packing {
        Packing::Plain => (Box::new(stream), None),
        packing => {
            let (frames, log) = FrameReader::new(Box::new(stream), packing);
            (Box::new(frames), Some(log))
        }
    };
    let before = to_u64(start.description.len());
    let stream = io::Cursor::new(start.description.to_vec()).chain(stream);
    let mut reader = match FileReader::from_stream(&data.name, stream) {
        Ok(reader) => reader,
        Err(error) => {
            result.error = Some(error);
            return result;
        }
    };
    let mut description: Arc<[u8]> = match start.description {
        [] => reader.description().into(),
        description => description.into(),
    };
    let mut frame = CompressedFrame::default();
    // Offsets of the reader count the description that comes first, too.
    let mut block_start = reader.offset().max(before);
    let mut has_block = false;
    loop {
        let at = reader.offset().max(before);
        let place = start.at + (at - before);
        let is_end = place >= start.within.end;
        if at - block_start >= BLOCK_BYTES || !has_block || is_end {
            close(&mut result, block_start, at, has_block);
            (block_start, has_block) = (at, false);
            if at > before && *description != *reader.description() {
                description = reader.description().into();
            }
            if result.blocks.len() >= max_blocks.max(2) {
                join_neighbours(&mut result.blocks);
            }
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
        if !has_block {
            has_block = true;
            let content = start.at + (block_start - before);
            frame = frame_of(log.as_ref(), frame, content);
            result.blocks.push(FoundBlock {
                content,
                is_scanned: true,
                entry: BlockEntry {
                    min_ns: time_ns,
                    max_ns: time_ns,
                    offset: frame.offset,
                    skip: content - frame.content,
                    length: 0,
                    description: 0,
                },
                description: Arc::clone(&description),
            });
        }
        if let Some(block) = result.blocks.last_mut() {
            block.entry.min_ns = block.entry.min_ns.min(time_ns);
            block.entry.max_ns = block.entry.max_ns.max(time_ns);
        }
    }
    let end = reader.offset().max(before);
    close(&mut result, block_start, end, has_block);
    result.content_bytes = end - before;
    result
}

/// Ends the block that is open.
fn close(result: &mut ScanResult, start: u64, end: u64, has_block: bool) {
    if let Some(block) = result.blocks.last_mut().filter(|_| has_block) {
        block.entry.length = end - start;
    }
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

/// The frame of a place in the content, not before the last one.
fn frame_of(log: Option<&FrameLog>, mut frame: CompressedFrame, content: u64) -> CompressedFrame {
    let Some(log) = log else {
        return CompressedFrame {
            content,
            offset: content,
        };
    };
    let mut log = lock(log);
    while log.front().is_some_and(|next| next.content <= content) {
        frame = log.pop_front().unwrap_or(frame);
    }
    frame
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
