// SPDX-License-Identifier: MIT OR Apache-2.0
//! C programs as inline readers of a bridge: verdicts by content, and refused misuse.

use std::path::Path;
use std::process::Command;

use ringtap_testkit::{Ends, Running, Wire, require_root, require_tool};
use rustix::process::Signal;

use crate::support::{LIMIT, build, crate_folder, ringtap, with_library};

/// Starts a bridge with the inline group `ips`; packets pass while it has no inline reader.
fn bridge(ringtap: &Path, wire: &Wire, socket: &Path) -> Running {
    let mut command = wire.middle.command(ringtap);
    command.args([
        "bridge",
        "a1",
        "b1",
        "--inline",
        "ips",
        "--no-verdict",
        "pass",
    ]);
    // Longer than any delay of an inline reader on a busy machine.
    command.args(["--verdict-timeout", "60000", "--json", "--interval", "0.1"]);
    command.arg("--socket").arg(socket);
    let bridge = Running::start(command);
    bridge.wait_for_stderr("bridge of a1 and b1", LIMIT);
    bridge
}

/// Starts a C program, and returns when it is the inline reader.
fn inline(wire: &Wire, program: &Path, socket: &Path, args: &[&str]) -> Running {
    let mut command: Command = with_library(wire.middle.command(program), socket);
    command.args(args);
    let reader = Running::start(command);
    reader.wait_for_stderr(": deciding", LIMIT);
    reader
}

fn balanced_end(bridge: Running) -> Vec<String> {
    bridge.interrupt();
    let told = bridge.wait(LIMIT).success().stdout;
    let counters: Vec<_> = told.lines().rev().take(2).map(str::to_owned).collect();
    for counters in &counters {
        assert!(counters.contains("\"balanced\":true"), "{counters}");
    }
    counters
}

#[test]
fn the_example_blocks_flows_by_content_and_may_be_killed() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let Some(ringtap) = ringtap() else { return };
    let wire = Wire::new("c-inline", 1500, Ends::Napi);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let bridge = bridge(&ringtap, &wire, &socket);
    let program = build(&crate_folder().join("examples/inline_ips.c"));
    let ips = inline(&wire, &program, &socket, &["ips", "forbidden", "3"]);
    // It blocks the flow of the bad packet, and sees no more of a flow of which 3 packets were good.
    let flows = [
        &["good", "forbidden", "late", "later"][..],
        &["one", "two", "three", "forbidden too"],
    ];
    let heard = wire.flows(&flows);
    assert_eq!(heard, ["good", "one", "two", "three", "forbidden too"]);
    ips.signal(Signal::KILL);
    let _killed = ips.wait(LIMIT);
    bridge.wait_for_stderr("there is no inline reader", LIMIT);
    let both = ["allowed", "forbidden"].map(String::from);
    assert_eq!(wire.words(&both), both, "nobody decides any more");
    let next = inline(&wire, &program, &socket, &["ips", "forbidden"]);
    assert_eq!(
        wire.flows(&[&["allowed"], &["forbidden"]]),
        ["allowed"],
        "the next one decides"
    );
    let counters = balanced_end(bridge);
    let has = |text: &str| counters.iter().any(|one| one.contains(text));
    assert!(
        has("\"filtered\":2,") && has("\"shunted\":2,"),
        "{counters:?}"
    );
    let told = next.wait(LIMIT).success().stdout;
    assert!(told.contains(", 1 flows blocked"), "{told}");
}

#[test]
fn what_an_inline_reader_does_wrong_is_refused_and_its_first_verdict_counts() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let Some(ringtap) = ringtap() else { return };
    let wire = Wire::new("c-bad_verdict", 1500, Ends::Napi);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hub.sock");
    let bridge = bridge(&ringtap, &wire, &socket);
    let program = build(&crate_folder().join("tests/library/bad_verdict.c"));
    let reader = inline(&wire, &program, &socket, &[]);
    let words: Vec<_> = (0..20).map(|number| format!("word {number}")).collect();
    assert_eq!(wire.words(&words), words);
    for counters in balanced_end(bridge) {
        assert!(counters.contains("\"filtered\":0,"), "{counters}");
    }
    let told = reader.wait(LIMIT).success().stdout;
    assert!(told.contains("packets decided twice"), "{told}");
}
