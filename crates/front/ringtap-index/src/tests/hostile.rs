// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indexes with false contents and right checksums.

use std::fs;

use ringtap_filter::text::compile;
use ringtap_filter::{LinkType, MAX_SNAP_LENGTH};

use super::made::{self, Random};
use super::{find, index};
use crate::layout::{END, FILE_HEADER, GROUP, GROUP_BYTES, SEGMENT_HEADER};
use crate::{FilterTarget, index_path};

const FILTER: &str = "net 10.0.0.0/8 or port 443 or ip6";
const PAGE_ENTRY: usize = 28;
const BLOCK_ENTRY: usize = 44;

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*word)).ok()
}

/// Writes the checksum of a part at a place, if both lie in the bytes.
fn seal(bytes: &mut [u8], part: std::ops::Range<usize>, at: usize) -> Option<()> {
    let checksum = crc32fast::hash(bytes.get(part)?);
    bytes
        .get_mut(at..at + 4)?
        .copy_from_slice(&checksum.to_le_bytes());
    Some(())
}

/// Makes all checksums right, as far as the lengths lead.
fn seal_all(bytes: &mut [u8]) {
    let _ = seal(bytes, 0..FILE_HEADER - 4, FILE_HEADER - 4);
    let mut at = FILE_HEADER;
    while let Some(next) = seal_segment(bytes, at) {
        at = next;
    }
    let _ = seal(bytes, at..at + END - 4, at + END - 4);
}

/// Returns the offset behind the segment.
fn seal_segment(bytes: &mut [u8], at: usize) -> Option<usize> {
    if bytes.get(at..at + 4)? != b"SEGM" {
        return None;
    }
    let [blocks, pages, description] = [4, 8, 12].map(|place| word(bytes, at + place));
    let (blocks, pages, description) = (blocks?, pages?, description?);
    let whole = word(bytes, at + 28)?;
    let entries = at + SEGMENT_HEADER + description;
    let first_group = entries.checked_add(pages.checked_mul(PAGE_ENTRY)?)?;
    for group in 0..blocks.div_ceil(GROUP).min(100) {
        let start = first_group + group * GROUP_BYTES;
        let end = start + (blocks - group * GROUP).min(GROUP) * BLOCK_ENTRY;
        let _ = seal(bytes, start..end, end);
    }
    let mut page = first_group + blocks * BLOCK_ENTRY + blocks.div_ceil(GROUP) * 4;
    for entry in (0..pages.min(10_000)).map(|number| entries + number * PAGE_ENTRY) {
        let end = page.checked_add(word(bytes, entry + 4)?)?;
        let _ = seal(bytes, page..end, entry + 8);
        page = end;
    }
    let _ = seal(
        bytes,
        at + SEGMENT_HEADER..first_group,
        at + SEGMENT_HEADER - 8,
    );
    let end = at + SEGMENT_HEADER - 4;
    seal(bytes, at..end, end)?;
    at.checked_add(whole).filter(|next| *next > at)
}

#[test]
fn false_contents_with_right_checksums_give_no_packet_that_the_filter_does_not_pass() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut random = Random(77);
    let mut bytes = Vec::new();
    ringtap_file::write::classic::file_header(&mut bytes, LinkType::ETHERNET);
    for number in 0..80 {
        let data = made::packet(&mut random, LinkType::ETHERNET);
        made::append(&mut bytes, &data, number * 1000);
    }
    let capture = folder.path().join("a.pcap");
    fs::write(&capture, bytes).unwrap();
    index(&capture);
    let whole = fs::read(index_path(&capture)).unwrap();
    let program = compile(FILTER, LinkType::ETHERNET, MAX_SNAP_LENGTH).unwrap();
    let mut unlike = 0;
    let expected = find(folder.path(), FILTER, FilterTarget::Outer).packets;
    for round in 0..3000 {
        let mut spoilt = whole.clone();
        for _ in 0..1 + random.below(4) {
            let place = random.below(spoilt.len());
            spoilt[place] = match random.below(4) {
                0 => 0xff,
                1 => 0,
                _ => random.next() as u8,
            };
        }
        if round == 0 {
            // What is sealed again is whole.
            spoilt.clone_from(&whole);
        }
        seal_all(&mut spoilt);
        if round == 0 {
            assert!(spoilt == whole);
        }
        fs::write(index_path(&capture), &spoilt).unwrap();
        let found = find(folder.path(), FILTER, FilterTarget::Outer);
        for (_, wire_length, data) in &found.packets {
            assert!(program.matches(data, *wire_length));
        }
        unlike += usize::from(found.packets != expected);
    }
    // The checksums were right: false contents were believed.
    assert!(unlike > 100, "{unlike}");
}

/// An index that claims more than the capture can have means: read the capture.
#[test]
fn an_index_of_impossible_blocks_is_not_used() {
    let folder = tempfile::TempDir::new().unwrap();
    made::capture(folder.path(), 0, &mut Random(78), 200);
    let capture = super::files(folder.path()).remove(0);
    let expected = find(folder.path(), FILTER, FilterTarget::Outer).packets;
    index(&capture);
    let whole = fs::read(index_path(&capture)).unwrap();
    let totals = find(folder.path(), FILTER, FilterTarget::Outer).totals;
    assert!(!expected.is_empty() && totals.scanned_files == 0);
    let [pages, description] = [8, 12].map(|place| word(&whole, FILE_HEADER + place).unwrap());
    let blocks = FILE_HEADER + SEGMENT_HEADER + description + pages * PAGE_ENTRY;
    let long = |at: usize| {
        whole[at..at + 8]
            .try_into()
            .map(u64::from_le_bytes)
            .unwrap()
    };
    let last = (FILE_HEADER..whole.len() - 4).rev();
    let last = last
        .into_iter()
        .find(|at| whole[*at..].starts_with(b"SEGM"));
    for (what, at, value) in [
        ("bytes to skip", blocks + 24, 17 << 20),
        (
            "two blocks in a frame",
            blocks + BLOCK_ENTRY + 16,
            long(blocks + 16),
        ),
        ("bytes of content", last.unwrap() + 44, 1 << 50),
    ] {
        let mut spoilt = whole.clone();
        spoilt[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        seal_all(&mut spoilt);
        fs::write(index_path(&capture), &spoilt).unwrap();
        let found = find(folder.path(), FILTER, FilterTarget::Outer);
        assert!(found.packets == expected, "{what}");
        assert_eq!(found.totals.scanned_files, 1, "{what}");
    }
}
