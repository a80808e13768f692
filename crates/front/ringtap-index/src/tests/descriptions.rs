// SPDX-License-Identifier: MIT OR Apache-2.0
//! Captures with large descriptions of interfaces, and with many.

use std::fs;
use std::path::Path;

use ringtap_file::FileInterface;
use ringtap_file::write::{self, FilePacket, Origin};
use ringtap_filter::LinkType;

use super::made::Random;
use super::oracle::{everything, scan};
use super::{SMALL, find, made};
use crate::indexing::index_with;
use crate::segment::IndexSizes;
use crate::{FilterTarget, IndexError};

const FILTER: &str = "tcp or udp";

fn section(bytes: &mut Vec<u8>) {
    let origin = Origin {
        hardware: None,
        os: None,
        application: "test".to_owned(),
    };
    write::section(bytes, &origin);
}

/// An interface whose description has this number of bytes, and a few.
fn interface(bytes: &mut Vec<u8>, comment_bytes: usize) {
    let mut interface = FileInterface::new(0, LinkType::ETHERNET, 0);
    interface.comment = Some("x".repeat(comment_bytes));
    write::interface(bytes, &interface, None);
}

fn packet(bytes: &mut Vec<u8>, random: &mut Random, interface: u32, time_ns: u64) {
    let data = made::packet(random, LinkType::ETHERNET);
    let packet = FilePacket {
        interface,
        ..FilePacket::new(time_ns, &data)
    };
    write::packet(bytes, &packet);
}

/// Most memory that the process has had, in bytes.
fn peak_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let number = line.split_ascii_whitespace().nth(1).unwrap();
    number.parse::<usize>().unwrap() * 1024
}

/// The result of a search for [`FILTER`] is that of a scan.
fn check(folder: &Path) -> usize {
    let expected = scan(&everything(folder), FILTER, FilterTarget::Outer);
    let found = find(folder, FILTER, FilterTarget::Outer);
    assert!(found.packets == expected, "{:?}", found.notes);
    found.packets.len()
}

#[test]
fn blocks_of_a_segment_share_its_description() {
    let folder = tempfile::TempDir::new().unwrap();
    let (mut bytes, mut random) = (Vec::new(), Random(11));
    section(&mut bytes);
    (0..16).for_each(|_| interface(&mut bytes, 60_000));
    for number in 0..6000 {
        // The first time is in the last block: all blocks wait for it.
        packet(&mut bytes, &mut random, 3, 6000 - number);
    }
    let capture = folder.path().join("a.pcapng");
    fs::write(&capture, &bytes).unwrap();
    let sizes = IndexSizes {
        segment_blocks: 4096,
        segment_terms: 1 << 20,
        ..SMALL
    };
    index_with(&capture, sizes).unwrap();
    let before = peak_bytes();
    let found = find(folder.path(), FILTER, FilterTarget::Outer);
    let taken = peak_bytes() - before;
    assert!(found.totals.blocks > 100 && found.totals.scanned_files == 0);
    // A copy for each block would be 1 MiB times their number.
    assert!(taken < 256 << 20, "{taken} bytes for {:?}", found.totals);
}

#[test]
fn a_scan_keeps_few_descriptions_however_often_they_change() {
    let folder = tempfile::TempDir::new().unwrap();
    let (mut bytes, mut random) = (Vec::new(), Random(12));
    section(&mut bytes);
    for number in 0..8000 {
        // After 4 MiB, a small one for each packet.
        interface(&mut bytes, if number < 70 { 60_000 } else { 1200 });
        let known = u32::try_from(number).unwrap();
        packet(&mut bytes, &mut random, known, u64::from(8000 - known));
    }
    fs::write(folder.path().join("a.pcapng"), &bytes).unwrap();
    let before = peak_bytes();
    assert!(check(folder.path()) > 1000);
    let taken = peak_bytes() - before;
    assert!(taken < 256 << 20, "{taken} bytes");
    let index = index_with(&folder.path().join("a.pcapng"), SMALL);
    assert!(matches!(index, Err(IndexError::Interfaces { .. })));
}

#[test]
fn a_section_whose_description_is_too_large_is_searched_whole() {
    let folder = tempfile::TempDir::new().unwrap();
    let (mut bytes, mut random) = (Vec::new(), Random(13));
    let mut time_ns = 0;
    let mut packets = |bytes: &mut Vec<u8>, count: usize, interface| {
        for _ in 0..count {
            time_ns += 1000;
            packet(bytes, &mut random, interface, time_ns);
        }
    };
    section(&mut bytes);
    interface(&mut bytes, 10);
    packets(&mut bytes, 600, 0);
    (0..300).for_each(|_| interface(&mut bytes, 60_000));
    packets(&mut bytes, 600, 300);
    section(&mut bytes);
    interface(&mut bytes, 10);
    packets(&mut bytes, 600, 0);
    let capture = folder.path().join("a.pcapng");
    fs::write(&capture, &bytes).unwrap();
    assert!(check(folder.path()) > 300);
    let one = find(folder.path(), "host 10.0.3.1", FilterTarget::Outer);
    assert!(one.packets.len() > 2);
    // Compressed content has no offsets in the file.
    fs::remove_file(&capture).unwrap();
    let packed = zstd::encode_all(&bytes[..], 1).unwrap();
    fs::write(folder.path().join("b.pcapng.zst"), packed).unwrap();
    let again = find(folder.path(), "host 10.0.3.1", FilterTarget::Outer);
    assert!(again.packets == one.packets);
}

#[test]
fn a_section_that_begins_before_a_match_has_its_own_interfaces() {
    let folder = tempfile::TempDir::new().unwrap();
    let (mut bytes, mut random) = (Vec::new(), Random(14));
    for round in 0..400 {
        section(&mut bytes);
        (0..3).for_each(|_| interface(&mut bytes, 10));
        packet(&mut bytes, &mut random, 2, 1000 * round);
    }
    let capture = folder.path().join("a.pcapng");
    fs::write(&capture, &bytes).unwrap();
    for filter in ["", FILTER, "host 10.0.3.1", "icmp", "ip6"] {
        let expected = scan(&everything(folder.path()), filter, FilterTarget::Outer);
        let found = find(folder.path(), filter, FilterTarget::Outer);
        assert!(found.packets == expected, "{filter}: {:?}", found.notes);
    }
}
