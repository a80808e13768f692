// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indexes a capture file.
//!
//! Invariants
//! - The index never says more than what was read: it ends with the last whole packet before the end or the damage.
//! - The index of a file that is written meanwhile covers its beginning.

use std::io::{self, Read};
use std::path::Path;

use ringtap_file::{FileReader, Packing, ReadError};
use ringtap_pool::number::{to_u32, to_u64};

use crate::beside::{NewIndex, index_path};
use crate::data::{CaptureFile, FileFrom};
use crate::layout::{BlockEntry, EndRecord, MAX_DESCRIPTION, Sample, write_end, write_file_header};
use crate::members::{self, CompressedFrame};
use crate::segment::{Coverage, IndexSizes, SegmentBuilder};
use crate::stored::StoredIndex;

/// An index has at most this number of segments, and one more for each [`SEGMENT_BYTES`] of content.
const FREE_SEGMENTS: u64 = 16;
const SEGMENT_BYTES: u64 = 1 << 20;

/// What became of the index of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexOutcome {
    /// A new index was written.
    Written(IndexTotals),
    /// The index that was there describes the file.
    Current,
    /// Another process writes the index.
    Busy,
}

/// Totals of a new index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexTotals {
    /// Number of packets.
    pub packets: u64,
    /// Size of the packets and the headers of the file, in bytes.
    pub content_bytes: u64,
    /// Size of the index, in bytes.
    pub index_bytes: u64,
    /// The file is damaged or cut off behind what is indexed.
    pub is_cut: bool,
}

/// Why a file has no index; a search reads all of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the fields")]
pub enum IndexError {
    /// The capture cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The capture cannot be opened.
    #[error("{file}: cannot be opened: {cause}")]
    Open { file: String, cause: io::Error },
    /// The index cannot be written.
    #[error("{file}: cannot be written: {cause}")]
    Write { file: String, cause: io::Error },
    /// A compressed file in one piece.
    #[error(
        "{file}: is compressed in pieces of more than 16 MiB, so that an index is of no use: \
         `ringtap record -r {file} -w NEW.pcapng.zst` compresses it in small ones"
    )]
    LargeFrames { file: String },
    /// More interfaces than any recorder has.
    #[error(
        "{file}: describes its interfaces in more than 1 MiB, or again and again: it gets no index"
    )]
    Interfaces { file: String },
    /// The file became shorter while it was read.
    #[error("{file}: was changed while it was indexed")]
    Changed { file: String },
}

/// Writes the index of a capture file, unless it is there and describes the file as it is.
///
/// # Errors
///
/// [`IndexError`]; the file then has no index, or the one that it had.
pub fn index_file(capture: &Path) -> Result<IndexOutcome, IndexError> {
    index_with(capture, IndexSizes::USUAL)
}

pub(crate) fn index_with(capture: &Path, sizes: IndexSizes) -> Result<IndexOutcome, IndexError> {
    let opened = |cause| IndexError::Open {
        file: capture.display().to_string(),
        cause,
    };
    let data = CaptureFile::open(capture).map_err(opened)?;
    if StoredIndex::open(capture).is_some_and(|index| index.is_complete_for(&data)) {
        return Ok(IndexOutcome::Current);
    }
    let Some(mut new) = Indexing::create(capture, &data, sizes)? else {
        return Ok(IndexOutcome::Busy);
    };
    let stream = FileFrom {
        file: data.file.clone(),
        at: 0,
    };
    let totals = new.read(&data, Box::new(stream), Publish::WhenComplete)?;
    new.finish(&data, totals).map(IndexOutcome::Written)
}

/// An index that is being written.
pub(crate) struct Indexing {
    name: String,
    new: NewIndex,
    sizes: IndexSizes,
    builder: SegmentBuilder,
    /// Where the last block begins in the content; `None`: no block has been begun.
    block: Option<BlockStart>,
    /// The description of the interfaces in the section of the segment, and the section's number.
    description: Vec<u8>,
    section: u32,
    covered: u64,
    segments: u64,
    index_bytes: u64,
}

#[derive(Clone, Copy)]
struct BlockStart {
    content: u64,
    frame: CompressedFrame,
}

impl Indexing {
    /// Creates the index; `None` if another process writes it.
    pub(crate) fn create(
        capture: &Path,
        data: &CaptureFile,
        sizes: IndexSizes,
    ) -> Result<Option<Self>, IndexError> {
        let name = index_path(capture).display().to_string();
        let failed = |cause| IndexError::Write {
            file: name.clone(),
            cause,
        };
        let Some(new) = NewIndex::create(capture, data.mode).map_err(failed)? else {
            return Ok(None);
        };
        Ok(Some(Indexing {
            name,
            new,
            sizes,
            builder: SegmentBuilder::new(sizes),
            block: None,
            description: Vec::new(),
            section: 0,
            covered: 0,
            segments: 0,
            index_bytes: 0,
        }))
    }

