// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bridge between two hosts, and its readers.

use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use ringtap_testkit::Ends;
pub(crate) use ringtap_testkit::LIMIT;
use ringtap_testkit::{Running, Wire as Hosts};
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// The hosts and their wires, and a folder for the hub's socket.
pub(crate) struct Wire {
    hosts: Hosts,
    folder: TempDir,
}

impl Deref for Wire {
    type Target = Hosts;

    fn deref(&self) -> &Hosts {
        &self.hosts
    }
}

impl Wire {
    /// All interfaces have this MTU.
    pub(crate) fn new(test: &str, mtu: u32, ends: Ends) -> Self {
        Wire {
            hosts: Hosts::new(test, mtu, ends),
            folder: TempDir::new().expect("a folder can be made"),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("hub.sock")
    }

    /// A bridge that forwards when this returns.
    pub(crate) fn bridge(&self, args: &[&str]) -> Running {
        let mut all = vec!["bridge", "a1", "b1", "--json", "--quiet"];
        all.extend(args);
        let bridge = self.middle.spawn(BINARY, &all);
        bridge.wait_for_stderr("bridge of a1 and b1", LIMIT);
        bridge
    }

    /// The same, with a reader that counts what is mirrored.
    pub(crate) fn mirrored(&self, args: &[&str]) -> (Running, Running) {
        let socket = self.socket();
        let path = socket.display().to_string();
        let mut all = vec!["--mirror", "wire", "--socket", &path];
        all.extend(args);
        let bridge = self.bridge(&all);
        let device = format!("hub:wire?socket={path}");
        let reader = self
            .middle
            .spawn(BINARY, &["count", "-q", "--json", "-i", &device]);
        // Its subscription is the hub's first.
        for _ in 0..600 {
            let status = self.middle.run(BINARY, &["status", "--socket", &path]);
            if status.stdout.contains("\"name\":\"count\"") {
                return (bridge, reader);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the reader got no subscription");
    }

    /// A bridge that asks a reader of the group `ips`.
    pub(crate) fn inline_bridge(&self, args: &[&str]) -> Running {
        let path = self.socket().display().to_string();
        let mut all = vec!["--inline", "ips", "--socket", &path];
        all.extend(args);
        self.bridge(&all)
    }

    /// The group of the inline reader, as a device.
    pub(crate) fn inline_group(&self) -> String {
        format!("hub:ips?socket={}", self.socket().display())
    }

    /// A process that decides about the bridge's packets when this returns.
    pub(crate) fn inline_reader(&self, args: &[&str]) -> Running {
        let device = self.inline_group();
        let mut all = vec!["inline", "--json", "-i", &device];
        all.extend(args);
        let reader = self.middle.spawn(BINARY, &all);
        reader.wait_for_stderr("ringtap: deciding", LIMIT);
        reader
    }
}

/// The last two lines of a bridge: the counters of a1>b1 and of b1>a1.
pub(crate) fn counters(bridge: Running) -> [serde_json::Value; 2] {
    bridge.interrupt();
    let end = bridge.wait(LIMIT);
    assert!(end.status.success(), "{}{}", end.stdout, end.stderr);
    let parse = |line: &str| serde_json::from_str(line).expect("a line of JSON");
    let mut last = end.stdout.lines().rev().map(parse);
    let back = last.next().expect("two counters");
    let forth = last.next().expect("two counters");
    [forth, back]
}
