// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two captures on one interface.

use ringtap_testkit::{
    Ends, LIMIT, Namespace, Wire, require_root, require_tool, settle_everywhere,
};

use crate::support::{BINARY, MARKED, last_json, marked, number, start_count};

#[test]
fn a_second_bridge_does_not_bypass_the_filter_of_the_first() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("links_second_bridge", 1500, Ends::Napi);
    let args = [
        "bridge", "a1", "b1", "--mode", "tc", "--drop", "udp", "--json", "-q",
    ];
    let bridge = wire.middle.spawn(BINARY, &args);
    bridge.wait_for_stderr("bridge of a1 and b1", LIMIT);
    assert!(wire.answers(), "it forwards");
    let pid = format!("process {}", bridge.pid());
    for second in [
        &["bridge", "a1", "b1", "--mode", "tc"][..],
        &["bridge", "b1", "a1", "--mode", "native"],
        &["bridge", "a1", "b1", "--inline", "ips"],
        &["count", "-i", "tap:a1?exclusive"],
        &["count", "-i", "a1"],
        &["count", "-i", "xdp:b1"],
    ] {
        let end = wire.middle.run(BINARY, second);
        assert_eq!(end.status.code(), Some(1), "{second:?}: {}", end.stderr);
        assert!(end.stderr.contains(&pid), "{second:?}: {}", end.stderr);
        assert!(!end.stderr.contains("detach"), "{}", end.stderr);
    }
    assert!(wire.answers(), "it still forwards");
    // Addresses are known, so that the first packet would arrive at once.
    let server = wire.right.spawn("python3", &["-c", LISTEN]);
    server.wait_for_stderr("listening", LIMIT);
    let sent = wire.left.run("python3", &["-c", SEND]);
    assert!(sent.status.success(), "{}", sent.stderr);
    assert_eq!(
        wire.ping(&wire.left, "10.9.0.2", 3, 56),
        3,
        "later packets arrive"
    );
    server.interrupt();
    let heard = server.wait(LIMIT);
    assert!(!heard.stdout.contains("heard"), "{}", heard.stdout);
    bridge.interrupt();
    let _ended = bridge.wait(LIMIT).success();
}

const LISTEN: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.9.0.2', 4711))
print('listening', file=sys.stderr, flush=True)
s.recv(100)
print('heard', flush=True)
";

const SEND: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(20):
    s.sendto(b'x', ('10.9.0.2', 4711))
";

#[test]
fn a_hub_captures_an_interface_once() {
    require_root!();
    require_tool!("ip");
    let net = Namespace::with_veth("links_twice");
    net.ip(&["link", "property", "add", "dev", "rx0", "altname", "other"]);
    for second in ["tap:rx0?direction=out", "packet:other"] {
        let devices = format!("tap:rx0?mode=tc,{second}");
        let end = net.run(
            BINARY,
            &["hub", "-i", &devices, "--socket", "/tmp/links-twice"],
        );
        assert_eq!(end.status.code(), Some(1), "{}", end.stderr);
        assert!(end.stderr.contains("the same interface"), "{}", end.stderr);
    }
}

#[test]
fn two_taps_that_only_look_see_every_packet_both() {
    require_root!();
    require_tool!("ip", "python3");
    let net = Namespace::with_veth("links_two_taps");
    let start = |mode: &str| {
        let device = format!("tap:rx0?direction=in&mode={mode}");
        start_count(&net, &device, &[MARKED])
    };
    let all = [start("native"), start("tc"), start("tc")];
    net.inject("tx0", &marked(100));
    settle_everywhere();
    for count in all {
        count.interrupt();
        let counters = last_json(&count.wait(LIMIT).success());
        assert_eq!(number(&counters, "delivered"), 100, "{counters}");
        assert_eq!(counters["balanced"], true, "{counters}");
    }
}
