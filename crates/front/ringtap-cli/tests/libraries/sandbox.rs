// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a hostile library can do in its process, and what is left of it: nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_client::Connection;
use ringtap_testkit::{LIMIT, NOBODY, require_root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::probing::{RunningProbe, of_type};
use super::{LibraryProbe, library, processes};

const HOSTILE: &str = "crates/front/ringtap-cli/tests/libraries/hostile.c";
/// Attempts of `hostile.c`, and how often two processes make each of them at three moments.
const ATTEMPTS: usize = 35;
const TIMES: f64 = 6.0;

/// Files of a test: one of root's that nobody else may read, and one that everybody may.
struct TestFiles {
    folder: TempDir,
    closed: PathBuf,
    listed: PathBuf,
}

impl TestFiles {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder can be made");
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), all).expect("an own folder");
        let file = |name: &str, mode| {
            let path = folder.path().join(name);
            fs::write(&path, "text").expect("an own folder");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("an own file");
            path
        };
        TestFiles {
            closed: file("closed", 0o600),
            listed: file("listed", 0o644),
            folder,
        }
    }

    /// Keys of a configuration with which a library tries these files.
    fn keys(&self) -> String {
        let (closed, listed) = (self.closed.display(), self.listed.display());
        format!("settings = \"{closed}:{listed}\"\nreads = [\"{listed}\"]\ntimeout = \"10m\"\n")
    }
}

/// Sums of the library's values with this name, by key.
fn by_key(values: &[Value], name: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for one in values.iter().filter(|one| one["name"] == name) {
        let key = one["key"].as_str().unwrap_or_default().to_owned();
        let value = one["values"]["value"].as_f64().expect("a number");
        *sums.entry(key).or_default() += value;
    }
    sums
}

/// Numbers of the processes that a library started and that left their parent.
fn orphans() -> Vec<Pid> {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let orphans = processes.filter(|entry| {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        name.trim() == "rt-orphan"
    });
    let numbers = orphans.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

/// Ends what a library without a sandbox has left, so that it disturbs no other test; returns how much that was.
fn end_orphans() -> usize {
    let orphans = orphans();
    for orphan in &orphans {
        let _ended = kill_process(*orphan, Signal::KILL);
    }
    orphans.len()
}

/// Requires that every attempt was made and refused, and what a library may do worked.
fn require_refusals(values: &[Value]) {
    let (refused, allowed) = (by_key(values, "refused"), by_key(values, "allowed"));
    let successes: Vec<_> = allowed.iter().filter(|(_, times)| **times > 0.0).collect();
    assert!(successes.is_empty(), "{successes:?}");
    assert_eq!(refused.len(), ATTEMPTS, "{refused:?}");
    let rare: Vec<_> = refused.iter().filter(|(_, it)| **it < TIMES).collect();
    assert!(rare.is_empty(), "{rare:?}");
    let may = by_key(values, "may");
    assert!(
        may.len() == 2 && may.values().all(|it| *it > 0.0),
        "{may:?}"
    );
}

#[test]
fn a_hostile_library_of_roots_probe_can_do_nothing_of_35_things() {
    require_root!();
    let files = TestFiles::new();
    let probe = LibraryProbe::start("probe_hostile", HOSTILE, &files.keys());
    probe.0.send(40);
    let pids = processes(probe.0.folder.path());
    let users = pids.iter().map(|pid| {
        let process = fs::metadata(format!("/proc/{}", pid.as_raw_nonzero()));
        process.expect("it runs").uid()
    });
    let users: Vec<_> = users.collect();
    let (values, ledger) = probe.end(2000);
    let left = end_orphans();
    require_refusals(&values);
    assert_eq!(left, 0, "processes of the library");
    assert_eq!(ledger["not_analysed"], 0, "{ledger}");
    assert_eq!(users.len(), 2);
    let is_nameless = |user: &u32| (61_184..65_520).contains(user);
    assert!(users.iter().all(is_nameless), "{users:?}");
    for made in ["/root/rt-hostile", "/tmp/rt-hostile"] {
        assert!(!Path::new(made).exists(), "{made}");
    }
    assert_eq!(fs::read(&files.listed).expect("it is there"), b"text");
}

#[test]
fn a_hostile_library_of_a_user_cannot_read_the_users_files() {
    require_root!();
    let files = TestFiles::new();
    // The library must be the user's to read; its other files are, too.
    chown(&files.closed, Some(NOBODY), Some(NOBODY)).expect("root may");
    let folder = TempDir::new().expect("a folder can be made");
    chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
    let path = library(&folder, HOSTILE);
    let program = folder.path().join("ringtap");
    fs::copy(super::probing::BINARY, &program).expect("the program can be copied");
    let config = format!(
        "[[analysis]]\nkind = \"library\"\nname = \"own\"\nlibrary = \"{}\"\nevery = \"1s\"\n{}",
        path.display(),
        files.keys()
    );
    // As with file capabilities: rights to capture, but not those of root.
    let rights = "+net_admin,+net_raw,+bpf,+perfmon,+ipc_lock";
    let user = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.args(["--inh-caps", rights, "--ambient-caps", rights]);
    command.arg(&program).env("XDG_RUNTIME_DIR", folder.path());
    let words = ["-i", "tap:rx0?direction=in"];
    let probe = RunningProbe::spawn_by(command, "probe_user", &words, folder, &config).started();
    probe.send(40);
    let objects = probe.end();
    let values = of_type(&objects, "measurement").into_iter().cloned();
    let values: Vec<_> = values.filter(|one| one["analysis"] == "own").collect();
    let left = end_orphans();
    require_refusals(&values);
    assert_eq!(left, 0, "processes of the library");
    drop(files.folder);
}

#[test]
fn nothing_of_a_library_outlives_its_process_or_a_killed_probe() {
    require_root!();
    let files = TestFiles::new();
    let probe = LibraryProbe::start("probe_orphan", HOSTILE, &files.keys());
    let hub = format!("/run/ringtap-root/probe-{}.sock", probe.0.running.pid());
    let subscriptions = || {
        let connection = Connection::open(Path::new(&hub), "test").expect("the probe's hub");
        let readers = connection.status().expect("an answer").readers;
        let of_library = readers.iter().filter(|one| one.name.starts_with("own "));
        of_library.count()
    };
    assert_eq!(subscriptions(), 2);
    kill_process(processes(probe.0.folder.path())[0], Signal::KILL).expect("it runs");
    probe
        .0
        .running
        .wait_for_stderr("process 0 runs again", LIMIT);
    let after_a_kill = subscriptions();
    let begun = Instant::now();
    probe.0.running.signal(Signal::KILL);
    let folder = probe.0.folder.path();
    while !processes(folder).is_empty() && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(50));
    }
    let left = end_orphans();
    assert_eq!(after_a_kill, 2, "the killed process has no subscription");
    assert_eq!((processes(folder).len(), left), (0, 0));
}
