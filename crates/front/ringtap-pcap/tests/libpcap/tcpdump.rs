// SPDX-License-Identifier: MIT OR Apache-2.0
//! tcpdump writes the same packets over libpcap and over Ringtap.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_filter::LinkType;
use ringtap_filter::text;
use ringtap_testkit::{Namespace, Running, require_root, require_tool};

use crate::programs::watched;
use crate::support::{
    LIMIT, Record, Tags, assert_same, exec, frames, hub, prefix, records, whole_records,
};

/// Command line of a tcpdump that flushes every packet to a file and does not change its user.
fn words<'a>(device: &'a str, file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["tcpdump", "-Z", "root", "-U", "-ni", device, "-w", file];
    words.extend(more);
    words
}

fn start(net: &Namespace, command: Command) -> Running {
    let dump = Running::start(command);
    dump.wait_for_stderr("listening on", LIMIT);
    watched(net);
    dump
}

/// Waits until a file has at least `least` packets and no more come, then stops the program.
fn stop(dump: Running, file: &Path, least: usize) -> (Vec<Record>, String) {
    let (mut before, mut quiet) = (0, 0);
    let begun = Instant::now();
    // libpcap delivers a buffer within one second.
    while begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(250));
        let now = whole_records(file);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        if now >= least && quiet >= 6 {
            break;
        }
    }
    dump.interrupt();
    let told = dump.wait(LIMIT).success().stderr;
    (records(file), told)
}

/// The frame that a filter of a live capture sees: the kernel takes the tag out.
fn as_live(frame: &[u8], filter: &[&str]) -> Vec<u8> {
    match filter {
        ["vlan", ..] => frame.to_vec(),
        _ if frame[12..14] == [0x81, 0] => [&frame[..12], &frame[16..]].concat(),
        _ => frame.to_vec(),
    }
}

/// The filter among tcpdump's arguments.
fn expression<'a>(more: &[&'a str]) -> &'a str {
    match more {
        [] | ["-s", _] => "",
        [filter, ..] => filter,
    }
}

fn the_same_as_libpcap(name: &str, device: &str, filters: &[&[&str]]) {
    let Some(prefix) = prefix() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (number, filter) in filters.iter().enumerate() {
        let net = Namespace::with_veth(&format!("{name}{number}"));
        let file = |name: &str| folder.path().join(format!("{number}-{name}.pcap"));
        let (theirs, ours) = (file("libpcap"), file("ringtap"));
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        let real = words("rx0", &text(&theirs), filter).join("\u{1}");
        let real: Vec<_> = real.split('\u{1}').collect();
        let mut command = net.command(real[0]);
        command.args(&real[1..]);
        let libpcap = start(&net, command);
        let own = text(&ours);
        let ringtap = start(&net, exec(&net, prefix, &words(device, &own, filter)));
        let sent = frames(300, Tags::Some);
        net.inject("tx0", &sent);
        // Another check compares the packets.
        let filter_of_libpcap = text::compile(expression(filter), LinkType::ETHERNET, 65_535);
        let filter_of_libpcap = filter_of_libpcap.expect("a filter");
        let length = |frame: &[u8]| u32::try_from(frame.len()).expect("a frame");
        let taken = sent
            .iter()
            .map(|frame| as_live(frame, filter))
            .filter(|frame| filter_of_libpcap.matches(frame, length(frame)));
        let (expected, _) = stop(libpcap, &theirs, taken.count());
        let (found, told) = stop(ringtap, &ours, expected.len());
        assert!(!expected.is_empty(), "{filter:?} takes something");
        assert_same(&found, &expected, &format!("{device} {filter:?}\n{told}"));
        assert!(told.contains("\n0 packets dropped by kernel"), "{told}");
        let counted = format!("{} packets captured", expected.len());
        assert!(told.contains(&counted), "{told}");
    }
}

#[test]
fn a_tap_gives_tcpdump_what_libpcap_gives() {
    require_root!();
    require_tool!("tcpdump");
    let filters: [&[&str]; 6] = [
        &[],
        &["-s", "80"],
        &["udp dst port 1003"],
        &["vlan"],
        &["not arp"],
        &["less 400 and udp"],
    ];
    the_same_as_libpcap("pcap_tap", "tap:rx0?mode=generic", &filters);
}

