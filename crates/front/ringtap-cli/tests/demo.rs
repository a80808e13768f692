// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo, as its users run it: with root, without, interrupted, killed.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use ringtap_testkit::{
    EbpfObject, Finished, LIMIT, NOBODY, PublicProgram, Running, ebpf_objects_of, require_root,
    require_tool, say_skipped, tool_exists, wait_until_gone,
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
    assert_eq!(end.stdout.matches("  balanced: ").count(), 5, "{shown}");
    let delivered = numbers_after(&end.stdout, "  delivered ");
    let [counted, recorded, one, other, probed] = delivered[..] else {
        panic!("five counters wanted\n{shown}");
    };
    assert!(one > 0 && other > 0 && one + other < counted, "{shown}");
    assert!(counted > recorded && recorded > 0, "{shown}");
    assert_eq!(
        numbers_after(&end.stdout, "  analysed "),
        [probed],
        "{shown}"
    );
    let flows = end.stdout.matches("\n    udp 198.18.").count();
    assert_eq!(flows, 3, "the three largest flows are shown\n{shown}");
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

/// Processes outside of `process`, and mounts, that keep its network namespace alive.
fn other_holders(process: u32, namespace: &Path) -> Vec<String> {
    let name = namespace.to_str().expect("the kernel writes ASCII");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("it can be read");
    let mounts = mounts.lines().filter(|line| line.contains(name));
    let mut found: Vec<_> = mounts.map(str::to_owned).collect();
    let own = Path::new("/proc").join(process.to_string());
    let all = fs::read_dir("/proc").expect("it can be listed").flatten();
    for other in all.map(|entry| entry.path()).filter(|path| *path != own) {
        let links_in = |folder: &str| fs::read_dir(other.join(folder)).into_iter().flatten();
        let links = links_in("ns").chain(links_in("fd")).flatten();
        let inside = links
            .map(|entry| entry.path())
            .filter(|link| fs::read_link(link).is_ok_and(|to| to == namespace));
        found.extend(inside.map(|link| link.display().to_string()));
    }
    found
}

/// Starts the demo and waits for its first second; lists its eBPF objects.
fn first_second(command: Command) -> (Running, Vec<EbpfObject>) {
    let running = Running::start(command);
    running.wait_for_stdout("\n       1 ", LIMIT);
    // The demo must not end while its objects are listed.
    running.signal(Signal::STOP);
    let objects = ebpf_objects_of(running.pid());
    running.signal(Signal::CONT);
    let has_tap = objects.iter().any(|object| object.starts_with("prog "));
    assert!(has_tap, "the demo runs eBPF programs: {objects:?}");
    (running, objects)
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
fn with_root_the_counters_of_all_readers_balance() {
    require_root!();
    let folder = TempDir::new().expect("a folder can be made");
    let command = demo(folder.path(), &["--seconds", "2"]);
    let end = Running::start(command).wait(LIMIT);
    assert_complete(&end, &folder.path().join("ringtap-demo.pcapng"));
    assert!(end.stdout.contains("tap:rx0"), "{}", end.stdout);
}

#[test]
fn an_interrupt_ends_it_with_complete_counters_and_nothing_is_left() {
    require_root!();
    require_tool!("bpftool");
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("mine.pcapng");
    let args = ["--seconds", "15", "--write", "mine.pcapng"];
    let (running, objects) = first_second(demo(folder.path(), &args));
    running.interrupt();
    assert_complete(&running.wait(LIMIT), &file);
    wait_until_gone(&objects);
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    require_root!();
    require_tool!("bpftool");
    let folder = TempDir::new().expect("a folder can be made");
    let args = ["--seconds", "15"];
    let (running, objects) = first_second(demo(folder.path(), &args));
    let namespace = network_namespace(running.pid());
    assert_ne!(namespace, network_namespace(std::process::id()));
    // The number of a namespace may be that of another one as soon as it is gone.
    let others = other_holders(running.pid(), &namespace);
    assert!(others.is_empty(), "these keep the namespace: {others:?}");
    running.signal(Signal::KILL);
    assert!(!running.wait(LIMIT).status.success());
    wait_until_gone(&objects);
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
