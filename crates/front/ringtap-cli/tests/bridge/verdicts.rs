// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts on flows of a bridge: decided in user space, then kept by the kernel, with counts.

use ringtap_testkit::{Namespace, Running, require_root, require_tool, settle_everywhere};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Ends, LIMIT, Wire};

const LONG: [&str; 4] = ["--verdict-timeout", "60000", "--interval", "0.1"];

/// Ends a bridge; returns its counters, a1>b1 first, and its flows.
fn end(bridge: Running) -> ([Value; 2], Vec<Value>) {
    bridge.interrupt();
    let end = bridge.wait(LIMIT).success();
    let lines = end
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let (flows, counters): (Vec<Value>, Vec<Value>) =
        lines.partition(|line: &Value| line["type"] == "flow");
    let counters: [Value; 2] = counters.try_into().expect("two counters");
    for counters in &counters {
        assert_eq!(counters["balanced"], true, "{counters}");
    }
    (counters, flows)
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn is_of_port(flow: &Value, port: u64) -> bool {
    (0..2).any(|end| flow["ends"][end]["port"] == port)
}

/// Packets that an interface has sent, or received.
fn count(net: &Namespace, interface: &str, what: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/{what}_packets");
    let text = net.run("cat", &[&path]).success().stdout;
    text.trim().parse().expect("a number")
}

/// What the hosts' interfaces sent and received: from left, to right, from right, to left.
fn interfaces(wire: &Wire) -> [u64; 4] {
    settle_everywhere();
    [
        count(&wire.left, "a0", "tx"),
        count(&wire.right, "b0", "rx"),
        count(&wire.right, "b0", "tx"),
        count(&wire.left, "a0", "rx"),
    ]
}

#[test]
fn decided_flows_stay_in_the_kernel_and_their_counts_are_exact() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-flows", 1500, Ends::Napi);
    let before = interfaces(&wire);
    let bridge = wire.inline_bridge(&[&LONG[..], &["--flows"]].concat());
    let reader = wire.inline_reader(&["--pass-after", "2"]);
    wire.tcp(&wire.left, &wire.right, "10.9.0.2", 5_000_000);
    wire.tcp(&wire.right, &wire.left, "10.9.0.1", 5_000_000);
    // All that the hosts had to say to each other has arrived.
    assert_eq!(wire.ping(&wire.left, "10.9.0.2", 1, 56), 1);
    let after = interfaces(&wire);
    let [sent, arrived, sent_back, arrived_back] = [0, 1, 2, 3].map(|at| after[at] - before[at]);
    let ([forth, back], flows) = end(bridge);
    for (counters, sent, arrived) in [(&forth, sent, arrived), (&back, sent_back, arrived_back)] {
        assert_eq!(number(&counters["offered"]), sent, "{counters}");
        assert_eq!(number(&counters["delivered"]), arrived, "{counters}");
        assert_eq!(sent, arrived, "nothing is lost");
    }
    let decided = number(&reader_counters(reader)["delivered"]);
    let of_tcp: Vec<_> = flows.iter().filter(|flow| is_of_port(flow, 5001)).collect();
    assert_eq!(of_tcp.len(), 2, "one entry for both directions: {flows:?}");
    let packets = |flow: &Value| -> u64 {
        (0..2)
            .map(|at| number(&flow["directions"][at]["packets"]))
            .sum()
    };
    let in_kernel: u64 = flows.iter().map(packets).sum();
    assert_eq!(
        in_kernel + decided,
        sent + sent_back,
        "each packet waited, or is in a flow's count"
    );
    for flow in of_tcp {
        for at in 0..2 {
            let direction = &flow["directions"][at];
            assert!(
                number(&direction["packets"]) > 50,
                "both directions: {flow}"
            );
            // ACK, and FIN at the end.
            assert_eq!(number(&direction["tcp_flags"]) & 0x11, 0x11, "{flow}");
        }
    }
}

