// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of hubs whose sources are not Ethernet: filters are compiled for their link type.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};

use ringtap::{Capture, DeviceSpec, Error, Next, OpenOptions};
use ringtap_client::Connection;
use ringtap_hub::access::Access;
use ringtap_hub::server::Server;
use ringtap_hub::{Group, Hub, HubOptions};
use ringtap_ipc::socket::Listener;
use ringtap_testkit::LIMIT;
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
    let server = Server::open(listener, &hub, vec![Access::default()]).unwrap();
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
