// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bridge whose packets another process judges: by content, while it lives, and after.

use std::path::{Path, PathBuf};

use ringtap_testkit::{Running, require_root, require_tool, say_skipped};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{BINARY, Ends, LIMIT, Wire, counters};

/// So long that no judge is late, however busy the machine is.
const LONG: [&str; 2] = ["--judge-limit", "60000"];

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
    let answered = match should {
        true => wire.ping(&wire.left, "10.9.0.2", 1, 56),
        false => wire.ping_in_vain(&wire.left, "10.9.0.2", 1, 56),
    };
    answered == 1
}

/// An example of the Rust library; where it was not built that is said.
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
    let wire = Wire::new("bridge-judge", 9000, Ends::Napi);
    let bridge = wire.judged(&LONG);
    let judge = wire.judge(&["--drop-text", "forbidden"]);
    assert_eq!(wire.ping(&wire.left, "10.9.0.2", 5, 9000 - 28), 5);
    wire.drops_34_forbidden_words_of_100();
    wire.tcp(&wire.left, &wire.right, "10.9.0.2", 5_000_000);
    wire.tcp(&wire.right, &wire.left, "10.9.0.1", 5_000_000);
    assert_eq!(wire.wrong_checksums(), 0);
    let [forth, back] = counters(bridge);
    assert_eq!(forth["filtered"], 34, "{forth}");
    balanced(&[forth, back]);
    let end = judge.wait(LIMIT);
    assert!(
        end.stderr.contains("34 packets were dropped"),
        "{}",
        end.stderr
    );
}

#[test]
fn the_example_in_rust_decides_by_content_and_may_be_killed() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let Some(example) = example("inline_ips") else {
        return;
    };
    let wire = Wire::new("bridge-example", 1500, Ends::Napi);
    let options = ["--unjudged", "pass", "--interval", "0.1"];
    let bridge = wire.judged(&[&LONG[..], &options].concat());
    let judge = || {
        let mut command = wire.middle.command(&example);
        command.args(["ips", "forbidden"]);
        command.env("RINGTAP_SOCKET", wire.socket());
        let judge = Running::start(command);
        judge.wait_for_stderr("inline_ips: judging", LIMIT);
        judge
    };
    let first = judge();
    wire.drops_34_forbidden_words_of_100();
    first.signal(Signal::KILL);
    let _killed = first.wait(LIMIT);
    bridge.wait_for_stderr("there is no judge", LIMIT);
    let both = ["allowed", "forbidden"].map(String::from);
    assert_eq!(wire.words(&both), both, "nobody decides any more");
    let next = judge();
    assert_eq!(wire.words(&both), ["allowed"], "the next one decides");
    let [forth, back] = counters(bridge);
    assert_eq!(forth["filtered"], 35, "{forth}");
    balanced(&[forth, back]);
    let _end = next.wait(LIMIT).success();
}

#[test]
fn without_its_judge_a_bridge_does_as_it_was_told() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for (unjudged, passes) in [("pass", true), ("drop", false)] {
        let wire = Wire::new("bridge-unjudged", 1500, Ends::Napi);
        let options = ["--unjudged", unjudged, "--interval", "0.1"];
        let bridge = wire.judged(&[&LONG[..], &options].concat());
        let judge = wire.judge(&["--drop-text", "forbidden"]);
        assert_eq!(wire.ping(&wire.left, "10.9.0.2", 5, 56), 5, "{unjudged}");
        let second = wire.middle.run(BINARY, &["judge", "-i", &wire.judges()]);
        assert!(
            second.stderr.contains("is more than the 1"),
            "{}",
            second.stderr
        );
        judge.signal(Signal::KILL);
        let _killed = judge.wait(LIMIT);
        bridge.wait_for_stderr("there is no judge", LIMIT);
        assert_eq!(is_answered(&wire, passes), passes, "{unjudged}");
        let next = wire.judge(&["--drop-text", "forbidden"]);
        let words = ["allowed", "forbidden", "allowed too"].map(String::from);
        assert_eq!(wire.words(&words), ["allowed", "allowed too"], "{unjudged}");
        ends_having_dropped(bridge, !passes, unjudged);
        let _end = next.wait(LIMIT);
    }
}

