// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts and rates: what the sender says of itself, compared with the kernel's counters.

use std::time::Instant;

use ringtap_testkit::{LIMIT, require_root, require_tool};
use serde_json::Value;

use crate::wire::{figures, network, received, start};

fn number(figures: &Value, name: &str) -> u64 {
    figures[name].as_u64().expect("a whole number")
}

#[test]
fn exactly_as_many_packets_as_asked_for_reach_the_other_end() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_count");
    for args in [
        "-c 1",
        "-c 64 --rate max",
        "-c 10007 --rate 200000",
        "-c 10007 --rate max --method packet",
        "-c 1001 --imix --rate 100Mbps",
    ] {
        let before = received(&net, 0);
        let figures = figures(&net, args);
        let (sent, refused) = (number(&figures, "sent"), number(&figures, "refused"));
        let asked: u64 = args.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(sent + refused, asked, "{args}: {figures}");
        let got = received(&net, before + sent) - before;
        assert_eq!(got, sent, "{args}: {figures}");
    }
}

#[test]
fn rates_are_kept_within_one_percent() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_rate");
    for (args, rate_pps) in [
        ("--rate 200", 200.0),
        ("--rate 7kpps", 7000.0),
        ("--rate 100000", 100_000.0),
        ("--rate 50Mbps", 50e6 / 672.0),
        ("--rate 100Mbps --size 1518", 100e6 / (1538.0 * 8.0)),
        ("--rate 20000 --method packet", 20_000.0),
        ("--rate 100Mbps --imix", 100e6 * 12.0 / (4486.0 * 8.0)),
    ] {
        // A busy machine may not let the sender run for a while; a wrong pace is never right.
        let deadline = Instant::now() + LIMIT;
        loop {
            let figures = figures(&net, &format!("{args} --duration 1"));
            let got_pps = figures["rate_pps"].as_f64().expect("a rate");
            if (got_pps / rate_pps - 1.0).abs() <= 0.01 {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{args}: {rate_pps}, not {got_pps}"
            );
        }
    }
}

#[test]
fn two_senders_on_one_interface_count_their_own_packets_only() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_two");
    let args = "--json --quiet --method live -c 20000 --rate 40000";
    let both = [start(&net, args), start(&net, args)];
    let mut sent = 0;
    for sender in both {
        let end = sender.wait(LIMIT).success();
        let figures: Value = serde_json::from_str(end.stdout.trim()).expect("JSON");
        let (own, refused) = (number(&figures, "sent"), number(&figures, "refused"));
        assert_eq!(own + refused, 20_000, "{figures}");
        sent += own;
    }
    assert_eq!(received(&net, sent), sent);
}

#[test]
fn a_line_a_second_then_the_final_figures() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_lines");
    let end = start(&net, "--json --rate 1000 -c 3500")
        .wait(LIMIT)
        .success();
    let lines: Vec<Value> = end
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one object a line"))
        .collect();
    // A busy machine delays lines, and leaves out those that it delays for a second.
    assert!(lines.len() >= 2, "{}", end.stdout);
    assert!(lines.iter().all(|line| line["type"] == "send"));
    let (last, before) = lines.split_last().expect("lines");
    assert_eq!(last["final"], true);
    assert!(before.iter().all(|line| line["final"] == false));
    for (second, line) in (1..).zip(before) {
        assert!(number(line, "elapsed_ns") >= second * 900_000_000, "{line}");
    }
    assert!(lines.is_sorted_by_key(|line| number(line, "sent")));
    assert!(lines.is_sorted_by_key(|line| number(line, "elapsed_ns")));
    assert_eq!(number(last, "sent"), 3500, "{}", end.stdout);
    assert_eq!(number(last, "bytes"), 3500 * 60);
}

#[test]
fn ctrl_c_ends_with_the_final_figures() {
    require_root!();
    require_tool!("ethtool");
    let net = network("send_interrupt");
    for method in ["live", "packet"] {
        let sender = start(&net, &format!("--json --rate 10000 --method {method}"));
        sender.wait_for_stdout("\"final\":false", LIMIT);
        sender.interrupt();
        let end = sender.wait(LIMIT).success();
        let last: Value = serde_json::from_str(end.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(last["final"], true);
        assert!(number(&last, "sent") > 0);
    }
}
