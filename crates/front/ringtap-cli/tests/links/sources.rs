// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outages under each source.

use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool, settle_everywhere};

use crate::support::{
    BINARY, MARKED, flap, flaps, last_json, lines, marked, number, start_count, wait_until,
    wait_until_active,
};

/// Packets after the last outage.
const AFTER: usize = 200;

/// Background traffic that passes no reader's filter.
fn traffic(net: &Namespace) -> Running {
    let args = [
        "send", "-i", "tx0", "--rate", "2000", "--method", "packet", "-q",
    ];
    net.spawn(BINARY, &args)
}

fn survives(device: &str) {
    let net = Namespace::with_veth("links");
    let count = start_count(&net, device, &[MARKED]);
    let sender = traffic(&net);
    wait_until("packets are filtered", || {
        let line = count.stdout().lines().last().map(str::to_owned);
        let line = line.and_then(|line| serde_json::from_str(&line).ok());
        line.is_some_and(|line| number(&line, "filtered") > 0)
    });
    flap(&net, "rx0", flaps(), &count);
    sender.interrupt();
    let _sent = sender.wait(LIMIT).success();
    wait_until_active(&net, "tx0");
    net.inject("tx0", &marked(AFTER));
    settle_everywhere();
    count.interrupt();
    let end = count.wait(LIMIT).success();
    assert_eq!(
        end.stderr.matches("; waiting").count(),
        flaps(),
        "{}",
        end.stderr
    );
    let counters = last_json(&end);
    assert_eq!(counters["balanced"], true, "{counters}");
    assert_eq!(number(&counters, "delivered"), AFTER as u64, "{counters}");
    assert!(number(&counters, "filtered") > 0, "{counters}");
    assert!(!net.has_xdp("rx0"), "nothing is left behind");
}

#[test]
fn a_native_tap_outlives_its_link() {
    require_root!();
    require_tool!("ip", "python3");
    survives("tap:rx0?mode=native&direction=in");
}

#[test]
fn a_generic_tap_outlives_its_link() {
    require_root!();
    require_tool!("ip", "python3");
    survives("tap:rx0?mode=generic&direction=in");
}

#[test]
fn a_tap_at_traffic_control_outlives_its_link() {
    require_root!();
    require_tool!("ip", "python3");
    survives("tap:rx0?mode=tc&direction=in");
}

#[test]
fn af_xdp_outlives_its_link() {
    require_root!();
    require_tool!("ip", "python3");
    survives("xdp:rx0");
    survives("xdp:rx0?mode=generic");
}

#[test]
fn a_packet_socket_outlives_its_link() {
    require_root!();
    require_tool!("ip", "python3");
    survives("packet:rx0?direction=in");
}

#[test]
fn a_lost_carrier_and_a_new_name_end_nothing() {
    require_root!();
    require_tool!("ip", "python3");
    for device in ["tap:rx0?direction=in", "packet:rx0?direction=in", "xdp:rx0"] {
        let net = Namespace::with_veth("links_carrier");
        let count = start_count(&net, device, &[MARKED]);
        net.ip(&["link", "set", "tx0", "down"]);
        count.wait_for_stderr("rx0 has no carrier; waiting", LIMIT);
        net.ip(&["link", "set", "tx0", "up"]);
        count.wait_for_stderr("rx0 is up again after ", LIMIT);
        net.ip(&["link", "set", "rx0", "name", "lan0"]);
        net.ip(&["link", "set", "lan0", "mtu", "1400"]);
        net.ip(&["link", "set", "lan0", "down"]);
        count.wait_for_stderr("rx0 has the new name lan0", LIMIT);
        count.wait_for_stderr("lan0 is down; waiting", LIMIT);
        net.ip(&["link", "set", "lan0", "up"]);
        wait_until("its end is reported", || {
            lines(&count, "lan0 is up again") == 1
        });
        wait_until_active(&net, "tx0");
        net.inject("tx0", &marked(AFTER));
        settle_everywhere();
        count.interrupt();
        let counters = last_json(&count.wait(LIMIT).success());
        assert_eq!(counters["balanced"], true, "{counters}");
        let delivered = number(&counters, "delivered");
        assert_eq!(delivered, AFTER as u64, "{device}: {counters}");
    }
}

#[test]
fn more_queues_and_fewer_queues_end_nothing() {
    require_root!();
    require_tool!("ip", "ethtool", "python3");
    for device in [
        "tap:rx0?mode=native&direction=in",
        "tap:rx0?mode=tc&direction=in",
        "packet:rx0?direction=in",
    ] {
        let net = Namespace::new("links_queues");
        let pair = "link add tx0 numtxqueues 2 numrxqueues 2 type veth \
                    peer name rx0 numtxqueues 2 numrxqueues 2";
        net.ip(&pair.split_whitespace().collect::<Vec<_>>());
        for end in ["tx0", "rx0"] {
            net.ip(&["link", "set", end, "up"]);
        }
        // With XDP, the receiving end keeps a queue for each sending one.
        let _set = net.run("ethtool", &["-L", "tx0", "tx", "1"]).success();
        let count = start_count(&net, device, &[MARKED]);
        for queues in ["1", "2"] {
            let _set = net.run("ethtool", &["-L", "rx0", "rx", queues]).success();
            net.inject("tx0", &marked(AFTER));
        }
        settle_everywhere();
        count.interrupt();
        let counters = last_json(&count.wait(LIMIT).success());
        assert_eq!(counters["balanced"], true, "{counters}");
        let delivered = number(&counters, "delivered");
        assert_eq!(delivered, 2 * AFTER as u64, "{device}: {counters}");
    }
}
