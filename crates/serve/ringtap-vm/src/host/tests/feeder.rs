// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub on a source whose packets the test writes.

#[path = "../../../../ringtap-hub/tests/shared/fed.rs"]
mod fed;

use std::path::PathBuf;

use fed::{FedSource, Feed};
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{Group, Hub, HubOptions};
use ringtap_ipc::protocol::HubStatus;
use ringtap_ipc::socket::Listener;

/// The hub with its groups `all` and `more`, and the writer of its packets.
pub(super) struct Feeder {
    feed: Feed,
    _server: Server,
    hub: Hub,
    folder: tempfile::TempDir,
}

impl Feeder {
    pub(super) fn new() -> Self {
        Feeder::start(tempfile::tempdir().unwrap())
    }

    /// Ends the hub, as a signal that it handles does: readers get the end before the server leaves.
    pub(super) fn end(self) -> tempfile::TempDir {
        let Feeder {
            _server,
            hub,
            folder,
            ..
        } = self;
        hub.handle().stop();
        // As the program does, for readers that have packets left.
        let until = std::time::Instant::now() + ringtap_testkit::LIMIT;
        while !hub.handle().status().unwrap().readers.is_empty() {
            assert!(std::time::Instant::now() < until, "a reader stays");
        }
        drop(hub);
        folder
    }

    /// Ends the hub as `kill -9` does: the connections end.
    pub(super) fn kill(self) -> tempfile::TempDir {
        self.folder
    }

    /// A hub in the folder of one that ended.
    pub(super) fn start(folder: tempfile::TempDir) -> Self {
        let groups = vec![Group::new("all"), Group::new("more")];
        let (source, feed) = FedSource::new(256);
        let options = HubOptions::default();
        let (hub, _) = Hub::start(vec![source.into()], groups, options, Vec::new()).unwrap();
        let listener = Listener::bind(&folder.path().join("hub.sock")).unwrap();
        Feeder {
            feed,
            _server: Server::open(listener, &hub, ServerOptions::default()).unwrap(),
            hub,
            folder,
        }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("hub.sock")
    }

    /// Replaces the groups as a reload of the configuration does.
    pub(super) fn replace_groups(&self, groups: Vec<Group>) {
        let notes = self.hub.handle().replace_groups(groups);
        assert_eq!(notes.unwrap(), Vec::<String>::new());
    }

    /// Captures this many packets of one byte.
    pub(super) fn write(&self, packets: u64, byte: u8) {
        self.feed.write(packets, byte);
    }

    pub(super) fn status(&self) -> HubStatus {
        self.hub.handle().status().unwrap()
    }
}
