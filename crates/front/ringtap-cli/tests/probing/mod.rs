// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running probe with a file and a socket of its own, for tests that change it or watch it.

use std::process::Command;

use ringtap_testkit::{Finished, LIMIT, Namespace, Running, settle_everywhere};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// A probe of `rx0` with two workers; its file is `probe.toml` in the folder.
pub(crate) struct RunningProbe {
    pub(crate) net: Namespace,
    pub(crate) folder: TempDir,
    pub(crate) running: Running,
}

impl RunningProbe {
    /// Starts this copy of the program as a probe with these words for device and rights, and does not
    /// wait for it.
    pub(crate) fn spawn(
        program: &str,
        name: &str,
        words: &[&str],
        folder: TempDir,
        config: &str,
    ) -> Self {
        RunningProbe::spawn_by(Command::new(program), name, words, folder, config)
    }

    /// As [`RunningProbe::spawn`]; `command` starts the program.
    pub(crate) fn spawn_by(
        command: Command,
        name: &str,
        words: &[&str],
        folder: TempDir,
        config: &str,
    ) -> Self {
        let net = Namespace::with_veth(name);
        let (file, socket) = (folder.path().join("probe.toml"), folder.path().join("ctl"));
        std::fs::write(&file, config).expect("a file of the test");
        let (file, socket) = (file.display().to_string(), socket.display().to_string());
        let first = ["probe", "--workers", "2", "--json", "--config", &file];
        let last = ["--control", &socket, "udp"];
        let mut inside = net.command(command.get_program());
        inside.args(command.get_args());
        for (name, value) in command.get_envs() {
            inside.env(name, value.unwrap_or_default());
        }
        inside.args([&first, words, &last].concat());
        let running = Running::start(inside);
        RunningProbe {
            net,
            folder,
            running,
        }
    }

    /// Waits until the probe measures.
    pub(crate) fn started(self) -> Self {
        self.running.wait_for_stderr("ringtap: probe of", LIMIT);
        self
    }

    pub(crate) fn ctl(&self, words: &[&str]) -> Finished {
        let mut command = Command::new(BINARY);
        command.args(["probe", "ctl", "--control"]);
        command.arg(self.folder.path().join("ctl")).args(words);
        Running::start(command).wait(LIMIT)
    }

    pub(crate) fn status(&self) -> Value {
        let status = self.ctl(&["status"]).success();
        serde_json::from_str(&status.stdout).expect("an object")
    }

    /// Sends datagrams of flows 0 to 49, one of each in turn, `times` times.
    pub(crate) fn send(&self, times: usize) {
        let frames = (0..times).flat_map(|_| (0..50).map(datagram));
        self.net.inject("tx0", &frames.collect::<Vec<_>>());
    }

    /// Ends the probe; returns all objects that it printed.
    pub(crate) fn end(self) -> Vec<Value> {
        settle_everywhere();
        self.running.interrupt();
        let end = self.running.wait(LIMIT).success();
        let lines = end.stdout.lines().map(serde_json::from_str);
        lines
            .map(|line| line.expect("each line is one object"))
            .collect()
    }
}

pub(crate) fn of_type<'a>(objects: &'a [Value], of_type: &str) -> Vec<&'a Value> {
    let objects = objects.iter();
    objects.filter(|object| object["type"] == of_type).collect()
}

/// An Ethernet frame with a UDP datagram of one of many flows.
fn datagram(flow: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46];
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, flow, 10, 0, 1, 2]);
    frame.extend([0x20, flow, 0, 99, 0, 26, 0, 0]);
    frame.resize(60, 7);
    frame
}
