// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are damaged, missing, or not captures; folders without rights.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ringtap_filter::LinkType;

use super::made::{self, Random};
use super::oracle::{everything, scan};
use super::{files, find, index, search};
use crate::{FilterTarget, Search, SearchNote, SearchRequest, SearchTotals, index_path};

const FILTER: &str = "tcp or udp";

#[test]
fn a_damaged_capture_is_searched_up_to_the_damage_with_and_without_index() {
    for number in [4, 5, 10] {
        let folder = tempfile::TempDir::new().unwrap();
        let (mut bytes, is_pcap, ends) = made::content(&mut Random(number), 150);
        // The captured length of a packet, or the length of its block.
        let place = ends[100] + if is_pcap { 8 } else { 4 };
        bytes[place..place + 4].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f]);
        let name = if is_pcap { "a.pcap" } else { "a.pcapng" };
        let capture = folder.path().join(name);
        fs::write(&capture, &bytes).unwrap();
        let expected = scan(&everything(folder.path()), FILTER, FilterTarget::Outer);
        let scanned = find(folder.path(), FILTER, FilterTarget::Outer);
        index(&capture);
        let found = find(folder.path(), FILTER, FilterTarget::Outer);
        assert!(scanned.packets == expected && found.packets == expected);
        assert_eq!(found.totals.scanned_files, 0);
        // The message names the same byte.
        assert_eq!(scanned.notes, found.notes);
        assert!(
            matches!(found.notes[..], [SearchNote::Damaged { .. }]),
            "{:?}",
            found.notes
        );
    }
}

#[test]
fn a_file_that_vanishes_meanwhile_costs_only_its_packets() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random(3);
    for number in [4, 10, 16] {
        made::capture(folder.path(), number, &mut random, 100);
    }
    let all = files(folder.path());
    for file in &all {
        index(file);
    }
    let request = SearchRequest::new(vec![folder.path().to_owned()], "");
    let mut search = Search::new(request).unwrap();
    let first = search.next_packet().unwrap().file.to_owned();
    let gone = all.iter().find(|file| **file != first).unwrap();
    fs::remove_file(gone).unwrap();
    fs::remove_file(index_path(gone)).unwrap();
    let mut packets = 1;
    while let Some(packet) = search.next_packet() {
        packets += u64::from(packet.file != *gone);
    }
    assert_eq!(packets, 200);
    assert!(search.totals().vanished_files > 0);
    assert!(search.take_notes().is_empty());
}

#[test]
fn a_folder_of_very_many_files_is_searched_with_few_open() {
    const FILES: u64 = 20_000;
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random(6);
    for number in 0..FILES {
        let mut bytes = Vec::new();
        ringtap_file::write::classic::file_header(&mut bytes, LinkType::ETHERNET);
        let data = made::packet(&mut random, LinkType::ETHERNET);
        made::append(&mut bytes, &data, 1 + number * 7919 % FILES);
        fs::write(folder.path().join(format!("{number}.pcap")), bytes).unwrap();
    }
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    let mut search = Search::new(SearchRequest::new(vec![folder.path().to_owned()], "")).unwrap();
    let (mut expected, mut most_open) = (1, 0);
    while let Some(packet) = search.next_packet() {
        assert_eq!(packet.time_ns, expected);
        expected += 1;
        if expected % 1000 == 0 {
            most_open = most_open.max(open());
        }
    }
    assert_eq!(expected, 1 + FILES);
    assert!(search.take_notes().is_empty());
    // Other tests have files open, too.
    assert!(most_open < before + 200, "{most_open} files are open");
}

#[test]
fn an_index_that_vanishes_meanwhile_costs_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random(4);
    for number in 4..10 {
        made::capture(folder.path(), number, &mut random, 100);
    }
    let expected = scan(&everything(folder.path()), FILTER, FilterTarget::Outer);
    for file in files(folder.path()) {
        let _ = crate::indexing::index_with(&file, super::SMALL);
    }
    let request = SearchRequest::new(vec![folder.path().to_owned()], FILTER);
    let mut search = Search::new(request).unwrap();
    let mut packets = vec![search.next_packet().unwrap().time_ns];
    for file in files(folder.path()) {
        let _ = fs::remove_file(index_path(&file));
    }
    while let Some(packet) = search.next_packet() {
        packets.push(packet.time_ns);
    }
    let expected: Vec<_> = expected.iter().map(|(time_ns, ..)| *time_ns).collect();
    assert_eq!(packets, expected);
}

