// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches captures: packets that pass a filter, of many files, in the order of their times.
//!
//! A segment of an index, a block and a packet are expanded in the order of their first times, so that a block is
//! read when the result reaches it.
//!
//! Invariants
//! - The packets are those of a scan of all files, whatever their indexes are.
//! - Few files are open at a time. Memory holds the packets of blocks whose times overlap, up to a limit, and one
//!   record for each segment with candidates.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ringtap_file::{FileInterface, PacketDirection, ReadError};
use ringtap_filter::text::FilterError;
use ringtap_ipc::time::now_ns;
use ringtap_pool::number::to_u64;
use roaring::RoaringBitmap;

use crate::ahead::{FilesAhead, OpenedPair};
use crate::blocks::{FoundBlock, PacketRun, RunEnd, ScanStart, scan};
use crate::data::CaptureFile;
use crate::layout::{Sample, SegmentHeader};
use crate::note::SearchNote;
use crate::opened::OpenedFiles;
use crate::query::Query;
use crate::request::SearchRequest;
use crate::segment::IndexSizes;
use crate::stored::StoredIndex;
use crate::walk::{CapturePath, capture_files};

/// Most blocks of files without index that are kept in memory.
const MAX_SCANNED_BLOCKS: usize = 1 << 20;
/// Most bytes of a block's packets that are read at a time; beyond it, they come out of order.
const MAX_RUN_BYTES: usize = 64 << 20;
/// A file that changed this short a time ago is being written: its end may be missing.
const LIVE_NS: u64 = 10_000_000_000;

/// A packet that a search found.
#[derive(Clone, Debug)]
pub struct FoundRecord<'a> {
    /// The file.
    pub file: &'a std::path::Path,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Bytes on the wire; `data` may hold fewer.
    pub wire_length: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// The interface that captured the packet, as the file describes it.
    pub interface: &'a Arc<FileInterface>,
    /// Direction of the packet.
    pub direction: PacketDirection,
    /// Packets lost directly before this one.
    pub dropped_before: u64,
}

/// Totals of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchTotals {
    /// Packets found.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Captures.
    pub files: u64,
    /// Captures that had to be read in full, because no index describes them.
    pub scanned_files: u64,
    /// Content read to search where no index helps, in bytes.
    pub scanned_bytes: u64,
    /// Blocks read because they may have matches.
    pub blocks: u64,
    /// Files that vanished during the search.
    pub vanished_files: u64,
    /// Files and folders that could not be read, or not to their end; a note says why.
    pub failed_files: u64,
}

/// A search; yields packets in the order of their times.
///
/// # Examples
///
/// ```
/// use ringtap_index::{Search, SearchRequest};
///
/// # let folder = tempfile::tempdir()?;
/// let request = SearchRequest::new(vec![folder.path().to_owned()], "host 10.1.2.3 and port 443");
/// let mut search = Search::new(request)?;
/// while let Some(packet) = search.next_packet() {
///     println!("{} ns: {} bytes", packet.time_ns, packet.wire_length);
/// }
/// for note in search.take_notes() {
///     println!("{note}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Search {
    query: Query,
    files: Vec<CapturePath>,
    output: Option<(u64, u64)>,
    max_bytes: usize,
    stop: Arc<AtomicBool>,
    is_prepared: bool,
    pending: BinaryHeap<PendingSearch>,
    runs: BinaryHeap<ActiveRun>,
    current: Option<ActiveRun>,
    held_bytes: usize,
    opened: OpenedFiles,
    unordered: u64,
    /// Files of which a note says that packets may be missing.
    failed: HashSet<usize>,
    notes: Vec<SearchNote>,
    totals: SearchTotals,
}

/// Something that may hold packets from a time on.
struct PendingSearch {
    min_ns: u64,
    file: usize,
    /// The file's first bytes when the search looked at it.
    head: Sample,
    what: PendingItem,
}

enum PendingItem {
    Segment {
        at: u64,
        header: SegmentHeader,
        candidates: RoaringBitmap,
    },
    Block(FoundBlock),
}

