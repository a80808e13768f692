// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of hubs whose sources are not Ethernet: filters are compiled for their link type.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::Command;

use ringtap::{Capture, DeviceSpec, Error, Facts, Next, OpenOptions};
use ringtap_client::Connection;
use ringtap_hub::server::{Server, ServerOptions};
use ringtap_hub::{Group, Hub, HubOptions};
use ringtap_ipc::socket::Listener;
use ringtap_testkit::{LIMIT, Namespace, require_root, require_tool};
use tempfile::TempDir;

const RAW_IP: u32 = 101;
const ETHERNET: u32 = 1;
const PACKETS: u32 = 4_000;

/// A pcap file of IPv4 packets without a link header, every second one UDP, the others TCP.
fn file(folder: &Path, link_type: u32) -> PathBuf {
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link_type]);
    for number in 0..PACKETS {
        let mut packet = [0; 28];
        (packet[0], packet[3]) = (0x45, 28);
        packet[9] = if number % 2 == 0 { 17 } else { 6 };
        bytes.extend(words(&[number, 0, 28, 28]));
        bytes.extend(packet);
    }
    let path = folder.join(format!("{link_type}.pcap"));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A hub of files with these link types, each at 20 packets a second.
fn hub(folder: &Path, link_types: &[u32]) -> (Hub, Server, PathBuf) {
    let source = |link_type: &u32| {
        let device = format!("pcap:{}?speed=20pps", file(folder, *link_type).display());
        ringtap_capture::open(&device.parse::<DeviceSpec>().unwrap()).unwrap()
    };
    let sources = link_types.iter().map(source).collect();
    let groups = vec![Group::new("all")];
    let (hub, _) = Hub::start(sources, groups, HubOptions::default(), Vec::new()).unwrap();
    let socket = folder.join("hub.sock");
    let listener = Listener::bind(&socket).unwrap();
    let server = Server::open(listener, &hub, ServerOptions::default()).unwrap();
    (hub, server, socket)
}

fn open(socket: &Path, filter: &str) -> Result<Capture, Error> {
    let options = OpenOptions::new().filter(filter).socket(socket);
    options.open("hub:all")
}

#[test]
fn a_filter_is_compiled_for_the_sources_and_the_reader_attaches_once() {
    let folder = TempDir::new().unwrap();
    let (_hub, _server, socket) = hub(folder.path(), &[RAW_IP]);
    let mut capture = open(&socket, "udp").unwrap();
    let status = Connection::open(&socket, "status")
        .unwrap()
        .status()
        .unwrap();
    let readers: Vec<_> = status.readers.iter().map(|one| one.reader).collect();
    assert_eq!(readers, [1], "the first subscription of this hub");
    let (mut udp, mut other) = (0, 0);
    while udp == 0 {
        let Next::Batch(batch) = capture.next(Some(LIMIT)).unwrap() else {
            panic!("the file ended, or no packet came");
        };
        for packet in capture.packets(&batch) {
            match packet.unwrap().data[9] {
                17 => udp += 1,
                _ => other += 1,
            }
        }
    }
    assert_eq!(other, 0);
}

#[test]
fn different_link_types_are_read_together_only_without_a_filter() {
    let folder = TempDir::new().unwrap();
    let (_hub, _server, socket) = hub(folder.path(), &[RAW_IP, ETHERNET]);
    let error = open(&socket, "udp").err().unwrap().to_string();
    assert!(error.contains("different link types"), "{error}");
    assert!(open(&socket, "").is_ok());
}

/// Packets that the library takes from a file.
fn taken(file: &Path, filter: &str) -> usize {
    let options = OpenOptions::new().filter(filter);
    let mut capture = options.open(&format!("pcap:{}", file.display())).unwrap();
    let mut count = 0;
    while let Next::Batch(batch) = capture.next(Some(LIMIT)).unwrap() {
        count += capture.packets(&batch).count();
    }
    count
}

