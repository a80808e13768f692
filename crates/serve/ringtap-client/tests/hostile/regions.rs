// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pool with some packets and a reader's control region, in memory that a test can corrupt.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use ringtap_ipc::memfd::SharedMemory;
use ringtap_pool::control::control_bytes;
use ringtap_pool::distributor::{Distributor, ReaderOptions};
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::memory::Region;
use ringtap_pool::source;
use ringtap_pool::view::Pool;
use ringtap_pool::wake::NoSignal;
use ringtap_pool::writer::PacketMeta;
use ringtap_testkit::Script;

const LANES: u32 = 2;
const PACKETS: usize = 30;

/// The two regions of an endpoint.
pub(crate) struct Regions {
    pub(crate) pool: Region,
    pub(crate) control: Region,
    pub(crate) pool_file: File,
    pub(crate) control_file: File,
}

fn memory(bytes: u64) -> (Region, File) {
    let bytes = usize::try_from(bytes).expect("it fits");
    let memory = SharedMemory::create(bytes).expect("a little memory");
    (memory.region, File::from(memory.file))
}

impl Regions {
    /// Makes thirty packets on each of two lanes, delivered to one reader.
    pub(crate) fn new() -> Self {
        let geometry = Geometry::contiguous(4096, 17, LANES, 2000).expect("it can be");
        let (region, pool_file) = memory(geometry.region_bytes());
        let pool = Pool::new(region.clone(), geometry).expect("it is large enough");
        // SAFETY: writable, and not shared yet.
        unsafe { pool.write_header() };
        let (mut writers, mut ends) = (Vec::new(), Vec::new());
        for lane in (0..LANES).map(LaneId) {
            let chunks = source::share(&geometry, lane);
            // SAFETY: writable, and each lane has chunks of its own.
            let (writer, end) = unsafe { source::lane(&pool, lane, chunks, Arc::new(NoSignal)) };
            writers.push(writer);
            ends.push(end);
        }
        let mut distributor = Distributor::new(pool, ends, Arc::new(NoSignal));
        let bytes = u64::try_from(control_bytes(&geometry)).expect("it fits");
        let (control, control_file) = memory(bytes);
        let options = ReaderOptions::default();
        let regions = distributor.add_reader_at(&options, &control, &[0, 0]);
        regions.expect("there is a place");
        for writer in &mut writers {
            for _ in 0..PACKETS {
                let _counted = writer.write(&PacketMeta::default(), [&[7; 200]]);
            }
        }
        let _moved = distributor.step().expect("nobody lied yet");
        Regions {
            pool: region,
            control,
            pool_file,
            control_file,
        }
    }

    /// Writes a wrong value, mostly at an offset that matters.
    pub(crate) fn spoil(&self, script: &mut Script<'_>) {
        let (file, bytes) = match script.byte() % 3 {
            0 => (&self.pool_file, self.pool.bytes()),
            _ => (&self.control_file, self.control.bytes()),
        };
        let at = match script.byte() % 4 {
            // The header and first slots of a chunk, or the words of the control region.
            0 => script.below(17) * 4096 + script.below(64) * 4,
            1 => script.below(64) * 4,
            _ => script.below(bytes / 4) * 4,
        };
        let value = match script.byte() % 4 {
            0 => u64::MAX,
            1 => u64::from(script.byte()),
            _ => script.word(),
        };
        let at = u64::try_from(at % bytes.saturating_sub(8)).expect("it fits");
        file.write_all_at(&value.to_le_bytes(), at)
            .expect("memory of the test");
    }
}
