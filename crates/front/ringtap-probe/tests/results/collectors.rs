// SPDX-License-Identifier: MIT OR Apache-2.0
//! IPFIX and NetFlow v9 in `nfcapd` of nfdump and `nfacctd` of pmacct.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use ringtap_probe::export::destination::Destination;
use ringtap_probe::export::ipfix::{FlowExporter, FlowProtocol};
use ringtap_probe::export::{Exporter as _, WhenFull};
use ringtap_probe::record::{DirectionCounts, FlowRecord};
use ringtap_testkit::{LIMIT, Namespace, Running, require_root, require_tool, say_skipped};
use rustix::process::Signal;
use serde_json::Value;

use crate::flows::{Totals, flows, records, totals, with_texts, with_tunnels};

const UDP: &str = "udp://127.0.0.1:9995";
const EVERY: Duration = Duration::from_secs(600);

#[test]
fn nfcapd_gets_the_packets_and_bytes_of_each_flow() {
    require_root!();
    require_tool!("nfcapd", "nfdump");
    for protocol in [
        FlowProtocol::Ipfix,
        FlowProtocol::IpfixUniflow,
        FlowProtocol::NetflowV9,
    ] {
        let net = Namespace::new("nfcapd");
        let folder = tempfile::tempdir().expect("a folder");
        let collector = nfcapd(&net, folder.path());
        let flows = with_tunnels(with_texts(flows(200)));
        send(&net, protocol, &flows);
        assert_eq!(
            nfdump(collector, folder.path()),
            totals(&flows),
            "{protocol:?}"
        );
    }
}

#[test]
fn a_paced_collector_gets_no_burst() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("its address");
    let destination: Destination = format!("ipfix:udp://{address}?rate=1000")
        .parse()
        .expect("a destination");
    let mut exporter = destination.open(WhenFull::Wait).expect("a socket");
    let begun = Instant::now();
    exporter.write(&records(&flows(200))).expect("sent");
    // The last message holds fewer than 20 flows.
    assert!(begun.elapsed() >= Duration::from_millis(180));
}

#[test]
fn nfcapd_gets_service_interface_and_direction_of_each_flow() {
    require_root!();
    require_tool!("nfcapd", "nfdump");
    for protocol in [FlowProtocol::IpfixUniflow, FlowProtocol::NetflowV9] {
        let net = Namespace::new("marks");
        let folder = tempfile::tempdir().expect("a folder");
        let collector = nfcapd(&net, folder.path());
        let flows = flows(60);
        send(&net, protocol, &flows);
        let lines = nfdump_lines(collector, folder.path());
        let of_line = |line: &Value| {
            let own = [
                "src_port",
                "src_tos",
                "input_snmp",
                "output_snmp",
                "direction",
            ];
            own.map(|name| line[name].as_u64().unwrap_or(0))
        };
        let got: BTreeSet<_> = lines.iter().map(of_line).collect();
        assert_same(&got, &marks_of(&flows), protocol);
    }
}

/// Source port, type of service, interfaces of arrival and departure and direction of each direction with packets.
fn marks_of(flows: &[FlowRecord]) -> BTreeSet<[u64; 5]> {
    let mut all = BTreeSet::new();
    for flow in flows {
        let ports = [flow.key.source_port, flow.key.destination_port];
        let directions = [&flow.forward, &flow.backward].into_iter().zip(flow.marks);
        for ((_, marks), port) in directions
            .zip(ports)
            .filter(|((direction, _), _)| direction.packets > 0)
        {
            let index = u64::from(flow.interface.unwrap_or(0));
            let (input, output) = if marks.is_sent {
                (0, index)
            } else {
                (index, 0)
            };
            let direction = u64::from(marks.is_sent && flow.interface.is_some());
            let tos = marks.traffic_class.into();
            all.insert([port.into(), tos, input, output, direction]);
        }
    }
    all
}

#[test]
fn nfcapd_scales_flows_by_the_sampling_and_goflow2_names_it() {
    require_root!();
    require_tool!("nfcapd", "nfdump");
    let mut flows = flows(40);
    for flow in &mut flows {
        flow.sampling = 100;
        // With a factor of 100, within 64 bits.
        flow.forward.bytes = flow.forward.packets * 100;
    }
    let scaled = |(direction, (packets, bytes))| (direction, (100 * packets, 100 * bytes));
    let expected: Totals = totals(&flows).into_iter().map(scaled).collect();
    for protocol in [FlowProtocol::IpfixUniflow, FlowProtocol::NetflowV9] {
        let net = Namespace::new("sampling");
        let folder = tempfile::tempdir().expect("a folder");
        let collector = nfcapd(&net, folder.path());
        send(&net, protocol, &flows);
        assert_eq!(nfdump(collector, folder.path()), expected, "{protocol:?}");
        for line in goflow2(&net, protocol, &flows) {
            assert_eq!(number(&line, "sampling_rate"), 100, "{protocol:?} {line}");
        }
    }
}

