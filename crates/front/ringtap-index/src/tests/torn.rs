// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indexes that are torn, spoilt, old or of another file.

use std::fs;
use std::path::PathBuf;

use super::made::{self, Random};
use super::oracle::{everything, scan};
use super::{Packet, find, index};
use crate::{FilterTarget, index_path};

struct Case {
    folder: tempfile::TempDir,
    capture: PathBuf,
    index: PathBuf,
    expected: Vec<Packet>,
}

const FILTER: &str = "net 10.0.0.0/8 or port 443 or ip6";

fn case(number: usize, packets: usize) -> Case {
    let folder = tempfile::TempDir::new().unwrap();
    made::capture(
        folder.path(),
        number,
        &mut Random(9 + number as u64),
        packets,
    );
    let capture = super::files(folder.path()).remove(0);
    index(&capture);
    let expected = scan(&everything(folder.path()), FILTER, FilterTarget::Outer);
    assert!(!expected.is_empty());
    Case {
        index: index_path(&capture),
        capture,
        folder,
        expected,
    }
}

impl Case {
    fn check(&self, what: impl std::fmt::Display) {
        let found = find(self.folder.path(), FILTER, FilterTarget::Outer);
        assert!(found.packets == self.expected, "{what}: {:?}", found.notes);
    }
}

#[test]
fn an_index_torn_at_any_byte_gives_the_same_result() {
    for number in [0, 4] {
        let case = case(number, 60);
        let whole = fs::read(&case.index).unwrap();
        assert!(whole.len() > 2000);
        case.check("whole");
        for end in 0..whole.len() {
            fs::write(&case.index, &whole[..end]).unwrap();
            case.check(end);
        }
    }
}

#[test]
fn an_index_with_any_byte_changed_gives_the_same_result() {
    let case = case(4, 60);
    let whole = fs::read(&case.index).unwrap();
    for at in 0..whole.len() {
        let mut spoilt = whole.clone();
        spoilt[at] ^= 0x41;
        fs::write(&case.index, &spoilt).unwrap();
        case.check(at);
    }
}

#[test]
fn an_index_of_another_file_is_not_used() {
    let (case, other) = (case(4, 60), super::torn::case(5, 60));
    fs::copy(&other.index, &case.index).unwrap();
    case.check("of another file");
}

#[test]
fn a_capture_that_changed_is_scanned() {
    let case = case(4, 60);
    let mut bytes = fs::read(&case.capture).unwrap();
    let other = super::torn::case(5, 60);
    let middle = bytes.len() / 2;
    // As long as before, with another packet in its middle.
    let all = everything(case.folder.path());
    let (_, (_, _, data)) = &all[all.len() / 2];
    let place = bytes
        .windows(data.len())
        .rposition(|it| it == data)
        .unwrap();
    assert!(place > 4096 && place < bytes.len() - 4096 || middle > 0);
    for byte in &mut bytes[place..place + data.len()] {
        *byte ^= 0x55;
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&case.capture, &bytes).unwrap();
    let found = find(case.folder.path(), FILTER, FilterTarget::Outer);
    let expected = scan(&everything(case.folder.path()), FILTER, FilterTarget::Outer);
    assert!(found.packets == expected);
    drop(other);
}

#[test]
fn a_capture_that_grew_is_searched_whole() {
    for number in [4, 5, 10] {
        let folder = tempfile::TempDir::new().unwrap();
        let (bytes, is_pcap, ends) = made::content(&mut Random(number), 200);
        let name = if is_pcap { "a.pcap" } else { "a.pcapng" };
        let capture = folder.path().join(name);
        for end in [ends[40], ends[90] - 7, ends[199]] {
            fs::write(&capture, &bytes[..end]).unwrap();
            let found = find(folder.path(), FILTER, FilterTarget::Outer);
            let expected = scan(&everything(folder.path()), FILTER, FilterTarget::Outer);
            assert!(found.packets == expected, "{number} {end}");
            let has_index = index_path(&capture).exists();
            assert_eq!(found.totals.scanned_files, u64::from(!has_index));
            index(&capture);
        }
    }
}