#[test]
fn files_that_are_no_captures_are_passed_over_unless_they_are_named() {
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("notes.txt"), "hello, this is text").unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        folder.path().join("pipe"),
        rustix::fs::Mode::RWXU,
    )
    .unwrap();
    made::capture(folder.path(), 4, &mut Random(1), 30);
    let found = find(folder.path(), "", FilterTarget::Outer);
    assert_eq!((found.packets.len(), found.totals.files), (30, 1));
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    let named = search(SearchRequest::new(
        vec![folder.path().join("notes.txt")],
        "",
    ));
    assert!(
        named.notes[0]
            .to_string()
            .contains("neither pcap nor pcapng")
    );
    let pipe = search(SearchRequest::new(vec![folder.path().join("pipe")], ""));
    assert!(
        pipe.notes[0].to_string().contains("not a file"),
        "{:?}",
        pipe.notes
    );
}

#[test]
fn what_cannot_be_looked_at_in_a_folder_is_noted_and_counted() {
    let folder = tempfile::TempDir::new().unwrap();
    made::capture(folder.path(), 4, &mut Random(1), 30);
    std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
    std::os::unix::fs::symlink("nothing", folder.path().join("gone")).unwrap();
    let found = find(folder.path(), "", FilterTarget::Outer);
    assert_eq!((found.packets.len(), found.totals.files), (30, 1));
    assert_eq!(found.totals.failed_files, 1);
    let [note] = &found.notes[..] else {
        panic!("{:?}", found.notes);
    };
    assert!(note.is_fault() && note.to_string().contains("loop: cannot be read"));
}

#[test]
fn names_that_are_not_utf8_and_folders_in_folders_are_searched() {
    let folder = tempfile::TempDir::new().unwrap();
    let below = folder.path().join(OsStr::from_bytes(b"d\xffr"));
    fs::create_dir(&below).unwrap();
    made::capture(&below, 4, &mut Random(1), 80);
    let file = files(&below).remove(0);
    let strange = below.join(OsStr::from_bytes(b"\xfe\xff.pcap"));
    fs::rename(file, &strange).unwrap();
    index(&strange);
    assert!(index_path(&strange).exists());
    let found = find(folder.path(), "", FilterTarget::Outer);
    assert_eq!((found.packets.len(), found.totals.scanned_files), (80, 0));
}

#[test]
fn a_search_that_is_stopped_reads_no_further_file_and_gives_no_further_packet() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random(9);
    for number in 0..3 {
        made::capture(folder.path(), number, &mut random, 150);
    }
    let request = SearchRequest::new(vec![folder.path().to_owned()], "");
    let stop = Arc::clone(&request.stop);
    let mut search = Search::new(request.clone()).unwrap();
    assert!(search.next_packet().is_some());
    stop.store(true, Relaxed);
    assert!(search.next_packet().is_none());
    assert!(search.take_notes().is_empty());
    let mut search = Search::new(request).unwrap();
    assert!(search.next_packet().is_none());
    assert_eq!(search.totals(), SearchTotals::default());
}

#[test]
fn little_memory_keeps_all_packets_and_says_that_the_order_is_not_kept() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random(8);
    for number in [4, 5, 10, 11] {
        made::capture(folder.path(), number, &mut random, 150);
    }
    for file in files(folder.path()) {
        index(&file);
    }
    let mut expected = scan(&everything(folder.path()), "", FilterTarget::Outer);
    let mut found = search(SearchRequest {
        max_bytes: 1,
        ..SearchRequest::new(vec![folder.path().to_owned()], "")
    });
    assert!(matches!(
        found.notes[..],
        [SearchNote::Order { packets: 1.. }]
    ));
    expected.sort();
    found.packets.sort();
    assert!(found.packets == expected);
}