/// The lines that goflow2 prints of these flows; none if it is not installed.
fn goflow2(net: &Namespace, protocol: FlowProtocol, flows: &[FlowRecord]) -> Vec<Value> {
    let home = std::env::var("HOME").expect("a home");
    let goflow2 = Path::new(&home).join(".cache/ringtap/go/goflow2");
    if !goflow2.exists() {
        say_skipped("needs goflow2 in ~/.cache/ringtap/go");
        return Vec::new();
    }
    let collector = net.spawn(
        text(&goflow2),
        &["-listen", "netflow://127.0.0.1:9995", "-addr", ""],
    );
    listening(net);
    send(net, protocol, flows);
    collector.signal(Signal::INT);
    let stdout = collector.wait(LIMIT).stdout;
    let lines: Vec<_> = stdout.lines().map(serde_json::from_str).collect();
    assert!(!lines.is_empty(), "goflow2 prints flows");
    lines.into_iter().map(|line| line.expect("JSON")).collect()
}

/// One flow for each type and code of ICMP, and of ICMPv6, in one direction; and pings in both.
fn icmp_flows() -> (Vec<FlowRecord>, BTreeSet<(u64, IpAddr, u64)>) {
    let template = flows(3);
    let mut all = Vec::new();
    let mut expected = BTreeSet::new();
    for (protocol, template) in [(1, &template[1]), (58, &template[0])] {
        for kind in 0..=255_u16 {
            let number = (kind << 8) | (kind % 16);
            let mut flow = template.clone();
            flow.key.protocol = protocol;
            (flow.key.source_port, flow.key.destination_port) = (number, number);
            flow.backward = DirectionCounts::default();
            expected.insert((protocol.into(), flow.key.source, number.into()));
            all.push(flow);
        }
    }
    for (protocol, template, request, reply) in
        [(1, &template[1], 8, 0), (58, &template[0], 128, 129)]
    {
        let mut flow = template.clone();
        flow.key.protocol = protocol;
        (flow.key.source_port, flow.key.destination_port) = (request << 8, reply << 8);
        flow.backward = flow.forward;
        expected.insert((protocol.into(), flow.key.source, u64::from(request) << 8));
        expected.insert((protocol.into(), flow.key.destination, u64::from(reply) << 8));
        all.push(flow);
    }
    (all, expected)
}

#[test]
fn nfcapd_gets_type_and_code_of_all_icmp() {
    require_root!();
    require_tool!("nfcapd", "nfdump");
    let (flows, expected) = icmp_flows();
    for protocol in [FlowProtocol::IpfixUniflow, FlowProtocol::NetflowV9] {
        let net = Namespace::new("icmp_types");
        let folder = tempfile::tempdir().expect("a folder");
        let collector = nfcapd(&net, folder.path());
        send(&net, protocol, &flows);
        let icmp = |line: &Value| {
            let mut sources = ["src4_addr", "src6_addr"].into_iter();
            let source = sources
                .find_map(|name| line[name].as_str())
                .and_then(|text| text.parse().ok());
            let icmp = (number(line, "icmp_type") << 8) | number(line, "icmp_code");
            (number(line, "proto"), source.expect("an address"), icmp)
        };
        let lines = nfdump_lines(collector, folder.path());
        let got: BTreeSet<_> = lines.iter().map(icmp).collect();
        assert_same(&got, &expected, protocol);
    }
}

#[test]
fn goflow2_gets_type_and_code_of_all_icmp() {
    require_root!();
    let (flows, expected) = icmp_flows();
    for protocol in [FlowProtocol::IpfixUniflow, FlowProtocol::NetflowV9] {
        let net = Namespace::new("icmp_goflow");
        let icmp = |line: &Value| {
            let source = line["src_addr"].as_str().and_then(|text| text.parse().ok());
            let protocol = match line["proto"].as_str() {
                Some("ICMP") => 1,
                Some("IPv6-ICMP") => 58,
                _ => panic!("{line}"),
            };
            (
                protocol,
                source.expect("an address"),
                number(line, "dst_port"),
            )
        };
        let lines = goflow2(&net, protocol, &flows);
        let got: BTreeSet<_> = lines.iter().map(icmp).collect();
        if !lines.is_empty() {
            assert_same(&got, &expected, protocol);
        }
    }
}

fn assert_same<T: Ord + std::fmt::Debug>(
    got: &BTreeSet<T>,
    expected: &BTreeSet<T>,
    protocol: FlowProtocol,
) {
    let only = |one: &BTreeSet<T>, other: &BTreeSet<T>| {
        format!("{:?}", one.difference(other).take(9).collect::<Vec<_>>())
    };
    assert!(
        got == expected,
        "{protocol:?}: got {}, not {}",
        only(got, expected),
        only(expected, got)
    );
}