fn reader_counters(reader: Running) -> Value {
    let end = reader.wait(LIMIT).success();
    let counters: Value = serde_json::from_str(end.stdout.trim()).expect("counters");
    assert_eq!(counters["balanced"], true, "{counters}");
    counters
}

#[test]
fn a_dropped_flow_is_blocked_in_the_kernel_and_counted_by_a_term_of_its_own() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-block", 1500, Ends::Napi);
    let bridge = wire.inline_bridge(&[&LONG[..], &["--flows"]].concat());
    let reader = wire.inline_reader(&["--drop-text", "forbidden", "--drop-flows"]);
    let flows = [&["good", "forbidden", "late", "later"][..], &["other"]];
    assert_eq!(wire.flows(&flows), ["good", "other"]);
    let ([forth, _], flows) = end(bridge);
    assert_eq!(
        (number(&forth["filtered"]), number(&forth["shunted"])),
        (1, 2),
        "{forth}"
    );
    let blocked: Vec<_> = flows
        .iter()
        .filter(|flow| flow["verdict"] == "drop")
        .collect();
    assert_eq!(blocked.len(), 1, "{flows:?}");
    let directions = [0, 1].map(|at| &blocked[0]["directions"][at]);
    // "late" and "later", with Ethernet, IP and UDP headers.
    assert_eq!(
        directions
            .map(|it| number(&it["packets"]))
            .iter()
            .sum::<u64>(),
        2
    );
    assert_eq!(
        directions
            .map(|it| number(&it["bytes"]))
            .iter()
            .sum::<u64>(),
        2 * 42 + 9
    );
    let _counters = reader_counters(reader);
}

#[test]
fn a_killed_reader_takes_its_verdicts_on_flows_with_it() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for (no_verdict, heard) in [("pass", &["bad one", "again"][..]), ("drop", &[])] {
        let wire = Wire::new("bridge-flows-kill", 1500, Ends::Napi);
        let bridge =
            wire.inline_bridge(&[&LONG[..], &["--no-verdict", no_verdict, "--flows"]].concat());
        let reader =
            wire.inline_reader(&["--drop-text", "bad", "--drop-flows", "--pass-after", "1"]);
        let server = wire.right.spawn("python3", &["-c", HEAR]);
        server.wait_for_stderr("listening", LIMIT);
        assert!(wire.answers(), "the hosts know each other's address");
        // One flow is blocked, and one is passed, before the reader is killed.
        let sender = wire.left.spawn("python3", &["-c", SAY_WHEN_TOLD]);
        sender.wait_for_stderr("sent", LIMIT);
        server.wait_for_stderr("heard fine", LIMIT);
        reader.signal(Signal::KILL);
        let _killed = reader.wait(LIMIT);
        bridge.wait_for_stderr("there is no inline reader", LIMIT);
        sender.interrupt();
        let _sent = sender.wait(LIMIT).success();
        settle_everywhere();
        std::thread::sleep(std::time::Duration::from_millis(500));
        server.interrupt();
        let told = server.wait(LIMIT).success().stdout;
        let told: Vec<_> = told.lines().collect();
        assert_eq!(told, [&["fine"][..], heard].concat(), "{no_verdict}");
        let ([forth, _], flows) = end(bridge);
        assert_eq!(
            number(&forth["dropped"]["no_verdict"]) > 0,
            no_verdict == "drop",
            "{forth}"
        );
        assert!(
            flows.iter().any(|flow| flow["verdict"] == "drop"),
            "{flows:?}"
        );
    }
}

