// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bridge about whose packets another process decides: by content, while it lives, and after.

use std::path::{Path, PathBuf};

use ringtap_testkit::{Running, require_root, require_tool, say_skipped};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{BINARY, Ends, LIMIT, Wire, counters};

/// So long that no inline reader is late, however busy the machine is.
const LONG: [&str; 2] = ["--verdict-timeout", "60000"];

fn lost(counters: &Value, reason: &str) -> u64 {
    counters["dropped"][reason].as_u64().expect("a number")
}

fn balanced(counters: &[Value; 2]) {
    for counters in counters {
        assert_eq!(counters["balanced"], true, "{counters}");
    }
}

/// Ends a bridge; it dropped packets for want of a verdict, or none, and accounts for all.
fn ends_having_dropped(bridge: Running, wanted: bool, case: &str) {
    let both = counters(bridge);
    let dropped = both.iter().map(|counters| lost(counters, "no_verdict"));
    assert_eq!(dropped.sum::<u64>() > 0, wanted, "{case}: {both:?}");
    balanced(&both);
}

/// Whether a ping is answered: where it should be, after as long as it may take.
fn is_answered(wire: &Wire, should: bool) -> bool {
    let answered = if should {
        wire.ping(&wire.left, "10.9.0.2", 1, 56)
    } else {
        wire.ping_in_vain(&wire.left, "10.9.0.2", 1, 56)
    };
    answered == 1
}

/// An example of the Rust library; prints a note if it was not built.
fn example(name: &str) -> Option<PathBuf> {
    let program = Path::new(BINARY).with_file_name("examples").join(name);
    if program.exists() {
        return Some(program);
    }
    say_skipped("needs the example: cargo build -p ringtap-client --example inline_ips");
    None
}

#[test]
fn another_process_decides_by_content() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-inline", 9000, Ends::Napi);
    let bridge = wire.inline_bridge(&LONG);
    let reader = wire.inline_reader(&["--drop-text", "forbidden"]);
    assert_eq!(wire.ping(&wire.left, "10.9.0.2", 5, 9000 - 28), 5);
    wire.drops_34_forbidden_words_of_100();
    wire.tcp(&wire.left, &wire.right, "10.9.0.2", 5_000_000);
    wire.tcp(&wire.right, &wire.left, "10.9.0.1", 5_000_000);
    assert_eq!(wire.wrong_checksums(), 0);
    let [forth, back] = counters(bridge);
    assert_eq!(forth["filtered"], 34, "{forth}");
    balanced(&[forth, back]);
    let end = reader.wait(LIMIT);
    assert!(end.stderr.contains("dropped: 34 packets"), "{}", end.stderr);
}

#[test]
fn the_example_in_rust_decides_by_content_and_may_be_killed() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let Some(example) = example("inline_ips") else {
        return;
    };
    let wire = Wire::new("bridge-example", 1500, Ends::Napi);
    let options = ["--no-verdict", "pass", "--interval", "0.1"];
    let bridge = wire.inline_bridge(&[&LONG[..], &options].concat());
    let reader = || {
        let mut command = wire.middle.command(&example);
        command.args(["ips", "forbidden"]);
        command.env("RINGTAP_SOCKET", wire.socket());
        let reader = Running::start(command);
        reader.wait_for_stderr("inline_ips: deciding", LIMIT);
        reader
    };
    let first = reader();
    wire.drops_34_forbidden_words_of_100();
    first.signal(Signal::KILL);
    let _killed = first.wait(LIMIT);
    bridge.wait_for_stderr("there is no inline reader", LIMIT);
    let both = ["allowed", "forbidden"].map(String::from);
    assert_eq!(wire.words(&both), both, "nobody decides any more");
    let next = reader();
    assert_eq!(wire.words(&both), ["allowed"], "the next one decides");
    let [forth, back] = counters(bridge);
    assert_eq!(forth["filtered"], 35, "{forth}");
    balanced(&[forth, back]);
    let _end = next.wait(LIMIT).success();
}

#[test]
fn without_its_inline_reader_a_bridge_does_as_it_was_told() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for (no_verdict, passes) in [("pass", true), ("drop", false)] {
        let wire = Wire::new("bridge-none", 1500, Ends::Napi);
        let options = ["--no-verdict", no_verdict, "--interval", "0.1"];
        let bridge = wire.inline_bridge(&[&LONG[..], &options].concat());
        let reader = wire.inline_reader(&["--drop-text", "forbidden"]);
        assert_eq!(wire.ping(&wire.left, "10.9.0.2", 5, 56), 5, "{no_verdict}");
        let second = wire
            .middle
            .run(BINARY, &["inline", "-i", &wire.inline_group()]);
        assert!(
            second.stderr.contains("is more than the 1"),
            "{}",
            second.stderr
        );
        reader.signal(Signal::KILL);
        let _killed = reader.wait(LIMIT);
        bridge.wait_for_stderr("there is no inline reader", LIMIT);
        assert_eq!(is_answered(&wire, passes), passes, "{no_verdict}");
        let next = wire.inline_reader(&["--drop-text", "forbidden"]);
        let words = ["allowed", "forbidden", "allowed too"].map(String::from);
        assert_eq!(
            wire.words(&words),
            ["allowed", "allowed too"],
            "{no_verdict}"
        );
        ends_having_dropped(bridge, !passes, no_verdict);
        let _end = next.wait(LIMIT);
    }
}

