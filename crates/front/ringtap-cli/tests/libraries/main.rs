// SPDX-License-Identifier: MIT OR Apache-2.0
//! Users' own analyses of a probe: the examples, and libraries that crash or hang.

#[path = "../probing/mod.rs"]
mod probing;
mod sandbox;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{LIMIT, NOBODY, Running, require_root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use probing::{RunningProbe, of_type};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Builds a library from a source in C, or in Rust.
fn library(folder: &TempDir, source: &str) -> PathBuf {
    let source = root().join(source);
    let output = folder.path().join("library.so");
    let mut command = if source.extension().is_some_and(|of| of == "rs") {
        let mut rustc = Command::new("rustc");
        rustc.args(["-O", "--edition", "2024", "--crate-type", "cdylib"]);
        rustc
    } else {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I"]);
        cc.arg(root().join("crates/front/ringtap-probe/include"));
        cc
    };
    command.arg(&source).arg("-o").arg(&output);
    let _built = Running::start(command).wait(LIMIT).success();
    output
}

/// A copy of the program in a folder of another user, which processes without rights cannot enter.
fn in_a_closed_folder(folder: &TempDir) -> String {
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).expect("a folder can be made");
    let program = closed.join("ringtap");
    fs::copy(env!("CARGO_BIN_EXE_ringtap"), &program).expect("the program can be copied");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("an own folder");
    chown(&closed, Some(NOBODY), Some(NOBODY)).expect("root may");
    program.display().to_string()
}

/// A probe with flows and a library; 2 workers, 2 processes.
struct LibraryProbe(RunningProbe);

impl LibraryProbe {
    fn start(name: &str, source: &str, keys: &str) -> Self {
        LibraryProbe(LibraryProbe::spawn(name, source, keys).started())
    }

    fn spawn(name: &str, source: &str, keys: &str) -> RunningProbe {
        let folder = TempDir::new().expect("a folder can be made");
        let library = library(&folder, source);
        let config = format!(
            "[[analysis]]\nkind = \"flows\"\n[[analysis]]\nkind = \"library\"\nname = \"own\"\n\
             library = \"{}\"\nevery = \"1s\"\n{keys}",
            library.display()
        );
        let program = in_a_closed_folder(&folder);
        let words = ["-i", "tap:rx0?direction=in"];
        RunningProbe::spawn(&program, name, &words, folder, &config)
    }

    /// The account of the library.
    fn ledger(&self) -> Value {
        self.0.status()["libraries"][0].clone()
    }

    fn analysed(&self) -> u64 {
        self.ledger()["analysed"].as_u64().expect("a number")
    }

    /// Waits until all of further packets are analysed, and returns how many it sent.
    fn send_until_all_are_analysed(&self) -> u64 {
        let begun = Instant::now();
        let mut sent = 0;
        loop {
            // Results of earlier packets come within an interval of 1 s, or two.
            let before = self.steady();
            self.0.send(1);
            sent += 50;
            if self.steady() == before + 50 {
                return sent;
            }
            assert!(begun.elapsed() < LIMIT, "{}", self.0.running.stderr());
        }
    }

    /// The number of analysed packets once it stays the same for three seconds.
    fn steady(&self) -> u64 {
        let begun = Instant::now();
        let mut last = (self.analysed(), Instant::now());
        while last.1.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.analysed();
            if now != last.0 {
                last = (now, Instant::now());
            }
            assert!(begun.elapsed() < LIMIT, "{}", self.0.running.stderr());
        }
        last.0
    }

    /// Ends the probe, which captured and metered all packets; returns the library's values and account.
    fn end(self, sent: u64) -> (Vec<Value>, Value) {
        let objects = self.0.end();
        let flows = of_type(&objects, "flow").into_iter();
        let flows = flows.filter_map(|flow| flow["orig_pkts"].as_u64());
        assert_eq!(flows.sum::<u64>(), sent);
        let ledger = of_type(&objects, "probe")[0];
        assert_eq!(
            (&ledger["captured"], &ledger["analysed"]),
            (&sent.into(), &sent.into())
        );
        let library = ledger["libraries"][0].clone();
        let numbers = [&library["analysed"], &library["not_analysed"]];
        let numbers = numbers.map(|number| number.as_u64().expect("a number"));
        assert_eq!(numbers[0] + numbers[1], sent, "{library}");
        let values = of_type(&objects, "measurement").into_iter();
        let values = values.filter(|one| one["analysis"] == "own");
        (values.cloned().collect(), library)
    }
}

fn sum(values: &[Value], name: &str) -> f64 {
    let values = values.iter().filter(|one| one["name"] == name);
    values
        .filter_map(|one| one["values"]["value"].as_f64())
        .sum()
}

#[test]
fn the_examples_in_c_and_rust_count_every_packet() {
    require_root!();
    for (source, name) in [
        ("protocols.c", "probe_lib_c"),
        ("protocols.rs", "probe_lib_rust"),
    ] {
        // A process that a busy machine keeps from running for long is no hang here.
        let keys = "settings = \"bytes\"\ntimeout = \"10m\"\n";
        let probe = LibraryProbe::start(name, &format!("examples/analysis/{source}"), keys);
        probe.0.send(40);
        let (values, ledger) = probe.end(2000);
        assert_eq!(ledger["not_analysed"], 0, "{ledger}");
        assert_eq!(sum(&values, "packets"), 2000.0, "{values:?}");
        assert!(values.iter().all(|one| one["key"] == "17"), "{values:?}");
        if source == "protocols.c" {
            assert_eq!(sum(&values, "bytes"), 60.0 * 2000.0);
        }
    }
}

