// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap find` and `ringtap index`, and indexes of a recorder.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ringtap_testkit::{Finished, LIMIT, Running, require_root, require_tool};
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

fn ringtap(folder: &Path, arguments: &[&str]) -> Finished {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(folder);
    Running::start(command).wait(LIMIT)
}

/// Runs a command that has to succeed.
fn run(folder: &Path, arguments: &[&str]) {
    let _ended = ringtap(folder, arguments).success();
}

/// Records packets of a simulated NIC with these arguments.
fn record(folder: &Path, arguments: &[&str]) {
    let input = "sim:max?burst=4000&flows=500";
    let fixed = ["record", "-q", "-i", input, "--index"];
    run(folder, &[&fixed[..], arguments].concat());
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.expect("an entry").file_name();
        name.into_string().expect("UTF-8")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

fn objects(found: &Finished) -> Vec<Value> {
    let lines = found.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn a_recorder_writes_an_index_that_find_uses_with_the_result_of_tcpdump() {
    require_tool!("tcpdump");
    let folder = TempDir::new().expect("a folder");
    for name in ["a.pcapng", "b.pcapng.zst", "c.pcap"] {
        record(folder.path(), &["-w", name]);
    }
    let recorded = [
        "a.pcapng",
        "a.pcapng.rtindex",
        "b.pcapng.zst",
        "b.pcapng.zst.rtindex",
        "c.pcap",
        "c.pcap.rtindex",
    ];
    assert_eq!(names(folder.path()), recorded);
    let all = objects(&ringtap(folder.path(), &["find", "-r", ".", "--json"]).success());
    let (totals, packets) = all.split_last().expect("totals");
    assert_eq!(totals["packets"], 12_000);
    assert_eq!(
        (&totals["files"], &totals["scanned_files"]),
        (&3.into(), &0.into())
    );
    let times: Vec<_> = packets.iter().map(|it| it["time_ns"].as_u64()).collect();
    assert!(times.is_sorted());
    let address = packets[5000]["src"].as_str().expect("an address");
    let port = &packets[5000]["src_port"];
    let filter = format!("src host {address} and udp src port {port}");
    run(
        folder.path(),
        &["find", "-q", "-r", ".", "-w", "out.pcapng", &filter],
    );
    let lines = |file: &str, filter: &str| {
        let mut tcpdump = Command::new("tcpdump");
        let arguments = ["-nqt", "-r", file, filter];
        tcpdump.args(arguments).current_dir(folder.path());
        Running::start(tcpdump)
            .wait(LIMIT)
            .success()
            .stdout
            .lines()
            .count()
    };
    run(
        folder.path(),
        &["record", "-q", "-r", "b.pcapng.zst", "-w", "plain.pcapng"],
    );
    let expected = ["a.pcapng", "plain.pcapng", "c.pcap"].map(|file| lines(file, &filter));
    assert_eq!(lines("out.pcapng", ""), expected.iter().sum::<usize>());
    assert!(expected[0] > 0);
}

#[test]
fn a_ring_deletes_index_and_file_together() {
    let folder = TempDir::new().expect("a folder");
    record(folder.path(), &["-w", "t.pcapng", "-C", "50kB", "-W", "3"]);
    let left = names(folder.path());
    let captures: Vec<_> = left
        .iter()
        .filter(|name| name.ends_with(".pcapng"))
        .collect();
    assert_eq!(captures.len(), 3, "{left:?}");
    let indexes: Vec<_> = captures
        .iter()
        .map(|name| format!("{name}.rtindex"))
        .collect();
    assert_eq!(left.len(), 6, "{left:?}");
    assert!(indexes.iter().all(|index| left.contains(index)), "{left:?}");
}

#[test]
fn index_passes_over_what_is_indexed_and_find_says_what_is_not() {
    let folder = TempDir::new().expect("a folder");
    let fixed = ["record", "-q", "-i", "sim:max?burst=2000"];
    for name in ["a.pcap", "b.pcapng"] {
        run(folder.path(), &[&fixed[..], &["-w", name]].concat());
    }
    fs::write(folder.path().join("notes.txt"), "no capture").expect("a file");
    let before = ringtap(folder.path(), &["find", "-r", ".", "-c", "1"]).success();
    assert!(
        before.stderr.contains("2 without index"),
        "{}",
        before.stderr
    );
    for (written, current) in [(2, 0), (0, 2)] {
        let found = objects(&ringtap(folder.path(), &["index", ".", "--json"]).success());
        let totals = (&found[0]["files"], &found[0]["current_files"]);
        assert_eq!(totals, (&written.into(), &current.into()));
    }
    let after = ringtap(folder.path(), &["find", "-r", "."]).success();
    assert!(!after.stderr.contains("without index"), "{}", after.stderr);
    assert_eq!(after.stdout.lines().count(), 4000);
}

#[test]
fn lines_and_objects_are_those_of_packets_with_the_file() {
    let folder = TempDir::new().expect("a folder");
    record(folder.path(), &["-w", "a.pcapng"]);
    let output = |arguments: &[&str]| ringtap(folder.path(), arguments).success().stdout;
    let found = output(&["find", "-r", "a.pcapng"]);
    let shown = output(&["packets", "-r", "a.pcapng"]);
    assert_eq!(shown.lines().count(), 4000);
    let without = |line: &str| {
        let (date, rest) = line.split_once(' ').expect("a date");
        assert_eq!((date.len(), &date[4..5]), (10, "-"), "{line}");
        rest.strip_suffix(" a.pcapng").expect("a file").to_owned()
    };
    let lines: Vec<_> = found.lines().map(without).collect();
    assert!(lines.iter().eq(shown.lines()), "{}", lines[0]);
    let found = objects(&ringtap(
        folder.path(),
        &["find", "-r", "a.pcapng", "--json"],
    ));
    let words = ["packets", "-r", "a.pcapng", "--json", "--community-id"];
    let shown = ringtap(folder.path(), &words);
    let shown = shown
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let mut compared = 0;
    for (found, shown) in found.iter().zip(shown) {
        let (Value::Object(mut found), Value::Object(mut shown)) = (found.clone(), shown) else {
            panic!("no objects");
        };
        assert_eq!(found.remove("file"), Some("a.pcapng".into()));
        assert!(found.remove("interface").is_some());
        for only in ["lane", "queue", "hash", "flags"] {
            assert!(shown.remove(only).is_some(), "{only}");
        }
        assert_eq!(found, shown);
        compared += 1;
    }
    assert_eq!(compared, 4000);
}

#[test]
fn a_community_id_finds_the_packets_of_its_flow_with_and_without_index() {
    let folder = TempDir::new().expect("a folder");
    for name in ["a.pcapng", "b.pcapng.zst"] {
        record(folder.path(), &["-w", name]);
    }
    let all = objects(&ringtap(folder.path(), &["find", "-r", ".", "--json"]));
    let id = all[100]["community_id"].as_str().expect("an ID");
    let expected: Vec<_> = all.iter().filter(|it| it["community_id"] == id).collect();
    assert!(expected.len() >= 2, "{}", expected.len());
    for has_index in [true, false] {
        let words = ["find", "-r", ".", "--community-id", id, "--json"];
        let found = objects(&ringtap(folder.path(), &words).success());
        let (totals, packets) = found.split_last().expect("totals");
        assert!(packets.iter().eq(expected.iter().copied()));
        let scanned = if has_index { 0 } else { 2 };
        assert_eq!(totals["scanned_files"], scanned);
        for name in ["a.pcapng.rtindex", "b.pcapng.zst.rtindex"] {
            let _gone = fs::remove_file(folder.path().join(name));
        }
    }
    let words = ["find", "-r", ".", "--community-id", "2:abc"];
    let wrong = ringtap(folder.path(), &words);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stderr.contains("Community ID"), "{}", wrong.stderr);
}

#[test]
fn wrong_filters_wrong_times_and_missing_files_are_told() {
    let folder = TempDir::new().expect("a folder");
    let wrong = ringtap(folder.path(), &["find", "-r", ".", "hots 10.0.0.1"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stderr.contains("filter"), "{}", wrong.stderr);
    let times = ["find", "-r", ".", "--from", "20", "--to", "10"];
    let wrong = ringtap(folder.path(), &times);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(wrong.stderr.contains("before"), "{}", wrong.stderr);
    let missing = ringtap(folder.path(), &["find", "-r", "none.pcap"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(missing.stderr.contains("none.pcap"), "{}", missing.stderr);
}

#[test]
fn files_that_are_being_written_are_searched() {
    let folder = TempDir::new().expect("a folder");
    let recorder = |name: &str| {
        let mut command = Command::new(BINARY);
        let input = ["record", "-q", "-i", "sim:20kpps", "--index", "-w", name];
        command.args(input).current_dir(folder.path());
        Running::start(command)
    };
    let names = ["a.pcap", "b.pcapng", "c.pcapng.zst", "d.pcapng.gz"];
    let recorders = names.map(recorder);
    let start = Instant::now();
    for name in names {
        let mut last = 0;
        // The result grows with the file.
        for _ in 0..2 {
            let found = loop {
                let end = ringtap(folder.path(), &["find", "-r", name, "--json", "udp"]);
                let totals = objects(&end).pop().unwrap_or_default();
                let found = totals["packets"].as_u64().unwrap_or(0);
                if found > last + 1000 {
                    assert!(end.status.success(), "{name}: {}", end.stderr);
                    break found;
                }
                assert!(start.elapsed() < LIMIT, "{name}: {found} {}", end.stderr);
            };
            last = found;
        }
    }
    recorders.iter().for_each(Running::interrupt);
    for recorder in recorders {
        let _ended = recorder.wait(LIMIT).success();
    }
    let all = objects(&ringtap(folder.path(), &["find", "-r", ".", "--json"]).success());
    let totals = all.last().expect("totals");
    assert_eq!(
        (&totals["files"], &totals["scanned_files"]),
        (&4.into(), &0.into())
    );
}

#[test]
fn an_interrupted_search_leaves_a_file_with_what_it_found() {
    let folder = TempDir::new().expect("a folder");
    let input = "sim:max?burst=400000&flows=500";
    run(
        folder.path(),
        &["record", "-q", "-i", input, "-w", "a.pcapng"],
    );
    let capture = fs::read(folder.path().join("a.pcapng")).expect("a capture");
    for copy in 0..20 {
        fs::write(folder.path().join(format!("{copy}.pcapng")), &capture).expect("a copy");
    }
    let mut command = Command::new(BINARY);
    command.args(["find", "-r", ".", "-w", "../out.pcapng", "udp"]);
    let out = folder.path().join("out.pcapng");
    let captures = folder.path().join("captures");
    fs::create_dir(&captures).expect("a folder");
    for name in names(folder.path()) {
        if name.ends_with(".pcapng") {
            fs::rename(folder.path().join(&name), captures.join(&name)).expect("it moves");
        }
    }
    command.current_dir(&captures);
    let search = Running::start(command);
    let begun = Instant::now();
    while fs::metadata(&out).map_or(0, |file| file.len()) == 0 {
        assert!(begun.elapsed() < LIMIT, "the search writes nothing");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    search.interrupt();
    let _ended = search.wait(LIMIT).success();
    let totals = objects(
        &ringtap(
            folder.path(),
            &["count", "-q", "--json", "-r", "out.pcapng"],
        )
        .success(),
    );
    let delivered = totals.last().and_then(|it| it["delivered"].as_u64());
    let all = 21 * 400_000;
    assert!(
        delivered.is_some_and(|found| found > 0 && found < all),
        "{totals:?}"
    );
}

#[test]
fn a_name_that_is_not_utf8_is_found_and_its_control_characters_are_not_printed() {
    let folder = TempDir::new().expect("a folder");
    record(folder.path(), &["-w", "a.pcap"]);
    let strange = OsStr::from_bytes(b"\xff\x1b[2J.pcap");
    fs::rename(folder.path().join("a.pcap"), folder.path().join(strange)).expect("a file");
    let text = ringtap(folder.path(), &["find", "-r", "."]).success();
    assert_eq!(text.stdout.lines().count(), 4000);
    assert!(!text.stdout.contains('\u{1b}') && text.stdout.contains("[2J.pcap"));
    let all = objects(&ringtap(folder.path(), &["find", "-r", ".", "--json"]).success());
    assert_eq!(all[0]["file"], "./\u{fffd}\u{1b}[2J.pcap");
}

#[test]
fn a_full_disk_costs_the_index_and_not_the_recording() {
    require_root!();
    let folder = TempDir::new().expect("a folder");
    // The capture and a file beside its folder leave no page.
    let script = r#"
        mkdir "$2/disk" && mount -t tmpfs -o size=1M tmpfs "$2/disk" && mkdir "$2/disk/small" || exit 99
        "$1" record -q -i 'sim:max?burst=20000' -w "$2/whole.pcap" || exit 98
        head -c 1000000 "$2/whole.pcap" >"$2/disk/small/a.pcap"
        cat /dev/zero >"$2/disk/rest"
        "$1" index "$2/disk/small"; echo "index $?"
        ls "$2/disk/small"
        "$1" find -q -r "$2/disk/small" | wc -l"#;
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "bash",
        "-c",
        script,
        "bash",
    ]);
    command.arg(BINARY).arg(folder.path());
    let end = Running::start(command).wait(LIMIT);
    let lines: Vec<_> = end.stdout.lines().collect();
    assert!(lines.contains(&"index 1"), "{} {}", end.stdout, end.stderr);
    assert!(!end.stdout.contains("rtindex"), "{}", end.stdout);
    assert!(end.stderr.contains("No space left"), "{}", end.stderr);
    let found: u32 = lines
        .last()
        .and_then(|line| line.parse().ok())
        .expect("a count");
    assert!(found > 1000, "{}", end.stdout);
}

#[test]
fn a_folder_without_rights_is_told_and_the_rest_is_searched() {
    require_root!();
    require_tool!("setpriv");
    let folder = TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("closed")).expect("a folder");
    fs::create_dir(folder.path().join("listed")).expect("a folder");
    fs::write(folder.path().join("listed/b.pcap"), "").expect("a file");
    fs::write(folder.path().join("c.pcap"), "").expect("a file");
    record(folder.path(), &["-w", "a.pcap"]);
    // The names in "listed" can be read, the files not; c.pcap cannot be opened.
    let script = r#"chmod 755 "$2" && chmod 644 "$2"/a.pcap* && chmod 700 "$2/closed" "$2/c.pcap" &&
        chmod 744 "$2/listed" &&
        setpriv --reuid 65534 --clear-groups --bounding-set=-all --inh-caps=-all "$1" find -r "$2" --json"#;
    let mut command = Command::new("bash");
    command
        .args(["-c", script, "bash", BINARY])
        .arg(folder.path());
    let end = Running::start(command).wait(LIMIT);
    assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
    for text in [
        "closed: cannot be read",
        "b.pcap: cannot be read",
        "c.pcap: ",
    ] {
        assert!(end.stderr.contains(text), "{}", end.stderr);
    }
    let objects = objects(&end);
    let totals = objects.last().expect("totals");
    assert_eq!(
        (&totals["packets"], &totals["failed_files"]),
        (&4000.into(), &3.into())
    );
}
