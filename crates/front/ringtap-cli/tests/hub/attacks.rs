// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ordinary users that ask the hub for more than their share, beside an honest reader.

use std::fs::{self, Permissions};
use std::io::{PipeWriter, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringtap_client::Connection;
use ringtap_testkit::{Namespace, Running, require_root, require_tool};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tempfile::{NamedTempFile, TempDir};

use crate::support::{BINARY, LARGE_POOL, LIMIT, RunningHub, lost_nothing};

pub(crate) const OUTSIDER: &str = include_str!("outsider.py");

/// A hub with this configuration whose socket every user reaches, and the attacker's program.
struct Attacked {
    hub: RunningHub,
    _config: NamedTempFile,
    program: NamedTempFile,
}

/// A file that every user may read.
pub(crate) fn public_file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file can be made");
    file.write_all(text.as_bytes()).expect("it can be written");
    fs::set_permissions(file.path(), Permissions::from_mode(0o644)).expect("it is ours");
    file
}

pub(crate) fn attack(
    program: &NamedTempFile,
    socket: &Path,
    action: &str,
    uids: &[u32],
) -> Running {
    let mut command = Command::new("python3");
    command.arg(program.path()).arg(socket);
    command.arg(action).args(uids.iter().map(u32::to_string));
    Running::start(command)
}

impl Attacked {
    fn new(test: &str, config: &str) -> Self {
        let config = public_file(config);
        let path = config.path().display().to_string();
        let hub = RunningHub::with(test, LARGE_POOL, &["-c", &path]);
        let folder = hub.path("");
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("it is ours");
        Attacked {
            hub,
            _config: config,
            program: public_file(OUTSIDER),
        }
    }

    fn attack(&self, action: &str, uids: &[u32]) -> Running {
        attack(&self.program, &self.hub.socket, action, uids)
    }

    /// Runs an attack beside traffic and an honest reader, which loses nothing.
    fn survive(&self, action: &str, uid: u32) -> String {
        let honest = self.hub.count("all", &["--stamps"]);
        let sending = self.hub.start_sending(10_000, 50_000);
        let told = self.attack(action, &[uid]).wait(LIMIT).success().stdout;
        assert!(sending.wait(LIMIT).status.success());
        lost_nothing(honest);
        told
    }
}

#[test]
fn users_that_take_all_connections_leave_some_for_another_user_and_for_root() {
    require_root!();
    require_tool!("python3");
    let users: Vec<u32> = (3001..3009).collect();
    let config = format!(
        "[[group]]\nname = \"all\"\nusers = {:?}\n[limits]\nconnections = 64\n\
         connections_per_user = 32\nhello_seconds = 1000\n",
        users
            .iter()
            .map(u32::to_string)
            .chain(["3009".into()])
            .collect::<Vec<_>>()
    );
    let attacked = Attacked::new("hub-crowd", &config);
    let hogs: Vec<_> = users
        .iter()
        .map(|uid| attacked.attack("connections", &[*uid]))
        .collect();
    for hog in &hogs {
        hog.wait_for_stdout("limits.connections", LIMIT);
    }
    let strangers = attacked.attack("connections", &[4001]);
    strangers.wait_for_stdout("limits.connections_of_strangers", LIMIT);
    // Root opens connections to ask for the status.
    let told = attacked.survive("once", 3009);
    assert!(told.contains("attached"), "{told}");
    drop((hogs, strangers));
    attacked.hub.finish();
}

#[test]
fn a_reader_whose_signals_take_long_costs_others_nothing() {
    require_root!();
    require_tool!("python3");
    let config = "[[group]]\nname = \"all\"\nusers = [\"nobody\"]\n";
    let attacked = Attacked::new("hub-watchers", config);
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../checks/ringtap_checks/attack/attacks.py"
    );
    let mut command = Command::new("python3");
    command.args([script, "doorbell_watchers", "--seconds", "8", "--socket"]);
    command.arg(&attacked.hub.socket);
    let attacker = Running::start(command);
    attacked
        .hub
        .wait_until("the attacker reads", |status| !status.readers.is_empty());
    let honest = attacked.hub.count("all", &["--stamps"]);
    let sending = attacked.hub.start_sending(2000, 10_000);
    assert!(sending.wait(LIMIT).status.success());
    lost_nothing(honest);
    let _end = attacker.wait(LIMIT).success();
    attacked.hub.finish();
}

