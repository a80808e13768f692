// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of the library and the program, commands that use them, and comparison of capture files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) use ringtap_testkit::LIMIT;
use ringtap_testkit::{Namespace, Running, say_skipped};

/// This crate's folder.
pub(crate) fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn deps() -> PathBuf {
    let exe = env::current_exe().expect("a test has a file");
    exe.parent().expect("in a folder").to_owned()
}

/// The library that cargo built for this test.
pub(crate) fn library() -> PathBuf {
    let library = deps().join("libringtap_pcap.so");
    assert!(library.is_file(), "cargo builds {}", library.display());
    library
}

/// The system's libpcap.
pub(crate) fn real() -> PathBuf {
    let output = Command::new("ldconfig").arg("-p").output();
    let output = output.expect("ldconfig can be run");
    let list = String::from_utf8(output.stdout).expect("names are text");
    let line = list.lines().find(|line| line.contains("libpcap.so.0.8"));
    let path = line.and_then(|line| line.split("=> ").nth(1));
    path.expect("libpcap is installed").into()
}

/// A folder with the layout of `make install`: the program, and the library under libpcap's names.
pub(crate) fn prefix() -> Option<&'static Path> {
    static PREFIX: OnceLock<Option<PathBuf>> = OnceLock::new();
    let prefix = PREFIX.get_or_init(|| {
        let program = deps().parent()?.join("ringtap");
        if !program.is_file() {
            return None;
        }
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let _old = fs::remove_dir_all(&prefix);
        fs::create_dir_all(prefix.join("bin")).expect("a folder");
        // A hard link: the program looks for the library next to itself.
        fs::hard_link(program, prefix.join("bin/ringtap")).expect("a file");
        let script = crate_folder().join("../../../scripts/library");
        let mut names = Command::new(script);
        names
            .arg("names")
            .arg(library())
            .arg(prefix.join("lib/ringtap"));
        let status = names.status().expect("the script can be run");
        assert!(status.success(), "{status}");
        Some(prefix)
    });
    if prefix.is_none() {
        say_skipped("needs the ringtap program: cargo build --bin ringtap");
    }
    prefix.as_deref()
}

/// The installed program.
pub(crate) fn ringtap(prefix: &Path) -> String {
    let program = prefix.join("bin/ringtap");
    program.to_str().expect("a path of text").to_owned()
}

/// A command in a namespace that reads through Ringtap.
pub(crate) fn exec(net: &Namespace, prefix: &Path, words: &[&str]) -> Command {
    let mut command = net.command(ringtap(prefix));
    command.args(["exec", "--"]).args(words);
    command.env("RINGTAP_SOCKET", "/nonexistent/hub.sock");
    command
}

/// Starts a hub and waits until it listens.
pub(crate) fn hub(net: &Namespace, prefix: &Path, socket: &Path, words: &[&str]) -> Running {
    let mut command = net.command(ringtap(prefix));
    command.args(["hub", "--duration", "300", "--socket"]);
    command.arg(socket).args(words);
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    hub
}

/// A packet of a capture file, without its time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) wire_bytes: u32,
    pub(crate) data: Vec<u8>,
}

/// The packets in the bytes of a pcap file.
pub(crate) fn records(path: &Path) -> Vec<Record> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    assert!(
        matches!(word(0), 0xa1b2_c3d4 | 0xa1b2_3c4d),
        "a pcap file of this machine"
    );
    let mut records = Vec::new();
    let mut rest = &bytes[24..];
    while let Some((record, after)) = record(rest) {
        records.push(record);
        rest = after;
    }
    assert!(
        rest.is_empty(),
        "{}: {} bytes of a torn packet",
        path.display(),
        rest.len()
    );
    records
}

/// The first packet in these bytes, and the bytes after it.
fn record(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let end = 16 + usize::try_from(word(8)?).ok()?;
    let record = Record {
        wire_bytes: word(12)?,
        data: bytes.get(16..end)?.to_vec(),
    };
    Some((record, &bytes[end..]))
}

/// Number of complete packets in a growing file.
pub(crate) fn whole_records(path: &Path) -> usize {
    let bytes = fs::read(path).unwrap_or_default();
    let mut rest = bytes.get(24..).unwrap_or_default();
    let mut count = 0;
    while let Some((_, after)) = record(rest) {
        count += 1;
        rest = after;
    }
    count
}

/// Panics at the first difference.
pub(crate) fn assert_same(found: &[Record], expected: &[Record], about: &str) {
    let both = found.iter().zip(expected).enumerate();
    for (number, (one, other)) in both {
        assert!(
            one == other,
            "packet {number}: {one:?}, not {other:?}\n{about}"
        );
    }
    assert_eq!(found.len(), expected.len(), "packets\n{about}");
}

impl Record {
    /// The record of a packet that was captured whole.
    pub(crate) fn of(frame: &[u8]) -> Self {
        Record {
            wire_bytes: u32::try_from(frame.len()).expect("a frame"),
            data: frame.to_vec(),
        }
    }
}

/// Whether some frames have a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tags {
    Some,
    None,
}

/// Frames of many kinds and lengths: UDP to ports 1000 to 1007, and some ARP.
pub(crate) fn frames(count: u16, tags: Tags) -> Vec<Vec<u8>> {
    (0..count).map(|number| frame(number, tags)).collect()
}

fn frame(number: u16, tags: Tags) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if number % 5 == 4 && tags == Tags::Some {
        frame.extend([0x81, 0x00, 0x00, 0x07]);
    }
    if number % 11 == 10 {
        frame.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
        frame.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        frame.extend(number.to_be_bytes());
        frame.resize(60, 0);
        return frame;
    }
    let payload = 18 + number % 900;
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend((28 + payload).to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.extend([0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend((5000 + number).to_be_bytes());
    frame.extend((1000 + number % 8).to_be_bytes());
    frame.extend((8 + payload).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(frame.len() + usize::from(payload), number.to_le_bytes()[0]);
    frame
}
