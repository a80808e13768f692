// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parquet files in DuckDB, and folders that cannot be written.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use ringtap_probe::export::Exporter as _;
use ringtap_probe::export::parquet::ParquetExporter;
use ringtap_probe::record::{Details, FlowRecord, Measurement, Record};
use ringtap_testkit::{LIMIT, Running, require_root, say_skipped};

use crate::flows::{NEW_YEAR_NS, Totals, flows, records, totals};

/// Names the folder to the copy of this test that runs on a small disk.
const SMALL_DISK: &str = "RINGTAP_TEST_SMALL_DISK";
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn duckdb_reads_each_flow_and_measurement() {
    let Some(python) = python_with("duckdb") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut flows = flows(40_000);
    flows[1].details = Some(Box::new(Details {
        server_name: Some("a name, with \"quotes\"".into()),
        ..Details::default()
    }));
    let mut exporter = exporter(folder.path());
    for part in flows.chunks(999) {
        exporter.write(&records(part)).expect("memory or disk");
    }
    exporter.write(&[measurement()]).expect("memory or disk");
    assert!(
        names(&folder.path().join("flows"))
            .iter()
            .all(|name| name.starts_with('.'))
    );
    exporter.flush().expect("a file");
    assert_eq!(names(&folder.path().join("flows")).len(), 1);

    let lines = sql(
        &python,
        folder.path(),
        "select protocol, source, destination, source_port, \
        destination_port, forward_packets, forward_bytes, backward_packets, backward_bytes from flows",
    );
    let mut got = Totals::new();
    for line in lines.lines() {
        let [
            protocol,
            from,
            to,
            from_port,
            to_port,
            packets,
            bytes,
            back_packets,
            back_bytes,
        ] = line
            .split('|')
            .collect::<Vec<_>>()
            .try_into()
            .expect("nine fields");
        let number = |text: &str| text.parse().expect("a number");
        let address = |text: &str| text.parse().expect("an address");
        let there = (
            number(protocol),
            address(from),
            address(to),
            number(from_port),
            number(to_port),
        );
        let back = (there.0, there.2, there.1, there.4, there.3);
        got.insert(there, (number(packets), number(bytes)));
        if number(back_packets) > 0 {
            got.insert(back, (number(back_packets), number(back_bytes)));
        }
    }
    assert_eq!(got, totals(&flows));
    let found = sql(
        &python,
        folder.path(),
        "select community_id from flows order by first_time",
    );
    let expected = flows.iter().filter_map(FlowRecord::community_id);
    let expected: Vec<_> = expected.map(|id| id.to_string()).collect();
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    let question = "select epoch_us(min(first_time)), count(handshake_ns), max(server_name), any_value(end_reason) from flows";
    let want = format!("{}|20000|a name, with \"quotes\"|idle", NEW_YEAR_NS / 1000);
    assert_eq!(sql(&python, folder.path(), question).trim(), want);
    let question = "select analysis, name, key, value_name, value from measurements order by value";
    assert_eq!(
        sql(&python, folder.path(), question).trim(),
        "talkers|source|10.0.0.1|packets|2.5\ntalkers|source|10.0.0.1|bytes|700.0"
    );
}

#[test]
fn a_file_is_complete_when_its_time_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let mut exporter = ParquetExporter::new(path.clone(), Duration::ZERO).expect("a folder");
    for number in 1..4 {
        exporter.write(&records(&flows(10))).expect("memory");
        exporter.tick().expect("a file");
        assert_eq!(names(&path.join("flows")).len(), number);
    }
    exporter.flush().expect("nothing is left");
    assert_eq!(names(&path.join("flows")).len(), 3);
}

#[test]
fn a_folder_that_is_gone_costs_counted_records_until_it_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut exporter = exporter(folder.path());
    fs::remove_dir(folder.path().join("flows")).expect("it is empty");
    exporter.write(&records(&flows(10))).expect("memory");
    let failure = exporter.flush().expect_err("no folder").to_string();
    assert!(failure.contains("flows: "), "{failure}");
    assert_eq!(exporter.lost(), 10);
    fs::create_dir(folder.path().join("flows")).expect("a folder");
    exporter.write(&records(&flows(5))).expect("memory");
    exporter.flush().expect("a file");
    assert_eq!(
        (exporter.lost(), names(&folder.path().join("flows")).len()),
        (10, 1)
    );
}