#[test]
fn a_connection_without_hello_is_ended() {
    require_root!();
    require_tool!("python3");
    let config = "[[group]]\nname = \"all\"\n[limits]\nhello_seconds = 1\n";
    let attacked = Attacked::new("hub-silent", config);
    let told = attacked.survive("silent", 65_534);
    assert!(told.contains("limits.hello_seconds"), "{told}");
    attacked.hub.finish();
}

#[test]
fn a_user_without_rights_cannot_fill_the_log() {
    require_root!();
    require_tool!("python3");
    let config = "[[group]]\nname = \"all\"\n[limits]\nlog_lines_per_user_and_second = 1\n\
                  requests_per_second = 100000\n";
    let attacked = Attacked::new("hub-noise", config);
    let begun = Instant::now();
    attacked.survive("noisy", 65_534);
    let seconds = usize::try_from(begun.elapsed().as_secs()).expect("it fits");
    let log = attacked.hub.finish().stderr;
    let lines = log
        .lines()
        .filter(|line| line.contains("uid=65534"))
        .count();
    assert!(
        (1..=seconds + 3).contains(&lines),
        "{lines} lines in {seconds} s: {log}"
    );
    assert!(log.contains("lines left out"), "{log}");
}

#[test]
fn private_memory_of_a_user_is_limited_and_freed_though_its_processes_keep_it() {
    require_root!();
    require_tool!("python3");
    let config = "[[group]]\nname = \"all\"\nusers = [\"65534\"]\nprivate_pool = \"2MiB\"\n[limits]\n\
                  private_memory_per_user = \"10MiB\"\n";
    let attacked = Attacked::new("hub-hoard", config);
    let before = attacked.hub.settled_resources();
    let told = attacked.survive("hoard", 65_534);
    assert!(told.contains("limits.private_memory_per_user"), "{told}");
    attacked
        .hub
        .wait_until("the readers have left", |status| status.readers.is_empty());
    assert_eq!(attacked.hub.settled_resources(), before);
    attacked.hub.finish();
}

#[test]
fn subscriptions_of_a_user_are_limited_and_come_back() {
    require_root!();
    require_tool!("python3");
    let config = "[[group]]\nname = \"all\"\nusers = [\"65534\"]\n[limits]\n\
                  subscriptions_per_user = 5\n";
    let attacked = Attacked::new("hub-subscriptions", config);
    let told = attacked.survive("subscriptions", 65_534);
    assert!(told.contains("limits.subscriptions_per_user"), "{told}");
    attacked.hub.finish();
}

