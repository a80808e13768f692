// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wireshark's command line captures through the extcap program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool};
use tempfile::TempDir;

#[test]
fn tshark_lists_and_captures_devices_of_ringtap() {
    require_root!();
    require_tool!("tshark");
    let net = Namespace::with_veth("extcap");
    let home = TempDir::new().expect("a folder");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("extcap/ringtap-extcap");
    // Wireshark 4.0 looks into the first one, later versions into the second one.
    for folder in [".config/wireshark/extcap", ".local/lib/wireshark/extcap"] {
        let folder = home.path().join(folder);
        fs::create_dir_all(&folder).expect("a folder");
        fs::copy(&program, folder.join("ringtap-extcap")).expect("the program can be copied");
    }
    let tshark = |args: &[&str]| {
        let mut command = net.command("tshark");
        command.args(args);
        command.env("HOME", home.path());
        command.env("RINGTAP", env!("CARGO_BIN_EXE_ringtap"));
        Running::start(command)
    };
    let listed = tshark(&["-D"]).wait(LIMIT).success().stdout;
    assert!(listed.contains("ringtap-rx0 (Ringtap: rx0)"), "{listed}");
    let capture = tshark(&[
        "-i",
        "ringtap-rx0",
        "-f",
        "udp",
        "-c",
        "20",
        "-T",
        "fields",
        "-e",
        "frame.len",
    ]);
    // Sends until tshark has its packets: when the capture began is not to be seen from here.
    let sender = net.spawn(
        env!("CARGO_BIN_EXE_ringtap"),
        &[
            "send", "-i", "tx0", "--size", "200", "--rate", "200pps", "--quiet",
        ],
    );
    let end = capture.wait(LIMIT).success();
    drop(sender);
    assert_eq!(end.stdout.lines().count(), 20, "{}", end.stderr);
    assert!(
        end.stdout
            .lines()
            .all(|line| line.trim() == "196" || line.trim() == "200"),
        "{}",
        end.stdout
    );
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("extcap/ringtap-extcap")
}

fn extcap(args: &[&str]) -> Running {
    let mut command = Command::new(program());
    command.args(args);
    command.env("RINGTAP", env!("CARGO_BIN_EXE_ringtap"));
    Running::start(command)
}

#[test]
fn a_capture_that_fails_says_why_and_one_that_is_stopped_says_nothing() {
    require_root!();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("fifo");
    let file = file.to_str().expect("text");
    let capture = |device: &str, more: &[&str]| {
        let first = ["--capture", "--extcap-interface", device, "--fifo", file];
        extcap(&[&first[..], more].concat())
    };
    let absent = capture("ringtap-nosuch0", &[]).wait(LIMIT);
    assert!(!absent.status.success());
    assert!(
        absent.stderr.contains("no interface \"nosuch0\""),
        "{}",
        absent.stderr
    );
    let wrong = ["--extcap-capture-filter", "udp and and"];
    let wrong = capture("ringtap-lo", &wrong).wait(LIMIT);
    assert!(!wrong.status.success());
    assert!(wrong.stderr.contains("filter"), "{}", wrong.stderr);
    let running = capture("ringtap-lo", &[]);
    let begun = std::time::Instant::now();
    while !Path::new(file).exists() {
        assert!(begun.elapsed() < LIMIT, "no capture began");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    running.signal(rustix::process::Signal::TERM);
    let stopped = running.wait(LIMIT);
    assert_eq!((stopped.status.code(), &*stopped.stderr), (Some(0), ""));
}

#[test]
fn a_filter_is_checked_without_rights_and_without_a_capture() {
    let check = |filter: &str| {
        let args = [
            "--extcap-interface",
            "ringtap-lo",
            "--extcap-capture-filter",
            filter,
        ];
        extcap(&args).wait(LIMIT).success().stdout
    };
    assert_eq!(check("udp port 53"), "");
    let told = check("udp and and");
    assert!(told.contains("filter"), "{told}");
}
