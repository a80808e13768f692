// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ringtap count` of a file: filters, loads, order, output.

use std::process::Command;
use std::time::Duration;

use ringtap_testkit::{Finished, LIMIT, Running};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

fn ringtap(args: &[&str]) -> Finished {
    let mut command = Command::new(BINARY);
    command.args(args);
    Running::start(command).wait(LIMIT)
}

/// The sample capture, in a folder of its own.
fn sample() -> (TempDir, String) {
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("sample.pcapng").display().to_string();
    let device = "sim:max?burst=160&flows=16";
    let _made = ringtap(&["record", "-q", "-i", device, "-w", &file]).success();
    (folder, file)
}

fn delivered(end: &Finished) -> u64 {
    let line = end.stdout.lines().last().unwrap_or_default();
    let account: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
    assert_eq!(account["balanced"], true, "{line}");
    account["delivered"].as_u64().expect("a number")
}

#[test]
fn an_interrupt_while_a_device_opens_ends_with_counters() {
    let folder = TempDir::new().expect("a folder can be made");
    let fifo = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    let mut command = Command::new(BINARY);
    command.args(["count", "-q", "--json", "-r"]).arg(&fifo);
    let mut count = Running::start(command);
    // Opening takes until the test opens the other end.
    count.interrupt();
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    let end = loop {
        match rustix::fs::open(&fifo, flags, Mode::empty()) {
            Ok(end) => break Some(end),
            Err(_) if count.is_running() => std::thread::sleep(Duration::from_millis(5)),
            // The interrupt came before.
            Err(_) => break None,
        }
    };
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1];
    let header: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    if let Some(end) = end {
        rustix::io::write(end, &header).expect("the program reads");
    }
    assert_eq!(delivered(&count.wait(LIMIT).success()), 0);
}

#[test]
fn every_load_runs_over_every_packet() {
    let (_folder, file) = sample();
    let plain = ringtap(&["count", "-q", "--json", "-r", &file]).success();
    for (work, told) in [
        ("zlib:0", "zlib made"),
        ("zlib:9", "zlib made"),
        ("bpf:3", "3 filter runs a packet took 0"),
    ] {
        let end = ringtap(&["count", "-q", "--json", "-r", &file, "--work", work]).success();
        assert_eq!(delivered(&end), delivered(&plain), "{work}");
        assert!(end.stdout.contains(told), "{work}: {}", end.stdout);
    }
    let args = [
        "count",
        "-q",
        "--json",
        "-r",
        &file,
        "--work",
        "bpf:2",
        "udp src port 10007",
    ];
    let filtered = ringtap(&args).success();
    let taken = format!("2 filter runs a packet took {}", 2 * delivered(&filtered));
    assert!(filtered.stdout.contains(&taken), "{}", filtered.stdout);
}

#[test]
fn a_file_with_one_lane_is_in_order() {
    let (_folder, file) = sample();
    let plain = ringtap(&["count", "-q", "--json", "-r", &file]).success();
    let args = ["count", "-q", "--json", "-r", &file, "--in-order", "20"];
    let end = ringtap(&args).success();
    assert_eq!(delivered(&end), delivered(&plain));
    assert!(
        end.stdout.contains("0 later than the window allows"),
        "{}",
        end.stdout
    );
}

#[test]
fn flags_of_other_tools_are_taken_or_answered_with_what_to_use() {
    let one = ["count", "-q", "-i", "sim:1kpps?burst=1"];
    for (flags, status, said) in [
        (&["-n"][..], 0, ""),
        (&["-D"], 2, "ringtap devices"),
        (&["-x"], 2, "exec -- tcpdump"),
        (&["-Q", "in"], 2, "only for tap, packet"),
        (&["--socket", "/x"], 2, "only for hub"),
        (&["-p"], 2, "-p has no meaning"),
        (&["-j", "host"], 0, ""),
        (&["-j", "adapter"], 2, "phc2sys"),
        (&["-j", "adapter_unsynced"], 2, "only for tap, xdp, packet"),
        (&["-J"], 2, "ringtap devices"),
        (&["-B", "64M"], 0, ""),
        (&["-B", "64MB"], 0, ""),
        (
            &["udp", "prot", "7"],
            2,
            "ringtap: bad filter: syntax error",
        ),
        (&["-nn", "-s", "10kB"], 0, ""),
        (&["-U"], 2, "record -U"),
        (&["-I"], 2, "monitor mode"),
        (&["-L"], 2, "link type"),
        (&["-s", "10GB"], 2, "1 to 262144 bytes"),
        (&["-s", "10XB"], 2, "size"),
    ] {
        let end = ringtap(&[&one[..], flags].concat());
        let told = format!("{flags:?}: {}", end.stderr);
        assert_eq!(end.status.code(), Some(status), "{told}");
        assert!(end.stderr.contains(said), "{told}");
    }
    for device in ["any", "eth0,eth1"] {
        let end = ringtap(&["count", "-i", device]);
        assert_eq!(end.status.code(), Some(2), "{}", end.stderr);
        assert!(end.stderr.contains("ringtap hub -i"), "{}", end.stderr);
    }
    let folder = TempDir::new().expect("a folder can be made");
    let file = folder.path().join("f");
    for (content, said) in [("", "is empty"), ("horse", "68 6f 72 73")] {
        std::fs::write(&file, content).expect("a file");
        let end = ringtap(&["count", "-r", file.to_str().expect("text")]);
        assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
        assert!(end.stderr.contains(said), "{}", end.stderr);
    }
    let end = ringtap(&["exec", "--json", "--", "true"]);
    assert_eq!(end.status.code(), Some(2), "{}", end.stderr);
}

#[test]
fn a_flag_of_tcpdump_has_one_tip() {
    for (flag, instead) in [
        ("-U", "leave -U out"),
        ("-x", "does not dissect"),
        ("-J", "lists the time stamp types"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringtap"));
        command.args(["count", "-i", "lo", flag]);
        let end = Running::start(command).wait(LIMIT);
        assert_eq!(end.status.code(), Some(2), "{}", end.stderr);
        assert_eq!(end.stderr.matches("tip:").count(), 1, "{}", end.stderr);
        assert!(end.stderr.contains(instead), "{}", end.stderr);
    }
}