#[test]
fn flows_of_a_process_that_crashed_go_to_the_others() {
    require_root!();
    let keys = "settings = \"crash\"\npause = \"10h\"\ntimeout = \"10m\"\n";
    let source = "crates/front/ringtap-cli/tests/libraries/faulty.c";
    let probe = LibraryProbe::start("probe_crash", source, keys);
    probe.0.send(40);
    probe
        .0
        .running
        .wait_for_stderr("analysis own: process 0 ended with signal: 6", LIMIT);
    let later = probe.send_until_all_are_analysed();
    let (values, ledger) = probe.end(2000 + later);
    assert_eq!(
        (&ledger["crashes"], &ledger["hangs"]),
        (&1.into(), &0.into())
    );
    assert!(ledger["not_analysed"].as_u64() > Some(0), "{ledger}");
    assert_eq!(
        sum(&values, "packets"),
        ledger["analysed"].as_f64().expect("a number")
    );
}

#[test]
fn a_process_that_hangs_is_killed_and_started_again() {
    require_root!();
    let keys = "settings = \"hang\"\ntimeout = \"20s\"\n";
    let source = "crates/front/ringtap-cli/tests/libraries/faulty.c";
    let probe = LibraryProbe::start("probe_hang", source, keys);
    probe.0.send(40);
    probe
        .0
        .running
        .wait_for_stderr("process 0 did not answer for 20s, and was killed", LIMIT);
    probe
        .0
        .running
        .wait_for_stderr("process 0 runs again", LIMIT);
    let later = probe.send_until_all_are_analysed();
    let (_, ledger) = probe.end(2000 + later);
    assert!(ledger["hangs"].as_u64() >= Some(1), "{ledger}");
    assert!(ledger["not_analysed"].as_u64() > Some(0), "{ledger}");
}

#[test]
fn a_library_that_forges_messages_prints_a_bounded_number_of_lines() {
    require_root!();
    let keys = "settings = \"flood\"\ntimeout = \"10m\"\n";
    let source = "crates/front/ringtap-cli/tests/libraries/faulty.c";
    let probe = LibraryProbe::start("probe_flood", source, keys);
    let begun = Instant::now();
    probe.0.send(40);
    probe.0.running.wait_for_stderr("forged", LIMIT);
    // All 20,000 are through once the results after them are there.
    let later = probe.send_until_all_are_analysed();
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("it fits");
    let lines = probe.0.running.stderr();
    let lines = lines.lines().filter(|line| line.contains("forged")).count();
    assert!(
        (1..=10 * (seconds + 2)).contains(&lines),
        "{lines} in {seconds} s"
    );
    assert!(lines < 10_000, "{lines} of 20,000 in {seconds} s");
    let (_, ledger) = probe.end(2000 + later);
    assert_eq!(ledger["not_analysed"], 0, "{ledger}");
}

#[test]
fn a_killed_process_is_started_again_and_none_outlives_a_killed_probe() {
    require_root!();
    let source = "crates/front/ringtap-cli/tests/libraries/faulty.c";
    let probe = LibraryProbe::start("probe_kill", source, "timeout = \"10m\"\n");
    let mut processes = processes(probe.0.folder.path());
    assert_eq!(processes.len(), 2);
    kill_process(processes[0], Signal::KILL).expect("it runs");
    probe
        .0
        .running
        .wait_for_stderr("process 0 ended with signal: 9", LIMIT);
    probe
        .0
        .running
        .wait_for_stderr("process 0 runs again", LIMIT);
    let sent = probe.send_until_all_are_analysed();
    assert_eq!(probe.ledger()["crashes"], 1);
    assert!(sent >= 50);
    processes = self::processes(probe.0.folder.path());
    assert_eq!(processes.len(), 2);
    probe.0.running.signal(Signal::KILL);
    let begun = Instant::now();
    while !self::processes(probe.0.folder.path()).is_empty() {
        assert!(begun.elapsed() < LIMIT, "{processes:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Processes of the libraries of this folder, process 0 first.
fn processes(folder: &Path) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("processes").flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let is_own = words.contains("\"worker\":") && words.contains(&*folder.to_string_lossy());
        if let (Some(pid), true) = (pid.and_then(Pid::from_raw), is_own) {
            found.push((words.contains("\"worker\":1"), pid));
        }
    }
    found.sort_unstable_by_key(|(is_second, _)| *is_second);
    found.into_iter().map(|(_, pid)| pid).collect()
}

#[test]
fn a_library_that_refuses_starts_no_probe() {
    require_root!();
    let source = "crates/front/ringtap-cli/tests/libraries/faulty.c";
    let probe = LibraryProbe::spawn(
        "probe_refuse",
        source,
        "settings = \"refuse\"\ntimeout = \"10m\"\n",
    );
    let end = probe.running.wait(LIMIT);
    assert!(!end.status.success());
    let told = end.stderr.contains("analysis own:")
        && end
            .stderr
            .contains("refuses to start: no settings of this kind");
    assert!(told, "{}", end.stderr);
}
