// SPDX-License-Identifier: MIT OR Apache-2.0
//! A filter on bytes behind the snap length selects what tcpdump selects from the whole packets, at
//! every source.
//!
//! A live tcpdump is no measure: for a moment after its start its filter sees packets that are cut already.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_file::FileReader;
use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");
const SNAP: &str = "37";
const FILTER: &str = "udp port 53 and ether[80] & 1 = 1";

/// A UDP packet whose byte 80 and last byte are this number.
fn packet(number: u8) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    bytes.extend([0x45, 0, 0, 106, 0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 53, 0, 86, 0, 0]);
    bytes.resize(120, 0);
    (bytes[30], bytes[80]) = (number, number);
    bytes
}

/// Bytes and lengths on the wire of a file's packets.
fn packets(file: &Path) -> Vec<(Vec<u8>, u32)> {
    let mut reader = FileReader::open(file.to_str().expect("text")).expect("it is written");
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().expect("it is whole") {
        packets.push((packet.data.to_vec(), packet.wire_length));
    }
    packets
}

/// A file of all packets, and what tcpdump selects from it, cut to the snap length.
fn expected(folder: &TempDir) -> (PathBuf, Vec<(Vec<u8>, u32)>) {
    let (all, selected) = (
        folder.path().join("all.pcap"),
        folder.path().join("selected.pcap"),
    );
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, 1]);
    for number in 0..100 {
        bytes.extend(words(&[number.into(), 0, 120, 120]));
        bytes.extend(packet(number));
    }
    std::fs::write(&all, bytes).expect("a file of the test");
    let mut command = Command::new("tcpdump");
    command
        .arg("-r")
        .arg(&all)
        .arg("-w")
        .arg(&selected)
        .arg(FILTER);
    let _words = Running::start(command).wait(LIMIT).success();
    let cut = |(bytes, wire): (Vec<u8>, u32)| (bytes[..37].to_vec(), wire);
    let packets: Vec<_> = packets(&selected).into_iter().map(cut).collect();
    assert_eq!(packets.len(), 50);
    (all, packets)
}

#[test]
fn live_sources_record_what_tcpdump_selects_from_whole_packets() {
    require_root!();
    require_tool!("ip", "python3", "tcpdump");
    let folder = TempDir::new().expect("a folder");
    let (_, expected) = expected(&folder);
    for device in [
        "tap:rx0?direction=in",
        "packet:rx0?direction=in",
        "xdp:rx0?mode=generic",
    ] {
        let net = Namespace::with_veth("snap-live");
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("kept");
        let mut command = net.command(BINARY);
        command.args(["record", "-i", device, "-s", SNAP, "-c", "50", "-w"]);
        command.arg(&file).arg(FILTER);
        let recorder = Running::start(command);
        // The recorder creates its file once it captures.
        let deadline = Instant::now() + LIMIT;
        while !file.exists() {
            assert!(Instant::now() < deadline, "{device}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let sent: Vec<_> = (0..100).map(packet).collect();
        net.inject("tx0", &sent);
        let _counters = recorder.wait(LIMIT).success();
        let mut kept = packets(&file);
        kept.sort();
        assert_eq!(kept, expected, "{device}");
    }
}

#[test]
fn a_file_is_filtered_whole_from_its_first_packet_on() {
    require_tool!("tcpdump");
    let folder = TempDir::new().expect("a folder");
    let (all, expected) = expected(&folder);
    let kept = folder.path().join("kept.pcapng");
    let mut command = Command::new(BINARY);
    command
        .arg("record")
        .arg("-r")
        .arg(&all)
        .args(["-s", SNAP, "-w"])
        .arg(&kept);
    command.arg(FILTER);
    let _counters = Running::start(command).wait(LIMIT).success();
    assert_eq!(packets(&kept), expected);
}

#[test]
fn a_filter_that_the_capture_cannot_run_is_said_to_run_in_the_reader() {
    require_root!();
    for (filter, is_said) in [("ip protochain 99", true), ("udp", false)] {
        let net = Namespace::with_veth("snap-place");
        let args = ["count", "-i", "tap:rx0", "--duration", "0.1", filter];
        let end = net.run(BINARY, &args).success();
        let said = end.stderr.contains("the reader runs the filter");
        assert_eq!(said, is_said, "{}", end.stderr);
    }
}
