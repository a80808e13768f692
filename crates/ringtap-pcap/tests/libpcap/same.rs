// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same C program over libpcap and over Ringtap prints the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use ringtap_testkit::{Namespace, Running, require_root};

use crate::support::{LIMIT, Tags, crate_folder, exec, frames, prefix};

/// What the programs know to be sent.
const SENT: u16 = 200;

/// Builds one of the C programs, all warnings being errors.
pub(crate) fn build(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("same");
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    });
    let source = crate_folder()
        .join("tests/libpcap/c")
        .join(format!("{name}.c"));
    // Tests run in parallel, and may be processes of their own.
    let program = folder.join(format!(
        "{name}-{}-{:?}",
        std::process::id(),
        thread::current().id()
    ));
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-g",
            "-pthread",
            "-o",
        ])
        .args([&program, &source])
        .arg("-lpcap")
        .output()
        .expect("a C compiler is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// Runs a case and sends what it waits for; the lines that are to be compared.
fn run(net: &Namespace, mut command: Command, device: &str, case: &str) -> Vec<String> {
    command.args([device, case]);
    command.env("RINGTAP_QUIET", "1");
    let program = Running::start(command);
    let mut program = Some(program);
    let sent = frames(SENT, Tags::None);
    let begun = std::time::Instant::now();
    for line in ["# ready", "# again"] {
        while let Some(running) = program.as_mut() {
            if running.stdout().contains(line) {
                // The frames of other directions are nobody's but the one's who counts them.
                net.inject("tx0", &sent);
                break;
            }
            if !running.is_running() {
                break;
            }
            let told = running.stdout();
            assert!(begun.elapsed() < LIMIT, "{device} {case} hangs:\n{told}");
            thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    let end = program.take().expect("it was started").wait(LIMIT);
    let told = format!("{device} {case}\n{}{}", end.stdout, end.stderr);
    assert!(end.status.success(), "{told}");
    assert!(end.stdout.ends_with("end\n"), "{told}");
    let lines = end.stdout.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

fn same(program: &str, case: &str, devices: &[&str]) {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build(program);
    let text = built.to_str().expect("a path of text");
    let net = Namespace::with_veth(&format!("pcap_{case}"));
    let expected = run(&net, net.command(&built), "rx0", case);
    for device in devices {
        let found = run(&net, exec(&net, prefix, &[text]), device, case);
        assert_eq!(found, expected, "{device} {case}");
    }
    let _built = std::fs::remove_file(&built);
}

/// A test for each case.
macro_rules! the_same {
    ($($name:ident: $program:literal, $case:literal, $devices:expr;)*) => {$(
        #[test]
        fn $name() {
            same($program, $case, &$devices);
        }
    )*};
}

const BOTH: [&str; 2] = ["tap:rx0", "packet:rx0"];
const TAP: [&str; 1] = ["tap:rx0"];
const PLAIN: [&str; 2] = ["tap:rx0", "rx0"];

the_same! {
    what_is_told_before_activation_is_the_same: "settings", "before", BOTH;
    what_is_told_after_activation_is_the_same: "settings", "after", BOTH;
    what_has_no_device_is_the_same: "settings", "offline", PLAIN;
    packets_one_by_one_are_the_same: "reading", "next_ex", PLAIN;
    packets_that_are_cut_are_the_same: "reading", "snap", BOTH;
    packets_of_dispatch_are_the_same: "reading", "dispatch", BOTH;
    a_loop_ends_and_breaks_the_same: "reading", "loop", BOTH;
    a_signal_handler_breaks_a_loop_the_same: "reading", "break_by_signal", PLAIN;
    another_thread_breaks_a_loop_the_same: "reading", "break_by_thread", BOTH;
    a_time_out_loses_nothing: "reading", "timeout", BOTH;
    select_poll_and_epoll_tell_the_same: "reading", "descriptor", BOTH;
    a_filter_set_before_takes_the_same: "reading", "filter_before", BOTH;
    a_filter_set_during_capture_takes_the_same: "reading", "filter_during", BOTH;
    a_filter_that_cuts_cuts_the_same: "reading", "filter_cuts", TAP;
    a_direction_takes_the_same: "reading", "direction", BOTH;
    nanoseconds_are_told_the_same: "reading", "nanoseconds", BOTH;
    statistics_are_the_same_where_nothing_waits: "reading", "stats", BOTH;
    two_handles_see_the_same: "reading", "two_handles", ["packet:rx0", "rx0"];
    a_daemons_child_reads_the_same: "reading", "forked", PLAIN;
    a_dump_file_is_the_same: "reading", "dumped", BOTH;
}

#[test]
fn devices_that_cannot_be_opened_are_refused_with_the_same_numbers() {
    require_root!();
    let Some(prefix) = prefix() else { return };
    let built = build("settings");
    let text = built.to_str().expect("a path of text");
    let net = Namespace::with_veth("pcap_refused");
    net.ip(&["link", "set", "rx0", "down"]);
    for (name, ours) in [
        ("nosuch0", ["tap:nosuch0", "nosuch0", "packet:nosuch0"]),
        ("rx0", ["tap:rx0", "rx0", "packet:rx0"]),
    ] {
        let expected = run(&net, net.command(&built), name, "refused");
        for device in ours {
            let found = run(&net, exec(&net, prefix, &[text]), device, "refused");
            assert_eq!(found, expected, "{device}");
        }
    }
    let _built = std::fs::remove_file(&built);
}
