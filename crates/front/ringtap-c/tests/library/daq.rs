// SPDX-License-Identifier: MIT OR Apache-2.0
//! The LibDAQ module, loaded by a small host that knows LibDAQ's interface by its facts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ringtap_testkit::{Ends, Namespace, Running, Wire, require_root, require_tool};
use rustix::process::Signal;

use crate::flows::frame;
use crate::support::{LIMIT, crate_folder, flags, hub, installed, ringtap, with_library};

fn facts() -> PathBuf {
    crate_folder().join("tests/library/daq")
}

fn compile(args: &[&str], sources: &[PathBuf], output: &Path) {
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"])
        .args(args)
        .arg("-I")
        .arg(facts())
        .arg("-o")
        .arg(output)
        .args(sources)
        .args(flags())
        .arg("-ldl")
        .output()
        .expect("a C compiler is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// The host and the module, as paths.
fn built() -> &'static [PathBuf; 2] {
    static BUILT: OnceLock<[PathBuf; 2]> = OnceLock::new();
    BUILT.get_or_init(|| {
        let daq = crate_folder().join("../../../daq");
        let sources =
            ["daq_ringtap.c", "checksum.c", "input.c", "process.c"].map(|name| daq.join(name));
        let module = installed().join("daq_ringtap.so");
        let flags = ["-fPIC", "-shared", "-fvisibility=hidden"];
        compile(&flags, &sources, &module);
        let host = installed().join("daq_host");
        compile(&[], &[facts().join("host.c")], &host);
        [host, module]
    })
}

/// The command `host MODULE ARGS`, by `command`, which runs a program.
fn host(command: impl Fn(&Path) -> Command, socket: &Path, args: &[&str]) -> Running {
    let [host, module] = built();
    let mut command = with_library(command(host), socket);
    command.arg(module).args(args);
    Running::start(command)
}

fn program(ringtap: &Path) -> String {
    format!("program={}", ringtap.display())
}

#[test]
fn messages_of_a_group_are_kept_late_and_finalised_in_any_order() {
    let Some(ringtap) = ringtap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let groups = ["-g", "all", "-g", "two:2:flow"];
    let hub = hub(
        &ringtap,
        None,
        &socket,
        &[
            &["-i", "sim:20000pps?flows=997&pool=1MiB&chunk=4KiB"][..],
            &groups,
        ]
        .concat(),
    );
    for (input, instances) in [("hub:all", "1"), ("hub:two", "2")] {
        let args = ["keep", input, instances, "4000"];
        let told = host(|host| Command::new(host), &socket, &args);
        let told = told.wait(LIMIT).success().stdout;
        let wanted: usize = instances.parse().expect("a number");
        let counts = told.lines().filter(|line| line.ends_with(" packets"));
        assert_eq!(counts.count(), wanted, "{told}");
    }
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}

#[test]
fn the_end_of_a_hub_ends_an_instance_and_its_death_is_an_error() {
    let Some(ringtap) = ringtap() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    for (signal, told) in [
        (Signal::INT, "ended: \n"),
        (Signal::KILL, "failed: ringtap: the hub ended"),
    ] {
        let hub = hub(&ringtap, None, &socket, &["-i", "sim:1000pps"]);
        let args = ["outlive", "hub:all", "1", "0"];
        let reader = host(|host| Command::new(host), &socket, &args);
        reader.wait_for_stderr("host: reading", LIMIT);
        hub.signal(signal);
        let _ended = hub.wait(LIMIT);
        let end = reader.wait(LIMIT).success();
        assert!(end.stdout.starts_with(told), "{}", end.stdout);
    }
}

#[test]
fn a_device_is_captured_by_one_process_for_all_instances() {
    let Some(ringtap) = ringtap() else { return };
    let program = program(&ringtap);
    let args = ["keep", "sim:20000pps?flows=997", "2", "4000", &program];
    let end = host(|host| Command::new(host), Path::new("/nowhere"), &args);
    let end = end.wait(LIMIT).success();
    let hubs = end.stderr.matches("ringtap: hub of").count();
    assert_eq!(hubs, 1, "{}", end.stderr);
}

#[test]
fn a_passive_verdict_on_a_flow_withholds_its_further_packets() {
    require_root!();
    require_tool!("ip", "python3");
    let Some(ringtap) = ringtap() else { return };
    let network = Namespace::with_veth("c_daq");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let groups = ["-i", "tap:rx0?exclusive&direction=in", "-g", "all"];
    let hub = hub(&ringtap, Some(&network), &socket, &groups);
    let args = ["ignore", "hub:all", "1", "10"];
    let reader = host(|host| Command::new(host), &socket, &args);
    reader.wait_for_stderr("host: reading", LIMIT);
    network.inject("tx0", &[frame(7)]);
    reader.wait_for_stderr("host: whitelisted", LIMIT);
    let ports = [7, 8].repeat(10);
    let frames: Vec<_> = ports.into_iter().map(frame).collect();
    network.inject("tx0", &frames);
    let told = reader.wait(LIMIT).success().stdout;
    assert_eq!(told, "whitelisted 1, others 10\n");
    hub.interrupt();
    let _ended = hub.wait(LIMIT).success();
}

#[test]
fn what_cannot_be_opened_is_refused_with_the_reason() {
    let Some(ringtap) = ringtap() else { return };
    let program = program(&ringtap);
    let cases = [
        ("1", "hub:all", "no hub is running there"),
        ("3", "/tmp/some.pcap", "--daq pcap"),
        ("1", "", "no input"),
        ("1", "nosuch0", "nosuch0"),
        ("2", "eth0", "inline needs pairs"),
        ("2", "nosuch0:nosuch1", "nosuch0"),
    ];
    for (mode, input, reason) in cases {
        let args = ["refuse", mode, input, &program];
        let end = host(|host| Command::new(host), Path::new("/nowhere"), &args);
        let told = end.wait(LIMIT).success().stdout;
        assert!(told.contains(reason), "{mode} {input}: {told}");
    }
    let args = ["refuse", "1", "eth0", "program=/nowhere"];
    let end = host(|host| Command::new(host), Path::new("/nowhere"), &args);
    let told = end.wait(LIMIT).success().stdout;
    assert!(told.contains("/nowhere: No such file"), "{told}");
}

#[test]
fn inline_verdicts_block_replace_and_inject_and_the_bridge_ends_with_its_host() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let Some(ringtap) = ringtap() else { return };
    let wire = Wire::new("c-daq", 1500, Ends::Napi);
    let program = program(&ringtap);
    let args = [
        "decide",
        "a1:b1",
        "1",
        "0",
        &program,
        "verdict_timeout=60000",
    ];
    let start = || {
        let host = host(
            |host| wire.middle.command(host),
            Path::new("/nowhere"),
            &args,
        );
        host.wait_for_stderr("host: deciding", LIMIT);
        host
    };
    let first = start();
    wire.drops_34_forbidden_words_of_100();
    let words = ["changeme", "allowed", "twice"].map(String::from);
    let mut heard = wire.words(&words);
    heard.sort();
    assert_eq!(heard, ["allowed", "angechme", "twice", "twice"]);
    // The kernel drops the rest of the flow, and asks nobody; of a passed flow it passes the rest.
    let flows = [
        &["good", "blacklisted", "late", "later"][..],
        &["whitelisted", "forbidden"],
    ];
    assert_eq!(wire.flows(&flows), ["good", "whitelisted", "forbidden"]);
    first.interrupt();
    let told = first.wait(LIMIT).success().stdout;
    let counts = "blocked 34, replaced 1, blacklisted 1, injected 1\n";
    assert!(told.contains(counts), "{told}");
    assert!(!wire.middle.has_xdp("a1"), "the bridge ended with its user");
    let killed = start();
    assert!(wire.middle.has_xdp("a1"));
    killed.signal(Signal::KILL);
    let _killed = killed.wait(LIMIT);
    let begun = Instant::now();
    while wire.middle.has_xdp("a1") {
        assert!(begun.elapsed() < LIMIT, "the bridge outlives its user");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_facts_about_libdaq_are_those_of_an_installed_one() {
    let found = Command::new("pkg-config")
        .args(["--atleast-version=3.0.16", "libdaq"])
        .status();
    if !found.is_ok_and(|status| status.success()) {
        ringtap_testkit::say_skipped("needs LibDAQ 3.0.16 or later (libdaq.pc)");
        return;
    }
    let own = sizes(&[]);
    let flags = Command::new("pkg-config")
        .args(["--variable=includedir", "libdaq"])
        .output();
    let flags = flags.expect("pkg-config is installed").stdout;
    let folder = String::from_utf8(flags).expect("a path");
    assert_eq!(own, sizes(&["-I", folder.trim()]));
}

/// What the compiler says about the interface of the header that is found first.
fn sizes(first: &[&str]) -> String {
    let program = installed().join("daq_facts");
    compile(first, &[facts().join("facts.c")], &program);
    let output = with_library(Command::new(program), Path::new("/nowhere")).output();
    String::from_utf8(output.expect("it can be run").stdout).expect("text")
}
