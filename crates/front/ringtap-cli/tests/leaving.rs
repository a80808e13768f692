// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who leaves first: readers of the output, and signals that come twice.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use ringtap_testkit::{Finished, LIMIT, Running};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ringtap");

/// Runs `script` in bash; `$1` is ringtap, `$2` the folder.
fn script(folder: &TempDir, script: &str) -> Finished {
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash", BINARY]);
    command.arg(folder.path());
    Running::start(command).wait(LIMIT)
}

fn folder() -> TempDir {
    TempDir::new().expect("a folder can be made")
}

fn start(args: &[&str]) -> Running {
    let mut command = Command::new(BINARY);
    command.args(args);
    Running::start(command)
}

#[test]
fn lines_that_nobody_reads_end_a_count_in_good_order() {
    for format in ["--json", ""] {
        let script_text = format!(
            r#""$1" count -i sim:1000pps --interval 0.1 {format} | head -1
               exit "${{PIPESTATUS[0]}}""#
        );
        let end = script(&folder(), &script_text);
        assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
        assert_eq!(end.stderr, "", "no word about it");
    }
}

#[test]
fn a_full_disk_is_not_called_a_missing_reader() {
    let end = script(
        &folder(),
        r#"exec "$1" count -i sim:max?burst=9 >/dev/full"#,
    );
    assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
    assert!(end.stderr.contains("No space left"), "{}", end.stderr);
    assert!(!end.stderr.contains("nobody reads"), "{}", end.stderr);
}

#[test]
fn a_hub_whose_words_nobody_reads_goes_on() {
    let end = script(
        &folder(),
        r#"exec {words}< <("$1" hub -i sim:1000pps --socket "$2/s" 2>&1 >/dev/null)
           hub=$!
           read -r _ <&$words
           exec {words}<&-
           for _ in 1 2; do
               "$1" count -i "hub:all?socket=$2/s" -c 5 -q >/dev/null || exit 9
           done
           "$1" status --socket "$2/s" >/dev/null || exit 8
           kill "$hub""#,
    );
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
}

#[test]
fn a_recording_that_ends_for_another_reason_keeps_what_is_in_its_buffer() {
    let folder = folder();
    let end = script(
        &folder,
        r#""$1" record -i sim:1000pps --interval 0.05 -w "$2/kept.pcapng" | head -1
           exec "$1" count -q --json -r "$2/kept.pcapng""#,
    )
    .success();
    let (line, counters) = end.stdout.split_once('\n').expect("a line and counters");
    // "9,999 packets/s 5.10 Mbit/s L2 100 packets 0 lost"
    let said = line
        .split(" packet")
        .nth(1)
        .and_then(|so_far| so_far.rsplit(' ').next());
    let said = said.unwrap_or_default().replace(',', "");
    let said: u64 = said.parse().expect("packets so far");
    let counters: Value = serde_json::from_str(counters.trim()).expect("counters");
    let kept = counters["delivered"].as_u64().expect("a number");
    assert!(kept >= said, "{kept} of {said} packets are in the file");
    let bytes = fs::read(folder.path().join("kept.pcapng")).expect("the file");
    // A block ends with its length, and begins with its kind: 5 is that of the statistics.
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let length = usize::try_from(word(bytes.len() - 4)).expect("a length");
    assert_eq!(
        word(bytes.len() - length),
        5,
        "the counters stands at the end"
    );
}

#[test]
fn packets_that_nobody_reads_end_a_recording_that_has_none() {
    let end = script(
        &folder(),
        r#""$1" record -i sim:1000pps --interval 0.1 -w - tcp port 1 | head -c 10 | wc -c
           exit "${PIPESTATUS[0]}""#,
    );
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
    assert_eq!(end.stdout.trim(), "10");
}

