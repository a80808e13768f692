// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outages under a bridge.

use ringtap_testkit::{Ends, LIMIT, Wire, require_root, require_tool, settle_everywhere};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{BINARY, flap, flaps, marked, number};

fn survives(mode: &str, more: &[&str]) {
    let wire = Wire::new("links_bridge", 1500, Ends::Napi);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let socket = folder.path().join("hub.sock").display().to_string();
    let mut args = vec!["bridge", "a1", "b1", "--json", "--quiet", "--mode", mode];
    if !more.is_empty() {
        args.extend(["--socket", &socket]);
        args.extend(more);
    }
    let bridge = wire.middle.spawn(BINARY, &args);
    bridge.wait_for_stderr("bridge of a1 and b1", LIMIT);
    assert!(wire.answers(), "{mode}: it forwards");
    for side in ["a1", "b1"] {
        flap(&wire.middle, side, flaps(), &bridge);
        assert!(wire.answers(), "{mode}: it forwards again");
    }
    assert_eq!(wire.ping(&wire.left, "10.9.0.2", 5, 56), 5, "{mode}");
    bridge.interrupt();
    let end = bridge.wait(LIMIT).success();
    assert_eq!(
        end.stderr.matches("; waiting").count(),
        2 * flaps(),
        "{mode}: {}",
        end.stderr
    );
    for line in end.stdout.lines() {
        let counters: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(counters["balanced"], true, "{mode}: {counters}");
    }
}

#[test]
fn a_bridge_by_native_xdp_outlives_its_links() {
    require_root!();
    require_tool!("ip", "ethtool");
    survives("native", &[]);
}

#[test]
fn a_bridge_by_traffic_control_outlives_its_links() {
    require_root!();
    require_tool!("ip", "ethtool");
    survives("tc", &[]);
}

#[test]
fn a_bridge_with_an_inline_reader_outlives_its_links() {
    require_root!();
    require_tool!("ip", "ethtool");
    survives("native", &["--inline", "ips", "--no-verdict", "pass"]);
}

#[test]
fn packets_to_a_removed_interface_count_as_lost() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("links_bridge_gone", 1500, Ends::Napi);
    let args = ["bridge", "a1", "b1", "--json", "--quiet", "--mode", "tc"];
    let bridge = wire.middle.spawn(BINARY, &args);
    bridge.wait_for_stderr("bridge of a1 and b1", LIMIT);
    assert!(wire.answers(), "it forwards");
    // Stopped, it cannot end before the packets have come.
    bridge.signal(Signal::STOP);
    wire.middle.ip(&["link", "delete", "b1"]);
    wire.left.inject("a0", &marked(100));
    settle_everywhere();
    bridge.signal(Signal::CONT);
    let end = bridge.wait(LIMIT);
    assert_eq!(end.status.code(), Some(3), "{}", end.stderr);
    let forth = end.stdout.lines().find(|line| line.contains("a1>b1"));
    let forth: Value = serde_json::from_str(forth.expect("counters")).expect("JSON");
    assert_eq!(forth["balanced"], true, "{forth}");
    assert!(number(&forth["dropped"], "kernel") >= 100, "{forth}");
}
