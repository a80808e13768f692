// SPDX-License-Identifier: MIT OR Apache-2.0
//! `doctor` and `devices` on software devices.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringtap_testkit::{
    Finished, LIMIT, Namespace, Running, require_root, require_tool, say_skipped, usable_cpus,
};
use serde_json::Value;

fn ringtap(net: &Namespace, args: &[&str]) -> Finished {
    let mut command: Command = net.command(env!("CARGO_BIN_EXE_ringtap"));
    command.args(args);
    Running::start(command).wait(LIMIT)
}

/// `doctor` keeps all changes of the machine in one file: tests that make some take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn findings(net: &Namespace, device: &str) -> Vec<Value> {
    let end = ringtap(net, &["doctor", device, "--json"]);
    let report: Value =
        serde_json::from_str(&end.stdout).unwrap_or_else(|_| panic!("{}", end.stderr));
    assert_eq!(report["interface"], device);
    report["findings"].as_array().expect("a list").clone()
}

fn of<'a>(findings: &'a [Value], topic: &str) -> Vec<&'a Value> {
    findings
        .iter()
        .filter(|one| one["topic"] == topic)
        .collect()
}

#[test]
fn software_devices_are_examined() {
    require_root!();
    require_tool!("ethtool");
    let net = Namespace::with_veth("doctor");
    net.ip(&["link", "set", "rx0", "down"]);
    let down = findings(&net, "rx0");
    assert_eq!(of(&down, "link")[0]["severity"], "bad", "{down:?}");
    net.ip(&["link", "set", "rx0", "up"]);
    // Some kernels lack these two types.
    let dummy = net.run("ip", &["link", "add", "none0", "type", "dummy"]);
    let tap = net.run("ip", &["tuntap", "add", "tap7", "mode", "tap"]);
    let mut devices = vec!["rx0"];
    devices.extend(dummy.status.success().then_some("none0"));
    devices.extend(tap.status.success().then_some("tap7"));
    for device in &devices {
        let found = findings(&net, device);
        assert!(!of(&found, "kernel").is_empty(), "{found:?}");
        assert_eq!(of(&found, "rights").len(), 3, "{found:?}");
        assert_eq!(of(&found, "XDP").len(), 1, "{found:?}");
    }
    let table = ringtap(&net, &["devices"]).success().stdout;
    for device in devices {
        assert!(table.contains(device), "{table}");
    }
    let end = ringtap(&net, &["doctor", "nothing0"]);
    assert!(
        end.stderr.contains("no interface \"nothing0\""),
        "{}",
        end.stderr
    );
}

/// A network with many0, which has four receive queues and uses one.
fn with_many_queues(name: &str) -> Namespace {
    let net = Namespace::new(name);
    add_many_queues(&net);
    net
}

/// False, and the test is skipped, with one processor.
fn several_queues_are_of_use() -> bool {
    let are_of_use = usable_cpus().len() > 1;
    if !are_of_use {
        say_skipped("one CPU has no use for several queues");
    }
    are_of_use
}

fn add_many_queues(net: &Namespace) {
    let queues = ["numrxqueues", "4", "numtxqueues", "4"];
    let link = [&["link", "add", "many0"], &queues[..], &["type", "veth"]];
    net.ip(&link.concat());
    let _one_queue = net.run("ethtool", &["-L", "many0", "rx", "1"]);
}

