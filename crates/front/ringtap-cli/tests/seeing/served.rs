// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hub in this process that reads a slow capture file, and its socket.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ringtap_capture::pcap::{self, PcapOptions};
use ringtap_device::Speed;
use ringtap_hub::{
    Group, Hub, HubOptions,
    server::{Server, ServerOptions},
};
use ringtap_ipc::{protocol::HubStatus, socket::Listener};
pub(crate) use ringtap_testkit::LIMIT;
use ringtap_testkit::{Finished, Running};
use tempfile::TempDir;

const PACKETS: u32 = 50_000;

/// Ends server and hub when dropped.
pub(crate) struct ServedFile {
    server: Option<Server>,
    hub: Option<Hub>,
    folder: TempDir,
}

impl ServedFile {
    /// Two hundred packets a second, for longer than any test takes.
    pub(crate) fn open() -> Self {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("in.pcap");
        write_capture(&file);
        let source = pcap::open(&PcapOptions {
            speed: "200pps".parse::<Speed>().expect("a speed"),
            ..PcapOptions::new(file.display().to_string())
        });
        let source = source.expect("a capture file");
        let groups = vec![Group::new("all")];
        let hub = Hub::start(vec![source], groups, HubOptions::default(), Vec::new());
        let (hub, _) = hub.expect("a hub");
        let listener = Listener::bind(&folder.path().join("hub.sock")).expect("a socket");
        let server = Server::open(listener, &hub, ServerOptions::default()).expect("a server");
        ServedFile {
            server: Some(server),
            hub: Some(hub),
            folder,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("hub.sock")
    }

    /// The hub ends, as if it were killed.
    pub(crate) fn close(&mut self) {
        self.server.take();
        self.hub.take();
    }

    /// Runs a verb against this hub.
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        Running::start(command(&self.socket(), args)).wait(LIMIT)
    }
}

pub(crate) fn command(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringtap"));
    command.args(args).arg("--socket").arg(socket);
    command
}

/// What a verb says of the hub at this socket.
pub(crate) fn seen(socket: &Path, verb: &[&str]) -> Finished {
    Running::start(command(socket, verb)).wait(LIMIT)
}

/// The hub's counters, once they are as wanted.
#[track_caller]
pub(crate) fn status_when(socket: &Path, wanted: impl Fn(&HubStatus) -> bool) -> HubStatus {
    let deadline = Instant::now() + LIMIT;
    loop {
        let end = seen(socket, &["status"]);
        if let Ok(status) = serde_json::from_str(&end.stdout)
            && wanted(&status)
        {
            return status;
        }
        assert!(Instant::now() < deadline, "{} {}", end.stdout, end.stderr);
        thread::sleep(Duration::from_millis(50));
    }
}

fn write_capture(path: &Path) {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1]);
    for number in 0..PACKETS {
        bytes.extend(words(&[number, 0, 60, 60]));
        bytes.resize(bytes.len() + 60, 7);
    }
    fs::write(path, bytes).expect("a file of the test");
}
