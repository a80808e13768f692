// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outages under a sender.

use ringtap_testkit::{LIMIT, Namespace, require_root, require_tool, settle_everywhere};

use crate::support::{BINARY, flap, flaps, last_json, number, wait_until};

fn survives(method: &str) {
    let net = Namespace::with_veth("links_send");
    let _ = net.run("ethtool", &["-K", "rx0", "gro", "on"]).success();
    let args = [
        "send", "-i", "tx0", "--rate", "2000", "--method", method, "--json",
    ];
    let sender = net.spawn(BINARY, &args);
    sender.wait_for_stdout("\"final\":false", LIMIT);
    flap(&net, "tx0", flaps(), &sender);
    let so_far = net.counter("rx0", "rx_packets");
    wait_until("packets arrive again", || {
        net.counter("rx0", "rx_packets") > so_far + 100
    });
    sender.interrupt();
    let end = sender.wait(LIMIT).success();
    settle_everywhere();
    let counters = last_json(&end);
    let sent = number(&counters, "sent");
    assert!(sent > 100, "{counters}");
    assert!(sent >= net.counter("rx0", "rx_packets"), "{counters}");
    assert_eq!(
        end.stderr.matches("; waiting").count(),
        flaps(),
        "{}",
        end.stderr
    );
}

#[test]
fn a_sender_outlives_its_link() {
    require_root!();
    require_tool!("ip", "ethtool");
    survives("packet");
    survives("live");
}

#[test]
fn a_sender_that_waits_sends_all_packets_of_its_run_and_ends_on_time_or_on_ctrl_c() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("links_send_count");
    let run = |more: &[&str]| {
        let mut args = vec!["send", "-i", "tx0", "--rate", "500", "--method", "packet"];
        args.extend(["--json"].iter().chain(more));
        let sender = net.spawn(BINARY, &args);
        sender.wait_for_stdout("\"final\":false", LIMIT);
        net.ip(&["link", "set", "tx0", "down"]);
        sender.wait_for_stderr("tx0 is down; waiting", LIMIT);
        sender
    };
    let counted = run(&["-c", "3000"]);
    net.ip(&["link", "set", "tx0", "up"]);
    let counters = last_json(&counted.wait(LIMIT).success());
    let tried = number(&counters, "sent") + number(&counters, "refused");
    assert_eq!(tried, 3000, "{counters}");
    let timed = run(&["--duration", "2"]);
    let _ended = timed.wait(LIMIT).success();
    net.ip(&["link", "set", "tx0", "up"]);
    let endless = run(&[]);
    endless.interrupt();
    let _ended = endless.wait(LIMIT).success();
}
