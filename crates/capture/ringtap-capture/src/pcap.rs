// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `pcap` source: packets of a capture file or of standard input, written into a pool.
//!
//! Invariants
//! - Nothing is lost: when no chunk is free the file waits.
//! - What stands before damage in the file is delivered before the damage is reported.

#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::JoinHandle;

use ringtap_filter::{LinkType, Place, Rules};
use ringtap_pool::distributor::{LaneEnds, Policy};
use ringtap_pool::format::{Geometry, GeometryError, MAX_CHUNK_SIZE};
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{self, Counts, Facts, LaneCounts, Source, SourceError, Status};
use ringtap_pool::view::Pool;

use crate::classify::{Judge, Rulebook};
use crate::shape::{PoolAsked, ShapeError};
use ringtap_device::DeviceSpec;
use ringtap_device::Speed;
use ringtap_file::{Pace, ReadError, Reader};
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use writer::{FileWriter, Progress};

/// Bytes of the pool unless the user says otherwise.
const POOL_BYTES: u64 = 64 << 20;
/// The most that libpcap's programs keep of a packet: a chunk of so many packets has room for it.
const LARGEST_PACKET: u32 = 262_144;

/// What to read, and how.
#[derive(Clone, Debug)]
pub struct PcapOptions {
    /// Path of the file; `-` is standard input.
    pub file: String,
    /// How fast.
    pub speed: Speed,
    /// Most bytes kept of a packet.
    pub snap_length: Option<u32>,
    /// The pool and its chunks.
    pub pool: PoolAsked,
}

impl PcapOptions {
    /// All of this file, at top speed, into a pool of the usual size.
    pub fn new(file: impl Into<String>) -> Self {
        PcapOptions {
            file: file.into(),
            speed: Speed::Top,
            snap_length: None,
            pool: PoolAsked::default(),
        }
    }

    /// What a `pcap:` device asks for.
    pub fn from_device(device: &DeviceSpec) -> Self {
        let options = &device.options;
        PcapOptions {
            speed: options.speed.unwrap_or(Speed::Top),
            snap_length: options.snap_length,
            pool: PoolAsked::of(options),
            ..PcapOptions::new(device.name.clone())
        }
    }
}

