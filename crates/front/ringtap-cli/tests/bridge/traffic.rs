// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a bridge carries, and what its counters say.

use ringtap_testkit::{require_root, require_tool, settle_everywhere};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{BINARY, Ends, LIMIT, Wire, counters};

fn number(counters: &Value, name: &str) -> u64 {
    counters[name].as_u64().expect("a counter is a number")
}

fn all_is_delivered(counters: &[Value; 2]) -> u64 {
    for counters in counters {
        assert_eq!(counters["balanced"], true, "{counters}");
        assert_eq!(counters["delivered"], counters["offered"], "{counters}");
    }
    counters
        .iter()
        .map(|counters| number(counters, "delivered"))
        .sum()
}

/// Ping, TCP both ways and frames of 9,000 bytes, while a reader looks on.
fn carries_everything(test: &str, ends: Ends, args: &[&str]) -> String {
    let wire = Wire::new(test, 9000, ends);
    let (bridge, reader) = wire.mirrored(args);
    assert_eq!(wire.ping(&wire.left, "10.9.0.2", 5, 56), 5);
    assert_eq!(wire.ping(&wire.right, "10.9.0.1", 5, 56), 5);
    assert_eq!(
        wire.ping(&wire.left, "10.9.0.2", 5, 9000 - 28),
        5,
        "frames of 9,014 bytes, which may not be cut"
    );
    wire.tcp(&wire.left, &wire.right, "10.9.0.2", 20_000_000);
    wire.tcp(&wire.right, &wire.left, "10.9.0.1", 20_000_000);
    assert_eq!(wire.wrong_checksums(), 0);
    let notes = bridge.stderr();
    let counters = counters(bridge);
    let carried = all_is_delivered(&counters);
    let seen = reader.wait(LIMIT);
    let last = seen.stdout.lines().last().expect("counters");
    let mirror: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(mirror["balanced"], true, "{mirror}");
    assert_eq!(mirror["delivered"], mirror["offered"], "{mirror}");
    match ends {
        Ends::Napi => {
            // The hosts' own questions may have passed before the reader had its subscription.
            let missed = carried - number(&mirror, "delivered");
            assert!(missed < 10, "{carried} carried, mirrored: {mirror}");
        }
        // There, merged packets are mirrored as one.
        Ends::Plain => assert!(number(&mirror, "delivered") > 500, "{mirror}"),
    }
    notes
}

#[test]
fn a_bridge_carries_ping_tcp_and_large_frames_while_a_reader_looks_on() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let notes = carries_everything("bridge", Ends::Napi, &[]);
    assert!(!notes.contains("falling back"), "{notes}");
}

#[test]
fn where_xdp_cannot_send_the_hosts_buffers_do_and_it_is_said() {
    require_root!();
    require_tool!("ip", "python3");
    let notes = carries_everything("bridge-tc", Ends::Plain, &["--mode", "auto"]);
    assert!(
        notes.contains("b1 takes no packets from XDP") && notes.contains("gro on"),
        "{notes}"
    );
}

#[test]
fn a_reader_that_is_stopped_loses_and_the_bridge_goes_on() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for mode in ["native", "tc"] {
        let wire = Wire::new("bridge-stopped", 1500, Ends::Napi);
        let (bridge, reader) = wire.mirrored(&["--mode", mode, "--pool", "1MiB"]);
        reader.signal(Signal::STOP);
        // Many times what the pools hold.
        wire.tcp(&wire.left, &wire.right, "10.9.0.2", 20_000_000);
        wire.tcp(&wire.right, &wire.left, "10.9.0.1", 20_000_000);
        assert_eq!(wire.ping(&wire.left, "10.9.0.2", 5, 56), 5, "{mode}");
        reader.signal(Signal::CONT);
        for counters in counters(bridge) {
            assert_eq!(counters["balanced"], true, "{mode}: {counters}");
        }
        let seen = reader.wait(LIMIT);
        let last = seen.stdout.lines().last().expect("counters");
        let mirror: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(mirror["balanced"], true, "{mode}: {mirror}");
        let dropped = &mirror["dropped"];
        let lost = number(dropped, "overrun") + number(dropped, "pool_full");
        assert!(lost > 1000, "{mode}: {mirror}");
    }
}

#[test]
fn a_bridge_with_an_inline_reader_carries_the_same() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for (mtu, ends, args) in [
        (9000, Ends::Napi, &[][..]),
        (9000, Ends::Napi, &["--pass-after", "3"]),
        (1500, Ends::Plain, &["--pass-after", "3"]),
    ] {
        let wire = Wire::new("bridge-inline-all", mtu, ends);
        let bridge = wire.inline_bridge(&["--verdict-timeout", "60000"]);
        let reader = wire.inline_reader(args);
        assert_eq!(wire.ping(&wire.left, "10.9.0.2", 5, 56), 5);
        assert_eq!(wire.ping(&wire.right, "10.9.0.1", 5, mtu - 28), 5);
        wire.tcp(&wire.left, &wire.right, "10.9.0.2", 10_000_000);
        wire.tcp(&wire.right, &wire.left, "10.9.0.1", 10_000_000);
        assert_eq!(wire.wrong_checksums(), 0);
        all_is_delivered(&counters(bridge));
        let _end = reader.wait(LIMIT).success();
    }
}