#[test]
fn an_inline_reader_that_is_stopped_holds_nothing_up() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for (no_verdict, passes) in [("pass", true), ("drop", false)] {
        let wire = Wire::new("bridge-late", 1500, Ends::Napi);
        let options = [
            "--no-verdict",
            no_verdict,
            "--verdict-timeout",
            "3000",
            "--interval",
            "0.1",
        ];
        let bridge = wire.inline_bridge(&[&options[..], &["--pool", "1MiB"]].concat());
        let reader = wire.inline_reader(&["--drop-text", "forbidden"]);
        // The hosts resolve their addresses first: a host gives up a request after 3 s.
        assert!(wire.answers(), "{no_verdict}: the reader decides");
        reader.signal(Signal::STOP);
        // The first one waits for its time; then nothing waits any more.
        assert_eq!(is_answered(&wire, passes), passes, "{no_verdict}");
        bridge.wait_for_stderr("let packets wait for 3000 ms", LIMIT);
        if passes {
            // Many times what the mirror's pools hold.
            wire.tcp(&wire.left, &wire.right, "10.9.0.2", 20_000_000);
        }
        reader.signal(Signal::CONT);
        let words = ["allowed", "forbidden"].map(String::from);
        let tries = (0..100).filter(|_| wire.words(&words) == ["allowed"]);
        assert_eq!(tries.take(1).count(), 1, "{no_verdict}: it decides again");
        ends_having_dropped(bridge, !passes, no_verdict);
        let _end = reader.wait(LIMIT);
    }
}

#[test]
fn an_inline_reader_is_refused_where_nothing_waits_for_verdicts() {
    require_root!();
    require_tool!("ip", "ethtool");
    let wire = Wire::new("bridge-refuse", 1500, Ends::Napi);
    for (args, text) in [
        (&["--inline", "ips:tcp"][..], "reads every packet"),
        (&["--no-verdict", "pass"], "--inline"),
    ] {
        let all = [&["bridge", "a1", "b1"][..], args].concat();
        let end = wire.middle.run(BINARY, &all);
        assert!(
            !end.status.success() && end.stderr.contains(text),
            "{args:?}: {}",
            end.stderr
        );
    }
    let (bridge, reader) = wire.mirrored(&[]);
    let device = wire.inline_group().replace("ips", "wire");
    let refused = wire.middle.run(BINARY, &["inline", "-i", &device]);
    assert!(
        refused.stderr.contains("nothing waits for verdicts here"),
        "{}",
        refused.stderr
    );
    balanced(&counters(bridge));
    let _end = reader.wait(LIMIT);
}

#[test]
fn an_inline_reader_that_is_interrupted_leaves_in_order() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-leaves", 1500, Ends::Napi);
    let options = ["--no-verdict", "pass", "--interval", "0.1"];
    let bridge = wire.inline_bridge(&[&LONG[..], &options].concat());
    let reader = wire.inline_reader(&["--drop", "icmp"]);
    // They know each other's address then, and do not hold the pings back.
    wire.tcp(&wire.left, &wire.right, "10.9.0.2", 1000);
    assert_eq!(wire.ping_in_vain(&wire.left, "10.9.0.2", 2, 56), 0);
    reader.interrupt();
    let end = reader.wait(LIMIT).success();
    let told: Value = serde_json::from_str(end.stdout.trim()).expect("counters");
    assert_eq!(told["balanced"], true, "{told}");
    assert!(end.stderr.contains("dropped: 2 packets"), "{}", end.stderr);
    bridge.wait_for_stderr("there is no inline reader", LIMIT);
    assert_eq!(wire.ping(&wire.left, "10.9.0.2", 2, 56), 2);
    ends_having_dropped(bridge, false, "interrupted");
}

#[test]
fn an_inline_reader_whose_bridge_is_killed_is_told() {
    require_root!();
    require_tool!("ip", "ethtool");
    let wire = Wire::new("bridge-orphan", 1500, Ends::Napi);
    let bridge = wire.inline_bridge(&LONG);
    let reader = wire.inline_reader(&[]);
    bridge.signal(Signal::KILL);
    let _killed = bridge.wait(LIMIT);
    let end = reader.wait(LIMIT);
    assert!(!end.status.success());
    assert!(end.stderr.contains("the hub ended"), "{}", end.stderr);
    assert!(!wire.middle.has_xdp("a1") && !wire.middle.has_xdp("b1"));
}

#[test]
fn status_and_why_state_what_the_bridge_dropped() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-seen", 1500, Ends::Napi);
    let bridge = wire.inline_bridge(&[]);
    assert!(!is_answered(&wire, false), "there is no inline reader");
    let path = wire.socket().display().to_string();
    let start = std::time::Instant::now();
    loop {
        let status = wire.middle.run(BINARY, &["status", "--socket", &path]);
        let status: Value = serde_json::from_str(&status.success().stdout).expect("JSON");
        assert_eq!(status["bridges"][0]["way"], "a1>b1", "{status}");
        if status["bridges"][0]["dropped"]["no_verdict"].as_u64() > Some(0) {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{status}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let why = wire.middle.run(BINARY, &["why", "--socket", &path]);
    assert_eq!(why.status.code(), Some(4), "{}", why.stderr);
    let said = "Bridge a1>b1: no inline reader was connected, or it was late: the bridge lost";
    assert!(why.stdout.contains(said), "{}", why.stdout);
    ends_having_dropped(bridge, true, "without an inline reader");
}