#[test]
fn a_stopped_reader_keeps_its_flows_and_others_are_as_without_it() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    for (no_verdict, passes) in [("pass", true), ("drop", false)] {
        let wire = Wire::new("bridge-flows-stop", 1500, Ends::Napi);
        let options = [
            "--no-verdict",
            no_verdict,
            "--verdict-timeout",
            "2000",
            "--interval",
            "0.1",
        ];
        let bridge = wire.inline_bridge(&options);
        let reader = wire.inline_reader(&["--pass-after", "1"]);
        // The flow of pings is decided.
        assert_eq!(wire.ping(&wire.left, "10.9.0.2", 3, 56), 3, "{no_verdict}");
        reader.signal(Signal::STOP);
        assert_eq!(
            wire.ping(&wire.left, "10.9.0.2", 3, 56),
            3,
            "{no_verdict}: decided"
        );
        wire.left.inject("a0", &[vec![2_u8; 60]]);
        bridge.wait_for_stderr("let packets wait for 2000 ms", LIMIT);
        assert_eq!(
            wire.ping(&wire.left, "10.9.0.2", 3, 56),
            3,
            "{no_verdict}: still decided"
        );
        let before = count(&wire.right, "b0", "rx");
        wire.left.inject("a0", &[frame(7)]);
        settle_everywhere();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let arrived = count(&wire.right, "b0", "rx") - before;
        assert_eq!(
            arrived > 0,
            passes,
            "{no_verdict}: a flow without a verdict"
        );
        reader.signal(Signal::CONT);
        let (_, _) = end(bridge);
        let _end = reader.wait(LIMIT);
    }
}

/// An IPv4 frame of UDP between two addresses that nobody has.
fn frame(port: u16) -> Vec<u8> {
    let mut bytes = vec![
        2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0,
    ];
    bytes.extend([10, 99, 0, 1, 10, 99, 0, 2]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 9, 0, 26, 0, 0]);
    bytes.resize(60, 0);
    bytes
}

#[test]
fn a_new_connection_with_the_same_ports_asks_again() {
    require_root!();
    require_tool!("ip", "python3", "ethtool");
    let wire = Wire::new("bridge-reused", 1500, Ends::Napi);
    let bridge = wire.inline_bridge(&[&LONG[..], &["--flows"]].concat());
    let reader = wire.inline_reader(&["--pass-after", "1", "--drop-text", "forbidden"]);
    // Twice from the same port: a SYN that is not asked about would be counted in the first flow.
    let server = wire.right.spawn("python3", &["-c", ACCEPT]);
    server.wait_for_stderr("listening", LIMIT);
    for _ in 0..2 {
        let sent = wire.left.run("python3", &["-c", CONNECT]);
        assert!(sent.status.success(), "{}", sent.stderr);
    }
    let _end = server.wait(LIMIT).success();
    let (_, flows) = end(bridge);
    let of_tcp = flows.iter().filter(|flow| is_of_port(flow, 5002));
    assert_eq!(of_tcp.count(), 2, "{flows:?}");
    let _counters = reader_counters(reader);
}

const ACCEPT: &str = "
import socket, sys
s = socket.create_server(('0.0.0.0', 5002))
print('listening', file=sys.stderr, flush=True)
for _ in range(2):
    c, _ = s.accept()
    try:
        while c.recv(1000): pass
    except ConnectionResetError: pass
    c.close()
";

const CONNECT: &str = "
import socket, struct, time
c = socket.socket()
c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
c.bind(('0.0.0.0', 40000))
c.settimeout(50)
c.connect(('10.9.0.2', 5002))
c.sendall(b'hello')
time.sleep(0.3)
c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
c.close()
";

const HEAR: &str = "
import signal, socket, sys
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 5003))
print('listening', file=sys.stderr, flush=True)
while True:
    word = s.recv(2048).decode()
    print(word, flush=True)
    print('heard', word, file=sys.stderr, flush=True)
";

/// One socket sends a bad word, and another a good one; told to go on, both send once more.
const SAY_WHEN_TOLD: &str = "
import signal, socket, sys, time
bad, good = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
peer = ('10.9.0.2', 5003)
bad.sendto(b'bad word', peer)
time.sleep(1)
good.sendto(b'fine', peer)
def more(*_):
    bad.sendto(b'bad one', peer)
    time.sleep(0.2)
    good.sendto(b'again', peer)
    sys.exit(0)
signal.signal(signal.SIGINT, more)
print('sent', file=sys.stderr, flush=True)
while True: time.sleep(1)
";