#[test]
fn packets_on_standard_output_are_not_mixed_with_counters() {
    let end = script(
        &folder(),
        r#""$1" record -i sim:1000pps --interval 0.1 -c 500 --json --verbose -w - >"$2/a.pcapng"
           exec "$1" count -q --json -r "$2/a.pcapng""#,
    )
    .success();
    assert!(end.stdout.contains("\"delivered\":500"), "{}", end.stdout);
    assert!(end.stderr.contains("\"delivered\":500"), "{}", end.stderr);
}

#[test]
fn a_file_is_not_written_over_while_it_is_read() {
    let folder = folder();
    let file = folder.path().join("a.pcapng").display().to_string();
    let sample = ["record", "-q", "-i", "sim:max?burst=100", "-w", &file];
    let _made = start(&sample).wait(LIMIT).success();
    let before = fs::read(&file).expect("the file");
    for input in [["-r", &file], ["-i", &format!("pcap:{file}")]] {
        let mut args = vec!["record", "-w", &file];
        args.extend(input);
        let end = start(&args).wait(LIMIT);
        assert_eq!(end.status.code(), Some(2), "{}", end.stdout);
        assert!(
            end.stderr.contains("is the file that is read"),
            "{}",
            end.stderr
        );
        assert!(fs::read(&file).expect("the file") == before);
    }
}

#[test]
fn signals_that_come_together_are_one_request() {
    let count = start(&["count", "-i", "sim:1000pps", "--interval", "0.1"]);
    count.wait_for_stdout("packets/s", LIMIT);
    // Both are pending when it goes on.
    for signal in [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT] {
        count.signal(signal);
    }
    let end = count.wait(LIMIT).success();
    assert!(end.stdout.contains("  balanced: "), "{}", end.stdout);
}

#[test]
fn a_later_signal_ends_what_does_not_end() {
    let folder = folder();
    let file = folder.path().join("nobody-writes").display().to_string();
    let made = Command::new("mkfifo").arg(&file).status();
    assert!(made.expect("mkfifo runs").success());
    let socket = folder.path().join("s").display().to_string();
    let mut hub = start(&["hub", "-i", &format!("pcap:{file}"), "--socket", &socket]);
    let status = format!("/proc/{}/status", hub.pid());
    let start = Instant::now();
    while !catches_interrupts(&fs::read_to_string(&status).unwrap_or_default()) {
        assert!(start.elapsed() < LIMIT, "it never handles signals");
        std::thread::sleep(Duration::from_millis(10));
    }
    while hub.is_running() {
        assert!(start.elapsed() < LIMIT, "it ends by no signal");
        hub.interrupt();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(hub.wait(LIMIT).status.code(), Some(130));
}

/// Whether SIGINT is caught, by what `/proc/PID/status` says.
fn catches_interrupts(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << 1) != 0)
}

#[test]
fn what_a_source_cannot_do_is_refused_at_the_start() {
    let folder = folder();
    let file = folder.path().join("hub.toml").display().to_string();
    let text = "[[source]]\ndevice = \"sim:1kpps\"\n[[group]]\nname = \"a\"\npolicy = \"block\"\n";
    fs::write(&file, text).expect("a configuration");
    for (args, said) in [
        (["hub", "-c", &file], "sim:1kpps cannot wait"),
        (
            ["count", "-i", "sim:1kpps?pool=900000GiB"],
            "is more than the memory of this machine",
        ),
        (["hub", "-isim:1kpps", "-ga:flwo"], "\"flwo\" is no balance"),
        (
            ["count", "-isim:1kpps", "--direction=inn"],
            "expected in, out or inout",
        ),
        (["count", "-isim:1kpps", "--cpu=one"], "reader=CPU"),
    ] {
        let end = start(&args).wait(LIMIT);
        assert_ne!(end.status.code(), Some(0), "{args:?}: {}", end.stdout);
        assert!(end.stderr.contains(said), "{args:?}: {}", end.stderr);
    }
}

/// The verbs in `ringtap --help`.
fn verbs() -> Vec<String> {
    let help = start(&["--help"]).wait(LIMIT).success().stdout;
    let list = help.split("Commands:").nth(1).expect("a list of verbs");
    let lines = list.lines().skip(1).take_while(|line| !line.is_empty());
    let words = lines.filter(|line| line.starts_with("  ") && !line.starts_with("    "));
    words
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|verb| verb != "help")
        .collect()
}

