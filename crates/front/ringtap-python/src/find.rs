// SPDX-License-Identifier: MIT OR Apache-2.0
//! A search of recordings: packets that pass a filter, in the order of their times.
//!
//! Invariants
//! - A thread of the search waits while [`PARTS`] parts wait for Python, so memory is bounded.
//! - The thread ends soon after the search was closed, was interrupted by a signal, or has no reader left.
//! - Lanes of found packets are numbers of their origins: a file and one of its interfaces.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ringtap::{LaneId, Slot, flag};
use ringtap_columns::{CopiedPackets, LaneLinks, TakenPackets};
use ringtap_file::PacketDirection;
use ringtap_filter::LinkType;
use ringtap_index::{FilterTarget, FoundRecord, Search, SearchRequest, SearchTotals};
use ringtap_packet::CommunityId;

use crate::batch::{ColumnChoice, NativeBatch};
use crate::errors::FilterError;
use crate::source::{
    PacketSource, PartsTaken, TakeError, TakeStep, require_own_process, take_batch,
};
use crate::stream::{ArrowStream, PacketStream, StreamChoice};

/// Parts that wait for Python.
const PARTS: usize = 2;
/// Packets, bytes and time after which a part is given on.
const PART_PACKETS: usize = 8192;
const PART_BYTES: usize = 1 << 20;
const PART_TIME: Duration = Duration::from_millis(100);

/// Where packets were found.
#[derive(Clone, PartialEq, Eq, Hash)]
struct CaptureOrigin {
    file: PathBuf,
    /// Number of the section of the file, and name of the interface.
    section: u32,
    interface: Option<String>,
    link_type: LinkType,
}

/// What the thread of a search and its readers share.
struct SharedSearch {
    parts: Mutex<Receiver<TakenPackets>>,
    progress: Arc<Mutex<SearchProgress>>,
    /// Ends the thread.
    stop: Arc<AtomicBool>,
    process: u32,
}