/// Sends these flows to the collector of a namespace, which takes them all.
fn send(net: &Namespace, protocol: FlowProtocol, flows: &[FlowRecord]) {
    net.enter(|| {
        let mut exporter = exporter(protocol, UDP);
        for part in flows.chunks(7) {
            exporter.write(&records(part)).expect("it is sent");
            drained(net);
        }
        assert_eq!(exporter.lost(), 0);
    });
}

fn number(line: &Value, name: &str) -> u64 {
    line[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {line}"))
}

#[test]
fn nfacctd_gets_the_packets_and_bytes_of_each_flow() {
    require_root!();
    require_tool!("nfacctd");
    for protocol in [FlowProtocol::IpfixUniflow, FlowProtocol::NetflowV9] {
        let net = Namespace::new("nfacctd");
        let folder = tempfile::tempdir().expect("a folder");
        let printed = folder.path().join("printed");
        let config = folder.path().join("config");
        let lines = format!(
            "nfacctd_ip: 127.0.0.1\nnfacctd_port: 9995\nplugins: print\nprint_output: json\n\
             aggregate: proto, src_host, dst_host, src_port, dst_port\nprint_refresh_time: 3600\n\
             print_output_file: {}\nlogfile: {}\n",
            printed.display(),
            folder.path().join("log").display()
        );
        fs::write(&config, lines).expect("a file");
        let collector = net.spawn("nfacctd", &["-f", text(&config)]);
        listening(&net);
        let flows = with_tunnels(with_texts(flows(200)));
        send(&net, protocol, &flows);
        collector.signal(Signal::INT);
        let _ended = collector.wait(LIMIT);
        let mut got = Totals::new();
        for line in fs::read_to_string(&printed)
            .expect("nfacctd wrote it")
            .lines()
        {
            let line: Value = serde_json::from_str(line).expect("JSON");
            add(
                &mut got,
                &line,
                [
                    "ip_proto", "ip_src", "ip_dst", "port_src", "port_dst", "packets", "bytes",
                ],
            );
        }
        assert_eq!(got, totals(&flows), "{protocol:?}");
    }
}

/// Messages are the same over TCP, which neither collector speaks: the test passes them on.
#[test]
fn a_tcp_session_after_a_break_is_one_that_nfcapd_understands() {
    require_root!();
    require_tool!("nfcapd", "nfdump");
    let net = Namespace::new("ipfix_tcp");
    let folder = tempfile::tempdir().expect("a folder");
    let collector = nfcapd(&net, folder.path());
    let flows = flows(90);
    let (probes, rest) = flows.split_at(1);
    net.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:4739").expect("a free port");
        let mut exporter = exporter(FlowProtocol::Ipfix, "tcp://127.0.0.1:4739");
        exporter.write(&records(&flows)).expect("it is sent");
        drop(listener.accept().expect("the exporter connects"));
        listener.set_nonblocking(true).expect("a socket");
        let again = || listener.accept().map(|(session, _)| session).ok();
        let mut session = patiently("the exporter connects again", || {
            let _may_break = exporter.write(&records(probes));
            again()
        });
        exporter.write(&records(rest)).expect("it is sent");
        drop(exporter);
        session.set_nonblocking(false).expect("a socket");
        let mut bytes = Vec::new();
        session.read_to_end(&mut bytes).expect("a stream");
        let relay = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut left = bytes.as_slice();
        while let [_, _, high, low, ..] = *left {
            let (message, others) = left.split_at(u16::from_be_bytes([high, low]).into());
            relay
                .send_to(message, "127.0.0.1:9995")
                .expect("it is sent");
            drained(&net);
            left = others;
        }
    });
    let mut got = nfdump(collector, folder.path());
    got.retain(|direction, _| !totals(probes).contains_key(direction));
    assert_eq!(got, totals(rest));
}

#[test]
fn a_udp_collector_that_returns_gets_templates_at_once_and_what_it_missed_is_counted() {
    require_root!();
    let net = Namespace::new("ipfix_gone");
    net.enter(|| {
        let flows = records(&flows(3));
        let mut exporter = exporter(FlowProtocol::Ipfix, UDP);
        patiently("the loss is counted", || {
            exporter
                .write(&flows)
                .expect("a datagram needs no collector");
            (exporter.lost() >= 30).then_some(())
        });
        assert_eq!(exporter.lost() % 3, 0, "whole messages are lost");
        assert!(exporter.tick().is_err(), "the refusal is reported");
        let collector = UdpSocket::bind("127.0.0.1:9995").expect("a free port");
        collector.set_nonblocking(true).expect("a socket");
        patiently("templates", || {
            exporter.write(&flows).expect("it is sent");
            let mut message = [0; 2000];
            collector.recv(&mut message).ok()?;
            // The first set is one of templates.
            (message[16..18] == [0, 2]).then_some(())
        });
        let lost = exporter.lost();
        exporter.write(&flows).expect("it is sent");
        assert_eq!(exporter.lost(), lost);
    });
}

