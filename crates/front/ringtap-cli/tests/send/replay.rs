// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets of a file: byte for byte, in order, with their gaps.

use std::{fs, path::Path};

use ringtap_testkit::{LIMIT, require_root, require_tool};
use tempfile::TempDir;

use crate::wire::{Capture, figures, network, send, start};

/// Packets of all lengths that Ethernet knows, no two alike.
fn packets(count: usize, longest: usize) -> Vec<Vec<u8>> {
    let length = |n: usize| 14 + (n * 7919) % (longest - 13);
    let byte = |n: usize, at: usize| (n * 31 + at * 7 + at / 256).to_le_bytes()[0];
    let packet = |n| {
        let mut bytes: Vec<u8> = (0..length(n)).map(|at| byte(n, at)).collect();
        // Unicast, and of a type that no stack looks into.
        bytes[0] = 2;
        bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
        bytes
    };
    (0..count).map(packet).collect()
}

/// A pcap file with nanosecond times, one packet every `gap_ns`.
fn write_pcap(path: &Path, packets: &[Vec<u8>], gap_ns: u64) {
    let mut bytes = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    for (number, packet) in packets.iter().enumerate() {
        let time_ns = 1_700_000_000_000_000_000 + number as u64 * gap_ns;
        let length = packet.len() as u64;
        for word in [
            time_ns / 1_000_000_000,
            time_ns % 1_000_000_000,
            length,
            length,
        ] {
            bytes.extend_from_slice(&u32::try_from(word).expect("fits").to_le_bytes());
        }
        bytes.extend_from_slice(packet);
    }
    fs::write(path, bytes).expect("a file in a temporary folder");
}

#[test]
fn a_file_is_sent_byte_for_byte_in_order() {
    require_root!();
    require_tool!("tcpdump", "ethtool");
    let net = network("send_file");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("all.pcap");
    let all = packets(3000, 1514);
    write_pcap(&path, &all, 10_000);
    for args in [
        "--method live",
        "--method live --rate 20000",
        "--method live --speed 10x",
        "--method packet --rate 50Mbps",
    ] {
        let capture = Capture::start(&net);
        let figures = figures(&net, &format!("-r {} {args}", path.display()));
        assert_eq!(figures["sent"], all.len(), "{args}: {figures}");
        let seen = capture.packets(all.len());
        assert_eq!(seen.len(), all.len(), "{args}");
        let first_other = seen.iter().zip(&all).position(|(seen, sent)| seen != sent);
        assert_eq!(first_other, None, "{args}");
    }
}

#[test]
fn a_file_is_sent_again_and_again_until_the_count() {
    require_root!();
    require_tool!("tcpdump", "ethtool");
    let net = network("send_loop");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("seven.pcap");
    let all = packets(7, 200);
    write_pcap(&path, &all, 1000);
    let capture = Capture::start(&net);
    let figures = figures(
        &net,
        &format!("-r {} --loop -c 5000 --rate 50000", path.display()),
    );
    assert_eq!(figures["sent"], 5000);
    let seen = capture.packets(5000);
    assert_eq!(seen.len(), 5000);
    assert!(
        seen.iter()
            .zip(all.iter().cycle())
            .all(|(seen, sent)| seen == sent)
    );
}

#[test]
fn recorded_gaps_are_kept_at_the_speed_asked_for() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_gaps");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("slow.pcap");
    write_pcap(&path, &packets(21, 100), 50_000_000);
    let elapsed_ns = |args: &str| {
        let figures = figures(&net, &format!("-r {} {args}", path.display()));
        assert_eq!(figures["sent"], 21, "{figures}");
        figures["elapsed_ns"].as_u64().unwrap()
    };
    assert!(elapsed_ns("") >= 1_000_000_000);
    assert!(elapsed_ns("--speed 2x") >= 500_000_000);
    assert!(elapsed_ns("--speed 10x") >= 100_000_000);
    // Between two packets, long after one: the sender may be late, and is never early.
    write_pcap(&path, &packets(21, 100), 1_500_000_000);
    let part = figures(&net, &format!("-r {} --duration 2.9", path.display()));
    assert_eq!(part["sent"], 2, "packets at 0 and 1500 ms: {part}");
}

#[test]
fn a_pipe_is_sent_as_its_packets_come() {
    require_root!();
    require_tool!("tcpdump", "ethtool");
    let net = network("send_pipe");
    let folder = TempDir::new().unwrap();
    let (path, pipe) = (folder.path().join("five.pcap"), folder.path().join("pipe"));
    let all = packets(5, 100);
    write_pcap(&path, &all, 1000);
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo can be run").success());
    let capture = Capture::start(&net);
    let sender = start(&net, &format!("-r {} --json --quiet", pipe.display()));
    let bytes = fs::read(&path).unwrap();
    let mut into = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    std::io::Write::write_all(&mut into, &bytes).unwrap();
    // The pipe stays open: nothing tells the sender that no more will come.
    assert_eq!(capture.packets(5), all);
    sender.interrupt();
    let end = sender.wait(LIMIT).success();
    assert!(end.stdout.contains("\"sent\":5,"), "{}", end.stdout);
    drop(into);
}

#[test]
fn long_packets_in_a_file_change_the_method_and_keep_the_order() {
    require_root!();
    require_tool!("tcpdump", "ethtool");
    let net = network("send_long");
    for device in ["tx0", "rx0"] {
        net.ip(&["link", "set", device, "mtu", "9000"]);
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("long.pcap");
    let mut all = packets(2000, 1000);
    all.extend(packets(500, 8000));
    write_pcap(&path, &all, 1000);
    let capture = Capture::start(&net);
    let end = send(
        &net,
        &format!("-r {} --json --quiet --rate 20000", path.display()),
    )
    .success();
    assert!(
        end.stderr.contains("too long for live frames"),
        "{}",
        end.stderr
    );
    assert!(end.stdout.contains("\"sent\":2500,"), "{}", end.stdout);
    assert!(capture.packets(2500) == all);
}

#[test]
fn everything_before_the_damage_is_sent_then_the_error_comes() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_damage");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cut.pcap");
    write_pcap(&path, &packets(100, 200), 1000);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    let end = send(&net, &format!("-r {} --json --quiet", path.display()));
    assert!(!end.status.success());
    assert!(end.stdout.contains("\"sent\":99,"), "{}", end.stdout);
    assert!(end.stderr.contains("cut.pcap"), "{}", end.stderr);
}

#[test]
fn packets_shorter_than_a_header_are_refused_and_said_once() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_short");
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("short.pcap");
    write_pcap(
        &path,
        &[vec![1; 13], vec![2; 60], vec![3; 1], vec![2; 60]],
        1000,
    );
    let end = send(&net, &format!("-r {} --json --quiet", path.display())).success();
    assert!(
        end.stdout.contains("\"sent\":2,\"refused\":2,"),
        "{}",
        end.stdout
    );
    assert_eq!(
        end.stderr.matches("Ethernet header").count(),
        1,
        "{}",
        end.stderr
    );
}

#[test]
fn a_silent_pipe_does_not_outlast_the_duration() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_silent");
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo can be run").success());
    let sender = start(
        &net,
        &format!("-r {} --json --quiet --duration 2", pipe.display()),
    );
    let mut into = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    let file = folder.path().join("one.pcap");
    write_pcap(&file, &packets(1, 60), 0);
    std::io::Write::write_all(&mut into, &fs::read(file).unwrap()).unwrap();
    let end = sender.wait(LIMIT).success();
    assert!(end.stdout.contains("\"sent\":1,"), "{}", end.stdout);
    drop(into);
}
