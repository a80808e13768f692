// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub on a source whose packets the test writes.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex};

use ringtap_hub::access::Access;
use ringtap_hub::server::Server;
use ringtap_hub::{Group, Hub, HubOptions};
use ringtap_ipc::event::Event;
use ringtap_ipc::memfd::SealedPool;
use ringtap_ipc::protocol::HubStatus;
use ringtap_ipc::socket::Listener;
use ringtap_pool::distributor::LaneEnds;
use ringtap_pool::format::Geometry;
use ringtap_pool::ids::LaneId;
use ringtap_pool::source::{self, Counts, Facts, LaneCounts, Source, Status};
use ringtap_pool::view::Pool;
use ringtap_pool::writer::{LaneWriter, PacketMeta};

/// Bytes of a packet.
const PACKET_BYTES: usize = 60;

/// The source; it leaves filters to the readers.
struct Fed {
    facts: Facts,
    pool: SealedPool,
    lanes: Vec<LaneEnds>,
    event: Event,
    captured: Arc<AtomicU64>,
}

/// The hub with its groups `all` and `more`, and the writer of its packets.
pub(super) struct Feeder {
    writer: Mutex<LaneWriter>,
    captured: Arc<AtomicU64>,
    _server: Server,
    hub: Hub,
    folder: tempfile::TempDir,
}

impl Feeder {
    pub(super) fn new() -> Self {
        Feeder::start(tempfile::tempdir().unwrap())
    }

    /// Ends the hub.
    pub(super) fn end(self) -> tempfile::TempDir {
        self.folder
    }

    /// A hub in the folder of one that ended.
    pub(super) fn start(folder: tempfile::TempDir) -> Self {
        let geometry = Geometry::contiguous(4096, 257, 1, 1500).unwrap();
        let pool = SealedPool::create(geometry).unwrap();
        let event = Event::new().unwrap();
        let chunks = source::share(&geometry, LaneId(0));
        let signal = Arc::new(event.clone());
        // SAFETY: mapped writable, made just now, and this is its only lane.
        let (writer, ends) = unsafe { source::lane(&pool.writable, LaneId(0), chunks, signal) };
        let captured = Arc::new(AtomicU64::new(0));
        let source = Fed {
            facts: Facts {
                device: "fed".into(),
                link_type: 1,
                snap_length: 1500,
                ..Facts::default()
            },
            pool,
            lanes: vec![ends],
            event,
            captured: Arc::clone(&captured),
        };
        let groups = vec![Group::new("all"), Group::new("more")];
        let options = HubOptions::default();
        let (hub, _) = Hub::start(vec![Box::new(source)], groups, options, Vec::new()).unwrap();
        let listener = Listener::bind(&folder.path().join("hub.sock")).unwrap();
        let access = vec![Access::default(), Access::default()];
        Feeder {
            writer: Mutex::new(writer),
            captured,
            _server: Server::open(listener, &hub, access).unwrap(),
            hub,
            folder,
        }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("hub.sock")
    }

    /// Captures this many packets of one byte.
    pub(super) fn write(&self, packets: u64, byte: u8) {
        let mut writer = self.writer.lock().unwrap();
        let meta = PacketMeta {
            wire_length: 60,
            ..PacketMeta::default()
        };
        for _ in 0..packets {
            writer.stage(&meta, [&[byte; PACKET_BYTES][..]]).unwrap();
            self.captured.fetch_add(1, Release);
        }
        writer.publish();
    }

    pub(super) fn status(&self) -> HubStatus {
        self.hub.handle().status().unwrap()
    }
}

impl Source for Fed {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn pool(&self) -> Pool {
        self.pool.readable.clone()
    }

    fn pool_file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pool.file.as_fd())
    }

    fn take_lanes(&mut self) -> Vec<LaneEnds> {
        std::mem::take(&mut self.lanes)
    }

    fn counts(&mut self) -> Counts {
        let captured = self.captured.load(Acquire);
        Counts {
            lanes: vec![LaneCounts {
                offered: captured,
                captured,
                ..LaneCounts::default()
            }],
            ..Counts::default()
        }
    }

    fn status(&mut self) -> Status {
        Status::Running
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn clear_wake(&mut self) {
        self.event.clear();
    }

    fn stop(&mut self) {}
}
