// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same program prints the same over libpcap and over Ringtap: files, groups of a hub, and every
//! function by name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ringtap_pcap::list::{OURS, PASSED};
use ringtap_testkit::{Namespace, require_root};

use crate::same::{build, run};
use crate::support::{Tags, crate_folder, exec, frames, hub, prefix};

/// Seconds in which a program attaches to a hub that reads the file.
const PAUSE: u32 = 15;

/// A capture file with times that a rounded microsecond would change, and packets that were cut. The second
/// packet is [`PAUSE`] after the first.
fn write_capture(file: &Path) {
    let word = |number: u32| number.to_le_bytes();
    let mut bytes = Vec::new();
    bytes.extend(word(0xa1b2_3c4d));
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(word(262_144));
    bytes.extend(word(1));
    for (number, frame) in (0_u32..).zip(frames(12, Tags::Some)) {
        let kept = frame.len() - usize::from(number % 3 == 2) * 10;
        bytes.extend(word(1_700_000_000 + PAUSE * number.min(1)));
        bytes.extend(word(77_777_000 * number + 999));
        bytes.extend(word(u32::try_from(kept).expect("small")));
        bytes.extend(word(u32::try_from(frame.len()).expect("small")));
        bytes.extend(&frame[..kept]);
    }
    fs::write(file, bytes).expect("a file");
}

#[test]
fn every_read_of_a_file_gives_what_libpcap_gives() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("files");
    let net = Namespace::with_veth("pcap_files");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("capture.pcap");
    write_capture(&file);
    let file = file.to_str().expect("a path of text");
    for case in [
        "microseconds",
        "nanoseconds",
        "loops",
        "broken",
        "filtered",
        "written",
    ] {
        let expected = run(&net, net.command(&built), file, case);
        let text = built.to_str().expect("a path of text");
        let found = run(&net, exec(&net, prefix, &[text]), file, case);
        assert_eq!(found, expected, "{case}");
    }
    for case in ["microseconds", "nanoseconds"] {
        let mut expected = run(&net, net.command(&built), file, case);
        let first = expected.remove(0);
        let socket = folder.path().join(format!("{case}.sock"));
        let source = format!("pcap:{file}?speed=1x");
        let _hub = hub(&net, prefix, &socket, &["-i", &source]);
        let mut command = exec(&net, prefix, &[built.to_str().expect("a path of text")]);
        command.env("RINGTAP_SOCKET", &socket);
        let mut found = run(&net, command, "hub:all", &format!("group_{case}"));
        found.retain(|line| *line != first);
        assert_eq!(found, expected, "{case}");
    }
    let _built = fs::remove_file(built);
}

#[test]
fn every_read_at_a_group_of_a_hub_gives_what_libpcap_gives() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("reading");
    let text = built.to_str().expect("a path of text");
    let net = Namespace::with_veth("pcap_group");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let _hub = hub(&net, prefix, &socket, &["-i", "packet:rx0"]);
    for case in [
        "next_ex",
        "snap",
        "dispatch",
        "loop",
        "timeout",
        "descriptor",
        "filter_before",
        "filter_during",
        "filter_cuts",
        "direction",
        "nanoseconds",
        "microseconds",
        "dumped",
        "two_handles",
    ] {
        let expected = run(&net, net.command(&built), "rx0", case);
        let mut command = exec(&net, prefix, &[text]);
        command.env("RINGTAP_SOCKET", &socket);
        assert_eq!(run(&net, command, "hub:all", case), expected, "{case}");
    }
    let _built = fs::remove_file(built);
}

#[test]
fn every_function_without_a_device_gives_what_libpcap_gives() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("every");
    let text = built.to_str().expect("a path of text");
    let net = Namespace::with_veth("pcap_every");
    for case in ["link_types", "names", "programs", "dumps"] {
        let expected = run(&net, net.command(&built), "rx0", case);
        let found = run(&net, exec(&net, prefix, &[text]), "rx0", case);
        assert_eq!(found, expected, "{case}");
    }
    let _built = fs::remove_file(built);
}

/// Functions of programs that run over one library only.
const NOT_COMPARED: [&str; 1] = ["misuse.c"];

#[test]
fn every_function_is_called_by_a_program_that_is_compared() {
    let folder = crate_folder().join("tests/libpcap/c");
    let files = fs::read_dir(folder).expect("the programs");
    let mut called = BTreeSet::new();
    for file in files.map(|file| file.expect("a file").path()) {
        let name = file.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| NOT_COMPARED.contains(&name)) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("text");
        let words = text.split(|byte: char| !byte.is_alphanumeric() && byte != '_');
        called.extend(words.map(str::to_owned));
    }
    let all = OURS.iter().chain(PASSED);
    let never: Vec<_> = all.filter(|name| !called.contains(**name)).collect();
    assert!(never.is_empty(), "{never:?}");
}