#[test]
fn fixes_are_restored() {
    require_root!();
    require_tool!("ethtool");
    if !several_queues_are_of_use() {
        return;
    }
    let _turn = turn();
    let net = with_many_queues("doctor-fix");
    let queues = || net.run("ethtool", &["-l", "many0"]).stdout;
    let before = queues();
    let found = findings(&net, "many0");
    assert!(
        !of(&found, "queues")[0]["remedy"].is_null(),
        "{found:?} {before}"
    );
    let fixed = ringtap(&net, &["doctor", "many0", "--fix"]).success();
    assert!(
        fixed.stdout.contains("+ ethtool -L many0 rx "),
        "{}",
        fixed.stdout
    );
    assert_ne!(queues(), before);
    let restored = ringtap(&net, &["doctor", "--restore"]).success();
    assert!(
        restored.stdout.contains("+ ethtool -L many0 rx 1"),
        "{}",
        restored.stdout
    );
    assert_eq!(queues(), before);
    let again = ringtap(&net, &["doctor", "--restore"]).success();
    assert_eq!(again.stdout.trim(), "nothing to restore here");
}

#[test]
fn a_restore_leaves_changes_of_other_namespaces_and_those_that_failed() {
    require_root!();
    require_tool!("ethtool");
    if !several_queues_are_of_use() {
        return;
    }
    let _turn = turn();
    let [one, other] = ["doctor-one", "doctor-other"].map(with_many_queues);
    let queues = |net: &Namespace| net.run("ethtool", &["-l", "many0"]).stdout;
    let restore = |net: &Namespace| ringtap(net, &["doctor", "--restore"]);
    let before = queues(&one);
    for net in [&one, &other] {
        let _fixed = ringtap(net, &["doctor", "many0", "--fix"]).success();
    }
    let fixed = queues(&one);
    assert_ne!(fixed, before);
    let _restored = restore(&other).success();
    assert_eq!(queues(&other), before);
    assert_eq!(queues(&one), fixed, "the other namespace's restore");

    one.ip(&["link", "delete", "many0"]);
    let failed = restore(&one);
    assert!(!failed.status.success(), "{}", failed.stdout);
    assert!(
        failed.stderr.contains("1 commands failed, and stay"),
        "{}",
        failed.stderr
    );
    add_many_queues(&one);
    let _set = one.run("ethtool", &["-L", "many0", "rx", "2"]);
    let _restored = restore(&one).success();
    assert_eq!(queues(&one), before);
    for net in [&one, &other] {
        let again = restore(net).success();
        assert_eq!(again.stdout.trim(), "nothing to restore here");
    }
}

/// An ethtool that reads and changes the recorded answers of a driver in the file `answers` beside it.
const RECORDED_ETHTOOL: &str = r#"#!/usr/bin/env python3
import pathlib, re, sys
file = pathlib.Path(__file__).with_name("answers")
text, (flag, _, *rest) = file.read_text(), sys.argv[1:]
if flag.islower() or flag == "-T":
    begin = text.split(f"\n$ ethtool {flag}\n")
    sys.exit(1) if len(begin) < 2 else print(begin[1].split("\n$ ")[0])
    sys.exit(0)
what, value = rest
name = {"lro": "large-receive-offload", "rxvlan": "rx-vlan-offload", "rx": "RX", "combined": "Combined"}.get(what, what)
section, line = {
    "-K": ("-k", rf"^{name}: \w+"),
    "-G": ("-g", rf"hardware settings:[^$]*?^{name}:\s+\w+"),
    "-L": ("-l", rf"hardware settings:[^$]*?^{name}:\s+\w+"),
    "-X": ("-x", r"RSS hash key:\n\S+"),
}[flag]
at = text.index(f"$ ethtool {section}\n")
found = re.compile(line, re.MULTILINE).search(text, at)
file.write_text(re.sub(r"\S+$", value, text[:found.end()]) + text[found.end():])
"#;

/// A folder with an ethtool for the interface of this driver.
fn recorded(driver: &str) -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().expect("a folder can be made");
    let program = folder.path().join("ethtool");
    fs::write(&program, RECORDED_ETHTOOL).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let sources =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host/ringtap-net/src/doctor/drivers");
    let answers = fs::read(sources.join(format!("{driver}.txt"))).expect("recorded answers");
    fs::write(folder.path().join("answers"), answers).expect("a file");
    folder
}