#[test]
fn a_tcp_collector_that_does_not_read_costs_counted_records_and_one_that_is_gone_a_failure() {
    require_root!();
    let net = Namespace::new("ipfix_slow");
    net.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:4739").expect("a free port");
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("a socket");
        let flows = records(&flows(5000));
        let mut exporter = exporter(FlowProtocol::Ipfix, "tcp://127.0.0.1:4739");
        patiently("the loss is counted", || {
            let _may_fail = exporter.write(&flows);
            (exporter.lost() > 0).then_some(())
        });
        drop(listener);
        let failure = patiently("no connection", || exporter.write(&flows).err());
        assert!(failure.0.contains("tcp://127.0.0.1:4739"), "{failure}");
    });
}

/// Calls this until it gives a value.
fn patiently<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn exporter(protocol: FlowProtocol, collector: &str) -> FlowExporter {
    let collector = collector.parse().expect("an address");
    FlowExporter::new(protocol, collector, 7, EVERY).expect("a socket")
}

fn nfcapd(net: &Namespace, folder: &Path) -> Running {
    let running = net.spawn(
        "nfcapd",
        &[
            "-w",
            text(folder),
            "-b",
            "127.0.0.1",
            "-p",
            "9995",
            "-t",
            "3600",
        ],
    );
    listening(net);
    running
}

/// Ends the collector and reads what it stored.
fn nfdump_lines(collector: Running, folder: &Path) -> Vec<Value> {
    collector.signal(Signal::TERM);
    let _ended = collector.wait(LIMIT);
    let mut command = std::process::Command::new("nfdump");
    command.args(["-q", "-6", "-R", text(folder), "-o", "json"]);
    let json = Running::start(command).wait(LIMIT).success().stdout;
    // nfdump leaves out the brackets with -q.
    serde_json::from_str(&format!("[{json}]")).expect("JSON")
}

/// Ends the collector and adds up what it stored.
fn nfdump(collector: Running, folder: &Path) -> Totals {
    let mut got = Totals::new();
    for line in &nfdump_lines(collector, folder) {
        let (source, destination) = match line.get("src4_addr") {
            Some(_) => ("src4_addr", "dst4_addr"),
            None => ("src6_addr", "dst6_addr"),
        };
        add(
            &mut got,
            line,
            [
                "proto",
                source,
                destination,
                "src_port",
                "dst_port",
                "in_packets",
                "in_bytes",
            ],
        );
        if line.get("out_packets").is_some_and(|packets| *packets != 0) {
            add(
                &mut got,
                line,
                [
                    "proto",
                    destination,
                    source,
                    "dst_port",
                    "src_port",
                    "out_packets",
                    "out_bytes",
                ],
            );
        }
    }
    got
}

fn add(totals: &mut Totals, line: &Value, names: [&str; 7]) {
    let number = |name: &str| number(line, name);
    let address = |name: &str| {
        line[name]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("{name} in {line}"))
    };
    let [
        protocol,
        source,
        destination,
        source_port,
        destination_port,
        packets,
        bytes,
    ] = names;
    let protocol = match &line[protocol] {
        Value::String(name) if name == "tcp" => 6,
        Value::String(name) if name == "udp" => 17,
        _ => number(protocol),
    };
    let key = (
        protocol,
        address(source),
        address(destination),
        number(source_port),
        number(destination_port),
    );
    let sum = totals.entry(key).or_default();
    *sum = (sum.0 + number(packets), sum.1 + number(bytes));
}

/// Waits until a collector has its socket.
fn listening(net: &Namespace) {
    until(net, "the collector listens", |line| line.is_some());
}

/// Waits until the collector has taken all datagrams, none of which was dropped.
fn drained(net: &Namespace) {
    until(net, "the collector reads", |line| {
        line.is_some_and(|line| line.contains(":00000000 00:") && line.ends_with(" 0"))
    });
}

/// Waits for a state of the socket of port 9995, as `/proc/net/udp` shows it.
fn until(net: &Namespace, what: &str, is_so: impl Fn(Option<&str>) -> bool) {
    let begun = Instant::now();
    loop {
        let sockets = net.run("cat", &["/proc/net/udp"]).success().stdout;
        if is_so(
            sockets
                .lines()
                .map(str::trim)
                .find(|line| line.contains(":270B 00000000:0000")),
        ) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: {sockets}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary names are text")
}