    /// Reads the file from its `stream`, and writes its segments. `publish` says when the index gets its name.
    pub(crate) fn read(
        &mut self,
        data: &CaptureFile,
        stream: Box<dyn Read + Send>,
        publish: Publish,
    ) -> Result<IndexTotals, IndexError> {
        let (content, mut frames) = members::unpack(stream, data.packing);
        let mut reader = FileReader::from_stream(&data.name, content)?;
        let mut totals = IndexTotals::default();
        self.description = description(&data.name, &reader)?.to_vec();
        // Other blocks may follow the last packet: those that read the rest begin with them.
        let end = loop {
            let start = reader.offset();
            let frame = frames.frame_at(start);
            if start - frame.content > self.sizes.frame_bytes {
                return Err(IndexError::LargeFrames {
                    file: data.name.clone(),
                });
            }
            let is_due = self.is_due(start, frame);
            if is_due {
                self.close_block(start);
                if self.builder.is_full() || self.section != section(&reader) {
                    self.write_segment(data, &reader, start)?;
                    if publish == Publish::AtFirstSegment {
                        self.new.publish().map_err(|cause| self.failed(cause))?;
                    }
                }
                self.describe(&data.name, &reader)?;
            }
            let packet = match reader.next_packet() {
                Ok(Some(packet)) => packet,
                // What was read before stays indexed.
                Err(_) if data.packing == Packing::Plain => {
                    totals.is_cut = true;
                    break start;
                }
                Ok(None) => break start,
                Err(error) => return Err(error.into()),
            };
            if is_due {
                self.begin_block(start, frame);
            }
            totals.packets += 1;
            self.builder
                .packet(packet.data, packet.link_type, packet.time_ns);
        };
        self.close_block(end);
        self.write_segment(data, &reader, end)?;
        totals.content_bytes = end;
        Ok(totals)
    }

    /// Whether a block begins at this place.
    fn is_due(&self, start: u64, frame: CompressedFrame) -> bool {
        self.block.is_none_or(|block| {
            start - block.content >= self.sizes.block_bytes && frame.offset != block.frame.offset
        })
    }

    fn close_block(&mut self, end: u64) {
        if let (Some(start), Some(block)) = (self.block, self.builder.last_block()) {
            block.length = end - start.content;
        }
    }

    fn begin_block(&mut self, content: u64, frame: CompressedFrame) {
        self.block = Some(BlockStart { content, frame });
        self.builder.begin(BlockEntry {
            min_ns: u64::MAX,
            max_ns: 0,
            offset: frame.offset,
            skip: content - frame.content,
            length: 0,
            description: to_u32(self.description.len()),
        });
    }

    /// Takes the description of interfaces that were added to the section.
    fn describe(&mut self, name: &str, reader: &FileReader) -> Result<(), IndexError> {
        let description = description(name, reader)?;
        if self.segments > FREE_SEGMENTS + self.covered / SEGMENT_BYTES {
            return Err(IndexError::Interfaces {
                file: name.to_owned(),
            });
        }
        if self.section == section(reader) && description.len() != self.description.len() {
            description.clone_into(&mut self.description);
        }
        Ok(())
    }

    /// Writes the blocks so far, up to `end` in the content. An empty segment follows if another section has begun, so
    /// that the last segment describes what comes behind it.
    fn write_segment(
        &mut self,
        data: &CaptureFile,
        reader: &FileReader,
        end: u64,
    ) -> Result<(), IndexError> {
        let failed = |cause| IndexError::Open {
            file: data.name.clone(),
            cause,
        };
        let tail = match data.packing {
            Packing::Plain => data.tail(end).map_err(failed)?,
            _ => Sample::default(),
        };
        self.describe(&data.name, reader)?;
        let mut bytes = Vec::new();
        if self.segments == 0 {
            // Not before: a file that is being written may have had a few bytes only.
            write_file_header(&mut bytes, data.head_now().map_err(failed)?);
        }
        let mut append = |it: &mut Self| {
            let coverage = Coverage {
                from: it.covered,
                to: end,
                tail,
            };
            it.builder.write(&mut bytes, &it.description, &coverage);
            it.covered = end;
            it.segments += 1;
        };
        append(self);
        if self.section != section(reader) {
            self.section = section(reader);
            self.description = description(&data.name, reader)?.to_vec();
            append(self);
        }
        self.block = None;
        self.index_bytes += to_u64(bytes.len());
        self.new.append(&bytes).map_err(|cause| self.failed(cause))
    }

    /// Gives the index its name. Writes the end record if the file is in the state that `data` has: else the index is
    /// that of the beginning of a file that grows.
    pub(crate) fn finish(
        mut self,
        data: &CaptureFile,
        mut totals: IndexTotals,
    ) -> Result<IndexTotals, IndexError> {
        let changed = || IndexError::Changed {
            file: data.name.clone(),
        };
        let state = data.state_now().map_err(|_| changed())?;
        let is_same = state == data.state;
        let is_plain = data.packing == Packing::Plain;
        if !is_plain && !is_same || is_plain && state.bytes < self.covered {
            return Err(changed());
        }
        if is_same {
            let mut end = Vec::new();
            let is_cut = totals.is_cut;
            write_end(&mut end, EndRecord { state, is_cut });
            self.new.append(&end).map_err(|cause| self.failed(cause))?;
            self.index_bytes += to_u64(end.len());
        }
        totals.index_bytes = self.index_bytes;
        let name = self.name;
        let failed = |cause| IndexError::Write { file: name, cause };
        self.new.complete().map_err(failed)?;
        Ok(totals)
    }

    fn failed(&self, cause: io::Error) -> IndexError {
        IndexError::Write {
            file: self.name.clone(),
            cause,
        }
    }
}

/// When an index gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publish {
    /// Once it is complete.
    WhenComplete,
    /// As soon as it has a segment.
    AtFirstSegment,
}

/// The description of the interfaces, if an index may hold it.
fn description<'a>(file: &str, reader: &'a FileReader) -> Result<&'a [u8], IndexError> {
    let description = reader.description();
    let possible = description.filter(|it| it.len() <= MAX_DESCRIPTION);
    possible.ok_or_else(|| IndexError::Interfaces {
        file: file.to_owned(),
    })
}

/// Number of the section in which the last packet was.
fn section(reader: &FileReader) -> u32 {
    let last = reader.interfaces().last();
    last.map_or(0, |interface| interface.section)
}