#[test]
fn a_packet_source_gives_tcpdump_what_libpcap_gives() {
    require_root!();
    require_tool!("tcpdump");
    let filters: [&[&str]; 2] = [&[], &["greater 300"]];
    the_same_as_libpcap("pcap_packet", "packet:rx0", &filters);
}

#[test]
fn eight_tcpdumps_with_eight_filters_share_one_hub() {
    require_root!();
    require_tool!("tcpdump");
    let Some(prefix) = prefix() else { return };
    let net = Namespace::with_veth("pcap_eight");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let hub = hub(&net, prefix, &socket, &["-i", "tap:rx0?direction=in"]);
    let readers: Vec<_> = (0..8)
        .map(|number| {
            let file = folder.path().join(format!("{number}.pcap"));
            let filter = format!("udp dst port {}", 1000 + number);
            let path = file.to_str().expect("text").to_owned();
            let mut command = exec(&net, prefix, &words("hub:all", &path, &[&filter]));
            command.env("RINGTAP_SOCKET", &socket);
            (Running::start(command), file)
        })
        .collect();
    for (reader, _) in &readers {
        reader.wait_for_stderr("listening on", LIMIT);
    }
    std::thread::sleep(Duration::from_millis(1500));
    let sent = frames(800, Tags::Some);
    net.inject("tx0", &sent);
    for (number, (reader, file)) in readers.into_iter().enumerate() {
        let port = u16::try_from(1000 + number).expect("a port").to_be_bytes();
        let expected = sent.iter().filter(|frame| {
            let seen = as_live(frame, &[]);
            seen[12..14] == [8, 0] && seen[36..38] == port
        });
        let expected: Vec<_> = expected.map(|frame| Record::of(frame)).collect();
        let (found, told) = stop(reader, &file, expected.len());
        assert_same(&found, &expected, &told);
    }
    hub.interrupt();
    let told = hub.wait(LIMIT).success().stdout;
    assert!(told.contains(": balanced"), "{told}");
}

/// Outages; `RINGTAP_FLAPS=50` sets another number.
fn flaps() -> usize {
    let asked = std::env::var("RINGTAP_FLAPS").ok();
    asked.map_or(3, |text| text.parse().expect("RINGTAP_FLAPS is a number"))
}

/// tcpdump prints each packet on a line.
fn printing(device: &str) -> Vec<&str> {
    vec![
        "tcpdump",
        "-Z",
        "root",
        "-lni",
        device,
        "ether proto 0x88b5",
    ]
}

#[test]
fn tcpdump_outlives_its_link_as_over_libpcap() {
    require_root!();
    require_tool!("tcpdump");
    let Some(prefix) = prefix() else { return };
    for device in ["tap:rx0", "packet:rx0"] {
        let net = Namespace::with_veth("pcap_flaps");
        let theirs = printing("rx0");
        let mut command = net.command(theirs[0]);
        command.args(&theirs[1..]);
        let libpcap = start(&net, command);
        let ringtap = start(&net, exec(&net, prefix, &printing(device)));
        for _ in 0..flaps() {
            net.ip(&["link", "set", "rx0", "down"]);
            net.ip(&["link", "set", "rx0", "up"]);
        }
        let begun = Instant::now();
        while !net.ip(&["link", "show", "tx0"]).contains("state UP") {
            assert!(begun.elapsed() < LIMIT, "tx0 has no carrier");
            std::thread::sleep(Duration::from_millis(5));
        }
        let frame = [vec![2_u8; 12], vec![0x88, 0xb5], vec![0; 50]].concat();
        net.inject("tx0", &vec![frame; 50]);
        let both = [libpcap, ringtap];
        for dump in &both {
            while dump.stdout().matches("0x88b5").count() < 50 {
                assert!(begun.elapsed() < LIMIT, "{device}: {}", dump.stderr());
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        for dump in both {
            dump.interrupt();
            let end = dump.wait(LIMIT).success();
            assert_eq!(end.stdout.matches("0x88b5").count(), 50, "{}", end.stdout);
        }
    }
}
