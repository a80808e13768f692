// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests share: a sender, and tcpdump on the other end.

use std::{
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ringtap_file::FileReader;
use ringtap_testkit::{Finished, LIMIT, Namespace, Running};
use serde_json::Value;
use tempfile::TempDir;

/// The command line under test.
pub(crate) const RINGTAP: &str = env!("CARGO_BIN_EXE_ringtap");

/// A veth pair whose receiving end takes live frames.
pub(crate) fn network(test: &str) -> Namespace {
    let net = Namespace::with_veth(test);
    let gro = net.run("ethtool", &["-K", "rx0", "gro", "on"]);
    let _ = gro.success();
    net
}

/// What the receiving end got, once that is as much as this or long after.
pub(crate) fn received(net: &Namespace, packets: u64) -> u64 {
    let deadline = Instant::now() + LIMIT;
    loop {
        let now = net.counter("rx0", "rx_packets");
        if now >= packets || Instant::now() > deadline {
            return now;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Arguments behind `ringtap send -i tx0`, split at blanks.
fn send_args(args: &str) -> Vec<&str> {
    let mut all = vec!["send", "-i", "tx0"];
    all.extend(args.split_whitespace());
    all
}

/// Starts `ringtap send -i tx0 ARGS`.
pub(crate) fn start(net: &Namespace, args: &str) -> Running {
    net.spawn(RINGTAP, &send_args(args))
}

/// Runs `ringtap send -i tx0 ARGS` to its end.
pub(crate) fn send(net: &Namespace, args: &str) -> Finished {
    start(net, args).wait(LIMIT)
}

/// The last line of `ringtap send -i tx0 --json --quiet ARGS`, which must succeed.
pub(crate) fn figures(net: &Namespace, args: &str) -> Value {
    let end = send(net, &format!("--json --quiet {args}")).success();
    serde_json::from_str(end.stdout.trim()).expect("the final line is JSON")
}

/// What tcpdump writes down at the receiving end.
pub(crate) struct Capture {
    dump: Running,
    folder: TempDir,
}

impl Capture {
    /// Ready to see packets when it returns.
    pub(crate) fn start(net: &Namespace) -> Self {
        let folder = TempDir::new().expect("a folder for the capture");
        let file = folder.path().join("seen.pcap").display().to_string();
        // Large buffers: a packet that tcpdump loses would look like one that was not sent.
        let dump = net.spawn(
            "tcpdump",
            &["-i", "rx0", "-Q", "in", "-B", "65536", "-U", "-w", &file],
        );
        dump.wait_for_stderr("listening on", LIMIT);
        Self { dump, folder }
    }

    /// Waits for this many packets, and a moment more for those that must not be there.
    pub(crate) fn packets(&self, count: usize) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + LIMIT;
        while self.read().len() < count && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(Duration::from_millis(200));
        self.read()
    }

    fn read(&self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        if let Ok(mut reader) = FileReader::open(&self.file()) {
            while let Ok(Some(packet)) = reader.next_packet() {
                packets.push(packet.data.to_vec());
            }
        }
        packets
    }

    fn file(&self) -> String {
        self.path().display().to_string()
    }

    /// Where the capture lies.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("seen.pcap")
    }

    /// What tshark reads in these fields of every packet, checksums verified.
    pub(crate) fn fields(&self, names: &[&str]) -> Vec<Vec<String>> {
        let mut command = Command::new("tshark");
        command.args(["-r", &self.file(), "-T", "fields"]);
        for protocol in ["ip", "udp", "tcp"] {
            command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
        }
        for name in names {
            command.args(["-e", name]);
        }
        let lines = Running::start(command).wait(LIMIT).success().stdout;
        let split = |line: &str| line.split('\t').map(str::to_owned).collect();
        lines.lines().map(split).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.dump.interrupt();
    }
}
