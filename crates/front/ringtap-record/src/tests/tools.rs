// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other tools read our files packet for packet.

use std::{
    fmt::Write,
    process::{Command, Stdio},
};

use ringtap_file::PacketDirection;
use ringtap_testkit::require_tool;
use tempfile::TempDir;

use super::{Kept, packets, read, write};

pub(super) fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .env("TZ", "UTC")
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {complaints}");
    assert!(!complaints.contains("cut short"), "{complaints}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn tshark_sees_the_same_packets() {
    require_tool!("tshark");
    let folder = TempDir::new().unwrap();
    let sent = packets(600, 300);
    let path = write(&folder, "a.pcapng", &sent);
    let mut args = vec!["-r", &path, "-T", "fields", "-o", "ip.defragment:FALSE"];
    for field in [
        "frame.time_epoch",
        "frame.len",
        "frame.cap_len",
        "frame.packet_flags_direction",
        "frame.drop_count",
        "frame.interface_name",
    ] {
        args.extend(["-e", field]);
    }
    let seen = output("tshark", &args);
    let mut wanted = String::new();
    for packet in &sent {
        let flags = match packet.direction {
            PacketDirection::Inbound => "0x00000001",
            PacketDirection::Outbound => "0x00000002",
            PacketDirection::Unknown => "",
        };
        let lost = match packet.dropped_before {
            0 => String::new(),
            count => count.to_string(),
        };
        let (seconds, ns) = (
            packet.time_ns / 1_000_000_000,
            packet.time_ns % 1_000_000_000,
        );
        let lengths = (packet.wire_length, packet.data.len());
        writeln!(
            wanted,
            "{seconds}.{ns:09}\t{}\t{}\t{flags}\t{lost}\teth0",
            lengths.0, lengths.1
        )
        .unwrap();
    }
    for (line, (seen, wanted)) in seen.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(seen, wanted, "packet {line}");
    }
    assert_eq!(seen.lines().count(), sent.len());
}

#[test]
fn capinfos_names_interface_filter_program_and_drops() {
    require_tool!("capinfos");
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "a.pcapng", &packets(33, 100));
    let told = output("capinfos", &[&path]);
    for wanted in [
        "File type:           Wireshark/... - pcapng",
        "File timestamp precision:  nanoseconds (9)",
        "Number of packets:   33",
        concat!("Capture application: ringtap ", env!("CARGO_PKG_VERSION")),
        "Name = eth0",
        "Filter string = tcp port 80",
        "Capture length = 2000",
        "Number of stat entries = 1",
    ] {
        assert!(told.contains(wanted), "{wanted:?} is not in\n{told}");
    }
}

#[test]
fn tshark_reads_the_counters_in_the_statistics_block() {
    require_tool!("tshark");
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "a.pcapng", &packets(3, 100));
    // Reads the file as blocks instead of packets.
    let told = output(
        "tshark",
        &["-r", &path, "-X", "read_format:MIME Files Format", "-V"],
    );
    for wanted in [
        "Number of Received Packets = 115",
        "Number of Dropped Packets = 1",
        "Number of Accepted Packets = 94",
        "Number of Packets Dropped by OS = 14",
        "Number of Packets Delivered to the User = 80",
        "counters: offered=115 delivered=80 filtered=20",
    ] {
        assert!(told.contains(wanted), "{wanted:?} is not in\n{told}");
    }
}

#[test]
fn files_that_other_tools_convert_are_read_with_the_same_packets() {
    require_tool!("editcap", "tcpdump");
    let folder = TempDir::new().unwrap();
    let sent: Vec<_> = packets(400, 300)
        .into_iter()
        .map(|packet| Kept {
            direction: PacketDirection::Unknown,
            dropped_before: 0,
            ..packet
        })
        .collect();
    let rough: Vec<_> = sent
        .iter()
        .map(|packet| Kept {
            time_ns: packet.time_ns / 1_000 * 1_000,
            ..packet.clone()
        })
        .collect();
    let path = write(&folder, "a.pcapng", &sent);
    let new = folder.path().join("new").to_str().unwrap().to_owned();
    for (format, wanted) in [("pcapng", &sent), ("nsecpcap", &sent), ("pcap", &rough)] {
        output("editcap", &["-F", format, &path, &new]);
        assert!(
            &read(&new) == wanted,
            "editcap -F {format}: the packets differ"
        );
    }
    output("tcpdump", &["-r", &path, "-w", &new]);
    assert!(read(&new) == rough, "tcpdump: the packets differ");
    let nano = ["--time-stamp-precision", "nano", "-r", &path, "-w", &new];
    output("tcpdump", &nano);
    assert!(
        read(&new) == sent,
        "tcpdump, nanoseconds: the packets differ"
    );
}