#[test]
fn a_hub_in_a_pid_namespace_serves_readers_outside_of_it() {
    require_root!();
    require_tool!("unshare");
    let net = Namespace::with_veth("hub-pid");
    let folder = TempDir::new().expect("a folder can be made");
    let socket = folder.path().join("hub.sock");
    let mut command = net.command("unshare");
    command.args([
        "--pid",
        "--fork",
        "--kill-child",
        BINARY,
        "hub",
        "-i",
        "packet:rx0",
    ]);
    command.arg("--socket").arg(&socket);
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    let device = format!("hub:all?socket={}", socket.display());
    let mut command = Command::new(BINARY);
    command.args(["count", "-q", "-c", "10", "--filter", "udp", "-i", &device]);
    let reader = Running::start(command);
    let connection = Connection::open(&socket, "test").expect("the hub answers");
    let deadline = Instant::now() + LIMIT;
    let readers = loop {
        let readers = connection.status().expect("the hub tells").readers;
        if !readers.is_empty() {
            break readers;
        }
        assert!(Instant::now() < deadline, "a reader attaches");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(readers[0].pid, 0, "no process of the hub's namespace");
    let mut command = net.command(BINARY);
    command.args(["send", "-i", "tx0", "-c", "10", "--rate", "100pps"]);
    let _sent = Running::start(command).wait(LIMIT).success();
    assert!(reader.wait(LIMIT).status.success());
}

#[test]
fn a_hub_may_open_as_many_descriptors_as_its_hard_limit_allows() {
    require_root!();
    let net = Namespace::with_veth("hub-limit");
    let folder = TempDir::new().expect("a folder can be made");
    let mut command = net.command("sh");
    command.args([
        "-c",
        "ulimit -Sn 100; ulimit -Hn 900; exec \"$@\"",
        "sh",
        BINARY,
    ]);
    command.args(["hub", "-i", "packet:rx0", "--socket"]);
    command.arg(folder.path().join("hub.sock"));
    let hub = Running::start(command);
    hub.wait_for_stderr("ringtap: hub of", LIMIT);
    let limits = fs::read_to_string(format!("/proc/{}/limits", hub.pid())).expect("it runs");
    let line = limits.lines().find(|line| line.contains("open files"));
    let numbers: Vec<_> = line.expect("a limit").split_whitespace().collect();
    assert_eq!(numbers[3..5], ["900", "900"], "{limits}");
}

/// Fills the pipe, so that a further write waits.
fn fill(pipe: &PipeWriter) {
    let flags = fcntl_getfl(pipe).expect("it is open");
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).expect("it is ours");
    for bytes in [4096, 1] {
        while (&*pipe).write(&vec![b'.'; bytes]).is_ok() {}
    }
    fcntl_setfl(pipe, flags).expect("it is ours");
}

#[test]
fn a_hub_whose_log_nobody_reads_serves_and_ends() {
    require_root!();
    require_tool!("python3");
    let net = Namespace::with_veth("hub-mute");
    let folder = TempDir::new().expect("a folder can be made");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("it is ours");
    let socket = folder.path().join("hub.sock");
    let config = public_file(
        "[[group]]\nname = \"all\"\n[limits]\nlog_lines_per_second = 100000\n\
         log_lines_per_user_and_second = 100000\nrequests_per_second = 100000\n",
    );
    let mut command = net.command(BINARY);
    command
        .args(["hub", "-i", "packet:rx0", "-c"])
        .arg(config.path());
    command.arg("--socket").arg(&socket);
    let (mut unread, log) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&unread).expect("it is ours");
    fcntl_setfl(&unread, flags | OFlags::NONBLOCK).expect("it is ours");
    let of_hub = log.try_clone().expect("a descriptor");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(of_hub);
    let mut hub = command.spawn().expect("it starts");
    let deadline = Instant::now() + LIMIT;
    let mut said = Vec::new();
    // Its last line before it serves: later ones find no room.
    while !String::from_utf8_lossy(&said).contains("ringtap: hub of") {
        assert!(Instant::now() < deadline, "the hub starts");
        std::thread::sleep(Duration::from_millis(20));
        let _nothing_yet = unread.read_to_end(&mut said);
    }
    fill(&log);
    let program = public_file(OUTSIDER);
    // Often enough for more lines than wait for standard error.
    for _ in 0..6 {
        let told = attack(&program, &socket, "noisy", &[65_534]).wait(LIMIT);
        assert!(told.success().stdout.contains("done"));
    }
    let connection = Connection::open(&socket, "test").expect("the hub answers");
    assert!(
        connection
            .status()
            .expect("the hub tells")
            .readers
            .is_empty()
    );
    let pid = rustix::process::Pid::from_child(&hub);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let deadline = Instant::now() + LIMIT;
    while hub.try_wait().expect("it is a child").is_none() {
        assert!(Instant::now() < deadline, "the hub ends");
        std::thread::sleep(Duration::from_millis(20));
    }
}
