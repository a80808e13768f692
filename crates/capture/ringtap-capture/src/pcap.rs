// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `pcap` source: packets of a capture file or of standard input, written into a pool.
//!
//! Invariants
//! - Nothing is lost: when no chunk is free the file waits.
//! - Packets before damaged data are delivered before the damage is reported.

#[cfg(test)]
mod tests;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use ringtap_device::{DeviceSpec, Speed};
use ringtap_file::{FileReader, Pace};
use ringtap_filter::MAX_SNAP_LENGTH;
use ringtap_pool::distributor::Policy;
use ringtap_pool::format::{Geometry, MAX_CHUNK_SIZE};
use ringtap_pool::source::{Counts, Facts, Source};

use crate::CaptureError;
use crate::shape::{PoolAsked, ShapeError};
use crate::source::{LaneTotals, SourceSetup, SourceStart, ThreadedDriver};
use writer::FileWriter;

/// Bytes of the pool unless the user says otherwise.
const POOL_BYTES: u64 = 64 << 20;

/// Options of a file source.
#[derive(Clone, Debug)]
pub struct PcapOptions {
    /// Path of the file; `-` is standard input.
    pub file: String,
    /// Replay speed.
    pub speed: Speed,
    /// Maximum number of bytes kept of a packet.
    pub snap_length: Option<u32>,
    /// The pool and its chunks.
    pub pool: PoolAsked,
    /// When the first packet is written.
    pub start: SourceStart,
}

impl PcapOptions {
    /// Reads the whole file at top speed into a pool of the default size.
    pub fn new(file: impl Into<String>) -> Self {
        PcapOptions {
            file: file.into(),
            speed: Speed::TOP,
            snap_length: None,
            pool: PoolAsked::default(),
            start: SourceStart::AtOnce,
        }
    }

    /// The options in a `pcap:` device's text.
    pub fn from_device(device: &DeviceSpec) -> Self {
        let options = &device.options;
        PcapOptions {
            speed: options.speed.unwrap_or(Speed::TOP),
            snap_length: options.snap_length,
            pool: PoolAsked::from_options(options),
            ..PcapOptions::new(device.name.clone())
        }
    }
}

/// Opens a file and begins to read it into the pool.
///
/// Waits for the first packet, which determines the link type.
pub fn open(options: &PcapOptions) -> Result<Source, CaptureError> {
    let stop = Arc::new(AtomicBool::new(false));
    let reader = FileReader::open(&options.file)?.stop_when(Arc::clone(&stop));
    let pace = Pace::new(options.speed, Arc::clone(&stop));
    let geometry = geometry(options)?;
    let mut setup = SourceSetup::new(format!("pcap:{}", options.file), geometry)?;
    let lane = setup.lane(options.pool.chunks.packets)?;
    let (writer, classifier) = (lane.writer, lane.classifier);
    let mut writer = FileWriter::new(reader, writer, classifier, pace, Arc::clone(&stop));
    let first = writer.first(options.start);
    let driver = FileDriver {
        offered: writer.offered(),
        unfit_times: writer.unfit_times(),
        totals: lane.totals,
        stop,
    };
    let facts = facts(options, &writer, geometry.snap_length);
    let work = move || first.and_then(|()| writer.write_all());
    setup.start(
        facts,
        Box::new(driver),
        vec![("pcap".into(), Box::new(work))],
    )
}

/// Opens a device of this kind.
pub(crate) fn open_device(device: &DeviceSpec, start: SourceStart) -> Result<Source, CaptureError> {
    let options = PcapOptions::from_device(device);
    open(&PcapOptions { start, ..options })
}

fn geometry(options: &PcapOptions) -> Result<Geometry, CaptureError> {
    let chunk_bytes = options.pool.chunk_bytes.unwrap_or(MAX_CHUNK_SIZE);
    let most = Geometry::contiguous(chunk_bytes, 3, 1, chunk_bytes)
        .map_err(ShapeError::from)?
        .max_payload();
    let kept = match (options.snap_length, options.pool.chunks.packets) {
        (Some(snap), _) => snap,
        (None, Some(_)) => MAX_SNAP_LENGTH,
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
        offered_from: "the packets in the file".into(),
        ..Facts::default()
    }
}

/// The file's part of the source.
struct FileDriver {
    /// Packets read from the file, once the thread has ended.
    offered: Arc<OnceLock<u64>>,
    /// Packets whose time does not fit, once the thread has ended and until the note on them is taken.
    unfit_times: Arc<AtomicU64>,
    totals: LaneTotals,
    stop: Arc<AtomicBool>,
}

impl ThreadedDriver for FileDriver {
    fn counts(&mut self) -> Counts {
        // Before the other counters: they are final once this one is set.
        let offered = self.offered.get().copied();
        let mut lane = self.totals.counts();
        lane.offered = offered.unwrap_or(lane.offered);
        Counts {
            lanes: vec![lane],
            ..Counts::default()
        }
    }

    fn stop(&mut self) {
        self.stop.store(true, Relaxed);
    }

    fn take_notes(&mut self) -> Vec<String> {
        match self.unfit_times.swap(0, Relaxed) {
            0 => Vec::new(),
            packets => vec![format!(
                "{packets} packets of the file have times before 1970 or after 2554, which Ringtap cannot hold: \
                 they count as the first and the last time that it can"
            )],
        }
    }
}
