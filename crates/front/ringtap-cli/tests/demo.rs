// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo, as its users run it: with root, without, interrupted, killed.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ringtap_testkit::{
    Finished, LIMIT, NOBODY, PublicProgram, Running, orphans, require_root, require_tool,
    say_skipped, tool_exists,
};
use rustix::process::Signal;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

fn demo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("demo").args(args).current_dir(folder);
    command
}

/// Both counters balance, and the file holds what the recorder's counters says.
fn assert_complete(end: &Finished, file: &Path) {
    let shown = format!("stdout: {}\nstderr: {}", end.stdout, end.stderr);
    assert!(end.status.success(), "{}\n{shown}", end.status);
    assert_eq!(end.stdout.matches("  balanced: ").count(), 4, "{shown}");
    let delivered = numbers_after(&end.stdout, "  delivered ");
    let [counted, recorded, one, other] = delivered[..] else {
        panic!("four counters wanted\n{shown}");
    };
    assert!(one > 0 && other > 0 && one + other < counted, "{shown}");
    assert!(counted > recorded && recorded > 0, "{shown}");
    let name = file.display().to_string();
    assert!(end.stdout.contains(&name), "{name} is not named\n{shown}");
    if tool_exists("capinfos") {
        assert_eq!(packets_in(file), recorded, "{shown}");
    } else {
        say_skipped("the file was not checked: needs the program capinfos");
    }
}

/// The network namespace of a process, as the kernel names it: `net:[4026532008]`.
fn network_namespace(process: u32) -> PathBuf {
    fs::read_link(format!("/proc/{process}/ns/net")).expect("the process runs")
}

/// What keeps a network namespace alive: processes inside, descriptors, mounts.
fn holders(namespace: &Path) -> Vec<String> {
    let name = namespace.to_str().expect("the kernel writes ASCII");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
    let mounts = mounts.lines().filter(|line| line.contains(name));
    let mut found: Vec<_> = mounts.map(str::to_owned).collect();
    for process in fs::read_dir("/proc").expect("it can be listed").flatten() {
        let of = |folder: &str| {
            fs::read_dir(process.path().join(folder))
                .into_iter()
                .flatten()
        };
        let links = of("ns").chain(of("fd")).flatten().map(|entry| entry.path());
        let inside = links.filter(|link| fs::read_link(link).is_ok_and(|to| to == namespace));
        found.extend(inside.map(|link| link.display().to_string()));
    }
    found
}

/// Neither an eBPF program or map of the demo outlives it nor its network; the kernel may take a
/// moment for that.
fn assert_nothing_left(namespace: Option<&Path>) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut left = orphans();
        left.extend(namespace.map(holders).unwrap_or_default());
        // Of tests and benchmarks that run beside this one; the demo has no such program.
        left.retain(|object| !object.contains("rt_drop"));
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left behind: {left:#?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// The number that follows each `label`.
fn numbers_after(text: &str, label: &str) -> Vec<u64> {
    let number = |rest: &str| {
        let word = rest.split_whitespace().next()?;
        word.replace(',', "").parse().ok()
    };
    let lines = text.lines().filter_map(|line| line.strip_prefix(label));
    lines.filter_map(number).collect()
}

fn packets_in(file: &Path) -> u64 {
    let mut command = Command::new("capinfos");
    command.args(["-M", "-c"]).arg(file);
    let end = Running::start(command).wait(LIMIT).success();
    let numbers = numbers_after(&end.stdout, "Number of packets:");
    *numbers.first().expect("capinfos counts packets")
}

#[test]
fn with_root_both_readers_balance_and_nothing_is_left() {
    require_root!();
    require_tool!("bpftool");
    let folder = TempDir::new().expect("a folder can be made");
    let command = demo(folder.path(), &["--seconds", "2"]);
    let end = Running::start(command).wait(LIMIT);
    assert_complete(&end, &folder.path().join("ringtap-demo.pcapng"));
    assert!(end.stdout.contains("tap:rx0"), "{}", end.stdout);
    assert_nothing_left(None);
}

#[test]
fn an_interrupt_ends_it_with_complete_counters() {
    require_root!();
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("mine.pcapng");
    let args = ["--seconds", "15", "--write", "mine.pcapng"];
    let running = Running::start(demo(folder.path(), &args));
    running.wait_for_stdout("\n       1 ", LIMIT);
    running.interrupt();
    assert_complete(&running.wait(LIMIT), &file);
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    require_root!();
    require_tool!("bpftool");
    let folder = TempDir::new().expect("a folder can be made");
    let args = ["--seconds", "15"];
    let running = Running::start(demo(folder.path(), &args));
    running.wait_for_stdout("\n       1 ", LIMIT);
    let namespace = network_namespace(running.pid());
    assert_ne!(namespace, network_namespace(std::process::id()));
    assert!(!holders(&namespace).is_empty(), "the demo runs in it");
    running.signal(Signal::KILL);
    assert!(!running.wait(LIMIT).status.success());
    assert_nothing_left(Some(&namespace));
}

/// Whether this system gives an unprivileged process a network of its own.
fn has_user_namespaces() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-current-user", "--net", "true"]);
    command.uid(NOBODY).gid(NOBODY);
    let end = Running::start(command).wait(LIMIT);
    end.status.success()
}

#[test]
fn without_root_the_packet_source_does_the_same() {
    require_root!();
    require_tool!("unshare");
    if !has_user_namespaces() {
        say_skipped("this system gives no user namespace to unprivileged processes");
        return;
    }
    let program = PublicProgram::copy_of(BINARY);
    let mut command = program.as_nobody();
    command.args(["demo", "--seconds", "2"]);
    let end = Running::start(command).wait(LIMIT);
    assert_complete(&end, &program.folder().join("ringtap-demo.pcapng"));
    assert!(end.stdout.contains("packet:rx0"), "{}", end.stdout);
    assert!(end.stdout.contains("sudo ringtap demo"), "{}", end.stdout);
}