#[test]
fn a_judge_that_is_stopped_holds_nothing_up() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for (unjudged, passes) in [("pass", true), ("drop", false)] {
        let wire = Wire::new("bridge-late", 1500, Ends::Napi);
        let options = [
            "--unjudged",
            unjudged,
            "--judge-limit",
            "300",
            "--interval",
            "0.1",
        ];
        let bridge = wire.judged(&[&options[..], &["--pool", "1MiB"]].concat());
        let judge = wire.judge(&["--drop-text", "forbidden"]);
        judge.signal(Signal::STOP);
        // The first one waits for its time; then nothing waits any more.
        assert_eq!(is_answered(&wire, passes), passes, "{unjudged}");
        bridge.wait_for_stderr("let packets wait for 300 ms", LIMIT);
        if passes {
            // Many times what the mirror's pools hold.
            wire.tcp(&wire.left, &wire.right, "10.9.0.2", 20_000_000);
        }
        judge.signal(Signal::CONT);
        let words = ["allowed", "forbidden"].map(String::from);
        let tries = (0..100).filter(|_| wire.words(&words) == ["allowed"]);
        assert_eq!(tries.take(1).count(), 1, "{unjudged}: it judges again");
        ends_having_dropped(bridge, !passes, unjudged);
        let _end = judge.wait(LIMIT);
    }
}

#[test]
fn a_judge_is_refused_where_nothing_is_judged() {
    require_root!();
    require_tool!("ip", "ethtool");
    let wire = Wire::new("bridge-judges", 1500, Ends::Napi);
    for (args, text) in [
        (
            &["--judge", "ips", "--mode", "native"][..],
            "asked for in user space",
        ),
        (&["--judge", "ips:tcp"], "sees every packet"),
        (&["--unjudged", "pass"], "--judge"),
    ] {
        let all = [&["bridge", "a1", "b1"][..], args].concat();
        let end = wire.middle.run(BINARY, &all);
        assert!(
            !end.status.success() && end.stderr.contains(text),
            "{args:?}: {}",
            end.stderr
        );
    }
    let (bridge, reader) = wire.mirrored(&["--mode", "user"]);
    let device = wire.judges().replace("ips", "wire");
    let judge = wire.middle.run(BINARY, &["judge", "-i", &device]);
    assert!(
        judge.stderr.contains("nothing is judged here"),
        "{}",
        judge.stderr
    );
    balanced(&counters(bridge));
    let _end = reader.wait(LIMIT);
}

#[test]
fn a_judge_that_is_interrupted_leaves_in_order() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-leaves", 1500, Ends::Napi);
    let options = ["--unjudged", "pass", "--interval", "0.1"];
    let bridge = wire.judged(&[&LONG[..], &options].concat());
    let judge = wire.judge(&["--drop", "icmp"]);
    // They know each other's address then, and do not hold the pings back.
    wire.tcp(&wire.left, &wire.right, "10.9.0.2", 1000);
    assert_eq!(wire.ping_in_vain(&wire.left, "10.9.0.2", 2, 56), 0);
    judge.interrupt();
    let end = judge.wait(LIMIT).success();
    let told: Value = serde_json::from_str(end.stdout.trim()).expect("counters");
    assert_eq!(told["balanced"], true, "{told}");
    assert!(
        end.stderr.contains("2 packets were dropped"),
        "{}",
        end.stderr
    );
    bridge.wait_for_stderr("there is no judge", LIMIT);
    assert_eq!(wire.ping(&wire.left, "10.9.0.2", 2, 56), 2);
    ends_having_dropped(bridge, false, "interrupted");
}

#[test]
fn a_judge_whose_bridge_is_killed_is_told() {
    require_root!();
    require_tool!("ip", "ethtool");
    let wire = Wire::new("bridge-orphan", 1500, Ends::Napi);
    let bridge = wire.judged(&LONG);
    let judge = wire.judge(&[]);
    bridge.signal(Signal::KILL);
    let _killed = bridge.wait(LIMIT);
    let end = judge.wait(LIMIT);
    assert!(!end.status.success());
    assert!(end.stderr.contains("the hub left"), "{}", end.stderr);
    assert!(!wire.middle.has_xdp("a1") && !wire.middle.has_xdp("b1"));
}
