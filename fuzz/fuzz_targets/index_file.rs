// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as the index of a capture: no panic, bounded memory, and no packet that the filter does not pass.
//!
//! Checksums are not compared when fuzzing. The first byte of the input chooses the filter.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ringtap_file::write::{FilePacket, classic};
use ringtap_filter::{LinkType, text};
use ringtap_index::{Search, SearchRequest, index_path};

const FILTERS: [&str; 4] = ["", "host 10.0.0.1", "udp port 53 or ip6", "net 10.0.0.0/8 and not tcp"];

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("a.pcap"), capture()).expect("a file");
    folder
});

fuzz_target!(|input: &[u8]| {
    let Some((choice, index)) = input.split_first() else {
        return;
    };
    let filter = FILTERS[usize::from(*choice) % FILTERS.len()];
    let path = FOLDER.path().join("a.pcap");
    std::fs::write(index_path(&path), index).expect("a file");
    let request = SearchRequest::new(vec![path], filter);
    let mut search = Search::new(request).expect("a filter");
    let program = text::compile(filter, LinkType::ETHERNET, 65535).expect("a filter");
    while let Some(packet) = search.next_packet() {
        assert!(program.matches(packet.data, packet.wire_length));
    }
    for note in search.take_notes() {
        let _ = note.to_string();
    }
});

/// Forty UDP packets between few addresses.
fn capture() -> Vec<u8> {
    let mut bytes = Vec::new();
    classic::file_header(&mut bytes, LinkType::ETHERNET);
    for number in 0..40_u8 {
        let mut data = vec![0; 60];
        data[12..15].copy_from_slice(&[8, 0, 0x45]);
        data[23] = 17;
        data[26..30].copy_from_slice(&[10, 0, 0, number % 5]);
        data[30..34].copy_from_slice(&[10, 0, 1, number % 3]);
        data[36..38].copy_from_slice(&[0, 53]);
        let time_ns = 1_700_000_000_000_000_000 + u64::from(number) * 1000;
        classic::packet(&mut bytes, &FilePacket::new(time_ns, &data));
    }
    bytes
}