#[test]
fn a_full_disk_costs_counted_records_and_leaves_only_complete_files() {
    let Ok(folder) = env::var(SMALL_DISK) else {
        return on_a_small_disk(
            "files::a_full_disk_costs_counted_records_and_leaves_only_complete_files",
        );
    };
    let folder = Path::new(&folder);
    let mut exporter = exporter(folder);
    let mut sent = 0;
    while exporter.lost() == 0 {
        let written = exporter.write(&records(&flows(5000)));
        written.expect("lost records are counted apart");
        sent += 5000;
        let _full = exporter.flush();
    }
    let lost = exporter.lost();
    assert_eq!(lost + rows(&folder.join("flows")), sent);
    println!("lost {lost} of {sent}");
    for name in names(&folder.join("flows")) {
        fs::remove_file(folder.join("flows").join(name)).expect("a file");
    }
    exporter
        .write(&records(&flows(20)))
        .expect("there is room again");
    exporter.flush().expect("there is room again");
    assert_eq!((exporter.lost(), rows(&folder.join("flows"))), (lost, 20));
    println!("FULL");
}

/// Runs the test again where its folder is a file system of 700 kB.
fn on_a_small_disk(test: &str) {
    require_root!();
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("mount -t tmpfs -o size=700k tmpfs \"${SMALL_DISK}\"; exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", &script, "sh"]);
    command.arg(env::current_exe().expect("a test is a program"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(SMALL_DISK, folder.path());
    let finished = Running::start(command).wait(LIMIT).success();
    assert!(finished.stdout.contains("FULL"), "{}", finished.stdout);
}

fn exporter(folder: &Path) -> ParquetExporter {
    ParquetExporter::new(folder.to_owned(), HOUR).expect("a folder")
}

fn measurement() -> Record {
    Record::Measurement(Box::new(Measurement {
        analysis: "talkers".into(),
        name: "source".into(),
        key: Some("10.0.0.1".into()),
        from_ns: NEW_YEAR_NS,
        to_ns: NEW_YEAR_NS + 1_000_000_000,
        values: vec![("packets", 2.5), ("bytes", 700.0)],
    }))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.into_string().expect("text"))
        .collect()
}

/// Rows of the files in a folder, all of which are complete.
fn rows(folder: &Path) -> u64 {
    let rows = names(folder).into_iter().map(|name| {
        let file = fs::File::open(folder.join(&name)).expect("a file");
        let reader =
            SerializedFileReader::new(file).unwrap_or_else(|error| panic!("{name}: {error}"));
        u64::try_from(reader.metadata().file_metadata().num_rows()).expect("a number of rows")
    });
    rows.sum()
}

/// Rows that a question has as its answer, fields divided by bars.
fn sql(python: &Command, folder: &Path, question: &str) -> String {
    let script = "
import duckdb, sys
for table in ['flows', 'measurements']:
    duckdb.sql(f\"create view {table} as select * from '{sys.argv[1]}/{table}/*.parquet'\")
for row in duckdb.sql(sys.argv[2]).fetchall():
    print(*row, sep='|')
";
    let mut command = Command::new(python.get_program());
    for (name, value) in python.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.args(["-c", script]).arg(folder).arg(question);
    Running::start(command).wait(LIMIT).success().stdout
}

/// A Python that has this package, among those that `scripts/prepare test` installed.
fn python_with(package: &str) -> Option<Command> {
    let home = env::var("HOME").unwrap_or_default();
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", format!("{home}/.cache/ringtap/python"));
    command.args(["-c", &format!("import {package}")]);
    if command.output().is_ok_and(|output| output.status.success()) {
        return Some(command);
    }
    say_skipped(&format!("needs the Python package {package}"));
    None
}