/// Packets that tcpdump takes from a file.
fn taken_by_tcpdump(file: &Path, filter: &str) -> usize {
    let mut command = Command::new("tcpdump");
    let output = command
        .arg("-r")
        .arg(file)
        .args(["-w", "-", filter])
        .output()
        .unwrap();
    assert!(output.status.success(), "{filter}: {output:?}");
    let written = file.with_extension("written");
    std::fs::write(&written, output.stdout).unwrap();
    taken(&written, "")
}

#[test]
fn files_with_address_families_are_filtered_as_by_tcpdump_in_either_byte_order() {
    /// Of IPv4, and of IPv6 on Linux, NetBSD, FreeBSD and macOS.
    const FAMILIES: [u32; 5] = [2, 10, 24, 28, 30];
    const IPV4: &str = "4500001c000000004011000001020304ffffffff03e8003500080000";
    require_tool!("tcpdump");
    let folder = TempDir::new().unwrap();
    let ipv4: Vec<u8> = (0..IPV4.len() / 2)
        .map(|at| u8::from_str_radix(&IPV4[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let mut ipv6 = vec![0; 48];
    (ipv6[0], ipv6[5], ipv6[6], ipv6[43]) = (0x60, 8, 17, 53);
    for (link_type, header_bytes) in [(0, 4), (108, 4), (109, 12)] {
        for is_big in [false, true] {
            let order = |word: u32| {
                if is_big {
                    word.to_be_bytes()
                } else {
                    word.to_le_bytes()
                }
            };
            let version = if is_big { 0x0002_0004 } else { 0x0004_0002 };
            let mut bytes = [0xa1b2_c3d4, version, 0, 0, 65_535, link_type]
                .map(order)
                .concat();
            for family in FAMILIES {
                let packet = if family == 2 { &ipv4 } else { &ipv6 };
                let length = header_bytes + packet.len();
                let words = [family, 0, u32::try_from(length).unwrap(), 2_000];
                bytes.extend(words.map(order).concat());
                let at = bytes.len();
                bytes.extend(match link_type {
                    108 => family.to_be_bytes(), // OpenBSD's: always in network order
                    _ => order(family),
                });
                bytes.resize(at + header_bytes, 0);
                bytes.extend(packet);
            }
            let path = folder.path().join(format!("{link_type}-{is_big}.pcap"));
            std::fs::write(&path, bytes).unwrap();
            for (filter, expected) in [
                ("ip", 1),
                ("ip6", 3),
                ("udp port 53", 4),
                ("host 1.2.3.4", 1),
                ("ip broadcast", 1),
            ] {
                let found = taken(&path, filter);
                assert_eq!(found, taken_by_tcpdump(&path, filter), "{path:?} {filter}");
                assert_eq!(found, expected, "{path:?} {filter}");
            }
        }
    }
}

#[test]
fn ip_broadcast_knows_the_netmask_of_the_interface_and_is_refused_elsewhere() {
    require_root!();
    let net = Namespace::with_veth("netmask");
    net.ip(&["address", "add", "10.1.2.3/20", "dev", "rx0"]);
    let compile = |device: &str| {
        let facts = Facts {
            device: device.to_owned(),
            interface: device.split_once(':').map(|(_, name)| name.to_owned()),
            link_type: 1,
            ..Facts::default()
        };
        net.enter(|| ringtap::compile("ip broadcast", &facts))
    };
    let with_netmask = compile("tap:rx0").unwrap();
    let without = compile("tap:tx0").unwrap();
    for (address, is_broadcast) in [
        ([255; 4], (true, true)),
        ([10, 1, 15, 255], (true, false)),
        ([10, 1, 0, 0], (true, false)),
        ([10, 1, 2, 255], (false, false)),
        ([10, 1, 15, 0], (false, false)),
    ] {
        let mut packet = [0; 34];
        (packet[12], packet[14]) = (8, 0x45);
        packet[30..].copy_from_slice(&address);
        let found = [&with_netmask, &without].map(|filter| filter.matches(&packet, 34));
        assert_eq!(found, <[bool; 2]>::from(is_broadcast), "{address:?}");
    }
    for device in ["hub:all", "bridge"] {
        let refused = compile(device).unwrap_err().to_string();
        assert!(refused.contains("netmask not known"), "{device}: {refused}");
    }
}