#[test]
fn each_verb_ends_with_the_statuses_of_the_table() {
    let folder = folder();
    let bad = folder.path().join("bad.toml").display().to_string();
    fs::write(&bad, "no_such_key = 1\n").expect("a file");
    let verbs = verbs();
    assert!(verbs.len() > 15, "{verbs:?}");
    for verb in &verbs {
        let end = start(&[verb, "--no-such-option"]).wait(LIMIT);
        assert_eq!(end.status.code(), Some(2), "{verb}: {}", end.stderr);
    }
    let none = "/nonexistent/hub.sock";
    let group = format!("hub:a?socket={none}");
    let file = folder.path().join("a.pcapng").display().to_string();
    let cases: [(&[&str], i32); 25] = [
        // What is not there.
        (&["count", "-i", "nosuch0"], 1),
        (&["count", "-i", &group], 1),
        (&["record", "-i", &group, "-w", &file], 1),
        (&["count", "-r", "/nonexistent/file"], 1),
        (&["probe", "-r", "/nonexistent/file"], 1),
        (&["hub", "-i", "nosuch0", "--socket", &file], 1),
        (&["hub", "reload", "--socket", none], 1),
        (&["send", "-i", "nosuch0"], 1),
        (&["bridge", "nosuch0", "nosuch1"], 1),
        (&["inline", "-i", &group], 1),
        (&["status", "--socket", none], 1),
        (&["why", "--socket", none], 1),
        (&["vm", "detach", "nosuch"], 1),
        (&["exec", "--", "/nonexistent/program"], 127),
        // What cannot be used.
        (&["hub", "-c", &bad], 2),
        (&["hub", "--check", &bad], 2),
        (&["hub", "--check", "/nonexistent/hub.toml"], 2),
        (&["hub", "-i", "lo", "-g", "a:prot 7"], 2),
        (&["hub", "-i", "lo", "--cpu", "reader=0"], 2),
        (&["probe", "-r", &file, "--config", &bad], 2),
        (
            &["probe", "-r", &file, "--config", "/nonexistent/probe.toml"],
            2,
        ),
        (&["count", "-i", "sim:max", "prot", "7"], 2),
        (&["count", "-r", &file, "--latency"], 2),
        (&["top"], 2),
        // What ends as asked.
        (&["count", "-q", "-i", "sim:max?burst=10"], 0),
    ];
    for (args, status) in cases {
        let end = start(args).wait(LIMIT);
        let told = format!("{args:?}: {}{}", end.stdout, end.stderr);
        assert_eq!(end.status.code(), Some(status), "{told}");
        assert_eq!(end.stderr.is_empty(), status == 0, "{told}");
    }
}

#[test]
fn a_file_that_others_could_read_is_private_once_it_is_recorded_into() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let file = folder.path().join("a.pcapng");
    for extra in [&[][..], &["--direct-io"]] {
        fs::write(&file, "old").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
        let path = file.display().to_string();
        let args = ["record", "-q", "-i", "sim:max?burst=10", "-w", &path];
        let _made = start(&[&args[..], extra].concat()).wait(LIMIT).success();
        let mode = fs::metadata(&file).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{extra:?}");
    }
}

#[test]
fn small_numbers_have_their_own_words() {
    let folder = folder();
    let file = folder.path().join("a.pcapng").display().to_string();
    let args = ["record", "-i", "sim:max?burst=1", "-w", &file];
    let end = start(&args).wait(LIMIT).success();
    assert!(end.stdout.contains("1 packet, "), "{}", end.stdout);
    assert!(!end.stdout.contains("1 packets"), "{}", end.stdout);
    let list = start(&["vm", "list"]).wait(LIMIT).success();
    assert!(
        list.stderr.contains("no virtual machine is attached"),
        "{}",
        list.stderr
    );
}
