// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap packets`: lines beside those of tcpdump, objects, and files of columns.

use std::fs;
use std::path::Path;
use std::process::Command;

use ringtap_testkit::{Finished, LIMIT, Running, require_tool};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

fn ringtap(words: &[&str]) -> Finished {
    let mut command = Command::new(BINARY);
    command.args(words);
    Running::start(command).wait(LIMIT)
}

/// A file of 500 packets.
fn recorded(folder: &Path) -> String {
    let file = format!("{}/all.pcapng", folder.display());
    let sim = "sim:max?burst=500&flows=40";
    let _recorded = ringtap(&["record", "-q", "-i", sim, "-w", &file]).success();
    file
}

#[test]
fn lines_have_the_times_and_ends_of_tcpdumps() {
    require_tool!("tcpdump");
    let folder = tempfile::tempdir().expect("a folder");
    let file = recorded(folder.path());
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-nqr", &file]);
    let expected = Running::start(tcpdump).wait(LIMIT).success().stdout;
    let shown = ringtap(&["packets", "-r", &file]).success();
    let ends = |text: &str| {
        let lines = text.lines().map(|line| line.split(": ").next());
        lines.flatten().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ends(&shown.stdout), ends(&expected));
    assert_eq!(ends(&shown.stdout).len(), 500);
    assert!(shown.stderr.contains("500 offered"), "{}", shown.stderr);
}

#[test]
fn an_object_has_the_community_id_and_the_limit_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = recorded(folder.path());
    let ids = |seed: &str| {
        let words = ["packets", "-r", &file, "--json", seed, "-c", "3"];
        let shown = ringtap(&words).success().stdout;
        let lines = shown.lines().map(serde_json::from_str::<Value>);
        let lines: Vec<_> = lines.map(|line| line.expect("JSON")).collect();
        assert!(lines.iter().all(|line| line["type"] == "packet"));
        let ids = lines.iter().map(|line| line["community_id"].to_string());
        ids.collect::<Vec<_>>()
    };
    let (usual, seeded) = (ids("--community-id"), ids("--community-id=1"));
    assert!(usual.len() == 3 && usual.iter().all(|id| id.starts_with("\"1:")));
    assert!(usual == ids("--community-id=0") && usual != seeded);
}

#[test]
fn a_file_becomes_files_of_its_hours_and_every_packet_is_accounted_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = recorded(folder.path());
    for (format, extension) in [
        ("parquet", "parquet"),
        ("arrow", "arrow"),
        ("csv", "csv.gz"),
    ] {
        let tables = format!("{}/{format}", folder.path().display());
        let words = [
            "packets", "-r", &file, "-o", format, "-w", &tables, "--json",
        ];
        let written = ringtap(&words).success().stdout;
        let told = written.lines().find(|line| line.contains("\"written\""));
        let told: Value = serde_json::from_str(told.expect("a line")).expect("JSON");
        assert_eq!((&told["packets"], &told["files"]), (&500.into(), &1.into()));
        let hours: Vec<_> = fs::read_dir(&tables).expect("a folder").flatten().collect();
        assert_eq!(hours.len(), 1);
        let hour = fs::read_dir(hours[0].path())
            .expect("a folder")
            .flatten()
            .next();
        let hour = hour.expect("an hour").path();
        let file = fs::read_dir(hour).expect("a folder").flatten().next();
        let name = file.expect("a file").file_name();
        let name = name.to_string_lossy();
        assert!(
            name.starts_with("packets-") && name.ends_with(extension),
            "{name}"
        );
    }
}

#[test]
fn packets_that_cannot_be_written_are_no_longer_counted_as_delivered() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = recorded(folder.path());
    let words = ["packets", "--json", "-r", &file, "-o", "csv", "-w"];
    let write_to = |folder: &Path| {
        let path = folder.display().to_string();
        ringtap(&[&words[..], &[&path]].concat())
    };
    let other = folder.path().join("other");
    let _written = write_to(&other).success();
    let day = fs::read_dir(&other).expect("a folder").flatten().next();
    let day = day.expect("a day").file_name();
    // A file is where the folder of the day should be.
    let tables = folder.path().join("tables");
    fs::create_dir(&tables).expect("a folder");
    fs::write(tables.join(&day), "").expect("a file");
    let refused = write_to(&tables);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.stderr);
    let counters = refused.stdout.lines().last().expect("counters");
    let counters: Value = serde_json::from_str(counters).expect("JSON");
    assert_eq!(counters["delivered"], 0);
    assert_eq!(counters["dropped"]["not_written"], 500);
    assert!(
        refused.stderr.contains(&*day.to_string_lossy()),
        "{}",
        refused.stderr
    );
}

#[test]
fn flags_that_need_others_are_refused() {
    for words in [
        &["packets", "-i", "sim:max?burst=1", "-q"][..],
        &["packets", "-i", "sim:max?burst=1", "-o", "parquet"],
        &["packets", "-i", "sim:max?burst=1", "-w", "x"],
        &["packets", "-i", "sim:max?burst=1", "-o", "xml", "-w", "x"],
        &["packets", "-i", "sim:max?burst=1", "--rotate", "5"],
    ] {
        let refused = ringtap(words);
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{words:?}: {}",
            refused.stderr
        );
    }
}