impl Drop for SharedSearch {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// A search so far.
#[derive(Default)]
struct SearchProgress {
    origins: Vec<CaptureOrigin>,
    /// Those of the origins; absent after a new one.
    links: Option<Arc<LaneLinks>>,
    notes: Vec<String>,
    faults: u64,
    totals: SearchTotals,
    has_ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PacketSource for SharedSearch {
    fn step(&self, taking: &mut PartsTaken, until: Instant) -> Result<TakeStep, TakeError> {
        require_own_process("the search", self.process)?;
        let parts = lock(&self.parts);
        while taking.count < taking.packets {
            if self.stop.load(Relaxed) {
                return Err(TakeError::Closed("the search is closed".to_owned()));
            }
            let left = until.saturating_duration_since(Instant::now());
            match parts.recv_timeout(left) {
                Ok(part) => taking.push(part),
                Err(RecvTimeoutError::Timeout) => return Ok(TakeStep::Looked),
                Err(RecvTimeoutError::Disconnected) if self.stop.load(Relaxed) => {}
                Err(RecvTimeoutError::Disconnected) if !lock(&self.progress).has_ended => {
                    return Err(TakeError::Panic);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(TakeStep::Ended),
            }
        }
        Ok(TakeStep::Enough)
    }

    fn links(&self) -> Arc<LaneLinks> {
        let mut progress = lock(&self.progress);
        let links = progress.links.take().unwrap_or_else(|| {
            let types = progress.origins.iter().map(|origin| origin.link_type);
            LaneLinks::from_link_types(types).into()
        });
        Arc::clone(progress.links.insert(links))
    }

    fn interrupted(&self) {
        self.stop.store(true, Relaxed);
    }
}

/// The thread that searches.
struct SearchThread {
    search: Search,
    to: SyncSender<TakenPackets>,
    progress: Arc<Mutex<SearchProgress>>,
    lanes: HashMap<CaptureOrigin, LaneId>,
    part: CopiedPackets,
    begun: Instant,
}

impl SearchThread {
    /// Searches to the end, or until no reader is left.
    fn run(mut self) {
        // The lane of the packet before, whose origin is mostly that of the next one, too.
        let mut last: Option<(CaptureOrigin, LaneId)> = None;
        let mut sequence = 0;
        while let Some(packet) = self.search.next_packet() {
            let lane = match &last {
                Some((origin, lane)) if origin.is_of(&packet) => *lane,
                _ => {
                    let origin = CaptureOrigin::of(&packet);
                    let lane = lane_of(&mut self.lanes, &self.progress, &origin);
                    last = Some((origin, lane));
                    lane
                }
            };
            if self.part.is_empty() {
                self.begun = Instant::now();
            }
            self.part
                .push(lane, slot_of(&packet), sequence, packet.data);
            sequence += 1;
            let is_full = self.part.len() >= PART_PACKETS || self.part.bytes() >= PART_BYTES;
            if (is_full || self.begun.elapsed() >= PART_TIME) && !self.give_on() {
                return;
            }
        }
        if self.give_on() {
            lock(&self.progress).has_ended = true;
        }
    }

    /// Gives the part on; false if no reader is left.
    fn give_on(&mut self) -> bool {
        let mut progress = lock(&self.progress);
        progress.totals = self.search.totals();
        for note in self.search.take_notes() {
            progress.faults += u64::from(note.is_fault());
            progress.notes.push(note.to_string());
        }
        drop(progress);
        let part = std::mem::take(&mut self.part);
        part.is_empty() || self.to.send(part.into()).is_ok()
    }
}

impl CaptureOrigin {
    fn of(packet: &FoundRecord<'_>) -> Self {
        CaptureOrigin {
            file: packet.file.to_owned(),
            section: packet.interface.section,
            interface: packet.interface.name.clone(),
            link_type: packet.interface.link_type,
        }
    }

    fn is_of(&self, packet: &FoundRecord<'_>) -> bool {
        self.section == packet.interface.section
            && self.link_type == packet.interface.link_type
            && self.interface == packet.interface.name
            && self.file == packet.file
    }
}

fn lane_of(
    lanes: &mut HashMap<CaptureOrigin, LaneId>,
    progress: &Mutex<SearchProgress>,
    origin: &CaptureOrigin,
) -> LaneId {
    if let Some(lane) = lanes.get(origin) {
        return *lane;
    }
    let lane = LaneId(u32::try_from(lanes.len()).unwrap_or(u32::MAX));
    lanes.insert(origin.clone(), lane);
    let mut progress = lock(progress);
    progress.origins.push(origin.clone());
    progress.links = None;
    lane
}

fn slot_of(packet: &FoundRecord<'_>) -> Slot {
    Slot {
        time_ns: packet.time_ns,
        wire_length: packet.wire_length,
        captured_length: u32::try_from(packet.data.len()).unwrap_or(u32::MAX),
        flags: match packet.direction {
            PacketDirection::Outbound => flag::OUT,
            _ => 0,
        },
        ..Slot::default()
    }
}

/// A search, and what Python asks of it.
#[pyclass(name = "NativeSearch", module = "ringtap", frozen)]
pub(crate) struct NativeSearch(Arc<SharedSearch>);

/// Starts a search of files and folders. Times are nanoseconds since 1970.
#[pyfunction]
pub(crate) fn find(
    paths: Vec<PathBuf>,
    filter: &str,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    inner: bool,
    community_id: Option<&str>,
) -> PyResult<NativeSearch> {
    let community_id = community_id.map(str::parse::<CommunityId>).transpose();
    let community_id = community_id.map_err(|error| PyValueError::new_err(error.to_string()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let request = SearchRequest {
        stop: Arc::clone(&stop),
        target: if inner {
            FilterTarget::Innermost
        } else {
            FilterTarget::Outer
        },
        community_id,
        from_ns: start_ns.unwrap_or(0),
        to_ns: end_ns.unwrap_or(u64::MAX),
        ..SearchRequest::new(paths, filter)
    };
    let search = Search::new(request).map_err(|error| FilterError::new_err(error.to_string()))?;
    let (to, parts) = sync_channel(PARTS);
    let progress = Arc::default();
    let thread = SearchThread {
        search,
        to,
        progress: Arc::clone(&progress),
        lanes: HashMap::new(),
        part: CopiedPackets::default(),
        begun: Instant::now(),
    };
    let builder = std::thread::Builder::new().name("find".to_owned());
    builder.spawn(move || thread.run())?;
    Ok(NativeSearch(Arc::new(SharedSearch {
        parts: Mutex::new(parts),
        progress,
        stop,
        process: std::process::id(),
    })))
}

#[pymethods]
impl NativeSearch {
    /// The next batch; None at the end. After `timeout` seconds it has fewer packets than asked for, or none.
    fn take(
        &self,
        python: Python<'_>,
        packets: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<Option<NativeBatch>> {
        take_batch(python, &*self.0, packets, timeout)
    }

    /// The packets as a stream of record batches.
    fn stream(&self, options: StreamChoice, columns: ColumnChoice) -> PyResult<ArrowStream> {
        let source = Arc::clone(&self.0);
        Ok(PacketStream::python(source, options.with(&columns)?))
    }

    /// Ends the search, also while it finds nothing.
    fn close(&self) {
        self.0.stop.store(true, Relaxed);
    }

    /// File and interface of the packets of each lane.
    fn origins(&self) -> Vec<(PathBuf, Option<String>)> {
        let progress = lock(&self.0.progress);
        let origins = progress.origins.iter();
        origins
            .map(|origin| (origin.file.clone(), origin.interface.clone()))
            .collect()
    }

    /// What the user should know so far, and how many of these notes say that packets may be missing.
    fn notes(&self) -> (Vec<String>, u64) {
        let progress = lock(&self.0.progress);
        (progress.notes.clone(), progress.faults)
    }

    /// The totals so far: name and number.
    fn totals(&self) -> [(&'static str, u64); 8] {
        let totals = lock(&self.0.progress).totals;
        [
            ("packets", totals.packets),
            ("bytes", totals.bytes),
            ("files", totals.files),
            ("scanned_files", totals.scanned_files),
            ("scanned_bytes", totals.scanned_bytes),
            ("blocks", totals.blocks),
            ("vanished_files", totals.vanished_files),
            ("failed_files", totals.failed_files),
        ]
    }
}