#[test]
fn the_state_after_all_changes_are_restored_is_the_state_before() {
    require_root!();
    require_tool!("python3");
    let _turn = turn();
    for (driver, least) in [
        ("ixgbe", 2),
        ("i40e", 2),
        ("mlx5_core", 3),
        ("virtio_net", 1),
    ] {
        let net = Namespace::with_veth("doctor-all");
        let folder = recorded(driver);
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", folder.path().display());
        let run = |program: &str, args: &[&str]| {
            let mut command = net.command(program);
            command.args(args).env("PATH", &path);
            Running::start(command).wait(LIMIT)
        };
        let doctor = |args: &[&str]| {
            let args = [&["doctor"], args].concat();
            run(env!("CARGO_BIN_EXE_ringtap"), &args).success().stdout
        };
        let state = || fs::read_to_string(folder.path().join("answers")).expect("a file");
        let before = state();
        let fixed = doctor(&["rx0", "--fix"]);
        let changes = fixed.lines().filter(|line| line.starts_with("+ ethtool"));
        assert!(changes.count() >= least, "{driver}: {fixed}");
        // Somebody changes a setting that was set, and lets it be set again.
        let ethtool = folder.path().join("ethtool");
        let ethtool = ethtool.to_str().expect("text");
        if fixed.contains("ethtool -G") {
            let _by_hand = run(ethtool, &["-G", "rx0", "rx", "1024"]).success();
            let again = doctor(&["rx0", "--fix"]);
            assert!(again.contains("+ ethtool -G rx0 rx "), "{driver}: {again}");
        }
        assert_ne!(state(), before, "{driver}");
        let restored = doctor(&["--restore"]);
        assert_eq!(state(), before, "{driver}: {restored}");
    }
}

#[test]
fn two_doctors_at_once_forget_no_change() {
    require_root!();
    require_tool!("python3");
    let _turn = turn();
    let nets = ["doctor-one", "doctor-two"].map(Namespace::with_veth);
    let folders = [(); 2].map(|()| recorded("ixgbe"));
    let doctor = |at: usize, args: &[&str]| {
        let mut command = nets[at].command(env!("CARGO_BIN_EXE_ringtap"));
        let path = format!(
            "{}:/usr/sbin:/usr/bin:/sbin:/bin",
            folders[at].path().display()
        );
        command.arg("doctor").args(args).env("PATH", path);
        Running::start(command)
    };
    let state = |at: usize| fs::read_to_string(folders[at].path().join("answers")).expect("a file");
    let before = state(1);
    let _fixed = doctor(0, &["rx0", "--fix"]).wait(LIMIT).success();
    // While the commands that restore the first interface run, the second one is changed.
    let (real, gate) = (
        folders[0].path().join("real"),
        folders[0].path().join("gate"),
    );
    let ethtool = folders[0].path().join("ethtool");
    fs::rename(&ethtool, &real).expect("it is ours");
    fs::write(&gate, "").expect("it is ours");
    let waits = format!(
        "#!/bin/sh\n: > {0}.reached\nwhile [ -e {0} ]; do sleep 0.01; done\nexec {1} \"$@\"\n",
        gate.display(),
        real.display()
    );
    fs::write(&ethtool, waits).expect("it is ours");
    fs::set_permissions(&ethtool, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let restoring = doctor(0, &["--restore"]);
    let reached = gate.with_extension("reached");
    while !reached.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let fixing = doctor(1, &["rx0", "--fix"]);
    // Without a lock, the second one is done by then.
    std::thread::sleep(std::time::Duration::from_secs(1));
    fs::remove_file(&gate).expect("it is ours");
    let _restored = restoring.wait(LIMIT).success();
    let _fixed = fixing.wait(LIMIT).success();
    assert_ne!(state(1), before);
    let restored = doctor(1, &["--restore"]).wait(LIMIT).success().stdout;
    assert_eq!(state(1), before, "{restored}");
}