/// Why a file cannot be a source, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PcapError {
    /// The file cannot be read, or is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Packets of another link type than the first.
    #[error(
        "{file}: packet {packet} is of link type \"{found}\", those before are \"{first}\": \
         split the file by interface, e.g. with tshark -Y frame.interface_id==0 -w"
    )]
    MixedLinkTypes {
        /// The file.
        file: String,
        /// Number of the packet, from 1.
        packet: u64,
        /// Its link type.
        found: LinkType,
        /// The link type of those before.
        first: LinkType,
    },
    /// The pool's sizes cannot be.
    #[error("pool: {0}")]
    Geometry(#[from] GeometryError),
    /// They cannot be as asked for.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The system refused memory, a descriptor or a thread.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A capture file as a source.
pub struct PcapSource {
    facts: Facts,
    pool: Pool,
    pool_file: Arc<OwnedFd>,
    lanes: Vec<LaneEnds>,
    event: Event,
    rulebook: Arc<Rulebook>,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
    outcome: Receiver<Result<(), PcapError>>,
}

impl PcapSource {
    /// Opens the file and begins to read it into the pool.
    ///
    /// Waits for the first packet, which tells the link type.
    ///
    /// # Errors
    ///
    /// Every [`PcapError`] but `MixedLinkTypes`.
    pub fn open(options: &PcapOptions) -> Result<Self, PcapError> {
        let stop = Arc::new(AtomicBool::new(false));
        let reader = Reader::open(&options.file)?.stop_when(Arc::clone(&stop));
        let pace = Pace::new(options.speed, Arc::clone(&stop));
        let event = Event::new().map_err(system("cannot make an event"))?;
        let pool = make_pool(options)?;
        let ids = source::share(pool.writable.geometry(), LaneId(0));
        // SAFETY: `writable` is mapped writable, and this is its only lane.
        let (mut lane, ends) =
            unsafe { source::lane(&pool.writable, LaneId(0), ids, Arc::new(event.clone())) };
        if let Some(packets) = options.pool.chunks.packets {
            lane.limit_packets(packets);
        }
        let rulebook = Arc::new(Rulebook::default());
        let judge = Judge::new(Arc::clone(&rulebook));
        let mut writer = FileWriter::new(reader, lane, judge, pace, Arc::clone(&stop));
        let first = writer.first();
        let progress = writer.progress();
        let facts = facts(options, &writer, pool.readable.geometry().snap_length);
        let (thread, outcome) = run(writer, first, event.clone())?;
        let (lanes, thread) = (vec![ends], Some(thread));
        Ok(PcapSource {
            facts,
            pool: pool.readable,
            pool_file: pool.file,
            lanes,
            event,
            rulebook,
            stop,
            progress,
            thread,
            outcome,
        })
    }
}

fn system(what: &'static str) -> impl Fn(io::Error) -> PcapError {
    move |source| PcapError::System { what, source }
}

fn make_pool(options: &PcapOptions) -> Result<SealedPool, PcapError> {
    let geometry = geometry(options)?;
    SealedPool::create(geometry).map_err(system("cannot make the pool"))
}

fn geometry(options: &PcapOptions) -> Result<Geometry, PcapError> {
    let chunk_bytes = options.pool.chunk_bytes.unwrap_or(MAX_CHUNK_SIZE);
    let most = Geometry::contiguous(chunk_bytes, 3, 1, chunk_bytes)?.max_payload();
    let kept = match (options.snap_length, options.pool.chunks.packets) {
        (Some(snap), _) => snap,
        (None, Some(_)) => LARGEST_PACKET,
        (None, None) => most,
    };
    let kept = kept.min(most);
    let usual = (POOL_BYTES, MAX_CHUNK_SIZE);
    Ok(options.pool.shape(1, kept, usual)?.geometry)
}

fn facts(options: &PcapOptions, writer: &FileWriter, snap_length: u32) -> Facts {
    Facts {
        device: format!("pcap:{}", options.file),
        interface: None,
        link_type: writer.link_type().0,
        snap_length,
        policy: Policy::Block,
        notes: Vec::new(),
        offered_from: "the packets in the file".into(),
    }
}

/// The reading thread, and where its outcome will be told.
type Running = (JoinHandle<()>, Receiver<Result<(), PcapError>>);

fn run(
    mut writer: FileWriter,
    first: Result<(), PcapError>,
    event: Event,
) -> Result<Running, PcapError> {
    let (tell, outcome) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("pcap".into())
        .spawn(move || {
            let result = first.and_then(|()| writer.write_all());
            // Seals what is open before the end is told.
            drop(writer);
            let _gone = tell.send(result);
            ringtap_pool::wake::Signal::signal(&event);
        });
    Ok((thread.map_err(system("cannot start a thread"))?, outcome))
}

impl Source for PcapSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn pool(&self) -> Pool {
        self.pool.clone()
    }

    fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pool_file.as_fd())
    }

    fn take_lanes(&mut self) -> Vec<LaneEnds> {
        std::mem::take(&mut self.lanes)
    }

    fn counts(&mut self) -> Counts {
        let all = self.progress.seen.get().copied();
        let captured = self.progress.lane.captured();
        let unwanted = self.rulebook.unwanted();
        let pool_full = self.progress.lane.pool_full();
        let lane = LaneCounts {
            // As long as the thread works, what it holds and did not publish was not there yet.
            seen: all.unwrap_or(captured + unwanted + pool_full),
            captured,
            bytes: self.progress.lane.bytes(),
            unwanted,
            pool_full,
            kernel: 0,
        };
        Counts {
            lanes: vec![lane],
            nic: 0,
            kernel: 0,
        }
    }

    fn classify(&mut self, rules: &Rules) -> Result<Vec<Place>, SourceError> {
        let link_type = LinkType(self.facts.link_type);
        self.rulebook.set(rules, &self.facts.device, link_type)
    }

    fn status(&mut self) -> Status {
        match self.outcome.try_recv() {
            Ok(Ok(())) | Err(TryRecvError::Disconnected) => Status::Ended,
            Ok(Err(error)) => Status::Failed(SourceError::from(error)),
            Err(TryRecvError::Empty) => Status::Running,
        }
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn clear_wake(&mut self) {
        self.event.clear();
    }

    fn stop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Drop for PcapSource {
    fn drop(&mut self) {
        self.stop();
    }
}
