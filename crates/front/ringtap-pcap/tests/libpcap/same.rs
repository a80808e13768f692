// SPDX-License-Identifier: MIT OR Apache-2.0
//! A C program prints the same over libpcap and over Ringtap.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use ringtap_testkit::{Namespace, Running, require_root};

use crate::support::{LIMIT, Tags, crate_folder, exec, frames, prefix};

/// Frames that the programs expect.
const SENT: u16 = 200;

/// Builds one of the C programs, or of those in C++; warnings are errors.
pub(crate) fn build(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("same");
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    });
    let source = |extension: &str| {
        let folder = crate_folder().join("tests/libpcap/c");
        folder.join(format!("{name}.{extension}"))
    };
    let (compiler, standard, source) = if source("cc").is_file() {
        ("c++", "-std=gnu++20", source("cc"))
    } else {
        ("cc", "-std=gnu11", source("c"))
    };
    // Tests run in parallel, in threads or processes.
    let program = folder.join(format!(
        "{name}-{}-{:?}",
        std::process::id(),
        thread::current().id()
    ));
    let output = Command::new(compiler)
        .args([
            standard, "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-o",
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

/// Runs a case and sends its frames; returns the lines to compare.
pub(crate) fn run(net: &Namespace, mut command: Command, device: &str, case: &str) -> Vec<String> {
    command.args([device, case]);
    command.env("RINGTAP_QUIET", "1");
    let mut program = Running::start(command);
    let sent = frames(SENT, Tags::None);
    let begun = std::time::Instant::now();
    let mut served = 0;
    while program.is_running() {
        let told = program.stdout();
        let calls = told
            .lines()
            .filter(|line| ["# ready", "# again"].contains(line));
        if calls.count() > served {
            net.inject("tx0", &sent);
            served += 1;
        }
        assert!(begun.elapsed() < LIMIT, "{device} {case} hangs:\n{told}");
        thread::sleep(std::time::Duration::from_millis(10));
    }
    let end = program.wait(LIMIT);
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

/// Defines a test for each case.
macro_rules! the_same {
    ($($name:ident: $program:literal, $case:literal, $devices:expr;)*) => {$(
        #[test]
        fn $name() {
            same($program, $case, &$devices);
        }
    )*};
}

const EACH: [&str; 3] = ["tap:rx0", "packet:rx0", "xdp:rx0"];
const BOTH: [&str; 2] = ["tap:rx0", "packet:rx0"];
const TAP: [&str; 1] = ["tap:rx0"];
const PLAIN: [&str; 2] = ["tap:rx0", "rx0"];
/// Options with pools too small for all frames.
const SMALL: [&str; 3] = [
    "tap:rx0?pool=256KiB&chunk=16KiB",
    "packet:rx0?pool=256KiB&chunk=16KiB",
    "xdp:rx0?pool=512KiB",
];

the_same! {
    what_is_told_before_activation_is_the_same: "settings", "before", EACH;
    what_is_told_after_activation_is_the_same: "settings", "after", EACH;
    what_has_no_device_is_the_same: "settings", "offline", PLAIN;
    promiscuous_mode_is_the_same: "settings", "promisc", EACH;
    time_stamp_types_are_the_same: "settings", "tstamp_types", PLAIN;
    warnings_of_activation_are_the_same: "settings", "warnings", PLAIN;
    packets_one_by_one_are_the_same: "reading", "next_ex", ["tap:rx0", "rx0", "xdp:rx0"];
    packets_that_are_cut_are_the_same: "reading", "snap", EACH;
    packets_of_dispatch_are_the_same: "reading", "dispatch", EACH;
    a_loop_ends_and_breaks_the_same: "reading", "loop", EACH;
    a_signal_handler_breaks_a_loop_the_same: "reading", "break_by_signal", ["tap:rx0", "rx0", "xdp:rx0"];
    another_thread_breaks_a_loop_the_same: "reading", "break_by_thread", EACH;
    a_time_out_loses_nothing: "reading", "timeout", EACH;
    select_poll_and_epoll_tell_the_same: "reading", "descriptor", EACH;
    a_filter_set_before_takes_the_same: "reading", "filter_before", EACH;
    a_filter_set_during_capture_takes_the_same: "reading", "filter_during", EACH;
    a_filter_set_under_traffic_takes_the_same: "busy", "filter_under_traffic", EACH;
    what_a_program_writes_into_packets_it_finds_there: "busy", "written", ["tap:rx0", "packet:rx0", "xdp:rx0", "rx0"];
    a_programs_signals_stay_its_own: "busy", "signals", ["tap:rx0", "packet:rx0", "xdp:rx0", "rx0"];
    a_filter_that_cuts_cuts_the_same: "reading", "filter_cuts", ["tap:rx0", "xdp:rx0"];
    a_direction_takes_the_same: "reading", "direction", EACH;
    nanoseconds_are_told_the_same: "reading", "nanoseconds", EACH;
    microseconds_are_told_the_same: "reading", "microseconds", TAP;
    statistics_are_the_same_where_nothing_waits: "reading", "stats", EACH;
    two_handles_see_the_same: "reading", "two_handles", ["packet:rx0", "rx0"];
    a_daemons_child_reads_the_same: "reading", "forked", ["tap:rx0", "rx0", "xdp:rx0"];
    a_child_reads_after_its_parent_waited: "handles", "parent_waits_first", BOTH;
    a_parent_reads_after_its_child_waited: "handles", "child_waits_first", BOTH;
    a_third_process_reads_after_two_waited: "handles", "second_child", BOTH;
    a_break_in_one_process_ends_no_read_of_another: "handles", "break_beside_child", BOTH;
    a_thread_of_a_child_breaks_its_loop: "handles", "break_within_child", BOTH;
    a_child_reads_on_where_its_parent_stopped: "handles", "child_reads_on", BOTH;
    a_child_polls_the_descriptor_of_its_parent: "handles", "child_polls", BOTH;
    ten_closed_handles_leave_no_descriptor: "handles", "ten", EACH;
    a_dump_file_is_the_same: "reading", "dumped", EACH;
    immediate_mode_waits_for_nothing_more: "waiting", "immediate", EACH;
    a_handle_that_does_not_block_does_the_same: "waiting", "nonblock", EACH;
    a_packet_stays_until_the_next_read: "waiting", "pointer", EACH;
    what_was_read_and_what_was_dropped_was_received: "waiting", "dropped", SMALL;
    what_is_sent_arrives_the_same: "sending", "inject", EACH;
    a_handle_sees_what_others_send_and_not_its_own: "sending", "own", BOTH;
    a_handle_that_cuts_does_not_see_its_own_either: "sending", "own_cut", BOTH;
    another_handle_sees_what_one_sends: "sending", "others", ["packet:rx0", "rx0"];
    a_program_that_sends_back_what_it_sees_ends: "sending", "echo", EACH;
    a_reader_that_is_cancelled_while_it_waits_ends_the_same: "leaves", "cancelled_while_waiting", ["tap:rx0", "rx0", "xdp:rx0"];
    a_reader_that_is_cancelled_in_its_callback_ends_the_same: "leaves", "cancelled_in_callback", BOTH;
    a_callback_that_ends_its_thread_ends_it_the_same: "leaves", "exit_in_callback", BOTH;
    an_exception_leaves_a_loop_the_same: "leaves", "exception", BOTH;
    a_callback_that_jumps_leaves_a_loop_the_same: "leaves", "jump_out_of_callback", BOTH;
    a_signal_handler_that_jumps_leaves_a_read_the_same: "leaves", "jump_out_of_handler", ["tap:rx0", "rx0", "packet:rx0"];
    a_signal_handler_that_ends_its_thread_ends_it_the_same: "leaves", "exit_in_handler", BOTH;
    calls_that_are_passed_on_are_left_the_same: "leaves", "passed_on", TAP;
    the_manuals_program_finds_its_device: "examples", "find", PLAIN;
    the_manuals_program_takes_one_packet: "examples", "one_packet", PLAIN;
    the_manuals_program_looks_into_packets: "examples", "sniff", PLAIN;
    the_manuals_program_keeps_a_file: "examples", "keep", PLAIN;
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