/// Packets of a block that wait for their turn.
struct ActiveRun {
    run: PacketRun,
    next: usize,
    file: usize,
    content: u64,
}

impl ActiveRun {
    /// Order of the next packet: by time, then as in the files.
    fn key(&self) -> (u64, usize, u64) {
        let next = self.run.get(self.next);
        let time_ns = next.map_or(u64::MAX, |(packet, _)| packet.time_ns);
        (time_ns, self.file, self.content)
    }
}

/// The smallest key is the largest element of a heap.
macro_rules! ordered_by_smallest_key {
    ($type:ty) => {
        impl Ord for $type {
            fn cmp(&self, other: &Self) -> Ordering {
                other.key().cmp(&self.key())
            }
        }
        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.key() == other.key()
            }
        }
        impl Eq for $type {}
    };
}

impl PendingSearch {
    fn key(&self) -> (u64, usize, u64) {
        let place = match &self.what {
            PendingItem::Segment { header, .. } => header.from,
            PendingItem::Block(block) => block.content,
        };
        (self.min_ns, self.file, place)
    }
}

ordered_by_smallest_key!(PendingSearch);
ordered_by_smallest_key!(ActiveRun);

impl Search {
    /// Lists the files; reads none of them yet.
    ///
    /// # Errors
    ///
    /// The filter is not valid.
    pub fn new(request: SearchRequest) -> Result<Self, FilterError> {
        let query = Query::new(&request)?;
        let mut notes = Vec::new();
        Ok(Search {
            query,
            files: capture_files(&request.paths, &mut notes),
            totals: SearchTotals {
                failed_files: to_u64(notes.len()),
                ..SearchTotals::default()
            },
            output: request.output,
            max_bytes: request.max_bytes,
            is_prepared: false,
            pending: BinaryHeap::new(),
            runs: BinaryHeap::new(),
            current: None,
            held_bytes: 0,
            opened: OpenedFiles::new(Arc::clone(&request.stop)),
            stop: request.stop,
            unordered: 0,
            failed: HashSet::new(),
            notes,
        })
    }