#[test]
fn a_filter_that_the_kernel_cannot_run_is_run_by_an_inline_reader() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-loop", 1500, Ends::Napi);
    let looping = ["bridge", "a1", "b1", "--drop", "ip protochain 1"];
    let refused = wire.middle.run(BINARY, &looping);
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("protochain"), "{}", refused.stderr);
    // More code than fits into one function.
    let never = |at| {
        format!(
            "ether[{}] + ether[{}] = {}",
            60 + at % 34,
            60 + at / 34,
            1000 + at
        )
    };
    let never = (0..1100).map(never);
    let never: Vec<_> = never.collect();
    let drop = format!("icmp and not ({})", never.join(" or "));
    let filter = ["--drop", &drop];
    let refused = wire
        .middle
        .run(BINARY, &[&["bridge", "a1", "b1"][..], &filter].concat());
    assert!(!refused.status.success());
    assert!(
        refused.stderr.contains("`ringtap inline --drop`"),
        "{}",
        refused.stderr
    );
    let bridge = wire.inline_bridge(&["--verdict-timeout", "60000"]);
    let reader = wire.inline_reader(&filter);
    wire.tcp(&wire.left, &wire.right, "10.9.0.2", 1_000_000);
    assert_eq!(wire.ping_in_vain(&wire.left, "10.9.0.2", 2, 56), 0);
    let [forth, back] = counters(bridge);
    assert_eq!(number(&forth, "filtered"), 2, "{forth}");
    for counters in [forth, back] {
        assert_eq!(counters["balanced"], true, "{counters}");
    }
    let _end = reader.wait(LIMIT).success();
}

#[test]
fn a_filter_stops_packets_either_way_and_counts_them() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for (filter, pings, ends) in [
        (["--drop", "icmp"], 0, Ends::Napi),
        (["--pass", "arp or tcp"], 0, Ends::Plain),
        (["--drop", "udp"], 3, Ends::Napi),
    ] {
        let wire = Wire::new("bridge-filter", 1500, ends);
        let bridge = wire.bridge(&filter);
        wire.tcp(&wire.left, &wire.right, "10.9.0.2", 1_000_000);
        let answered = match pings {
            0 => wire.ping_in_vain(&wire.left, "10.9.0.2", 1, 56),
            _ => wire.ping(&wire.left, "10.9.0.2", pings, 56),
        };
        assert_eq!(answered, pings, "{filter:?}");
        let [forth, back] = counters(bridge);
        assert_eq!(number(&forth, "filtered"), u64::from(pings == 0), "{forth}");
        for counters in [forth, back] {
            assert_eq!(counters["balanced"], true, "{counters}");
        }
    }
}

#[test]
fn what_the_other_side_cannot_take_is_counted() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-full", 1500, Ends::Napi);
    let bridge = wire.bridge(&[]);
    // Without NAPI there, nothing that is redirected can be received.
    let off = wire.right.run("ethtool", &["-K", "b0", "gro", "off"]);
    assert!(off.status.success(), "{}", off.stderr);
    let frame = [vec![2_u8; 12], vec![0x88, 0xb5], vec![0; 50]].concat();
    wire.left.inject("a0", &vec![frame; 100]);
    let [forth, back] = counters(bridge);
    assert_eq!(number(&forth["dropped"], "kernel"), 100, "{forth}");
    assert_eq!(number(&forth, "delivered"), 0, "{forth}");
    for counters in [forth, back] {
        assert_eq!(counters["balanced"], true, "{counters}");
    }
}

#[test]
fn what_has_waited_and_cannot_be_sent_is_counted_and_holds_nothing_up() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-inline-full", 1500, Ends::Napi);
    let bridge = wire.inline_bridge(&["--verdict-timeout", "60000"]);
    let reader = wire.inline_reader(&[]);
    assert_eq!(wire.ping(&wire.left, "10.9.0.2", 1, 56), 1);
    // Without carrier the kernel takes each packet to send and drops it.
    wire.right.ip(&["link", "set", "b0", "down"]);
    let frame = [vec![2_u8; 12], vec![0x88, 0xb5], vec![0; 50]].concat();
    wire.left.inject("a0", &vec![frame; 100]);
    settle_everywhere();
    std::thread::sleep(std::time::Duration::from_millis(500));
    wire.right.ip(&["link", "set", "b0", "up"]);
    assert!(wire.answers(), "it goes on");
    let [forth, back] = counters(bridge);
    assert!(number(&forth["dropped"], "kernel") >= 100, "{forth}");
    for counters in [forth, back] {
        assert_eq!(counters["balanced"], true, "{counters}");
    }
    let _end = reader.wait(LIMIT).success();
}