    /// The next packet; `None` at the end, and once [`SearchRequest::stop`] is set.
    pub fn next_packet(&mut self) -> Option<FoundRecord<'_>> {
        if !self.is_prepared {
            self.is_prepared = true;
            let mut ahead = FilesAhead::default();
            while !self.is_stopped()
                && let Some((file, opened)) = ahead.next(&self.files)
            {
                self.prepare(file, opened);
            }
        }
        self.put_back();
        while !self.is_stopped() && self.must_expand() {
            if let Some(pending) = self.pending.pop() {
                self.expand(pending);
            }
        }
        if self.is_stopped() {
            return None;
        }
        let active = self.runs.pop()?;
        let earliest = self.pending.peek();
        let (time_ns, ..) = active.key();
        self.unordered += u64::from(earliest.is_some_and(|it| it.min_ns < time_ns));
        let active = self.current.insert(active);
        let (packet, data) = active.run.get(active.next)?;
        self.totals.packets += 1;
        self.totals.bytes += to_u64(data.len());
        Some(FoundRecord {
            file: &self.files[active.file].path,
            time_ns: packet.time_ns,
            wire_length: packet.wire_length,
            data,
            interface: &packet.interface,
            direction: packet.direction,
            dropped_before: packet.dropped_before,
        })
    }

    /// Takes the notes so far.
    pub fn take_notes(&mut self) -> Vec<SearchNote> {
        let refused = self.query.take_refused().into_iter();
        let refused = refused.map(|(link_type, error)| SearchNote::LinkType {
            link_type: link_type.to_string(),
            cause: error.to_string(),
        });
        self.notes.extend(refused);
        if self.pending.is_empty() && self.unordered > 0 {
            let packets = std::mem::take(&mut self.unordered);
            self.notes.push(SearchNote::Order { packets });
        }
        std::mem::take(&mut self.notes)
    }

    /// The totals so far.
    #[must_use]
    pub fn totals(&self) -> SearchTotals {
        self.totals
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Puts the run of the last packet back, behind this packet.
    fn put_back(&mut self) {
        let Some(mut active) = self.current.take() else {
            return;
        };
        active.next += 1;
        if active.run.get(active.next).is_some() {
            self.runs.push(active);
        } else {
            self.held_bytes -= active.run.bytes();
        }
    }

    /// Whether something may hold an earlier packet than those in memory, which has room for it.
    fn must_expand(&self) -> bool {
        match (self.pending.peek(), self.runs.peek()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(pending), Some(run)) => {
                pending.min_ns <= run.key().0 && self.held_bytes < self.max_bytes
            }
        }
    }

    /// Finds what a file may hold.
    fn prepare(&mut self, file: usize, OpenedPair { capture, index }: OpenedPair) {
        let CapturePath { path, is_named } = &self.files[file];
        let is_named = *is_named;
        let data = match capture.and_then(|capture| CaptureFile::new(capture, path)) {
            Ok(data) => data,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_named => {
                self.totals.vanished_files += 1;
                return;
            }
            Err(cause) => {
                let name = path.display().to_string();
                return self.damaged(file, &ReadError::Open { file: name, cause });
            }
        };
        if Some(data.identity) == self.output {
            return;
        }
        let index = index.and_then(StoredIndex::new);
        let (mut covered, mut description) = (0, Vec::new());
        if let Some(index) = &index
            && let Some(coverage) = index.coverage(&data)
        {
            let mut is_torn = false;
            for (at, header) in &coverage.segments {
                let Some(segment) = index.segment(*at, *header) else {
                    is_torn = true;
                    break;
                };
                let alternatives = self.query.alternatives(header);
                let Some(blocks) = segment.candidates(&alternatives, &self.query.times) else {
                    is_torn = true;
                    break;
                };
                if let Some(min_ns) = blocks.iter().map(|(_, block)| block.min_ns).min() {
                    self.pending.push(PendingSearch {
                        min_ns,
                        file,
                        head: data.head,
                        what: PendingItem::Segment {
                            at: *at,
                            header: *header,
                            candidates: blocks.iter().map(|(number, _)| *number).collect(),
                        },
                    });
                }
                covered = header.to;
                description = segment.description.to_vec();
            }
            if coverage.is_whole && !is_torn {
                self.totals.files += 1;
                return;
            }
        }
        if covered > 0 && data.packing != ringtap_file::Packing::Plain {
            // Without the rest of the index, what follows cannot be found.
            self.pending = std::mem::take(&mut self.pending)
                .into_iter()
                .filter(|pending| pending.file != file)
                .collect();
            (covered, description) = (0, Vec::new());
        }
        self.scan(file, &data, covered, &description, is_named);
    }

    /// Scans a file from an offset on.
    fn scan(
        &mut self,
        file: usize,
        data: &CaptureFile,
        at: u64,
        description: &[u8],
        is_named: bool,
    ) {
        let max_blocks = (MAX_SCANNED_BLOCKS / self.files.len().max(1)).max(16);
        let start = ScanStart {
            at,
            description,
            within: at..u64::MAX,
            stop: &self.stop,
        };
        let found = scan(data, &start, &mut self.query, max_blocks);
        let is_capture = !matches!(
            found.error,
            Some(ReadError::NotACapture { .. } | ReadError::Compressed { .. })
        );
        let is_new = data.state.bytes == 0;
        if !is_named && (!is_capture || is_new) {
            return;
        }
        self.totals.files += 1;
        self.totals.scanned_files += u64::from(at == 0);
        self.totals.scanned_bytes += found.content_bytes;
        let changed_ns = data.state.modified_ns.max(0).cast_unsigned();
        let is_live = now_ns().saturating_sub(changed_ns) < LIVE_NS;
        if let Some(error) = found.error
            && !(is_live && lacks_end(&error))
        {
            self.damaged(file, &error);
        }
        self.push_blocks(file, data.head, found.blocks);
    }

    fn push_blocks(&mut self, file: usize, head: Sample, blocks: Vec<FoundBlock>) {
        let blocks = blocks.into_iter().map(|block| PendingSearch {
            min_ns: block.entry.min_ns,
            file,
            head,
            what: PendingItem::Block(block),
        });
        self.pending.extend(blocks);
    }

    fn damaged(&mut self, file: usize, error: &ReadError) {
        let message = error.to_string();
        self.fault(file, SearchNote::Damaged { message });
    }

    fn changed(&mut self, file: usize) {
        let name = self.files[file].path.display().to_string();
        self.fault(file, SearchNote::Changed { file: name });
    }

    /// Notes why packets of a file may be missing, once.
    fn fault(&mut self, file: usize, note: SearchNote) {
        if self.failed.insert(file) {
            self.totals.failed_files += 1;
            self.notes.push(note);
        }
    }

    /// Replaces a segment by its blocks, a block by its packets.
    fn expand(&mut self, pending: PendingSearch) {
        let PendingSearch {
            file, head, what, ..
        } = pending;
        let path = &self.files[file].path;
        match what {
            PendingItem::Segment {
                at,
                header,
                candidates,
            } => {
                let index = StoredIndex::open(path);
                let segment = index.as_ref().and_then(|index| index.segment(at, header));
                let blocks = segment.as_ref().and_then(|it| it.blocks(&candidates));
                let (Some(segment), Some(blocks)) = (segment.as_ref(), blocks) else {
                    return self.lost(file, head, &header);
                };
                for (_, entry) in blocks {
                    let what =
                        PendingItem::Block(FoundBlock::from_index(entry, &segment.description));
                    self.pending.push(PendingSearch {
                        min_ns: entry.min_ns,
                        file,
                        head,
                        what,
                    });
                }
            }
            PendingItem::Block(block) => self.read(file, head, block),
        }
    }

    /// Scans what a segment covers whose index was deleted or replaced meanwhile, most often with its file.
    fn lost(&mut self, file: usize, head: Sample, header: &SegmentHeader) {
        let path = &self.files[file].path;
        let data = match CaptureFile::open(path) {
            Ok(data) if data.begins_with(head) => data,
            Ok(_) => return self.changed(file),
            Err(_) => {
                self.totals.vanished_files += 1;
                return;
            }
        };
        let start = ScanStart {
            at: 0,
            description: &[],
            within: header.from..header.to,
            stop: &self.stop,
        };
        let found = scan(
            &data,
            &start,
            &mut self.query,
            IndexSizes::USUAL.segment_blocks,
        );
        self.totals.scanned_bytes += found.content_bytes;
        if found.error.is_some() {
            self.changed(file);
        }
        self.push_blocks(file, head, found.blocks);
    }

    /// Reads the packets of a block.
    fn read(&mut self, file: usize, head: Sample, block: FoundBlock) {
        let path = &self.files[file].path;
        match self.opened.get(file, path) {
            Ok(data) if data.begins_with(head) => {}
            Ok(_) => return self.changed(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.totals.vanished_files += 1;
                return;
            }
            Err(cause) => {
                let name = path.display().to_string();
                return self.damaged(file, &ReadError::Open { file: name, cause });
            }
        }
        self.totals.blocks += 1;
        let max_bytes = (self.max_bytes / 4).min(MAX_RUN_BYTES);
        let (run, end) = match self.opened.block(&block) {
            Ok(reader) => PacketRun::read(reader, &block, &mut self.query, max_bytes),
            Err(_) => (PacketRun::default(), RunEnd::Damaged),
        };
        if run.get(0).is_some() {
            self.held_bytes += run.bytes();
            self.runs.push(ActiveRun {
                run,
                next: 0,
                file,
                content: block.content,
            });
        }
        match end {
            RunEnd::Complete => {}
            // Not all that comes before the block has been read.
            RunEnd::Damaged if self.is_stopped() => {}
            RunEnd::Damaged => self.changed(file),
            RunEnd::Full { read_packets } => {
                let rest = block.without_first(read_packets);
                self.push_blocks(file, head, vec![rest]);
            }
        }
    }
}

/// Whether a file ends within a packet, or within a frame of a compressed file.
fn lacks_end(error: &ReadError) -> bool {
    match error {
        ReadError::Truncated { .. } => true,
        ReadError::Read { cause, .. } => cause.kind() == io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}
